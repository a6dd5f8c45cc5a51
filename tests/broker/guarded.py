"""A cluster whose ACLs count, and taking rights away on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka_tools import QUICK_JVM

from sparkmirror.tools.clusters import KafkaCluster

_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def guarded_cluster(factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Everything is allowed on it that is not forbidden; for a fixture to yield from."""
    directory = factory.mktemp("guarded")
    with KafkaCluster("guarded", 1, directory, _PROPERTIES, jvm=QUICK_JVM) as cluster:
        yield cluster


def forbid(
    cluster: KafkaCluster,
    operation: AclOperation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
) -> None:
    """Take one right on a topic (or group) away from everybody; all others stay."""
    rules = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", right, permission
        )
        for right, permission in (
            (AclOperation.ALL, AclPermissionType.ALLOW),
            (operation, AclPermissionType.DENY),
        )
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_acls(rules).values():
        done.result(30)
