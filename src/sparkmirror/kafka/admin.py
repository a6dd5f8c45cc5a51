"""What is asked of a cluster beside the data: topics, configs, offsets, producers; plain values in and out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparkmirror.errors import BrokerError, ConnectionFailed, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import Operation, needs
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.request_parts import Bound, ask_in_parts, cut, is_too_large

log = logging.getLogger(__name__)
EARLIEST, LATEST = -2, -1
_TIMEOUT_MS = 30_000
# The weight is in records of a controller's log, which takes 10,000 for one request. A part has far fewer: it is done in seconds,
# so that whoever creates many topics can tell how far it is, and begin with those that are there.
CREATION = Bound(500, 2000)
_DELETION = Bound(500)
_PARTITIONS = Bound(1000)
_NAMES = Bound(2000)


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

    @property
    def weight(self) -> int:
        """How many records the controller writes for it."""
        return 1 + max(1, self.partitions) + len(self.configs)


def by_leader(
    cluster: Cluster, keys: Iterable[TopicPartition]
) -> Iterator[tuple[int, dict[str, list[int]]]]:
    """Partitions by topic, in parts that can be asked of a broker in one request, each with the broker that leads them."""
    led: dict[int, list[TopicPartition]] = {}
    for topic, partition in keys:
        led.setdefault(cluster.find_leader(topic, partition).leader, []).append((topic, partition))
    for leader, its in led.items():
        for part in cut(its, _PARTITIONS):
            topics: dict[str, list[int]] = {}
            for topic, partition in part:
                topics.setdefault(topic, []).append(partition)
            yield leader, topics


def _each(
    cluster: Cluster,
    keys: Iterable[TopicPartition],
    build: Callable[[dict[str, list[int]]], Any],
    what: str,
    operation: Operation = "Describe",
) -> list[tuple[str, Any]]:
    """Ask the leaders and collect every partition's answer; leaders that moved are looked up again."""
    wanted = list(keys)

    def ask() -> list[tuple[str, Any]]:
        found = []
        for node, topics in by_leader(cluster, wanted):
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


def names_by_id(cluster: Cluster) -> dict[bytes, str]:
    """The names of all topics that we may see, by their ids."""
    request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return {
        topic.topic_id.bytes: str(topic.name)
        for topic in cluster.call_any(request).topics
        if getattr(topic, "topic_id", None) is not None and topic.error_code == messages.NONE
    }


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
        if not messages.is_unavailable(error):
            raise
        if error.code != messages.UNSUPPORTED_VERSION:
            log.warning("%s", error)
        return None


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]] | None:
    """For each partition and leader epoch, the newest epoch at or below it and the offset where it ended.

    None where the brokers cannot tell, or not us.
    """
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

    try:
        answers = _each(cluster, epochs, build, "OffsetForLeaderEpoch")
    except BrokerError as error:
        if messages.is_unavailable(error):
            return None
        raise
    return {(topic, p.partition): (p.leader_epoch, p.end_offset) for topic, p in answers}


def init_producer_id(cluster: Cluster) -> tuple[int, int]:
    """A producer id nobody else has, with its epoch."""

    def ask() -> tuple[int, int]:
        request = messages.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=0x7FFFFFFF,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = cluster.call_any(request)
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
    try:
        answers = list(ask_for_topics(cluster, topics, validate_only=False))
    except BrokerError as error:
        if error.code != messages.UNSUPPORTED_VERSION:
            raise
        return {topic.name: cannot_create(cluster, topic, error) for topic in topics}
    return {topic.name: creation_error(cluster, topic, answer) for topic, answer in answers}


def cannot_create(cluster: Cluster, topic: NewTopic, error: BrokerError) -> BrokerError:
    """The error of a topic that is missing where brokers do not let clients create topics."""
    return BrokerError(
        error.code,
        error.name,
        f"Topic {topic.name} is missing on {cluster.settings}, and cannot be created: {error.message}",
        f"Create it: {creation_command(cluster, topic)}",
    )


def creation_command(cluster: Cluster, topic: NewTopic) -> str:
    """What an operator types to create a topic."""
    servers = ",".join(f"{host}:{port}" for host, port in cluster.settings.bootstrap)
    configs = "".join(f" --config {name}={value}" for name, value in topic.configs.items())
    return (
        f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic.name} --partitions {topic.partitions} "
        f"--replication-factor {topic.replication_factor}{configs}"
    )


def ask_for_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool
) -> Iterator[tuple[NewTopic, Any]]:
    """Ask the controller for topics; each with its answer."""

    def ask(part: Sequence[NewTopic]) -> Sequence[Any]:
        request = _creation_request(part, validate_only=validate_only)
        found: Sequence[Any] = cluster.call_controller(request).topics
        return found

    for part, rows in ask_in_parts(topics, CREATION, ask, lambda topic: topic.weight):
        wanted = {topic.name: topic for topic in part}
        for row in rows:
            yield wanted[row.name], row


def _creation_request(topics: Sequence[NewTopic], *, validate_only: bool) -> Any:
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
    return request(topics=wanted, timeout_ms=_TIMEOUT_MS, validate_only=validate_only)


def creation_error(cluster: Cluster, topic: NewTopic, answer: Any) -> BrokerError | None:
    """What an answer for one topic comes to; a topic that is there already is no error."""
    if answer.error_code in (messages.NONE, messages.TOPIC_ALREADY_EXISTS):
        return None
    what = f"Creating topic {topic.name} on {cluster.settings}"
    remedy = ""
    if is_too_large(answer):
        what = (
            f"Creating topic {topic.name} with {topic.partitions} partitions on {cluster.settings}"
        )
        remedy = (
            "The topic is too large for one request. Create it with fewer partitions and widen it in steps "
            "(kafka-topics --alter --partitions), or leave it out (topics.exclude)."
        )
    error = messages.broker_error(
        answer.error_code,
        what,
        answer.error_message,
        remedy,
        access=needs("Create", "topic", topic.name, cluster.settings.security),
    )
    if messages.is_unavailable(error):
        error.remedy = f"{error.remedy} Or create it: {creation_command(cluster, topic)}".strip()
    return error


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> dict[str, BrokerError | None]:
    """Raise topics to these partition counts; a topic that has them already is no error."""
    request = messages.CreatePartitionsRequest

    def ask(part: Sequence[str]) -> Sequence[Any]:
        wanted = [
            request.CreatePartitionsTopic(name=name, count=counts[name], assignments=None)
            for name in part
        ]
        found: Sequence[Any] = cluster.call_controller(
            request(topics=wanted, timeout_ms=_TIMEOUT_MS, validate_only=False)
        ).results
        return found

    def missing(name: str) -> int:
        info = cluster.topics.get(name)
        return max(1, counts[name] - (0 if info is None else len(info.partitions)))

    accepted = (messages.NONE, messages.INVALID_PARTITIONS)
    found: dict[str, BrokerError | None] = {}
    try:
        for _, rows in ask_in_parts(list(counts), CREATION, ask, missing):
            for t in rows:
                found[t.name] = None if t.error_code in accepted else _not_widened(cluster, t)
    except BrokerError as error:
        if error.code != messages.UNSUPPORTED_VERSION:
            raise
        found |= {name: _cannot_widen(cluster, name, n, error) for name, n in counts.items()}
    return found


def _not_widened(cluster: Cluster, answer: Any) -> BrokerError:
    return messages.broker_error(
        answer.error_code,
        f"Adding partitions to {answer.name} on {cluster.settings}",
        answer.error_message,
        access=needs("Alter", "topic", answer.name, cluster.settings.security),
    )


def _cannot_widen(cluster: Cluster, name: str, count: int, error: BrokerError) -> BrokerError:
    servers = ",".join(f"{host}:{port}" for host, port in cluster.settings.bootstrap)
    return BrokerError(
        error.code,
        error.name,
        f"Topic {name} on {cluster.settings} should have {count} partitions: {error.message}",
        f"Widen it: kafka-topics.sh --bootstrap-server {servers} --alter --topic {name} --partitions {count}",
    )


def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, BrokerError | None]:
    """Delete topics; per topic None for success (also: it was gone already) or the broker's error."""

    def ask(part: Sequence[str]) -> Sequence[Any]:
        request = messages.DeleteTopicsRequest(topic_names=list(part), timeout_ms=_TIMEOUT_MS)
        found: Sequence[Any] = cluster.call_controller(request).responses
        return found

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
        for _, rows in ask_in_parts(names, _DELETION, ask)
        for t in rows
    }


def topic_errors(cluster: Cluster, names: Collection[str]) -> dict[str, int]:
    """What the cluster says to each of these names: NONE if there is such a topic, else the error code."""
    return _codes(cluster.call_any, names)


def topic_errors_by_broker(cluster: Cluster, names: Collection[str]) -> dict[int, dict[str, int]]:
    """The same, as each broker says it that is known; an error if one of them cannot be asked."""

    def ask(node: int, request: Any) -> Any:
        try:
            return cluster.call_node(node, request)
        except (
            ConnectionFailed
        ):  # one that was kept, perhaps: brokers close what is not used for a while
            return cluster.call_node(node, request)

    return {node: _codes(partial(ask, node), names) for node in sorted(cluster.brokers)}


def _codes(ask: Callable[[Any], Any], names: Collection[str]) -> dict[str, int]:
    topic = messages.MetadataRequest.MetadataRequestTopic
    found: dict[str, int] = {}
    for part in cut(list(names), _NAMES):
        wanted = [topic(name=name) for name in part]
        answer = ask(messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        found |= {one.name: one.error_code for one in answer.topics if one.name is not None}
    return found
