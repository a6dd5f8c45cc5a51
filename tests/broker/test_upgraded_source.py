"""A source that is upgraded from Kafka 2.4, which has no topic ids, to 2.8, which has them: positions from before hold none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_tools import QUICK_JVM
from mirrored import Make, Mirrored, Unique, assert_sequence, making

from sparkmirror.tools.clusters import KafkaCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster("source", 1, tmp_path, jvm=QUICK_JVM, version="2.4.1") as cluster:
        yield cluster


@pytest.fixture
def make(source: KafkaCluster, target_cluster: KafkaCluster, unique: Unique) -> Iterator[Make]:
    with making(source, target_cluster, unique) as made:
        yield made


def upgrade(cluster: KafkaCluster) -> None:
    cluster.version = "2.8.2"
    cluster.restart(1)


def has_id(mirrored: Mirrored) -> bool:
    """Whether a position that has just moved names the topic."""
    mirrored.produce(1)
    return len(mirrored.position().source_id) == 32


@pytest.mark.parametrize("running", [True, False])
def test_a_topic_that_is_as_it_was_is_copied_on(
    make: Make, source: KafkaCluster, caplog: pytest.LogCaptureFixture, running: bool
) -> None:
    """And one that is created again after that is noticed by its id."""
    mirrored = make()
    mirrored.produce(1000)
    with mirrored.copying(metadata_max_age=0.5) as task:
        mirrored.wait(task)
        if running:
            upgrade(source)
            task.until("the position has the topic id", lambda: has_id(mirrored))
    if not running:
        upgrade(source)
        with mirrored.copying() as task:
            task.until("the position has the topic id", lambda: has_id(mirrored))
    mirrored.copy_all()
    mirrored.assert_same()
    assert "created again" not in caplog.text
    before = mirrored.target_content()[0]
    mirrored.delete_source()
    mirrored.create_source()
    mirrored.produce(3000)
    mirrored.copy_all(expected=len(before) + 3000)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])


@pytest.mark.parametrize("count", [300, 3000])
@pytest.mark.parametrize("first", ["upgraded", "created again"])
def test_a_topic_that_was_created_again_around_the_upgrade_is_noticed(
    make: Make, source: KafkaCluster, caplog: pytest.LogCaptureFixture, count: int, first: str
) -> None:
    mirrored = make()
    mirrored.produce(1000)
    mirrored.copy_all()
    before = mirrored.target_content()[0]
    if first == "upgraded":
        upgrade(source)
    mirrored.delete_source()
    mirrored.create_source()
    mirrored.produce(count)
    if first != "upgraded":
        upgrade(source)
    mirrored.copy_all(expected=1000 + count)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])
    assert "deleted and created again" in caplog.text
