"""ACLs on a cluster: a kind of resource in, its bindings out; bindings to create or to delete in, what failed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import Access, Operation, needs
from sparkmirror.kafka.request_parts import Bound, ask_in_parts

_PART = Bound(1000)


class Resource(IntEnum):
    """What a binding is about."""

    TOPIC = 2
    GROUP = 3


class Pattern(IntEnum):
    """How the resource's name is meant."""

    ANY = 1
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What is allowed or denied. Brokers may know others; those are plain numbers here."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    """Which way a binding goes."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """Who may, or may not, do what to which resource from where. Numbers are Kafka's."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        kind = _word(Resource, self.resource).lower()
        how = " (prefix)" if self.pattern == Pattern.PREFIXED else ""
        what = f"{_word(Permission, self.permission)} {_word(AclOperation, self.operation)}"
        return f"{what} to {self.principal} from {self.host} on {kind} {self.name}{how}"


def _word(kind: type[IntEnum], number: int) -> str:
    return next((known.name for known in kind if known == number), str(number))


def describe(
    cluster: Cluster, resource: Resource, right: Operation = "Describe"
) -> list[AclBinding]:
    """All bindings of that kind of resource; BrokerError SECURITY_DISABLED if the cluster has no authorizer.

    `right` is what is wanted of the cluster in all: who is to change ACLs needs Alter, which includes the rest.
    """
    answer = cluster.call_any(
        messages.DescribeAclsRequest(
            resource_type_filter=resource,
            resource_name_filter=None,
            pattern_type_filter=Pattern.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=Permission.ANY,
        )
    )
    if answer.error_code != messages.NONE:
        raise messages.broker_error(
            answer.error_code,
            f"Reading the ACLs of {cluster.settings}",
            answer.error_message,
            access=_on_cluster(cluster, right),
        )
    return [
        AclBinding(
            found.resource_type,
            found.resource_name,
            found.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for found in answer.resources
        for acl in found.acls
    ]


def create(
    cluster: Cluster, bindings: Sequence[AclBinding]
) -> dict[AclBinding, BrokerError | None]:
    """Create bindings; one that is there already is no error."""
    request = messages.CreateAclsRequest

    def ask(part: Sequence[AclBinding]) -> Sequence[Any]:
        creations = [
            request.AclCreation(
                resource_type=binding.resource,
                resource_name=binding.name,
                resource_pattern_type=binding.pattern,
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
            for binding in part
        ]
        found: Sequence[Any] = cluster.call_controller(request(creations=creations)).results
        return found

    return {
        binding: _outcome(cluster, row.error_code, row.error_message, f"Creating the ACL {binding}")
        for part, rows in ask_in_parts(bindings, _PART, ask)
        for binding, row in zip(part, rows, strict=True)
    }


def delete(
    cluster: Cluster, bindings: Sequence[AclBinding]
) -> dict[AclBinding, BrokerError | None]:
    """Delete exactly these bindings; one that is gone already is no error."""
    request = messages.DeleteAclsRequest

    def ask(part: Sequence[AclBinding]) -> Sequence[Any]:
        filters = [
            request.DeleteAclsFilter(
                resource_type_filter=binding.resource,
                resource_name_filter=binding.name,
                pattern_type_filter=binding.pattern,
                principal_filter=binding.principal,
                host_filter=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
            for binding in part
        ]
        found: Sequence[Any] = cluster.call_controller(request(filters=filters)).filter_results
        return found

    outcomes: dict[AclBinding, BrokerError | None] = {}
    for part, rows in ask_in_parts(bindings, _PART, ask):
        for binding, row in zip(part, rows, strict=True):
            first = next((m for m in row.matching_acls if m.error_code), row)
            outcomes[binding] = _outcome(
                cluster, first.error_code, first.error_message, f"Deleting the ACL {binding}"
            )
    return outcomes


def _outcome(cluster: Cluster, code: int, detail: str | None, what: str) -> BrokerError | None:
    if code == messages.NONE:
        return None
    return messages.broker_error(
        code, f"{what} on {cluster.settings}", detail, access=_on_cluster(cluster, "Alter")
    )


def _on_cluster(cluster: Cluster, operation: Operation) -> Access:
    return needs(operation, "cluster", "", cluster.settings.security)
