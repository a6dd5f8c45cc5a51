"""Flows of many topics that are not on the target yet."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_pair import ClusterPair
from copying import settings_of
from kafka_tools import QUICK_JVM, NewRecord, create_topic, produce, wait_for
from running import Mirror, properties
from watching import Watching, connector_config

from sparkmirror.connectors import remote_topics
from sparkmirror.connectors.source import assigned_partitions
from sparkmirror.kafka import admin
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.request_parts import Bound
from sparkmirror.tools.clusters import KafkaCluster, start_all

Unique = Callable[[str], str]
TOPICS, PARTITIONS = 1000, 10
NAMES = [f"orders-{number:04}" for number in range(TOPICS)]
REMOTES = {f"A.{name}" for name in NAMES}
FIRST, LAST = NAMES[0], NAMES[-1]
PATIENCE_S = 400.0
# An index of 10 MB for each of 10,000 partitions would be too much for a small machine.
SMALL = {"log.index.size.max.bytes": "4096"}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ClusterPair]:
    """Clusters of its own: so many topics would be in the way of other tests."""
    pair = ClusterPair(
        *(
            KafkaCluster(name, 1, tmp_path, SMALL, heap="1g", jvm=QUICK_JVM)
            for name in ("source", "target")
        )
    )
    start_all(pair)
    with contextlib.closing(pair.source), contextlib.closing(pair.target):
        yield pair


@pytest.fixture
def target(clusters: ClusterPair) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(settings_of("B", clusters.target))) as cluster:
        yield cluster


def has_topic(cluster: Cluster, topic: str) -> bool:
    cluster.refresh([topic])
    return topic in cluster.topics


def has_record(cluster: Cluster, topic: str) -> bool:
    key = (topic, 3)
    return has_topic(cluster, topic) and admin.list_offsets(cluster, [key], admin.LATEST)[key] == 1


def fill(source: KafkaCluster) -> None:
    """All topics, the first and the last with a record."""
    with contextlib.closing(Cluster(settings_of("A", source))) as cluster:
        cluster.refresh([])
        new = [NewTopic(name, PARTITIONS, 1, {}) for name in NAMES]
        assert not any(admin.create_topics(cluster, new).values())
        wait_for("the source has all topics", lambda: has_topic(cluster, LAST), PATIENCE_S)
    for name in (FIRST, LAST):
        produce(source.bootstrap, name, [NewRecord(b"k", name.encode(), 3)])


def test_what_is_created_is_copied_while_the_rest_is_not_there_yet(
    cluster_pair: ClusterPair,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In parts of three topics, and a step for each; one topic cannot be created at all."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(admin, "CREATION", Bound(3))
    monkeypatch.setattr(remote_topics, "_STEP_S", (0.0, 0.0))
    source, target = cluster_pair.source.bootstrap, cluster_pair.target.bootstrap
    base = unique("orders")
    names = [f"{base}-{number}" for number in range(8)]
    long = f"{base}-".ljust(249, "0")  # with the alias it is too long for a topic
    for name in (*names, long):
        create_topic(source, name)
    config = connector_config(source, target, f"{base}-.*")
    with Watching(config, unique("offsets")) as watching:

        def given() -> set[str]:
            tasks = watching.connector.task_configs(1)
            return {topic for task in tasks for topic, _ in assigned_partitions(task)}

        wait_for("all are given to tasks", lambda: given() == set(names))
        assert watching.watch.reconfigured.is_set()
        late = f"{base}-late"
        create_topic(source, late)
        wait_for("a later one is, too", lambda: given() == {*names, late})
    said = "\n".join(record.getMessage() for record in caplog.records)
    where = re.escape(f"cluster B ({target})")
    assert re.findall(rf"^Created (\d) of 9 topics on {where}\.$", said, re.M) == ["2", "5", "8"]
    given_topics = re.findall(r"^Flow A->B: \d partition\(s\) of (\d) topic", said, re.M)
    assert given_topics == ["2", "5", "8", "9"]
    errors = [
        record.getMessage()
        for record in caplog.records
        if record.name == remote_topics.__name__ and record.levelno >= logging.ERROR
    ]
    assert len(errors) == 1
    assert f"A.{long}" in errors[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_copying_begins_with_the_topics_that_are_there(
    clusters: ClusterPair, target: Cluster, tmp_path: Path
) -> None:
    fill(clusters.source)
    keys = properties(
        *clusters,
        topics="orders-.*",
        tasks_max="2",
        emit_heartbeats_enabled="false",
        emit_checkpoints_enabled="false",
        sync_topic_acls_enabled="false",
        sync_topic_configs_enabled="false",
    )
    with Mirror(tmp_path, keys) as mirror:
        wait_for("one record is copied", lambda: has_record(target, f"A.{FIRST}"), PATIENCE_S)
        target.refresh(None)
        assert not target.topics.keys() >= REMOTES, "all topics were created before one was copied"
        wait_for("the last one is copied", lambda: has_record(target, f"A.{LAST}"), PATIENCE_S)
    target.refresh(None)
    assert {len(target.topics[remote].partitions) for remote in REMOTES} == {PARTITIONS}
    lines = mirror.output.splitlines()
    progress = [line for line in lines if f" of {TOPICS} topics" in line]
    assert len(progress) >= 2
    assert f"{TOPICS} of {TOPICS} topics" in progress[-1]
    assert len(lines) < TOPICS, "the log has one line for many topics"
