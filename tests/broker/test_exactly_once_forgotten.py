"""A target whose leaders forget producers: of old records at once, since they count from the records' own times.

Such a leader takes any number first. Everything is found in its log all the same; nothing is lost, and what another copy wrote
out of turn is told.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from copying import Copying
from kafka_tools import QUICK_JVM, wait_for
from mirrored import NEVER, Make, Mirrored, Unique, assert_sequence, making

from sparkmirror.dataplane import troubles
from sparkmirror.kafka import admin
from sparkmirror.tools.clusters import KafkaCluster

OLD_S = 30 * 86400


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    often = {
        "producer.id.expiration.ms": "1000",
        "producer.id.expiration.check.interval.ms": "200",
    }
    directory = tmp_path_factory.mktemp("forgetful")
    with KafkaCluster("target", 1, directory, often, jvm=QUICK_JVM) as cluster:
        yield cluster


@pytest.fixture
def make(source_cluster: KafkaCluster, forgetful: KafkaCluster, unique: Unique) -> Iterator[Make]:
    with making(source_cluster, forgetful, unique) as made:
        yield made


def forgotten(mirrored: Mirrored) -> bool:
    """Whether the leader remembers nobody who wrote to the remote topic."""
    key = (mirrored.remote, 0)
    mirrored.flow.target.refresh([mirrored.remote])
    states = admin.describe_producers(mirrored.flow.target, [key])
    return states is not None and not states[key]


@pytest.mark.parametrize("age_s", [0, OLD_S])
def test_kills_and_restarts(make: Make, age_s: int) -> None:
    mirrored = make(age_s=age_s)
    for turn in range(4):
        mirrored.produce(400, batch_num_messages=30)
        if turn % 2:
            mirrored.copy_all()
        else:
            mirrored.copy_and_abandon()
        wait_for("the producer is forgotten", lambda: forgotten(mirrored))
    mirrored.produce(10)
    mirrored.copy_all()
    mirrored.assert_same()


@pytest.mark.slow
def test_the_broker_restarts_under_load_of_old_records(make: Make) -> None:
    """What was sent and not acknowledged is looked for before it is sent again."""
    mirrored = make(2, age_s=OLD_S)
    with mirrored.load(), mirrored.copying() as task:
        task.until("it runs", lambda: mirrored.target_count() > 500)
        mirrored.target.kill(1)
        mirrored.target.restart(1)
        now = mirrored.target_count()
        task.until("it goes on", lambda: mirrored.target_count() > now + 500)
    mirrored.copy_all()
    mirrored.assert_same()


def test_a_copy_that_skipped_records_is_found_out(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first batch was refused and its second one taken, for nobody remembered what had to come first."""
    mirrored = make(age_s=OLD_S)
    mirrored.produce(100)
    mirrored.copy_all()
    position = mirrored.position()
    wait_for("the producer is forgotten", lambda: forgotten(mirrored))
    mirrored.produce(60)
    mirrored.write_as(position, 20, 10)
    with mirrored.copying() as task:
        task.until("all is there", mirrored.has_all)
    source, target = mirrored.source_content()[0], mirrored.target_content()[0]
    assert_sequence(target, source[:100] + source[120:130] + source[100:])
    assert "20 record(s) from number 100 on are not in" in caplog.text


def test_a_copy_that_comes_late_does_no_more_harm_than_it_did(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """It slept with a batch in its hands, and nobody remembers that this was taken long ago."""
    mirrored = make(age_s=OLD_S)
    mirrored.produce(100)
    with mirrored.copying(flush_interval=NEVER) as task:
        mirrored.wait(task)
    late = mirrored.position()
    mirrored.produce(100)
    mirrored.copy_all()
    wait_for("the producer is forgotten", lambda: forgotten(mirrored))
    mirrored.write_as(late, 0, 10)
    mirrored.produce(50)
    mirrored.copy_all(expected=260)
    source, target = mirrored.source_content()[0], mirrored.target_content()[0]
    assert_sequence(target, source[:200] + source[100:110] + source[200:])
    assert "got 10 record(s) a second time" in caplog.text


def test_of_two_copies_of_old_records_one_stands_back(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The target cannot hold them apart for long; when the one at work stops, the other goes on."""
    monkeypatch.setattr(troubles, "_FAILED_WAITS_S", (1.0, 5.0))
    mirrored = make(age_s=OLD_S)
    with mirrored.load(), mirrored.copying() as one, mirrored.copying() as two:
        one.until("one stands back", lambda: "another copy of flow" in caplog.text)
        behind = one if stands_back(one) else two
        ahead = two if behind is one else one
        count = mirrored.target_count()
        ahead.until("the other one goes on", lambda: mirrored.target_count() > count + 500)
        ahead.abandon()
        count = mirrored.target_count()
        behind.until("it takes over", lambda: mirrored.target_count() > count + 500)
    with mirrored.copying() as task:
        task.until("all is there", mirrored.has_all)


def stands_back(task: Copying) -> bool:
    return bool(task.task._troubles.standing)
