"""Consumer groups of one cluster: which there are, what they have committed, and committing for them; batched per coordinator.

Classic groups and those of the newer protocol (KIP-848) alike: ListGroups tells of both in one answer, with their states, and
without the members that a description of each group would carry.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.api_versions import LIST_GROUPS, OFFSET_FETCH
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.denials import Operation
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.request_parts import Bound, ask_in_parts, is_too_large

from .coordinators import Answers, Coordinators, group_error
from .lanes import in_lanes

__all__ = ["Answers", "GroupListing", "GroupOffset", "Groups", "Offsets", "TopicPartition"]

_CONSUMER_TYPES = ("", "classic", "consumer")
_CONSUMER_PROTOCOLS = ("", "consumer")
# Any state but Empty and Dead: somebody is a member, and only members may commit.
_ACTIVE_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling")
_GROUPS_PER_REQUEST = 250
_COMMIT = Bound(1000)
_MANY_GROUPS = 8
_STATES_SINCE = 4
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it; `state` and `type` are empty where brokers are too old to tell."""

    group: str
    protocol_type: str
    state: str = ""
    type: str = ""

    @property
    def is_consumers(self) -> bool:
        """Whether its members are consumers, unlike those of Connect, share and streams groups."""
        return (
            self.type.lower() in _CONSUMER_TYPES
            and self.protocol_type.lower() in _CONSUMER_PROTOCOLS
        )


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group is in a partition, with the text it left there."""

    offset: int
    metadata: str = ""
    leader_epoch: int = field(default=-1, compare=False)
    """Of the record before; consumers that have read it name it, whoever commits for others does not."""


Offsets = Mapping[TopicPartition, GroupOffset | None]
"""None where a client has reset the offset to nothing."""


class Groups:
    """The groups of one cluster; what concerns one group fails for that group alone (see `Coordinators`)."""

    def __init__(self, cluster: Cluster, right: Operation = "Describe") -> None:
        """`right` is what is wanted of groups in all: who is to commit for them needs Read, which includes the rest."""
        self._cluster = cluster
        self._right = right
        self._coordinators = Coordinators(cluster, right)

    def listings(self, states: Collection[str] = ()) -> list[GroupListing]:
        """All groups that we may see, or those in `states` (which brokers before 2.6 cannot tell: none then)."""

        def ask() -> list[GroupListing]:
            self._cluster.refresh([])
            return [
                listing for node in self._cluster.brokers for listing in self._listed(node, states)
            ]

        return self._cluster.retrying(ask, time.monotonic() + _PATIENCE)

    def active(self) -> set[str]:
        """The groups that have members."""
        return {listing.group for listing in self.listings(_ACTIVE_STATES)}

    def committed(self, groups: Iterable[str]) -> Answers[Offsets]:
        """All committed offsets of each group; nothing for a group that does not exist."""
        return self._coordinators.each(groups, _GROUPS_PER_REQUEST, self._fetch)

    def commit(self, offsets: Mapping[str, Mapping[TopicPartition, GroupOffset]]) -> Answers[int]:
        """Commit for groups without members (created if need be); gives how many offsets each took."""

        def ask(connection: Connection, group: str) -> int | BrokerError:
            return self._commit(connection, group, offsets[group])

        return self._coordinators.each(
            offsets,
            max(1, len(offsets)),
            lambda node, groups: in_lanes(self._cluster, node, groups, ask),
        )

    # -- one request each ---------------------------------------------------------------------

    def _listed(self, node: int, states: Collection[str]) -> Iterator[GroupListing]:
        connection = self._cluster.connection(node)
        request = messages.ListGroupsRequest(states_filter=list(states), types_filter=[])
        if states and (LIST_GROUPS.version(connection.versions) or 0) < _STATES_SINCE:
            return
        answer = connection.call(request)
        if answer.error_code != messages.NONE:
            raise messages.broker_error(
                answer.error_code, f"Listing the groups of {self._cluster.settings}"
            )
        for group in answer.groups:
            yield GroupListing(
                group.group_id,
                group.protocol_type or "",
                getattr(group, "group_state", None) or "",
                getattr(group, "group_type", None) or "",
            )

    def _fetch(self, node: int, groups: Sequence[str]) -> dict[str, Offsets | BrokerError]:
        connection = self._cluster.connection(node)
        if (OFFSET_FETCH.version(connection.versions) or 0) < _MANY_GROUPS:
            return {group: self._fetch_one(node, group) for group in groups}
        request = messages.OffsetFetchRequest
        answer = connection.call(
            request(
                groups=[
                    request.OffsetFetchRequestGroup(
                        group_id=group, member_id=None, member_epoch=-1, topics=None
                    )
                    for group in groups
                ],
                require_stable=False,
            )
        )
        return {group.group_id: self._offsets(group.group_id, group) for group in answer.groups}

    def _fetch_one(self, node: int, group: str) -> Offsets | BrokerError:
        request = messages.OffsetFetchRequest(group_id=group, topics=None, require_stable=False)
        return self._offsets(group, self._cluster.call_node(node, request, most=_MANY_GROUPS - 1))

    def _offsets(self, group: str, answer: Any) -> Offsets | BrokerError:
        if answer.error_code not in (messages.NONE, messages.GROUP_ID_NOT_FOUND):
            return group_error(
                self._cluster,
                answer.error_code,
                f"Reading the offsets of group {group}",
                self._coordinators.access(self._right, group),
            )
        return {
            (topic.name, p.partition_index): (
                GroupOffset(
                    p.committed_offset,
                    p.metadata or "",
                    -1 if (epoch := getattr(p, "committed_leader_epoch", None)) is None else epoch,
                )
                if p.committed_offset >= 0
                else None
            )
            for topic in answer.topics
            for p in topic.partitions
            if p.error_code == messages.NONE
        }

    def _commit(
        self, connection: Connection, group: str, offsets: Mapping[TopicPartition, GroupOffset]
    ) -> int | BrokerError:
        def ask(part: Sequence[TopicPartition]) -> list[_Committed]:
            request = _commit_request(group, {key: offsets[key] for key in part})
            answer = connection.call(request)
            return [
                _Committed(topic.name, p.partition_index, p.error_code)
                for topic in answer.topics
                for p in topic.partitions
            ]

        refused: list[_Committed] = []
        for _, rows in ask_in_parts(list(offsets), _COMMIT, ask, is_refused=_is_too_large):
            refused += [row for row in rows if row.error_code != messages.NONE]
            if any(map(_is_too_large, rows)):  # a single one: the others would be refused, too
                break
        if not refused:
            return len(offsets)
        first = refused[0]
        what = f"Committing {len(refused)} of {len(offsets)} offset(s) of group {group} ({first.topic}-{first.partition}"
        is_topic = first.error_code == messages.TOPIC_AUTHORIZATION_FAILED
        return group_error(
            self._cluster,
            first.error_code,
            what + (", …)" if len(refused) > 1 else ")"),
            self._coordinators.access("Read", first.topic, "topic")
            if is_topic
            else self._coordinators.access("Read", group),
        )


class _Committed(NamedTuple):
    """A coordinator's answer for one partition."""

    topic: str
    partition: int
    error_code: int


def _is_too_large(row: _Committed) -> bool:
    """Whether a commit was refused for its size; coordinators since 4.0 say no more than UNKNOWN_SERVER_ERROR."""
    return row.error_code == messages.UNKNOWN_SERVER_ERROR or is_too_large(row)


def _commit_request(group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> Any:
    request = messages.OffsetCommitRequest
    topic_class = request.OffsetCommitRequestTopic
    rows: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        row = topic_class.OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset.offset,
            committed_leader_epoch=-1,
            committed_metadata=offset.metadata,
        )
        rows.setdefault(topic, []).append(row)
    return request(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic_class(name=t, partitions=rows[t]) for t in rows],
    )
