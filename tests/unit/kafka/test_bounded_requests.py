"""Requests about many topics, partitions or ACLs go in parts that a broker takes, and their answers are joined.

The bounds stand here as numbers: a part beyond them is refused by brokers (a KRaft controller writes 10,000 records at most for
one request), or keeps other clients waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import acls, admin, messages, topic_configs
from sparkmirror.kafka.acls import AclBinding, AclOperation, Pattern, Permission, Resource
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.kafka.topic_configs import Alteration

TOO_LARGE = "Unable to perform excessively large batch operation."
Answer = Callable[[Any], Any]


@dataclass
class Broker1:
    """A connection to a broker that records what it is asked, and refuses parts above `most` items as too large."""

    answer: Answer
    items: Callable[[Any], Sequence[Any]]
    most: int = 1 << 30
    asked: list[Sequence[Any]] = field(default_factory=list)
    refusals: int = 0
    is_open: bool = True
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: {3: (0, 13)})
    host: str = "b"
    port: int = 1

    def call(self, request: Any, timeout: float | None = None, most: int | None = None) -> Any:
        items = self.items(request)
        self.asked.append(items)
        if len(items) <= self.most:
            return self.answer([one_row(item) for item in items])
        self.refusals += 1
        return self.answer([one_row(item, messages.POLICY_VIOLATION, TOO_LARGE) for item in items])

    @property
    def sizes(self) -> list[int]:
        return [len(items) for items in self.asked]


def one_row(item: Any, code: int = messages.NONE, message: str | None = None) -> Any:
    """A row of an answer, with the fields that the rows of any of these answers have."""
    name = getattr(item, "resource_name", None) or getattr(item, "name", None) or item
    return SimpleNamespace(
        name=name,
        topic_id=None,
        is_internal=False,
        resource_name=name,
        error_code=code,
        error_message=message,
        configs=[],
        matching_acls=[],
        partitions=[],
    )


def cluster_of(broker: Broker1) -> Cluster:
    cluster = Cluster(ClientSettings("B", (("b", 1),)))
    cluster.brokers = {1: Broker(1, "b", 1)}
    cluster.controller = 1
    cluster._connections = {1: cast(Any, broker)}
    return cluster


@dataclass(frozen=True)
class Kind:
    """One kind of request that a part refused as too large is halved of."""

    bound: int
    items: Callable[[Any], Sequence[Any]]
    answer: Answer
    send: Callable[[Cluster, int], Mapping[Any, BrokerError | None]]


def binding(number: int) -> AclBinding:
    return AclBinding(
        Resource.TOPIC,
        f"t{number}",
        Pattern.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def described(cluster: Cluster, count: int) -> dict[str, BrokerError | None]:
    found = topic_configs.describe(cluster, names(count))
    return {**dict.fromkeys(found.configs), **found.errors}


KINDS = {
    "CreateTopics": Kind(
        500,
        lambda request: request.topics,
        lambda rows: SimpleNamespace(topics=rows),
        lambda cluster, count: admin.create_topics(
            cluster, [NewTopic(name, 1, 1, {}) for name in names(count)]
        ),
    ),
    "CreatePartitions": Kind(
        500,
        lambda request: request.topics,
        lambda rows: SimpleNamespace(results=rows),
        lambda cluster, count: admin.create_partitions(cluster, dict.fromkeys(names(count), 1)),
    ),
    "DeleteTopics": Kind(
        500,
        lambda request: request.topic_names,
        lambda rows: SimpleNamespace(responses=rows),
        lambda cluster, count: admin.delete_topics(cluster, names(count)),
    ),
    "IncrementalAlterConfigs": Kind(
        500,
        lambda request: request.resources,
        lambda rows: SimpleNamespace(responses=rows),
        lambda cluster, count: topic_configs.alter(
            cluster, {name: [Alteration("retention.ms", "SET", "1")] for name in names(count)}
        ),
    ),
    "DescribeConfigs": Kind(
        500,
        lambda request: request.resources,
        lambda rows: SimpleNamespace(results=rows),
        described,
    ),
    "CreateAcls": Kind(
        1000,
        lambda request: request.creations,
        lambda rows: SimpleNamespace(results=rows),
        lambda cluster, count: acls.create(cluster, [binding(n) for n in range(count)]),
    ),
    "DeleteAcls": Kind(
        1000,
        lambda request: request.filters,
        lambda rows: SimpleNamespace(filter_results=rows),
        lambda cluster, count: acls.delete(cluster, [binding(n) for n in range(count)]),
    ),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@EACH_KIND
def test_many_items_go_in_several_requests_whose_answers_are_joined(kind: Kind) -> None:
    count = 2 * kind.bound + 1
    broker = Broker1(kind.answer, kind.items)
    outcomes = kind.send(cluster_of(broker), count)
    assert broker.sizes == [kind.bound, kind.bound, 1]
    assert len(outcomes) == count
    assert set(outcomes.values()) == {None}


@EACH_KIND
def test_a_part_that_is_refused_as_too_large_is_halved(kind: Kind) -> None:
    count, most = 2 * kind.bound, kind.bound // 3
    broker = Broker1(kind.answer, kind.items, most)
    outcomes = kind.send(cluster_of(broker), count)
    assert broker.refusals == 2
    taken = [size for size in broker.sizes if size <= most]
    assert (sum(taken), max(taken)) == (count, kind.bound // 4)
    assert len(outcomes) == count
    assert set(outcomes.values()) == {None}


@EACH_KIND
def test_an_item_that_is_too_large_alone_is_an_error_of_that_item(kind: Kind) -> None:
    outcomes = kind.send(cluster_of(Broker1(kind.answer, kind.items, most=0)), 3)
    assert len(outcomes) == 3
    assert all(
        error is not None and error.code == messages.POLICY_VIOLATION for error in outcomes.values()
    )


def test_topics_that_grow_by_many_partitions_go_in_smaller_parts() -> None:
    kind = KINDS["CreatePartitions"]
    broker = Broker1(kind.answer, kind.items)
    cluster = cluster_of(broker)
    parts = {number: PartitionInfo(number, 1, 0) for number in range(100)}
    cluster.topics = {name: TopicInfo(name, bytes(16), False, parts) for name in names(100)}
    outcomes = admin.create_partitions(cluster, dict.fromkeys(names(100), 600))  # 500 more each
    assert (set(outcomes), set(outcomes.values())) == (set(names(100)), {None})
    assert broker.sizes == [4] * 25


def test_topics_with_many_alterations_go_in_smaller_parts() -> None:
    kind = KINDS["IncrementalAlterConfigs"]
    broker = Broker1(kind.answer, kind.items)
    wanted = [Alteration(f"p{number}", "SET", "1") for number in range(50)]
    outcomes = topic_configs.alter(cluster_of(broker), dict.fromkeys(names(250), wanted))
    assert len(outcomes) == 250
    assert broker.sizes == [100, 100, 50]


# -- what is asked of leaders, and of any broker ----------------------------------------------


class Leader:
    """A leader of partitions that records for how many it is asked at once."""

    is_open = True
    host, port = "b", 1
    versions: Mapping[int, tuple[int, int]] = {3: (0, 13)}

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def call(self, request: Any, timeout: float | None = None, most: int | None = None) -> Any:
        keys = [
            (topic, partition if isinstance(partition, int) else self._number(partition))
            for topic in request.topics
            for partition in getattr(topic, "partitions", None) or topic.partition_indexes
        ]
        self.sizes.append(len(keys))
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=getattr(topic, "name", None) or topic.topic,
                    partitions=[self._row(number)],
                )
                for topic, number in keys
            ]
        )

    @staticmethod
    def _number(partition: Any) -> int:
        found = getattr(partition, "partition_index", None)
        return int(partition.partition if found is None else found)

    @staticmethod
    def _row(number: int) -> Any:
        return SimpleNamespace(
            error_code=0,
            partition_index=number,
            partition=number,
            offset=number,
            leader_epoch=0,
            end_offset=number,
            active_producers=[],
        )


KEYS = [(f"t{number % 7}", number // 7) for number in range(2800)]
ASKED: dict[str, Callable[[Cluster], Mapping[Any, Any]]] = {
    "ListOffsets": lambda cluster: admin.list_offsets(cluster, KEYS, admin.LATEST),
    "DescribeProducers": lambda cluster: admin.active_producers(cluster, KEYS),
    "OffsetForLeaderEpoch": lambda cluster: admin.epoch_ends(cluster, dict.fromkeys(KEYS, 0)) or {},
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_leader_is_asked_for_a_thousand_partitions_at_once(
    ask: Callable[[Cluster], Mapping[Any, Any]],
) -> None:
    leaders = {1: Leader(), 2: Leader()}
    cluster = Cluster(ClientSettings("B", (("b", 1),)))
    cluster.brokers = {node: Broker(node, "b", node) for node in leaders}
    cluster._connections = cast(Any, dict(leaders))
    for topic, partition in KEYS:
        info = cluster.topics.setdefault(topic, TopicInfo(topic, bytes(16), False))
        leader = 1 if partition < 300 else 2  # 2100 and 700 partitions
        info.partitions[partition] = PartitionInfo(partition, leader, 0)
    answers = ask(cluster)
    assert set(answers) == set(KEYS)
    assert leaders[1].sizes == [1000, 1000, 100]
    assert leaders[2].sizes == [700]


class Metadata:
    """A broker that records for how many topics it is asked at once."""

    is_open = True
    host, port = "b", 1
    versions: Mapping[int, tuple[int, int]] = {3: (0, 13)}

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def call(self, request: Any, timeout: float | None = None, most: int | None = None) -> Any:
        self.sizes.append(len(request.topics))
        return SimpleNamespace(
            brokers=[SimpleNamespace(node_id=1, host="b", port=1, rack=None)],
            controller_id=1,
            topics=[one_row(topic) for topic in request.topics],
        )


def refreshed(cluster: Cluster) -> set[str]:
    cluster.refresh(names(4001))
    return set(cluster.topics)


METADATA: dict[str, Callable[[Cluster], set[str]]] = {
    "refresh": refreshed,
    "topic_errors": lambda cluster: set(admin.topic_errors(cluster, names(4001))),
    "topic_errors_by_broker": lambda cluster: set(
        admin.topic_errors_by_broker(cluster, names(4001))[1]
    ),
}


@pytest.mark.parametrize("ask", METADATA.values(), ids=METADATA)
def test_metadata_is_asked_for_two_thousand_topics_at_once(
    ask: Callable[[Cluster], set[str]],
) -> None:
    broker = Metadata()
    cluster = Cluster(ClientSettings("B", (("b", 1),)))
    cluster.brokers = {1: Broker(1, "b", 1)}
    cluster._connections = cast(Any, {1: broker})
    assert ask(cluster) == set(names(4001))
    assert broker.sizes == [2000, 2000, 1]
