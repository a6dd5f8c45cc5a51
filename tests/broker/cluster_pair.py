"""Two clusters that tests copy between: how many brokers come in, both running clusters go out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafka_tools import QUICK_JVM

from sparkmirror.tools.clusters import KafkaCluster, start_all


class ClusterPair(NamedTuple):
    """A source and a target, started side by side."""

    source: KafkaCluster
    target: KafkaCluster


def running_pair(brokers: int, directory: Path) -> Iterator[ClusterPair]:
    """Both, until the generator is closed."""
    pair = ClusterPair(
        KafkaCluster("source", brokers, directory, jvm=QUICK_JVM),
        KafkaCluster("target", brokers, directory, jvm=QUICK_JVM),
    )
    start_all(pair)
    try:
        yield pair
    finally:
        for cluster in pair:
            cluster.close()
