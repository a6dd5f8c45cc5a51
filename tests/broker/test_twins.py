"""Two copies of the same flow at once, on purpose: the target still equals the source.

A short while in `make slow`; a minute under load with CHAOS_LONG=1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_tools import create_topic, end_offsets, wait_for
from running import Mirror, assert_same, properties
from steady import SteadyProducer

from sparkmirror.tools.clusters import KafkaCluster

LONG = os.environ.get("CHAOS_LONG") == "1"
SECONDS = 60 if LONG else 15
RECORDS = SECONDS * 4000
PARTITIONS = 6


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_two_copies_at_once_make_one_copy(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique("twins")
    remote = f"A.{topic}"
    create_topic(source_cluster.bootstrap, topic, PARTITIONS)
    create_topic(target_cluster.bootstrap, remote, PARTITIONS)
    keys = properties(source_cluster, target_cluster, flow_topics=topic, tasks_max="2")
    mirrors = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        # Nodes of one group would share the work. These do not know of each other, but have one store of positions.
        alone = {
            "B.group.id": unique(name),
            "B.config.storage.topic": unique(f"{name}-configs"),
            "B.status.storage.topic": unique(f"{name}-status"),
        }
        mirrors.append(Mirror(tmp_path / name, keys | alone))
    with mirrors[0], mirrors[1]:
        for mirror in mirrors:
            mirror.wait_until_says("copying", 120)
        producer = SteadyProducer(
            source_cluster.bootstrap, topic, RECORDS, PARTITIONS, float(SECONDS)
        )
        began = time.monotonic()
        wait_for("the producer is done", lambda: producer.done, 300)
        assert time.monotonic() - began >= SECONDS / 2, "the load came at once, not over time"
        assert not producer.failed
        wait_for(
            "everything is copied",
            lambda: sum(end_offsets(target_cluster.bootstrap, remote).values()) >= RECORDS,
            120,
        )
        assert all(
            mirror.process is not None and mirror.process.poll() is None for mirror in mirrors
        )
    assert assert_same(source_cluster, topic, target_cluster, remote) == RECORDS
