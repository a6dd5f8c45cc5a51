"""A cluster that lets nobody in unasked: listeners and users come in, Java client properties go out.

Listeners beside the open ones: SSL (asks for a certificate and takes no for an answer), SASL_PLAINTEXT and SASL_SSL with every
mechanism that a broker knows without a KDC. SCRAM users come and go at run time, PLAIN users are those of the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from certificates import Authority, Kind
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_tools import QUICK_JVM, wait_for

from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import KAFKA_VERSION

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS = {"SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Brokers talk to each other through the open listener, where everybody is ANONYMOUS.
    "super.users": "User:ANONYMOUS;User:admin",
}
_COMMON = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_COMMON}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_COMMON}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_COMMON}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_COMMON}.oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": "software.amazon.msk.auth.iam.IAMLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_ITERATIONS = 4096


def jaas(mechanism: str, **options: str) -> str:
    """`sasl.jaas.config` for a mechanism, its options quoted."""
    quoted = (
        name + '="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for name, value in options.items()
    )
    return " ".join([_MODULES[mechanism], "required", *quoted]) + ";"


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    """The running cluster, the protocol of each listener by its name, and the authority that signed its certificates."""

    cluster: KafkaCluster
    authority: Authority
    protocols: Mapping[str, str]

    def bootstrap(self, listener: str) -> str:
        return self.cluster.bootstrap_of(listener)

    @property
    def open_bootstrap(self) -> str:
        """Where tests get in without a password, as User:ANONYMOUS (a super user where ACLs count)."""
        return self.cluster.internal_bootstrap

    def client(self, listener: str, mechanism: str = "", **options: str) -> dict[str, str]:
        """Java client properties for a listener; `options` are those of the login module (username=…, password=…)."""
        protocol = self.protocols[listener]
        properties = {"bootstrap.servers": self.bootstrap(listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            properties |= self.authority.truststore()
        if mechanism:
            properties["sasl.mechanism"] = mechanism
            properties["sasl.jaas.config"] = jaas(mechanism, **options)
        return properties

    def add_user(self, user: str, password: str, mechanisms: Sequence[str] = tuple(_SCRAM)) -> None:
        """Let a SCRAM user in, or change the password; done when the brokers know."""
        self._alter(
            [
                UserScramCredentialUpsertion(
                    user, ScramCredentialInfo(_SCRAM[name], _ITERATIONS), password.encode()
                )
                for name in mechanisms
            ]
        )
        wait_for(f"SCRAM user {user}", lambda: set(mechanisms) <= self._mechanisms_of(user))

    def remove_user(self, user: str) -> None:
        """Let a SCRAM user in no more; done when the brokers know."""
        known = self._mechanisms_of(user)
        self._alter([UserScramCredentialDeletion(user, _SCRAM[name]) for name in known])
        wait_for(f"no SCRAM user {user}", lambda: not self._mechanisms_of(user))

    def _alter(self, alterations: list[UserScramCredentialAlteration]) -> None:
        admin = self._admin()  # lives until the answers are there
        for one in alterations:  # a request may name a user once only
            for result in admin.alter_user_scram_credentials([one]).values():
                result.result(30)

    def _mechanisms_of(self, user: str) -> set[str]:
        admin = self._admin()
        asked = admin.describe_user_scram_credentials()
        assert not isinstance(asked, dict), "one answer for all users"
        described = asked.result(30)
        if user not in described:
            return set()
        held = {info.mechanism for info in described[user].scram_credential_infos}
        return {name for name, mechanism in _SCRAM.items() if mechanism in held}

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.open_bootstrap, "log_level": 3})


@contextmanager
def secured_cluster(
    directory: Path,
    *,
    name: str = "secured",
    brokers: int = 1,
    plain_users: Mapping[str, str] | None = None,
    authorizer: bool = False,
    listeners: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
    version: str = KAFKA_VERSION,
    stores: Kind = "PEM",
) -> Iterator[SecuredCluster]:
    """Started, and ended with the block. `listeners` and `properties` add to what is set here, and win over it.

    Brokers before 2.7 need other `stores` than PEM.
    """
    authority = Authority(directory / "certificates")
    protocols = {**LISTENERS, **(listeners or {})}
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.client.auth": "requested",
        "connection.failed.authentication.delay.ms": "10",
        **authority.keystore("broker", "127.0.0.1", "localhost", kind=stores),
        **authority.truststore(stores),
        **_logins({"admin": "admin-secret", **(plain_users or {})}),
        **(AUTHORIZER if authorizer else {}),
        **(properties or {}),
    }
    cluster = KafkaCluster(
        name,
        brokers,
        directory,
        settings,
        jvm=(*QUICK_JVM, *jvm),
        listeners=protocols,
        version=version,
    )
    with cluster:
        yield SecuredCluster(cluster, authority, protocols)


def _logins(plain_users: Mapping[str, str]) -> dict[str, str]:
    """What brokers need to know of logins, for both listeners that have them."""
    users = {f"user_{user}": password for user, password in plain_users.items()}
    return {
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": jaas(
            mechanism, **(users if mechanism == "PLAIN" else {})
        )
        for listener in ("sasl_plaintext", "sasl_ssl")
        for mechanism in MECHANISMS
    }
