"""How old and how new records are: partitions in, the time of the first and the latest record of each out."""

from __future__ import annotations

from collections.abc import Sequence

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.api_versions import LIST_OFFSETS
from sparkmirror.kafka.batches import Batch, magic_of, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits, TopicPartition
from sparkmirror.kafka.log import fetch_once

_MAX_TIMESTAMP = -3
_SINCE = 7  # the version of ListOffsets that knows it (3.0 on)
# The broker sends the first batch whole, whatever its size.
_ONE_BATCH = FetchLimits(
    max_wait_ms=0, max_bytes=1, partition_max_bytes=1, isolation=READ_UNCOMMITTED
)


def oldest(cluster: Cluster, key: TopicPartition) -> int | None:
    """The time of the first record (of a batch's first, which is near enough); None if there is none, or it is not told."""
    start = admin.list_offsets(cluster, [key], admin.EARLIEST)[key]
    if start >= admin.list_offsets(cluster, [key], admin.LATEST)[key]:
        return None
    fetched = fetch_once(cluster, *key, start, _ONE_BATCH)
    for view in whole_batches(fetched.records):
        if magic_of(view) >= 2:
            return int(Batch(view).base_timestamp)
    return None


def newest(cluster: Cluster, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The latest time of any record of each partition, where brokers can tell it and there is one."""
    found: dict[TopicPartition, int] = {}
    request = messages.ListOffsetsRequest
    for node, topics in admin.by_leader(cluster, keys):
        connection = cluster.connection(node)
        ask = request(
            replica_id=-1,
            isolation_level=READ_UNCOMMITTED,
            timeout_ms=10_000,
            topics=[
                request.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        request.ListOffsetsTopic.ListOffsetsPartition(
                            partition_index=p, current_leader_epoch=-1, timestamp=_MAX_TIMESTAMP
                        )
                        for p in partitions
                    ],
                )
                for name, partitions in topics.items()
            ],
        )
        if (LIST_OFFSETS.version(connection.versions) or 0) < _SINCE:
            continue
        try:
            answer = connection.call(ask)
        except BrokerError:
            continue
        for topic in answer.topics:
            for p in topic.partitions:
                if p.error_code == messages.NONE and p.timestamp >= 0:
                    found[topic.name, p.partition_index] = p.timestamp
    return found
