"""What kills, restarts and deletions leave behind, between brokers of two versions: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_tools import delete_records, end_offsets
from running import Mirror
from versioned import VersionedTopic

NewTopic = Callable[..., VersionedTopic]
DAY_S = 86_400


def slow(value: str) -> object:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.slow
def test_three_kills_under_load(new_topic: NewTopic, mirror: Mirror) -> None:
    topic = new_topic(3)
    with topic.load():
        topic.await_end(topic.end() + 1)
        for _ in range(3):
            mirror.kill()
            mirror.start()
            topic.await_end(topic.end() + 1)
    topic.await_all()
    assert topic.check() > 500


@pytest.mark.slow
@pytest.mark.parametrize("age_days", [0, 30])
def test_brokers_restart(new_topic: NewTopic, age_days: int) -> None:
    """The target's in the middle of copying, the source's between two records: leaders forget producers of old records."""
    topic, age_s = new_topic(2), age_days * DAY_S
    topic.produce(100, age_s=age_s)
    topic.await_all()
    topic.produce(3000, age_s=age_s, batch_num_messages=20)
    topic.target.restart(1)
    topic.await_all()
    topic.target.restart(1)
    topic.produce(100, age_s=age_s)
    topic.await_all()
    topic.source.restart(1)
    topic.produce(100, age_s=age_s)
    topic.await_all()
    assert topic.check() == 3300


@pytest.mark.parametrize("then", ["goes-on", slow("mirror-restarts"), slow("broker-restarts")])
def test_all_target_records_deleted(new_topic: NewTopic, mirror: Mirror, then: str) -> None:
    topic = new_topic(2)
    topic.produce(300)
    topic.await_all()
    topic.await_positions()
    delete_records(
        topic.target.bootstrap, topic.remote, end_offsets(topic.target.bootstrap, topic.remote)
    )
    if then == "mirror-restarts":
        mirror.stop()
        mirror.start()
    elif then == "broker-restarts":
        topic.target.restart(1)
    topic.produce(100)
    topic.await_count(100)
    later = {partition: records[150:] for partition, records in topic.sent().items()}
    assert topic.arrived() == later


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, 900], ids=["fewer", "more"])
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_topic_made_again(new_topic: NewTopic, mirror: Mirror, when: str, count: int) -> None:
    """With fewer and with more records than were copied: all new records follow the old ones."""
    topic = new_topic(2)
    topic.produce(600)
    topic.await_all()
    before = topic.arrived()
    if when == "stopped":
        mirror.stop()
    topic.create_again()
    topic.produce(count)
    if when == "stopped":
        mirror.start()
    topic.await_count(600 + count)
    assert topic.check(before) == count


@pytest.mark.slow
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_remote_topic_made_again(new_topic: NewTopic, mirror: Mirror, when: str) -> None:
    """With mirror.recreated.target=restart: all records of the source are on the new topic, once and in order."""
    topic = new_topic(2)
    topic.produce(600)
    topic.await_all()
    topic.await_positions()
    if when == "stopped":
        mirror.stop()
    topic.delete_remote()
    topic.produce(100)  # without topic ids, only these tell a running copy
    if when == "stopped":
        mirror.start()
    topic.await_all()
    assert topic.check() == 700
