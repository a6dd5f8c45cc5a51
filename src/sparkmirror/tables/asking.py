"""What tables ask of clusters: a cluster in; whether a topic is there, and offsets of its partitions, out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition

_PATIENCE_S = 30.0
T = TypeVar("T")


def retried(cluster: Cluster, action: Callable[[], T]) -> T:
    """What an action gives, which is repeated for a while if its error may pass."""
    return cluster.retrying(action, time.monotonic() + _PATIENCE_S)


def has_topic(cluster: Cluster, name: str) -> bool:
    """Whether a topic is there; BrokerError if we may not see it."""
    if not name:
        return False
    retried(cluster, lambda: cluster.refresh([name]))
    if cluster.is_hidden(name):
        cluster.topic(name)  # raises, and says which right is missing
    return name in cluster.topics


def log_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Where logs begin (`admin.EARLIEST`) or end (`LATEST`).

    Without those of partitions that are gone or have no leader, which is no reason to say nothing of all others.
    """
    wanted = list(keys)
    retried(cluster, lambda: cluster.refresh({topic for topic, _ in wanted}))
    led = [key for key in wanted if _has_leader(cluster, key)]
    return retried(cluster, lambda: admin.list_offsets(cluster, led, timestamp))


def _has_leader(cluster: Cluster, key: TopicPartition) -> bool:
    info = cluster.topics.get(key[0])
    partition = None if info is None else info.partitions.get(key[1])
    return partition is not None and partition.leader in cluster.brokers
