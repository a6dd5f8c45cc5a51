"""Two clusters that tests copy between: how many brokers of which versions come in, both running clusters go out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafka_tools import QUICK_JVM

from sparkmirror.tools.clusters import KafkaCluster, start_all
from sparkmirror.tools.jvm import KAFKA_VERSION


class ClusterPair(NamedTuple):
    """A source and a target, started side by side."""

    source: KafkaCluster
    target: KafkaCluster


class VersionPair(NamedTuple):
    """The versions of Kafka of a source and a target."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-to-{self.target}"


CURRENT = VersionPair(KAFKA_VERSION, KAFKA_VERSION)


def running_pair(
    brokers: int, directory: Path, versions: VersionPair = CURRENT
) -> Iterator[ClusterPair]:
    """Both, until the generator is closed."""
    pair = ClusterPair(
        KafkaCluster("source", brokers, directory, jvm=QUICK_JVM, version=versions.source),
        KafkaCluster("target", brokers, directory, jvm=QUICK_JVM, version=versions.target),
    )
    start_all(pair)
    try:
        yield pair
    finally:
        for cluster in pair:
            cluster.close()
