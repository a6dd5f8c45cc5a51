"""One partition's log, read and written by waiting for it: for positions, alignment and tools, not for the copy loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from sparkmirror.errors import KafkaError
from sparkmirror.kafka import messages, produce
from sparkmirror.kafka.batches import end_offset, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.fetch import Fetched, FetchLimits, FetchSession, Wanted, fetch_version

_EMPTY = memoryview(b"")


def fetch_once(
    cluster: Cluster, topic: str, partition: int, offset: int, limits: FetchLimits
) -> Fetched:
    """One fetch from the leader, outside any session, and never passed on to a follower."""
    info = cluster.leader(topic, partition)
    connection = cluster.connection(info.leader)
    limits = replace(limits, rack="")
    session = FetchSession(limits, fetch_version(connection.versions), kept=False)
    session.want(
        (topic, partition),
        Wanted(
            cluster.topic(topic).topic_id, offset, info.leader_epoch, -1, limits.partition_max_bytes
        ),
    )
    correlation = connection.next_correlation()
    frame = session.request(correlation, cluster.settings.client_id)
    payload = connection.exchange_frames([frame], correlation)
    answer = session.answer(payload)
    code = answer.error or (answer.partitions[0].error if answer.partitions else 0)
    if code:
        if messages.is_stale_metadata(code):
            cluster.refresh([topic])
        raise messages.broker_error(
            code,
            f"Reading {topic}-{partition} on {cluster.settings}",
            access=needs("Read", "topic", topic, cluster.settings.security),
        )
    if not answer.partitions:
        return Fetched(topic, partition, 0, -1, -1, -1, [], -1, _EMPTY, None)
    return answer.partitions[0]


def read(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    end: int,
    limits: FetchLimits,
    patience: float = 60.0,
) -> Iterator[Fetched]:
    """Fetch answers from `offset` on until the log has been read up to `end`; each holds at least one whole batch."""
    deadline = time.monotonic() + patience
    while offset < end:
        position = offset
        fetched = cluster.retrying(
            lambda: fetch_once(cluster, topic, partition, position, limits),  # noqa: B023
            deadline,
        )
        advanced = offset
        for view in whole_batches(fetched.records):
            advanced = end_offset(view)
        if advanced > offset:
            deadline = time.monotonic() + patience
            yield fetched
        elif time.monotonic() > deadline:
            raise KafkaError(
                f"Reading {topic}-{partition} on {cluster.settings} stands still at offset {offset} "
                f"of {end} for {patience:.0f} s.",
                "Check the partition's replicas and, for read_committed, for hanging transactions.",
            )
        offset = max(offset, advanced)


def append(cluster: Cluster, topic: str, partition: int, batch: bytearray) -> int:
    """Write one batch with acks=all, wait, and give its base offset."""
    info = cluster.leader(topic, partition)
    topic_id = cluster.topic(topic).topic_id
    connection = cluster.connection(info.leader)
    version = produce.produce_version(connection.versions)
    correlation = connection.next_correlation()
    timeout_ms = int(cluster.settings.request_timeout * 1000)
    chunks = produce.request(
        version,
        correlation,
        cluster.settings.client_id,
        timeout_ms,
        [produce.Outgoing(topic, topic_id, partition, batch)],
    )
    payload = connection.exchange_frames(chunks, correlation)
    result = produce.answer(version, payload, {topic_id: topic}).partitions[0]
    if result.error != messages.NONE:
        if messages.is_stale_metadata(result.error):
            cluster.refresh([topic])
        raise messages.broker_error(
            result.error,
            f"Writing to {topic}-{partition} on {cluster.settings}",
            result.message,
            access=needs("Write", "topic", topic, cluster.settings.security),
        )
    return result.base_offset
