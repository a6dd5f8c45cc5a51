"""Dedicated mode on several nodes: the same file, shared work, and nothing lost or doubled when one goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_tools import NewRecord, create_topic, end_offsets, produce, wait_for
from running import Mirror, assert_same, properties

from sparkmirror.tools.clusters import KafkaCluster

PARTITIONS = 6
QUICK = {
    "B.session.timeout.ms": "6000",
    "B.heartbeat.interval.ms": "1000",
    "B.scheduled.rebalance.max.delay.ms": "1000",
    "emit.heartbeats.enabled": "false",
}


def numbered(first: int, count: int) -> list[NewRecord]:
    return [
        NewRecord(b"k%d" % number, b"v%d" % number, number % PARTITIONS)
        for number in range(first, first + count)
    ]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "has_rest",
    [pytest.param(False, id="alone"), pytest.param(True, id="internal rest")],
)
def test_nodes_share_the_work_and_take_over(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Callable[[str], str],
    tmp_path: Path,
    has_rest: bool,
) -> None:
    topic = unique("nodes")
    remote = f"A.{topic}"
    create_topic(source_cluster.bootstrap, topic, PARTITIONS)
    keys = QUICK | properties(source_cluster, target_cluster, flow_topics=topic, tasks_max="4")
    keys |= {f"B.{name}": unique(name[:6]) for name in ("group.id", *STORAGE)}
    if has_rest:
        keys |= {
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
        }
    nodes = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        nodes.append(Mirror(tmp_path / name, keys))

    def copied(count: int) -> Callable[[], bool]:
        return lambda: sum(end_offsets(target_cluster.bootstrap, remote).values()) >= count

    with nodes[0], nodes[1]:
        for node in nodes:
            node.wait_until_says("copying", 120)
        produce(source_cluster.bootstrap, topic, numbered(0, 3000))
        wait_for("both copy", copied(3000), 60)
        nodes[0].kill()
        produce(source_cluster.bootstrap, topic, numbered(3000, 3000))
        wait_for("the other one has taken over", copied(6000), 90)
        nodes[0].start()
        wait_for("it is back at work", lambda: nodes[0].output.count("copying") >= 2, 90)
        produce(source_cluster.bootstrap, topic, numbered(6000, 3000))
        wait_for("all is copied", copied(9000), 60)
    assert assert_same(source_cluster, topic, target_cluster, remote) == 9000


STORAGE = ("config.storage.topic", "status.storage.topic", "offset.storage.topic")
