"""What tests do to a cluster with an independent client (librdkafka): create, produce, consume.

Every function takes a bootstrap address, and `**client` for librdkafka settings (underscores for
dots), such as `security_protocol="SASL_SSL"`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

PATIENCE_S = 60.0
# Tests are short: the quick compiler is done before the thorough one has begun.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
T = TypeVar("T")
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,  # until its followers have told the new leader how far they are
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
_NO_COORDINATOR_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record as a consumer sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class NewRecord(NamedTuple):
    """One record to produce; without a partition the key decides, without a timestamp the clock."""

    key: bytes | None
    value: bytes | None
    partition: int = -1
    timestamp: int = 0
    headers: Headers = ()


def wait_for(what: str, condition: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """The first true answer of `condition`, or a failure that says what did not come about."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"after {patience_s:g} s still not: {what}"
        time.sleep(0.05)
    return answer


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    *,
    replication: int = -1,
    configs: Mapping[str, str] | None = None,
    **client: Any,
) -> None:
    """Create a topic and wait until every broker that answers knows all its leaders."""
    admin = _admin(bootstrap, client)
    new = NewTopic(topic, partitions, replication, config=dict(configs or {}))
    admin.create_topics([new])[topic].result(PATIENCE_S)
    wait_for(f"{topic} has leaders", lambda: len(_led(admin, topic)) == partitions)


def delete_topic(bootstrap: str, topic: str, *, awaits_name: bool = True, **client: Any) -> None:
    """Delete a topic and wait until its name is free: with ZooKeeper that is later than it leaves the metadata.

    `awaits_name=False`: only until brokers have deleted it, where another program may take the name at once.
    """
    admin = _admin(bootstrap, client)
    admin.delete_topics([topic], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
    if awaits_name:
        wait_for(f"{topic} is gone", lambda: _is_free(admin, topic))


def _is_free(admin: AdminClient, topic: str) -> bool:
    new = NewTopic(topic, 1, -1)
    try:
        admin.create_topics([new], validate_only=True)[topic].result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return topic not in admin.list_topics(timeout=PATIENCE_S).topics


def add_partitions(bootstrap: str, topic: str, total: int, **client: Any) -> None:
    """Widen a topic to `total` partitions."""
    admin = _admin(bootstrap, client)
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(PATIENCE_S)
    wait_for(f"{topic} has leaders", lambda: len(_led(admin, topic)) == total)


def topics(bootstrap: str, **client: Any) -> dict[str, int]:
    """Every topic of the cluster with its number of partitions."""
    known = _admin(bootstrap, client).list_topics(timeout=PATIENCE_S).topics
    return {name: len(topic.partitions) for name, topic in known.items()}


def leaders(bootstrap: str, topic: str, **client: Any) -> dict[int, int]:
    """The leader of each partition of a topic; a partition without one is left out."""
    return _led(_admin(bootstrap, client), topic)


def topic_configs(bootstrap: str, topic: str, **client: Any) -> dict[str, str]:
    """A topic's effective settings."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    answer = _admin(bootstrap, client).describe_configs([resource])[resource].result(PATIENCE_S)
    return {name: str(entry.value) for name, entry in answer.items()}


def set_topic_configs(
    bootstrap: str, topic: str, configs: Mapping[str, str], **client: Any
) -> None:
    """Change some of a topic's settings and leave the others."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    answers = _admin(bootstrap, client).incremental_alter_configs([resource])
    answers[resource].result(PATIENCE_S)


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int], **client: Any) -> None:
    """Delete what lies before the given offset of each partition, as retention would."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for answer in _admin(bootstrap, client).delete_records(wanted).values():
        answer.result(PATIENCE_S)


def produce(
    bootstrap: str, topic: str, records: Iterable[NewRecord], **client: Any
) -> list[tuple[int, int]]:
    """Produce records, wait for all acknowledgements, return (partition, offset) in their order."""
    producer = Producer(_settings(bootstrap, client, linger_ms=5))
    return _produced(producer, topic, records)


def produce_transaction(
    bootstrap: str,
    topic: str,
    records: Iterable[NewRecord],
    *,
    commit: bool = True,
    **client: Any,
) -> list[tuple[int, int]]:
    """Produce records in one transaction and commit or abort it, and return where they went."""
    defaults = {"linger_ms": 5, "transactional_id": f"test-{uuid.uuid4().hex}"}
    producer = Producer(_settings(bootstrap, client, **defaults))
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    where = _produced(producer, topic, records)
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    return where


def consume(bootstrap: str, topic: str, *, committed: bool = True, **client: Any) -> list[Record]:
    """Everything a topic holds now, by partition and offset; `committed` leaves aborts out."""
    settings = _settings(
        bootstrap,
        client,
        group_id=f"test-{uuid.uuid4().hex}",
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        fetch_wait_max_ms=50,
    )
    open_partitions = set(range(topics(bootstrap, **client)[topic]))
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in open_partitions])
        found: list[Record] = []
        deadline = time.monotonic() + PATIENCE_S
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic}: no end of {sorted(open_partitions)}"
            for message in consumer.consume(10_000, timeout=0.2):
                if _at_end(message):
                    open_partitions.discard(_known(message.partition()))
                else:
                    found.append(_record(message))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def end_offsets(bootstrap: str, topic: str, **client: Any) -> dict[int, int]:
    """The high watermark of every partition of a topic."""
    return {p: high for p, (_, high) in _watermarks(bootstrap, topic, client).items()}


def start_offsets(bootstrap: str, topic: str, **client: Any) -> dict[int, int]:
    """The first offset that every partition of a topic still holds."""
    return {p: low for p, (low, _) in _watermarks(bootstrap, topic, client).items()}


def commit_group(
    bootstrap: str, group: str, topic: str, offsets: Mapping[int, int], **client: Any
) -> None:
    """Set the committed offsets of a group that has no members (it is created if need be)."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    request = ConsumerGroupTopicPartitions(group, wanted)

    def commit() -> bool:
        answers = _admin(bootstrap, client).alter_consumer_group_offsets([request])
        return _is_done(answers[group].result(PATIENCE_S).topic_partitions)

    wait_for(f"{group} has a coordinator", commit)


def committed(bootstrap: str, group: str, topic: str, **client: Any) -> dict[int, int]:
    """The committed offsets of a group in one topic, by partition; without those that it has none of.

    Unlike `group_offsets` it waits for a coordinator that is still to come (librdkafka's admin client crashes meanwhile).
    """
    wanted = [TopicPartition(topic, p) for p in range(topics(bootstrap, **client)[topic])]
    consumer = Consumer(_settings(bootstrap, client, group_id=group, enable_auto_commit=False))

    def ask() -> list[TopicPartition] | None:
        try:
            return consumer.committed(wanted, PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET:
                raise
            return None

    try:
        found = wait_for(f"{group} has a coordinator", ask)
    finally:
        consumer.close()
    return {known.partition: known.offset for known in found if known.offset >= 0}


def group_offsets(bootstrap: str, group: str, **client: Any) -> dict[tuple[str, int], int]:
    """The committed offsets of a group, by topic and partition."""
    request = ConsumerGroupTopicPartitions(group)
    answers = _admin(bootstrap, client).list_consumer_group_offsets([request])
    found = answers[group].result(PATIENCE_S).topic_partitions
    _check(found)
    return {(known.topic, known.partition): known.offset for known in found}


def _settings(bootstrap: str, client: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    merged = {"bootstrap_servers": bootstrap, **defaults, **client}
    return {name.replace("_", "."): value for name, value in merged.items()}


def _admin(bootstrap: str, client: Mapping[str, Any]) -> AdminClient:
    return _kept_admin(tuple(sorted(_settings(bootstrap, client).items())))


@lru_cache(maxsize=8)
def _kept_admin(settings: tuple[tuple[str, Any], ...]) -> AdminClient:
    # A client that is garbage-collected takes the answers that are still to come with it; one that is kept after its cluster is
    # gone calls it for ever, and says so.
    return AdminClient({**dict(settings), "log_level": 2})


def _led(admin: AdminClient, topic: str) -> dict[int, int]:
    known = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    return {
        number: partition.leader for number, partition in known.items() if partition.leader >= 0
    }


def _produced(
    producer: Producer, topic: str, records: Iterable[NewRecord]
) -> list[tuple[int, int]]:
    where: list[tuple[int, int]] = []
    failures: list[KafkaError] = []

    def place(index: int) -> Callable[[KafkaError | None, Message], None]:
        where.append((-1, -1))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                where[index] = (_known(message.partition()), _known(message.offset()))

        return delivered

    for index, record in enumerate(records):
        _enqueue(producer, topic, record, place(index))
    left = producer.flush(PATIENCE_S)
    if failures:
        raise KafkaException(failures[0])
    assert left == 0, f"{topic}: {left} records were not acknowledged within {PATIENCE_S:g} s"
    return where


def _enqueue(
    producer: Producer,
    topic: str,
    record: NewRecord,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                partition=record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _at_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


def _record(message: Message) -> Record:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        _known(message.partition()),
        _known(message.offset()),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs),
    )


def _watermarks(
    bootstrap: str, topic: str, client: Mapping[str, Any]
) -> dict[int, tuple[int, int]]:
    partitions = range(topics(bootstrap, **client)[topic])
    consumer = Consumer(_settings(bootstrap, client, group_id="watermarks"))

    def ask() -> dict[int, tuple[int, int]] | None:
        try:
            return {
                p: _known(consumer.get_watermark_offsets(TopicPartition(topic, p), PATIENCE_S))
                for p in partitions
            }
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET:
                raise
            return None

    try:
        return wait_for(f"{topic} has leaders", ask)
    finally:
        consumer.close()


def _is_done(answers: list[TopicPartition]) -> bool:
    """False if the coordinator is still to come."""
    if any(answer.error and answer.error.code() in _NO_COORDINATOR_YET for answer in answers):
        return False
    _check(answers)
    return True


def _check(answers: Iterable[TopicPartition]) -> None:
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)


def _known(value: T | None) -> T:
    assert value is not None
    return value
