"""What a broker did not allow: an operation and a resource in, the ACL that is missing and how to give it out.

Brokers answer a refusal with a bare code; they tell neither the operation nor who asked. Both are known here: the caller says
what it wanted, and the principal is read from the client's own login, where that tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cryptography import x509

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.jaas import parse_jaas
from sparkmirror.kafka.access.keystores import key_store
from sparkmirror.kafka.access.security import Security

Operation = Literal[
    "Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs",
    "IdempotentWrite",
]  # fmt: skip
Resource = Literal["topic", "group", "cluster", "transactional-id"]

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, SECURITY_DISABLED = 29, 30, 31, 53, 54
_RESOURCES: dict[int, Resource] = {
    TOPIC: "topic",
    GROUP: "group",
    CLUSTER: "cluster",
    TRANSACTIONAL_ID: "transactional-id",
}
_USER_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ANONYMOUS = "User:ANONYMOUS"
UNKNOWN_PRINCIPAL = "the principal of this client"


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody needs on one resource; `name` means nothing for the cluster itself."""

    operation: Operation
    resource: Resource
    name: str = ""
    principal: str = ""

    def __str__(self) -> str:
        return f"{self.operation} on {self.where}"

    @property
    def where(self) -> str:
        return "the cluster" if self.resource == "cluster" else f"{self.resource} {self.name}"

    @property
    def option(self) -> str:
        """How kafka-acls names the resource."""
        return "--cluster" if self.resource == "cluster" else f"--{self.resource} {self.name}"


def needs(operation: Operation, resource: Resource, name: str, security: Security | None) -> Access:
    """What a client with this login needs."""
    return Access(operation, resource, name, principal_of(security) if security else "")


def is_denial(code: int) -> bool:
    return code in _RESOURCES or code == SECURITY_DISABLED


def missing_acl(code: int, access: Access) -> str:
    """Which ACL is missing, and how to add it; empty if the code is no refusal.

    The code tells what was refused, and knows it better than the caller.
    """
    if code == SECURITY_DISABLED:
        return "The brokers have no authorizer: there are no ACLs to read or change."
    refused = _RESOURCES.get(code)
    if refused is None:
        return ""
    if refused != access.resource:
        access = _on_other(access, refused)
    return sentence(access)


def sentence(access: Access) -> str:
    who = access.principal or UNKNOWN_PRINCIPAL
    principal = f"'{access.principal}'" if access.principal else "User:…"
    return (
        f"{who[0].upper()}{who[1:]} lacks the ACL {access}. Add it: kafka-acls --bootstrap-server … --add "
        f"--allow-principal {principal} --operation {access.operation} {access.option}"
    ) + "."


def _on_other(access: Access, refused: Resource) -> Access:
    """The same for the resource that the broker named: creating is a right on the topic or on the cluster."""
    if refused == "cluster" and access.resource == "group":
        return Access("Describe", "cluster", "", access.principal)
    return Access(access.operation, refused, access.name, access.principal)


def principal_of(security: Security) -> str:
    """Who the broker takes this client for, as far as the client can know; empty if it cannot.

    Brokers may map names (`ssl.principal.mapping.rules`, a principal builder of their own): then it is another one.
    """
    given = security.given()
    try:
        if not security.uses_sasl:
            return f"User:{_subject(security)}" if security.uses_tls else _ANONYMOUS
        if given.get("sasl.mechanism", "GSSAPI").strip().upper() not in _USER_MECHANISMS:
            return ""
        options = parse_jaas(given.get("sasl.jaas.config", ""), "sasl.jaas.config").options
    except ConfigError:  # whoever logs in says what is wrong with it
        return ""
    return f"User:{options['username']}" if options.get("username") else ""


def _subject(security: Security) -> str:
    """The name in the certificate that this client shows; without one, brokers call it ANONYMOUS."""
    store = key_store(security.given(), security.files)
    if store is None:
        return "ANONYMOUS"
    return x509.load_der_x509_certificate(store.chain[0]).subject.rfc4514_string()
