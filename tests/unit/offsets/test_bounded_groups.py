"""Offsets of many groups, and many offsets of one group, go in parts that a coordinator takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Broker, Cluster
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.offsets.groups import GroupOffset, Groups

OFFSET_FETCH, FIND_COORDINATOR = 9, 10


class Coordinator:
    """Answers for all groups, refuses commits of more than `most` offsets, and records how large requests are."""

    is_open = True
    versions = {OFFSET_FETCH: (0, 9), FIND_COORDINATOR: (0, 4)}  # noqa: RUF012 - as a connection has them

    def __init__(self, most: int = 1 << 30, refusal: int = messages.INVALID_COMMIT_OFFSET_SIZE):
        self.most = most
        self.refusal = refusal
        self.fetched: list[int] = []
        self.committed: list[int] = []

    def call(self, request: Any, timeout: float | None = None, most: int | None = None) -> Any:
        if request.name == "OffsetFetchRequest":
            self.fetched.append(len(request.groups))
            return SimpleNamespace(groups=[self._group(row.group_id) for row in request.groups])
        if request.name == "OffsetCommitRequest":
            return self._commit(request)
        found = [
            SimpleNamespace(key=group, node_id=1, error_code=messages.NONE)
            for group in request.coordinator_keys
        ]
        return SimpleNamespace(coordinators=found)

    @staticmethod
    def _group(group: str) -> Any:
        partition = SimpleNamespace(
            partition_index=0, committed_offset=7, metadata="", error_code=messages.NONE
        )
        topic = SimpleNamespace(name=f"of-{group}", partitions=[partition])
        return SimpleNamespace(group_id=group, error_code=messages.NONE, topics=[topic])

    def _commit(self, request: Any) -> Any:
        count = sum(len(topic.partitions) for topic in request.topics)
        self.committed.append(count)
        code = messages.NONE if count <= self.most else self.refusal
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=topic.name,
                    partitions=[
                        SimpleNamespace(partition_index=row.partition_index, error_code=code)
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def groups_of(coordinator: Coordinator) -> Groups:
    cluster = Cluster(ClientSettings("B", (("b", 1),)))
    cluster.brokers = {1: Broker(1, "b", 1)}
    cluster._connections = {1: cast(Any, coordinator)}
    return Groups(cluster)


def test_offsets_of_many_groups_are_fetched_in_parts() -> None:
    coordinator = Coordinator()
    names = [f"g{number}" for number in range(601)]
    answers = groups_of(coordinator).committed(names)
    assert answers.failed == {}
    assert answers.found == {name: {(f"of-{name}", 0): GroupOffset(7)} for name in names}
    assert coordinator.fetched == [250, 250, 101]


OFFSETS = {(f"t{number % 9}", number // 9): GroupOffset(number) for number in range(2100)}


def test_many_offsets_of_a_group_are_committed_in_parts() -> None:
    coordinator = Coordinator()
    answers = groups_of(coordinator).commit({"g": OFFSETS})
    assert (answers.found, answers.failed) == ({"g": 2100}, {})
    assert coordinator.committed == [1000, 1000, 100]


@pytest.mark.parametrize(
    "refusal", [messages.INVALID_COMMIT_OFFSET_SIZE, messages.UNKNOWN_SERVER_ERROR]
)
def test_a_commit_that_is_refused_as_too_large_is_halved(refusal: int) -> None:
    coordinator = Coordinator(300, refusal)
    answers = groups_of(coordinator).commit({"g": OFFSETS})
    assert (answers.found, answers.failed) == ({"g": 2100}, {})
    assert coordinator.committed == [1000, 500, *[250] * 8, 100]
