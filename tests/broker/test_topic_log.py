"""A compacted topic as memory, on real brokers: made, checked, read, followed, written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    add_partitions,
    create_topic,
    delete_topic,
    leaders,
    produce,
    produce_transaction,
    set_topic_configs,
    topic_configs,
    topics,
    wait_for,
)

from sparkmirror.control.topic_log import StorageTopicSettings, TopicLog
from sparkmirror.errors import ConfigError, ConnectError, KafkaError
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
COMPACT = {"cleanup.policy": "compact"}


class Seen(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class Memory:
    """What a log has delivered."""

    def __init__(self) -> None:
        self.records: list[Seen] = []

    def __call__(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp: int
    ) -> None:
        self.records.append(Seen(partition, offset, key, value, timestamp))

    @property
    def rows(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in self.records]

    def last(self) -> dict[bytes | None, bytes | None]:
        return dict(self.rows)


@contextmanager
def topic_log(
    bootstrap: str, topic: StorageTopicSettings, patience: float = 30.0
) -> Iterator[tuple[TopicLog, Memory]]:
    memory = Memory()
    settings = client_settings("target", {"bootstrap.servers": bootstrap})
    log = TopicLog(settings, topic, memory, patience=patience)
    try:
        log.start()
        yield log, memory
    finally:
        log.stop()


def storage(name: str, partitions: int = 1, factor: int = 1) -> StorageTopicSettings:
    return StorageTopicSettings(name, partitions, factor, role="status")


def test_a_missing_topic_is_made_as_asked_and_always_compacted(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    name, bootstrap = unique("storage"), target_cluster.bootstrap
    wanted = StorageTopicSettings(
        name, 3, 1, {"segment.ms": "7000000", "cleanup.policy": "delete"}, "offset"
    )
    with topic_log(bootstrap, wanted) as (log, memory):
        assert memory.records == []
        is_ready = [log.is_ready]
    assert [*is_ready, log.is_ready] == [True, False]
    assert topics(bootstrap)[name] == 3
    found = topic_configs(bootstrap, name)
    assert (found["cleanup.policy"], found["segment.ms"]) == ("compact", "7000000")


def test_what_is_appended_is_read_by_all(target_cluster: KafkaCluster, unique: Unique) -> None:
    topic, bootstrap = storage(unique("storage"), 5), target_cluster.bootstrap
    rows = [(b"key-%d" % (i % 10), b"%d" % i if i % 3 else None) for i in range(100)]
    with topic_log(bootstrap, topic) as (one, seen), topic_log(bootstrap, topic) as (other, also):
        ends = one.append(rows)
        one.await_delivery(ends, 30)
        other.read_to_end(30)
        assert seen.last() == also.last() == dict(rows)
        assert sum(ends.values()) == len(seen.records) == 100
        for key, _ in rows:
            values = [value for found, value in rows if found == key]
            assert [value for found, value in seen.rows if found == key] == values
    with topic_log(bootstrap, topic) as (_, later):
        assert later.last() == dict(rows)


def test_keys_go_where_javas_producer_puts_them(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = storage(unique("storage"), 7), target_cluster.bootstrap
    keys = [f"status-task-größe-{i}".encode() for i in range(50)]
    with topic_log(bootstrap, topic) as (log, memory):
        log.await_delivery(log.append([(key, b"ours") for key in keys]), 30)
        ours = {record.key: record.partition for record in memory.records}
        produce(
            bootstrap,
            topic.name,
            [NewRecord(key, b"theirs") for key in keys],
            partitioner="murmur2_random",
        )
        log.read_to_end(30)
        theirs = {r.key: r.partition for r in memory.records if r.value == b"theirs"}
    assert ours == theirs


def test_more_than_fits_in_one_batch_is_written(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    rows = [(b"%d" % i, bytes([i]) * 300_000) for i in range(10)]
    with topic_log(target_cluster.bootstrap, storage(unique("storage"))) as (log, memory):
        log.await_delivery(log.append(rows), 30)
        assert memory.rows == rows
        with pytest.raises(KafkaError, match=r"TOO_LARGE.*max.message.bytes"):
            log.append([(b"huge", bytes(3_000_000))])
        log.await_delivery(log.append([(b"after", b"")]), 30)
        assert memory.rows[-1] == (b"after", b"")


def test_threads_may_write_at_once(target_cluster: KafkaCluster, unique: Unique) -> None:
    with topic_log(target_cluster.bootstrap, storage(unique("storage"), 3)) as (log, memory):

        def write(writer: int) -> None:
            for i in range(20):
                log.append([(b"%d-%d" % (writer, i), b"x"), (b"w%d" % writer, b"%d" % i)])

        threads = [threading.Thread(target=write, args=(i,)) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.read_to_end(30)
    assert len(memory.records) == 200
    for writer in range(5):
        values = [value for key, value in memory.rows if key == b"w%d" % writer]
        assert values == [b"%d" % i for i in range(20)]


# -- what a topic has to be ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_only_compacted_is_refused(
    target_cluster: KafkaCluster, unique: Unique, policy: str
) -> None:
    name = unique("storage")
    create_topic(target_cluster.bootstrap, name, configs={"cleanup.policy": policy})
    log = topic_log(target_cluster.bootstrap, storage(name))
    with pytest.raises(ConfigError, match=rf"{name} \(status.storage.topic\).*={policy}"), log:
        pass
    set_topic_configs(target_cluster.bootstrap, name, COMPACT)
    with topic_log(target_cluster.bootstrap, storage(name)) as (log_, _):
        assert log_.is_ready


def test_a_config_topic_has_one_partition(target_cluster: KafkaCluster, unique: Unique) -> None:
    name = unique("storage")
    create_topic(target_cluster.bootstrap, name, 2, configs=COMPACT)
    wanted = StorageTopicSettings(name, 1, 1, role="config")
    with (
        pytest.raises(ConfigError, match=r"has 2 partitions.*config.storage.topic"),
        topic_log(target_cluster.bootstrap, wanted),
    ):
        pass


def test_more_replicas_than_brokers_says_what_to_set(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    name = unique("storage")
    with (
        pytest.raises(
            ConfigError, match=r"factor 3\. status.storage.replication.factor is 3 and .* 1 broker"
        ),
        topic_log(target_cluster.bootstrap, storage(name, factor=3), patience=1.0),
    ):
        pass
    assert name not in topics(target_cluster.bootstrap)


def test_a_cluster_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"),
        topic_log("127.0.0.1:1", storage("t"), patience=0.5),
    ):
        pass


# -- transactions -------------------------------------------------------------------------------


def test_only_what_is_committed_is_delivered(target_cluster: KafkaCluster, unique: Unique) -> None:
    name, bootstrap = unique("storage"), target_cluster.bootstrap
    with topic_log(bootstrap, storage(name)) as (log, memory):
        for value, commit in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
            produce_transaction(
                bootstrap,
                name,
                [NewRecord(b"k", value)],
                commit=commit,
                transactional_id=unique("leader"),
            )
        log.append([(b"k", b"5")])
        log.read_to_end(30)
        assert memory.rows == [(b"k", b"1"), (b"k", b"3"), (b"k", b"5")]
    with topic_log(bootstrap, storage(name)) as (_, later):
        assert later.records == memory.records


def test_the_end_is_reached_when_open_transactions_are_decided(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    name, bootstrap = unique("storage"), target_cluster.bootstrap
    with topic_log(bootstrap, storage(name)) as (log, memory):
        leader = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("leader")})
        leader.init_transactions(30)
        leader.begin_transaction()
        leader.produce(name, key=b"k", value=b"open")
        leader.flush(30)
        log.append([(b"k", b"behind")])
        with pytest.raises(ConnectError, match="offset 0 of 2"):
            log.read_to_end(1.0)
        assert memory.records == []
        leader.commit_transaction(30)
        log.read_to_end(30)
        assert memory.rows == [(b"k", b"open"), (b"k", b"behind")]


# -- what happens to brokers and topics ---------------------------------------------------------


@pytest.mark.slow
def test_a_log_lives_through_the_loss_of_brokers(
    three_broker_target: KafkaCluster, unique: Unique
) -> None:
    cluster, topic = three_broker_target, storage(unique("storage"), 3, 3)
    written: list[tuple[bytes, bytes | None]] = []
    with ExitStack() as stack:
        log, memory = stack.enter_context(topic_log(cluster.bootstrap, topic))

        def write(count: int) -> None:
            for _ in range(count):
                row = (b"%d" % (len(written) % 20), b"%d" % len(written))
                log.append([row], timeout=60)
                written.append(row)

        write(50)
        for round_ in range(2):
            gone = leaders(cluster.bootstrap, topic.name)[round_]
            cluster.kill(gone)
            write(50)
            cluster.restart(gone)
            write(50)
        log.read_to_end(60)
        assert log.is_ready
        assert memory.last() == dict(written)
        for key in dict(written):
            # A write that was tried again may be there twice, but never out of order.
            mine = [int(value or b"") for found, value in memory.rows if found == key]
            assert mine == sorted(mine)
            assert {b"%d" % i for i in mine} == {value for k, value in written if k == key}


@pytest.mark.slow
def test_a_log_goes_on_when_its_only_broker_comes_back(tmp_path: Path) -> None:
    with (
        KafkaCluster("alone", 1, tmp_path, jvm=QUICK_JVM) as cluster,
        topic_log(cluster.bootstrap, storage("storage", 3)) as (log, memory),
    ):
        log.append([(b"a", b"1")])
        log.read_to_end(30)
        cluster.kill(1)
        with pytest.raises(ConnectError):
            log.read_to_end(1.0)
        with pytest.raises(KafkaError):
            log.append([(b"a", b"lost")], timeout=1.0)
        cluster.restart(1)
        log.append([(b"a", b"2")], timeout=60)
        log.read_to_end(60)
        assert memory.rows == [(b"a", b"1"), (b"a", b"2")]


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    name, bootstrap = unique("storage"), target_cluster.bootstrap
    with topic_log(bootstrap, storage(name)) as (log, memory):
        log.await_delivery(log.append([(b"a", b"%d" % i) for i in range(10)]), 30)
        delete_topic(bootstrap, name)
        wait_for("the topic is gone", lambda: name not in topics(bootstrap))
        create_topic(bootstrap, name, configs=COMPACT)
        produce(bootstrap, name, [NewRecord(b"b", b"new")])
        wait_for("the new record is seen", lambda: (b"b", b"new") in memory.rows)
        log.await_delivery(log.append([(b"c", b"more")]), 30)
        assert memory.rows[-2:] == [(b"b", b"new"), (b"c", b"more")]


def test_new_partitions_are_read_too(target_cluster: KafkaCluster, unique: Unique) -> None:
    name, bootstrap = unique("storage"), target_cluster.bootstrap
    memory = Memory()
    settings = client_settings(
        "target", {"bootstrap.servers": bootstrap, "metadata.max.age.ms": "200"}
    )
    log = TopicLog(settings, storage(name), memory)
    try:
        log.start()
        add_partitions(bootstrap, name, 3)
        produce(bootstrap, name, [NewRecord(b"k", b"%d" % p, partition=p) for p in range(3)])
        wait_for("all are seen", lambda: len(memory.records) == 3)
    finally:
        log.stop()


def test_who_waits_is_told_that_the_log_stopped(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    with topic_log(target_cluster.bootstrap, storage(unique("storage"))) as (log, _):
        told = threading.Event()

        def wait() -> None:
            with suppress(ConnectError):
                log.await_delivery({0: 1000}, 60)
            told.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        log.stop()
        assert told.wait(10)
        waiting.join()
        with pytest.raises(KafkaError, match="not written to any more"):
            log.append([(b"k", b"v")])
