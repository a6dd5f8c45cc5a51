"""A source on Kafka 2.4, which has no topic ids: a topic that was deleted and created again is told by its records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_tools import QUICK_JVM, delete_records
from mirrored import NEVER, Make, Unique, assert_sequence, making

from sparkmirror.kafka import log, records
from sparkmirror.kafka.batches import crc_of
from sparkmirror.tools.clusters import KafkaCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    directory = tmp_path_factory.mktemp("old-source")
    with KafkaCluster("source", 1, directory, jvm=QUICK_JVM, version="2.4.1") as cluster:
        yield cluster


@pytest.fixture
def make(old_source: KafkaCluster, target_cluster: KafkaCluster, unique: Unique) -> Iterator[Make]:
    with making(old_source, target_cluster, unique) as made:
        yield made


@pytest.mark.parametrize("count", [300, 1000, 3000])
@pytest.mark.parametrize("running", [True, False])
def test_the_topic_was_created_again(
    make: Make, caplog: pytest.LogCaptureFixture, count: int, running: bool
) -> None:
    """With fewer records than were copied, with as many, and with more."""
    mirrored = make()
    mirrored.produce(1000)
    with mirrored.copying() as task:
        mirrored.wait(task)
        if not running:
            task.stop()
        before = mirrored.target_content()[0]
        mirrored.delete_source()
        mirrored.create_source()
        mirrored.produce(count)
        if running:
            mirrored.wait(task, 1000 + count)
    mirrored.copy_all(expected=1000 + count)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])
    assert "deleted and created again" in caplog.text
    assert "cut back" not in caplog.text


def test_a_topic_that_is_as_it_was_is_copied_on(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """After starts in order and kills, with transactions, retention and idle times."""
    mirrored = make()
    for turn in range(3):
        mirrored.produce(200, batch_num_messages=7)
        with mirrored.copying(flush_interval=NEVER) as task:
            task.until("all is there", mirrored.has_all)
            task.abandon()
        mirrored.produce_transaction(50, commits=turn != 1)
        mirrored.produce_small_batches(30)
        with mirrored.copying() as task:
            task.until("all is there", mirrored.has_all)
    wanted = mirrored.source_content()[0]
    delete_records(mirrored.source.bootstrap, mirrored.topic, {0: 400})
    with mirrored.copying() as task:
        mirrored.produce(10)
        task.until("all is there", mirrored.has_all)
    assert_sequence(mirrored.target_content()[0], wanted + mirrored.source_content()[0][-10:])
    assert "created again" not in caplog.text


def test_compaction_is_no_new_topic(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    quick = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "20000"}
    mirrored = make(compacted=True, configs=quick)
    mirrored.produce(1000, keys=20, batch_num_messages=10)
    mirrored.copy_all()
    mirrored.produce(3000, keys=20, batch_num_messages=10)
    with mirrored.copying() as task:
        task.until("it was compacted", lambda: len(mirrored.source_content()[0]) < 1000)
    mirrored.produce(20, keys=20)
    with mirrored.copying() as task:
        task.until("all is there", mirrored.has_all)
    assert "created again" not in caplog.text


def test_stopped_between_the_parts_of_merged_batches(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Small batches are joined, and written in parts that the remote topic takes."""
    mirrored = make(remote_configs={"max.message.bytes": "3000"})
    mirrored.produce_small_batches(6000)
    for turn in range(1, 4):
        wanted = 200 * turn
        with mirrored.copying(flush_interval=0.01) as task:
            task.until("some are there", lambda wanted=wanted: mirrored.target_count() >= wanted)  # type: ignore[misc]
    mirrored.copy_all()
    assert "created again" not in caplog.text
    mirrored.assert_same()


def test_batches_of_many_partitions_are_asked_for_in_few_requests(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers one batch above the limit of a partition in each request."""
    mirrored = make(100)
    source = mirrored.flow.source
    source.refresh([mirrored.topic])
    batches = {
        (mirrored.topic, partition): records.control_batch([(b"k", os.urandom(20_000))], 1)
        for partition in range(100)
    }
    for (topic, partition), batch in batches.items():
        log.append(source, topic, partition, batch)
    asked: list[int] = []
    ask = log._first_batches

    def counted(*args: Any) -> Any:
        asked.append(len(args[2]))
        return ask(*args)

    monkeypatch.setattr(log, "_first_batches", counted)
    found = log.batches_at(source, dict.fromkeys(batches, 0))
    assert {key: crc_of(view) for key, view in found.items()} == {
        key: crc_of(memoryview(batch)) for key, batch in batches.items()
    }
    assert len(asked) <= 4, f"{len(asked)} requests, {sum(asked)} rows"
