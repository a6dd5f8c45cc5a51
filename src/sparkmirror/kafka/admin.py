"""What is asked of a cluster beside the data: topics, configs, offsets, producers; plain values in and out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition

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
                        raise messages.broker_error(partition.error_code, where)
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


def describe_producers(
    cluster: Cluster, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[int, ProducerState]] | None:
    """Who wrote to each partition and how far; None where the brokers cannot tell (before 2.8)."""
    request = messages.DescribeProducersRequest

    def build(topics: dict[str, list[int]]) -> Any:
        return request(
            topics=[
                request.TopicRequest(name=name, partition_indexes=partitions)
                for name, partitions in topics.items()
            ]
        )

    try:
        return {
            (topic, p.partition_index): {
                state.producer_id: ProducerState(state.producer_epoch, state.last_sequence)
                for state in p.active_producers
            }
            for topic, p in _each(cluster, keys, build, "DescribeProducers")
        }
    except BrokerError as error:
        if error.name in ("UNSUPPORTED_VERSION", "TOPIC_AUTHORIZATION_FAILED"):
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
                answer.error_code, f"Taking a producer id from {cluster.settings}"
            )
        return answer.producer_id, answer.producer_epoch

    return cluster.retrying(ask, time.monotonic() + cluster.settings.request_timeout)


def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, BrokerError | None]:
    """Create topics; per topic None for success (also: it was there already) or the broker's error."""
    if not topics:
        return {}
    request = messages.CreateTopicsRequest
    topic_class = request.CreatableTopic
    answer = cluster.call_controller(
        request(
            topics=[
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
            ],
            timeout_ms=_TIMEOUT_MS,
            validate_only=False,
        )
    )
    accepted = (messages.NONE, messages.TOPIC_ALREADY_EXISTS)
    return {
        t.name: None
        if t.error_code in accepted
        else messages.broker_error(
            t.error_code, f"Creating topic {t.name} on {cluster.settings}", t.error_message
        )
        for t in answer.topics
    }


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
            t.error_code, f"Adding partitions to {t.name} on {cluster.settings}", t.error_message
        )
        for t in answer.results
    }


def topic_configs(cluster: Cluster, names: Sequence[str]) -> dict[str, list[ConfigEntry]]:
    """All configs of these topics, with where each value comes from. Topics that are gone are left out."""
    if not names:
        return {}
    request = messages.DescribeConfigsRequest
    answer = cluster.call_any(
        request(
            resources=[
                request.DescribeConfigsResource(
                    resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                )
                for name in names
            ],
            include_synonyms=False,
            include_documentation=False,
        )
    )
    configs: dict[str, list[ConfigEntry]] = {}
    for result in answer.results:
        if result.error_code == messages.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if result.error_code != messages.NONE:
            raise messages.broker_error(
                result.error_code,
                f"Reading the configs of topic {result.resource_name} on {cluster.settings}",
                result.error_message,
                "The principal needs DescribeConfigs on the topic.",
            )
        configs[result.resource_name] = [
            ConfigEntry(c.name, c.value, c.read_only, c.is_sensitive, c.config_source)
            for c in result.configs
        ]
    return configs
