"""What this client may do: topics, groups and the cluster in, the operations that the brokers say are allowed out.

Asking changes nothing. Where brokers do not tell (before 2.3), the answer is None; without an authorizer everything is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sparkmirror.kafka import messages
from sparkmirror.kafka.api_versions import DESCRIBE_CLUSTER, DESCRIBE_GROUPS, METADATA
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.denials import Operation
from sparkmirror.kafka.request_parts import Bound, cut

_CODES: dict[Operation, int] = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
}
_GROUPS_SINCE = 3  # the version of DescribeGroups that tells
_CLUSTER_IN_METADATA = (8, 10)  # versions of Metadata that tell of the cluster too
_TOPICS, _GROUPS = Bound(200), Bound(250)

Rights = frozenset[Operation]


@dataclass(frozen=True, slots=True)
class TopicRights:
    """Whether a topic is there, and what may be done with it; a topic that may not be described is hidden, there or not."""

    exists: bool
    hidden: bool
    rights: Rights | None


def operations(codes: Collection[int] | None) -> Rights | None:
    """Operations by the codes that brokers send; None if they did not tell."""
    if codes is None:
        return None
    return frozenset(operation for operation, code in _CODES.items() if code in codes)


def topic_rights(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicRights]:
    """Of each topic, there or not."""
    request = messages.MetadataRequest
    found: dict[str, TopicRights] = {}
    for part in cut(names, _TOPICS):
        answer = cluster.call_any(
            request(
                topics=[request.MetadataRequestTopic(name=name) for name in part],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
        )
        found |= {topic.name: _topic(topic) for topic in answer.topics if topic.name is not None}
    return found


def _topic(topic: Any) -> TopicRights:
    code = topic.error_code
    exists = code not in (messages.UNKNOWN_TOPIC_OR_PARTITION, messages.TOPIC_AUTHORIZATION_FAILED)
    told = getattr(topic, "authorized_operations", None) if exists else None
    return TopicRights(exists, code == messages.TOPIC_AUTHORIZATION_FAILED, operations(told))


def cluster_rights(cluster: Cluster) -> Rights | None:
    """What may be done with the cluster itself."""
    connection = cluster.any_connection()
    request: Any = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
    if DESCRIBE_CLUSTER.version(connection.versions) is not None:
        answer = cluster.call_any(request)
        return operations(answer.authorized_operations)
    least, most = _CLUSTER_IN_METADATA
    request = messages.MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True
    )
    if (METADATA.version(connection.versions, most) or 0) < least:
        return None
    answer = connection.call(request, most=most)
    return operations(answer.authorized_operations)


def group_rights(cluster: Cluster, groups: Sequence[str]) -> dict[str, Rights | None]:
    """What may be done with groups, there or not.

    Every broker is asked, and the coordinator of each group answers: looking the coordinators up would make a cluster that never
    had a group create its topic for them.
    """
    found: dict[str, Rights | None] = dict.fromkeys(groups)
    for part in cut(groups, _GROUPS):
        request = messages.DescribeGroupsRequest(
            groups=list(part), include_authorized_operations=True
        )
        for node in cluster.brokers:
            found |= _told_by(cluster.connection(node), request)
    return found


def _told_by(connection: Connection, request: Any) -> dict[str, Rights | None]:
    """The groups of a DescribeGroups request that one broker coordinates, with what may be done with them."""
    if (DESCRIBE_GROUPS.version(connection.versions) or 0) < _GROUPS_SINCE:
        return {}
    found: dict[str, Rights | None] = {}
    for group in connection.call(request).groups:
        if group.error_code == messages.GROUP_AUTHORIZATION_FAILED:
            found[group.group_id] = frozenset()
        elif group.error_code == messages.NONE:
            found[group.group_id] = operations(group.authorized_operations)
    return found
