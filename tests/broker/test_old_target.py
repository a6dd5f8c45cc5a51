"""A target on Kafka 2.4: its leaders take sequence 0 alone from a producer that they do not know (any number from 2.5 on)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_tools import QUICK_JVM, delete_records
from mirrored import Make, Unique, assert_sequence, making

from sparkmirror.tools.clusters import KafkaCluster

OLD_S = 30 * 86400
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def old_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    directory = tmp_path_factory.mktemp("old-target")
    with KafkaCluster("target", 1, directory, jvm=QUICK_JVM, version="2.4.1") as cluster:
        yield cluster


@pytest.fixture
def make(source_cluster: KafkaCluster, old_target: KafkaCluster, unique: Unique) -> Iterator[Make]:
    with making(source_cluster, old_target, unique) as made:
        yield made


@pytest.mark.parametrize("running", [True, False])
def test_all_records_of_the_target_are_deleted(make: Make, running: bool) -> None:
    """With its records the leader forgets who wrote them, at its next start at the latest."""
    mirrored = make()
    mirrored.produce(300)
    with mirrored.copying() as task:
        mirrored.wait(task)
        if not running:
            task.stop()
        delete_records(mirrored.target.bootstrap, mirrored.remote, {0: 300})
        mirrored.target.restart(1)
        mirrored.produce(200)
        if running:
            mirrored.wait(task, 200)
    if not running:
        mirrored.copy_all(expected=200)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][300:])
    assert mirrored.position().origin == (300, 300)  # a new numbering began there
    mirrored.produce(100)
    mirrored.copy_all(expected=300)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][300:])


@pytest.mark.parametrize("running", [True, False])
def test_the_topic_was_created_again(
    make: Make, caplog: pytest.LogCaptureFixture, running: bool
) -> None:
    """Without topic ids it looks like a log that lost what it had: all that the source has is copied again.

    Also what was copied before the numbering in force began.
    """
    mirrored = make()
    mirrored.produce(300)
    with mirrored.copying() as task:
        mirrored.wait(task)
    delete_records(mirrored.target.bootstrap, mirrored.remote, {0: 300})
    mirrored.target.restart(1)
    mirrored.produce(100)
    mirrored.copy_all(expected=100)
    assert mirrored.position().origin == (300, 300)
    with mirrored.copying() as task:
        mirrored.wait(task, 100)
        if not running:
            task.stop()
        mirrored.delete_target()
        mirrored.create_target()
        mirrored.produce(50)
        if running:
            mirrored.wait(task, 450)
    mirrored.copy_all(expected=450)
    mirrored.assert_same()
    assert "acknowledged record(s)" in caplog.text


def test_an_idle_compacted_topic_was_created_again(make: Make) -> None:
    """Each start begins a numbering behind what is there; nothing was written under the last one."""
    mirrored = make(compacted=True)
    mirrored.produce(300)
    mirrored.copy_all()
    with mirrored.copying() as task:
        task.until("a numbering has begun", lambda: mirrored.position().origin == (300, 300))
    mirrored.delete_target()
    mirrored.create_target()
    mirrored.copy_all()
    mirrored.assert_same()


@pytest.mark.parametrize("age_s", [0, OLD_S])
def test_the_broker_restarts(make: Make, age_s: int) -> None:
    """It forgets producers whose last records are older than a week."""
    mirrored = make(2, age_s=age_s)
    for partition in range(2):
        mirrored.produce(500, partition)
    mirrored.copy_all()
    with mirrored.copying() as task:
        mirrored.target.restart(1)
        for partition in range(2):
            mirrored.produce(200, partition)
        mirrored.wait(task)
    mirrored.target.restart(1)
    mirrored.produce(100)
    mirrored.copy_all()
    mirrored.assert_same()


def test_the_broker_restarts_under_load_of_old_records(make: Make) -> None:
    mirrored = make(2, age_s=OLD_S)
    with mirrored.load(), mirrored.copying() as task:
        for _ in range(2):
            now = mirrored.target_count()
            task.until("it runs", lambda now=now: mirrored.target_count() > now + 500)  # type: ignore[misc]
            mirrored.target.kill(1)
            mirrored.target.restart(1)
        now = mirrored.target_count()
        task.until("it goes on", lambda: mirrored.target_count() > now + 500)
    mirrored.copy_all()
    mirrored.assert_same()
