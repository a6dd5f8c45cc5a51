"""Queries give way: what works on them has the processor last, and never what copies other topics, in whatever epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from kafka_tools import create_topic, end_offsets, produce, topics, wait_for
from running import Mirror, properties
from test_query import PATIENCE_S, people

from sparkmirror.tools.clusters import KafkaCluster

pytestmark = [pytest.mark.slow, pytest.mark.alone]
Unique = Callable[[str], str]
EPOCHS = 4


def priorities(mirror: Mirror, *, gives_way: bool) -> list[int]:
    """Of the Python workers of one kind."""
    found = []
    for worker in mirror.python_workers():
        daemon = worker.parent()
        assert daemon is not None
        if ("SPARKMIRROR_GIVES_WAY" in daemon.environ()) == gives_way:
            found.append(worker.nice())
    return found


def test_only_queries_give_way(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic, plain = unique("people"), unique("plain")
    for name in (topic, plain):
        create_topic(source_cluster.bootstrap, name, 2)
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=f"{topic},{plain}",
        flow_transform_sql="SELECT upper(CAST(value AS STRING)) AS value FROM records",
        flow_transform_topics=topic,
        mirror_epoch_ms="3000",
        emit_heartbeats_enabled="false",
    )
    usual = psutil.Process().nice()

    def has(name: str, count: int) -> bool:
        remote = f"A.{name}"
        if remote not in topics(target_cluster.bootstrap):
            return False
        return sum(end_offsets(target_cluster.bootstrap, remote).values()) >= count

    def epochs() -> int:
        return mirror.output.count("Spark task(s) submitted")

    with Mirror(tmp_path, keys) as mirror:
        for number in range(1, EPOCHS + 1):
            for name in (topic, plain):
                produce(source_cluster.bootstrap, name, people(100, 2))
            for name in (topic, plain):
                wait_for(name, partial(has, name, 100 * number), PATIENCE_S)
            # The steps of a query are over now, and their workers are there for whoever comes next.
            assert set(priorities(mirror, gives_way=True)) == {19}
            # The one task with the plain topic, and nothing else: neither the other task nor a step.
            assert priorities(mirror, gives_way=False) == [usual]
            begun = epochs()
            wait_for("the next epoch", partial(_is_more, epochs, begun), PATIENCE_S)
        assert mirror.stop() == 0


def _is_more(count: Callable[[], int], than: int) -> bool:
    return count() > than
