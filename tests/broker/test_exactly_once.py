"""Each record once and in order, whoever copies: restarts, kills, twins, and a target that forgot its producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kafka_tools import NewRecord, produce, produce_transaction
from mirrored import NEVER, Make, Unique, making

from sparkmirror.kafka import admin
from sparkmirror.tools.clusters import KafkaCluster


@pytest.fixture
def make(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[Make]:
    with making(source_cluster, target_cluster, unique) as made:
        yield made


def test_a_restart_in_order_goes_on_where_it_was(make: Make) -> None:
    mirrored = make(3)
    for round_ in range(3):
        for partition in range(3):
            mirrored.produce(200 + 31 * partition, partition)
        mirrored.copy_all()
        mirrored.assert_same()
        positions = [mirrored.position(partition) for partition in range(3)]
        assert [p.sequence for p in positions] == [p.next_offset for p in positions], round_
        assert len({p.numbering for p in positions}) == 1


def test_after_a_kill_what_is_there_is_passed_over(make: Make) -> None:
    mirrored = make(2)
    for _ in range(3):
        mirrored.produce(3000, 0, batch_num_messages=100)
        mirrored.produce_small_batches(700, 3, 1)
        mirrored.copy_and_abandon()
        assert mirrored.position().sequence == 0
    mirrored.produce(100)
    mirrored.copy_all()
    mirrored.assert_same()


def test_another_producer_wrote_in_between(make: Make) -> None:
    mirrored = make()
    foreign = [NewRecord(b"f%d" % i, b"foreign", 0) for i in range(50)]
    mirrored.produce(500)
    mirrored.copy_and_abandon()
    produce(mirrored.target.bootstrap, mirrored.remote, foreign)
    mirrored.produce(500)
    mirrored.copy_and_abandon(expected=1050)
    produce(mirrored.target.bootstrap, mirrored.remote, foreign)
    mirrored.produce(500)
    mirrored.copy_all(expected=1600)
    found = [row for row in mirrored.target_content()[0] if row[2] != b"foreign"]
    assert found == mirrored.source_content()[0]


def test_a_transactional_source_with_aborts(make: Make) -> None:
    mirrored = make()
    where = mirrored.source.bootstrap, mirrored.topic
    for turn in range(4):
        produce_transaction(*where, mirrored.records(60, 0), commit=turn % 2 == 0)
        produce_transaction(*where, mirrored.records(5, 0), commit=turn % 3 == 0)
        mirrored.produce(7)
        wanted = len(mirrored.source_content()[0])
        mirrored.copy_and_abandon(expected=wanted)
    mirrored.copy_all(expected=wanted)
    mirrored.assert_same()


def test_batches_are_too_large_for_the_target(make: Make) -> None:
    """A leader takes any first number from a producer it does not know: the ones behind must not overtake."""
    mirrored = make(remote_configs={"max.message.bytes": "20000"})
    for _ in range(2):
        mirrored.produce(200, size=1000, linger_ms=200, batch_num_messages=200)
        for _ in range(10):
            mirrored.produce(20, size=300, batch_num_messages=20)
    mirrored.copy_all()
    mirrored.assert_same()


def test_without_describe_producers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "describe_producers", lambda *_: None)
    mirrored = make()
    for _ in range(3):
        mirrored.produce(700, batch_num_messages=50)
        mirrored.copy_and_abandon()
    mirrored.copy_all()
    mirrored.assert_same()


@pytest.mark.slow
def test_twins_from_scratch_under_load_and_a_third_one_late(make: Make) -> None:
    mirrored = make(3)
    with mirrored.load(), mirrored.copying() as first, mirrored.copying():
        first.until("some time", after(8))
        with mirrored.copying():
            first.until("some more time", after(5))
    mirrored.copy_all()
    mirrored.assert_same()


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


@pytest.mark.slow
def test_a_twin_that_is_killed_again_and_again(make: Make) -> None:
    mirrored = make(2)
    with mirrored.load(), mirrored.copying() as first:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with mirrored.copying(flush_interval=NEVER) as second:
                before = mirrored.target_count()
                first.until("records", lambda b=before: mirrored.target_count() > b + 300)  # type: ignore[misc]
                second.abandon()
    mirrored.copy_all()
    mirrored.assert_same()
