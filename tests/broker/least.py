"""A flow between two clusters that allow nothing unasked: privileges in, ACLs on both, and a running `sparkmirror run` out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka_tools import (
    PATIENCE_S,
    NewRecord,
    commit_group,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import Mirror
from secured import SecuredCluster, secured_cluster

from sparkmirror.preflight.flow import Flow
from sparkmirror.preflight.privileges import Privilege
from sparkmirror.preflight.subjects import mm2_subject

READER, WRITER = "reader", "writer"
TOPIC, GROUP = "orders", "shop"
ROUTED = "elsewhere"
"""Where a query may send records, before the replication policy names it."""
Keys = Mapping[str, str]
NO_KEYS: Keys = MappingProxyType({})
RECORDS = 20
_PASSWORD = "hush"  # noqa: S105 - of a test
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Alter": AclOperation.ALTER,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """Two clusters with authorizers: `reader` may do on the source what was granted, `writer` on the target."""

    source: SecuredCluster
    target: SecuredCluster

    def properties(
        self, source: str, target: str, *, preflight: bool = True, more: Keys = NO_KEYS
    ) -> dict[str, str]:
        """A whole flow: records, configs, ACLs, checkpoints, group offsets, heartbeats; with more keys of the flow."""
        return {
            "clusters": f"{source},{target}",
            **self._client(source, self.source, READER),
            **self._client(target, self.target, WRITER),
            f"{source}->{target}.enabled": "true",
            f"{source}->{target}.emit.heartbeats.enabled": "true",
            f"{target}->{source}.emit.heartbeats.enabled": "false",
            "preflight.enabled": str(preflight).lower(),
            "topics": TOPIC,
            "groups": GROUP,
            "heartbeats.replication.enabled": "false",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            **{f"{source}->{target}.{name}": value for name, value in more.items()},
        }

    def _client(self, alias: str, cluster: SecuredCluster, user: str) -> dict[str, str]:
        given = cluster.client("SASL_PLAINTEXT", "PLAIN", username=user, password=_PASSWORD)
        return {f"{alias}.{name}": value for name, value in given.items()}

    def flow(self, source: str, target: str, more: Keys = NO_KEYS) -> Flow:
        subject = mm2_subject(self.properties(source, target, more=more), "file")
        (flow,) = subject.flows
        return flow

    def grant(self, flow: Flow, privileges: Iterable[Privilege]) -> None:
        """Exactly these, and nothing of what was granted before."""
        bindings: dict[str, list[AclBinding]] = {READER: [], WRITER: []}
        for one in privileges:
            user = READER if one.side == "source" else WRITER
            bindings[user] += [_binding(one, name, user) for name in names_of(flow, one)]
        for cluster, user in ((self.source, READER), (self.target, WRITER)):
            admin = AdminClient({"bootstrap.servers": cluster.open_bootstrap})
            for deleted in admin.delete_acls([_everything()]).values():
                deleted.result(PATIENCE_S)
            for created in admin.create_acls(bindings[user]).values():
                created.result(PATIENCE_S)
            count = len(set(bindings[user]))
            wait_for("the ACLs", lambda: _count(admin) == count)  # noqa: B023 - called at once

    @contextmanager
    def running(
        self,
        directory: Path,
        source: str,
        target: str,
        *,
        preflight: bool = True,
        more: Keys = NO_KEYS,
    ) -> Iterator[Mirror]:
        properties = self.properties(source, target, preflight=preflight, more=more)
        with Mirror(directory, properties) as mirror:
            yield mirror


def names_of(flow: Flow, privilege: Privilege) -> list[str]:
    """The resources that a privilege means."""
    if privilege.resource == "cluster":
        return ["kafka-cluster"]
    families = {
        "topics": TOPIC,
        "remote": flow.policy.format_remote_topic(flow.source_alias, TOPIC),
        "groups": GROUP,
        "routed": flow.policy.format_remote_topic(flow.source_alias, ROUTED),
    }
    return [families.get(privilege.family, privilege.name)]


def _binding(privilege: Privilege, name: str, user: str) -> AclBinding:
    return AclBinding(
        _RESOURCES[privilege.resource],
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[privilege.operation],
        AclPermissionType.ALLOW,
    )


def _everything() -> AclBindingFilter:
    anything: Any = None  # the library's types do not know that names may be left open
    return AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def _count(admin: AdminClient) -> int:
    return len(admin.describe_acls(_everything()).result(PATIENCE_S))


@contextmanager
def guarded(directory: Path) -> Iterator[Guarded]:
    """Both clusters; the source has a topic with records and a group that has read half of them."""
    with ExitStack() as stack:
        source, target = (
            stack.enter_context(
                secured_cluster(
                    directory / name,
                    name=name,
                    authorizer=True,
                    plain_users={READER: _PASSWORD, WRITER: _PASSWORD},
                )
            )
            for name in ("source", "target")
        )
        create_topic(source.open_bootstrap, TOPIC)
        produce(source.open_bootstrap, TOPIC, [NewRecord(b"k", b"v")] * RECORDS)
        commit_group(source.open_bootstrap, GROUP, TOPIC, {0: RECORDS // 2})
        yield Guarded(source, target)


def copied(cluster: SecuredCluster, topic: str) -> int:
    """How many records a topic has; none if it is not there."""
    if topic not in topics(cluster.open_bootstrap):
        return 0
    return sum(end_offsets(cluster.open_bootstrap, topic).values())
