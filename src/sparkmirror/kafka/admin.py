"""What is asked of a cluster beside the data: topics, configs, offsets, producers; plain values in and out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkmirror.errors import BrokerError, ConnectionFailed, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import Operation, needs
from sparkmirror.kafka.fetch import TopicPartition

log = logging.getLogger(__name__)
EARLIEST, LATEST = -2, -1
_TOPIC_RESOURCE = 2
_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition's leader remembers of a producer."""

    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    read_only: bool
    sensitive: bool
    source: int  # 1 topic, 2 broker, 3 broker default, 4 static broker, 5 default

    @property
    def is_set_on_topic(self) -> bool:
        return self.source == 1

    @property
    def is_default(self) -> bool:
        return self.source == 5

    @property
    def is_static_broker(self) -> bool:
        return self.source == 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def by_leader(cluster: Cluster, keys: Iterable[TopicPartition]) -> dict[int, dict[str, list[int]]]:
    """Partitions grouped by the broker that leads them, then by topic."""
    groups: dict[int, dict[str, list[int]]] = {}
    for topic, partition in keys:
        leader = cluster.leader(topic, partition).leader
        groups.setdefault(leader, {}).setdefault(topic, []).append(partition)
    return groups


def _each(
    cluster: Cluster,
    keys: Iterable[TopicPartition],
    build: Callable[[dict[str, list[int]]], Any],
    what: str,
    operation: Operation = "Describe",
) -> list[tuple[str, Any]]:
    """Send one request per leader and collect every partition's answer; leaders that moved are looked up again."""
    wanted = list(keys)

    def ask() -> list[tuple[str, Any]]:
        found = []
        for node, topics in by_leader(cluster, wanted).items():
            for topic in cluster.call_node(node, build(topics)).topics:
                name = topic.topic if hasattr(topic, "topic") else topic.name
                for partition in topic.partitions:
                    if partition.error_code != messages.NONE:
                        where = f"{what} of {name} on {cluster.settings}"
                        access = needs(operation, "topic", name, cluster.settings.security)
                        raise messages.broker_error(partition.error_code, where, access=access)
                    found.append((name, partition))
        return found

    def ask_fresh() -> list[tuple[str, Any]]:
        try:
            return ask()
        except KafkaError:
            cluster.refresh({name for name, _ in wanted})
            raise

    return cluster.retrying(ask_fresh, time.monotonic() + cluster.settings.request_timeout)


def topic_with_id(cluster: Cluster, topic_id: bytes) -> str | None:
    """The name of the topic that has this id; None if there is none (any more), or not for us."""
    request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    for topic in cluster.call_any(request).topics:
        raw = getattr(topic, "topic_id", None)
        if raw is not None and raw.bytes == topic_id and topic.error_code == messages.NONE:
            return str(topic.name)
    return None


def list_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], timestamp: int, isolation: int = 0
) -> dict[TopicPartition, int]:
    """The earliest (-2), latest (-1) or by-time offset of each partition."""
    request = messages.ListOffsetsRequest

    def build(topics: dict[str, list[int]]) -> Any:
        return request(
            replica_id=-1,
            isolation_level=isolation,
            timeout_ms=_TIMEOUT_MS,
            topics=[
                request.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        request.ListOffsetsTopic.ListOffsetsPartition(
                            partition_index=p, current_leader_epoch=-1, timestamp=timestamp
                        )
                        for p in partitions
                    ],
                )
                for name, partitions in topics.items()
            ],
        )

    return {
        (topic, p.partition_index): p.offset
        for topic, p in _each(cluster, keys, build, "ListOffsets")
    }


def active_producers(
    cluster: Cluster, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[int, ProducerState]]:
    """Who wrote to each partition lately and how far; BrokerError UNSUPPORTED_VERSION where brokers cannot tell (before 2.8)."""
    request = messages.DescribeProducersRequest

    def build(topics: dict[str, list[int]]) -> Any:
        return request(
            topics=[
                request.TopicRequest(name=name, partition_indexes=partitions)
                for name, partitions in topics.items()
            ]
        )

    return {
        (topic, p.partition_index): {
            state.producer_id: ProducerState(state.producer_epoch, state.last_sequence)
            for state in p.active_producers
        }
        for topic, p in _each(cluster, keys, build, "DescribeProducers", "Read")
    }


def describe_producers(
    cluster: Cluster, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[int, ProducerState]] | None:
    """The same; None where the brokers cannot tell, or not us."""
    try:
        return active_producers(cluster, keys)
    except BrokerError as error:
        if error.code == messages.TOPIC_AUTHORIZATION_FAILED:
            log.warning("%s", error)
            return None
        if error.name == "UNSUPPORTED_VERSION":
            return None
        raise


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """For each partition and leader epoch, the newest epoch at or below it and the offset where it ended."""
    request = messages.OffsetForLeaderEpochRequest

    def build(topics: dict[str, list[int]]) -> Any:
        return request(
            replica_id=-1,
            topics=[
                request.OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        request.OffsetForLeaderTopic.OffsetForLeaderPartition(
                            partition=p, current_leader_epoch=-1, leader_epoch=epochs[name, p]
                        )
                        for p in partitions
                    ],
                )
                for name, partitions in topics.items()
            ],
        )

    return {
        (topic, p.partition): (p.leader_epoch, p.end_offset)
        for topic, p in _each(cluster, epochs, build, "OffsetForLeaderEpoch")
    }


def init_producer_id(cluster: Cluster) -> tuple[int, int]:
    """A producer id nobody else has, with its epoch."""

    def ask() -> tuple[int, int]:
        request = messages.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=0x7FFFFFFF,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = cluster.call_any(request, most=4)
        if answer.error_code != messages.NONE:
            raise messages.broker_error(
                answer.error_code,
                f"Taking a producer id from {cluster.settings}",
                access=needs("IdempotentWrite", "cluster", "", cluster.settings.security),
            )
        return answer.producer_id, answer.producer_epoch

    return cluster.retrying(ask, time.monotonic() + cluster.settings.request_timeout)


def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, BrokerError | None]:
    """Create topics; per topic None for success (also: it was there already) or the broker's error."""
    answers = ask_for_topics(cluster, topics, validate_only=False)
    return {answer.name: creation_error(cluster, answer) for answer in answers}


def ask_for_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool
) -> Sequence[Any]:
    """The controller's answers to a request for these topics."""
    if not topics:
        return ()
    request = messages.CreateTopicsRequest
    topic_class = request.CreatableTopic
    wanted = [
        topic_class(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=[],
            configs=[
                topic_class.CreatableTopicConfig(name=name, value=value)
                for name, value in topic.configs.items()
            ],
        )
        for topic in topics
    ]
    answer = cluster.call_controller(
        request(topics=wanted, timeout_ms=_TIMEOUT_MS, validate_only=validate_only)
    )
    found: Sequence[Any] = answer.topics
    return found


def creation_error(cluster: Cluster, answer: Any) -> BrokerError | None:
    """What an answer for one topic comes to; a topic that is there already is no error."""
    if answer.error_code in (messages.NONE, messages.TOPIC_ALREADY_EXISTS):
        return None
    return messages.broker_error(
        answer.error_code,
        f"Creating topic {answer.name} on {cluster.settings}",
        answer.error_message,
        access=needs("Create", "topic", answer.name, cluster.settings.security),
    )


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> dict[str, BrokerError | None]:
    """Raise topics to these partition counts; a topic that has them already is no error."""
    if not counts:
        return {}
    request = messages.CreatePartitionsRequest
    answer = cluster.call_controller(
        request(
            topics=[
                request.CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in counts.items()
            ],
            timeout_ms=_TIMEOUT_MS,
            validate_only=False,
        )
    )
    accepted = (messages.NONE, messages.INVALID_PARTITIONS)
    return {
        t.name: None
        if t.error_code in accepted
        else messages.broker_error(
            t.error_code,
            f"Adding partitions to {t.name} on {cluster.settings}",
            t.error_message,
            access=needs("Alter", "topic", t.name, cluster.settings.security),
        )
        for t in answer.results
    }


def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, BrokerError | None]:
    """Delete topics; per topic None for success (also: it was gone already) or the broker's error."""
    if not names:
        return {}
    answer = cluster.call_controller(
        messages.DeleteTopicsRequest(topic_names=list(names), timeout_ms=_TIMEOUT_MS), most=5
    )
    accepted = (messages.NONE, messages.UNKNOWN_TOPIC_OR_PARTITION)
    return {
        t.name: None
        if t.error_code in accepted
        else messages.broker_error(
            t.error_code,
            f"Deleting topic {t.name} on {cluster.settings}",
            getattr(t, "error_message", None),
            access=needs("Delete", "topic", t.name, cluster.settings.security),
        )
        for t in answer.responses
    }


def topic_errors(cluster: Cluster, names: Collection[str]) -> dict[str, int]:
    """What the cluster says to each of these names: NONE if there is such a topic, else the error code."""
    return _codes(cluster.call_any(_about(names))) if names else {}


def topic_errors_by_broker(cluster: Cluster, names: Collection[str]) -> dict[int, dict[str, int]]:
    """The same, as each broker says it that is known; an error if one of them cannot be asked."""
    request = _about(names)
    found = {}
    for node in sorted(cluster.brokers):
        try:
            answer = cluster.call_node(node, request)
        except (
            ConnectionFailed
        ):  # one that was kept, perhaps: brokers close what is not used for a while
            answer = cluster.call_node(node, request)
        found[node] = _codes(answer)
    return found


def _about(names: Collection[str]) -> Any:
    topic = messages.MetadataRequest.MetadataRequestTopic
    wanted = [topic(name=name) for name in names]
    return messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def _codes(answer: Any) -> dict[str, int]:
    return {found.name: found.error_code for found in answer.topics if found.name is not None}
