"""One partition's log, read and written by waiting for it: for positions, alignment and tools, not for the copy loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import admin, messages, produce
from sparkmirror.kafka.api_versions import FETCH, PRODUCE
from sparkmirror.kafka.batches import end_offset, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import LONGEST_FETCH, Connection
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.fetch import (
    READ_UNCOMMITTED,
    FetchAnswer,
    Fetched,
    FetchLimits,
    FetchSession,
    TopicPartition,
    Wanted,
    carries_topic_ids,
)

_EMPTY = memoryview(b"")
_PEEK = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)
_ASK = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=0, isolation=READ_UNCOMMITTED)
_NO_OFFSET = (1 << 63) - 1
_UNKNOWN_ID_CODES = {
    messages.UNKNOWN_TOPIC_ID,
    messages.INCONSISTENT_TOPIC_ID,
    messages.UNKNOWN_TOPIC_OR_PARTITION,
}
# How many partitions are asked for at once, and how many bytes of each, one after the other.
_PEEKS = ((1000, 16 << 10), (64, 64 << 10), (16, 1 << 20), (1, 1 << 20))


def fetch_once(
    cluster: Cluster, topic: str, partition: int, offset: int, limits: FetchLimits
) -> Fetched:
    """One fetch from the leader, outside any session, and never passed on to a follower."""
    info = cluster.find_leader(topic, partition)
    connection = cluster.connection(info.leader)
    limits = replace(limits, rack="")
    session = FetchSession(limits, connection.version_of(FETCH), kept=False)
    session.want(
        (topic, partition),
        Wanted(
            cluster.topic(topic).topic_id, offset, info.leader_epoch, -1, limits.partition_max_bytes
        ),
    )
    answer = _ask(cluster, connection, session)
    code = answer.error or (answer.partitions[0].error if answer.partitions else 0)
    if code:
        raise _refused(cluster, topic, partition, code)
    if not answer.partitions:
        return Fetched(topic, partition, 0, -1, -1, -1, [], -1, _EMPTY, None)
    return answer.partitions[0]


def _ask(cluster: Cluster, connection: Connection, session: FetchSession) -> FetchAnswer:
    correlation = connection.next_correlation()
    frame = session.request(correlation, cluster.settings.client_id)
    return session.answer(connection.exchange_frames([frame], correlation, longest=LONGEST_FETCH))


def _refused(cluster: Cluster, topic: str, partition: int, code: int) -> BrokerError:
    if messages.is_stale_metadata(code):
        cluster.refresh([topic])
    return messages.broker_error(
        code,
        f"Reading {topic}-{partition} on {cluster.settings}",
        access=needs("Read", "topic", topic, cluster.settings.security),
    )


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


def batches_at(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, memoryview]:
    """The batch that holds each of these offsets, or the next behind it; without those that have nothing there.

    A broker answers a batch above the limit of its partition only to the first that it is asked for. So each leader is asked for
    many partitions with little room for each, then for those that are left with more, and at last one by one.
    """
    found: dict[TopicPartition, memoryview] = {}
    for node, topics in admin.by_leader(cluster, offsets):
        left = [(topic, partition) for topic, rows in topics.items() for partition in rows]
        for count, room in _PEEKS:
            answered: dict[TopicPartition, memoryview | None] = {}
            for start in range(0, len(left), count):
                wanted = {key: offsets[key] for key in left[start : start + count]}
                answered |= _first_batches(cluster, node, wanted, room)
            found |= {key: view for key, view in answered.items() if view is not None}
            left = [key for key in left if key not in answered]
    return found


def _first_batches(
    cluster: Cluster, node: int, offsets: Mapping[TopicPartition, int], room: int
) -> dict[TopicPartition, memoryview | None]:
    """What one answer of a broker has: the first batch of each partition, None where the offset is not in the log."""
    connection = cluster.connection(node)
    session = FetchSession(_PEEK, connection.version_of(FETCH), kept=False)
    for (topic, partition), offset in offsets.items():
        topic_id = cluster.topic(topic).topic_id
        wanted = Wanted(topic_id, offset, -1, -1, room)
        session.want((topic, partition), wanted)
    answer = _ask(cluster, connection, session)
    found: dict[TopicPartition, memoryview | None] = {}
    for row in answer.partitions:
        if row.error == messages.OFFSET_OUT_OF_RANGE:
            found[row.topic, row.partition] = None
        elif row.error:
            raise _refused(cluster, row.topic, row.partition, row.error)
        first = next(whole_batches(row.records), None)
        if first is not None:
            found[row.topic, row.partition] = first
    return found


def unknown_ids(cluster: Cluster, keys: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """The partitions whose leaders do not know their topics by the ids of the metadata: the metadata is out of date.

    The leaders are asked for an offset that no log has, so that no records come. Brokers before Fetch 13 are not asked.
    """
    unknown: list[TopicPartition] = []
    for node, topics in admin.by_leader(cluster, keys):
        connection = cluster.connection(node)
        version = connection.version_of(FETCH)
        if not carries_topic_ids(version):
            continue
        session = FetchSession(_ASK, version, kept=False)
        for topic, partitions in topics.items():
            wanted = Wanted(cluster.topic(topic).topic_id, _NO_OFFSET, -1, -1, 0)
            for partition in partitions:
                session.want((topic, partition), wanted)
        answer = _ask(cluster, connection, session)
        if answer.error:
            what = f"Asking broker {node} of {cluster.settings} for topic ids"
            raise messages.broker_error(answer.error, what)
        for row in answer.partitions:
            if row.error in _UNKNOWN_ID_CODES:
                unknown.append((row.topic, row.partition))
            elif messages.is_retriable(row.error):
                raise _refused(cluster, row.topic, row.partition, row.error)
    return frozenset(unknown)


def append(cluster: Cluster, topic: str, partition: int, batch: bytearray) -> int:
    """Write one batch with acks=all, wait, and give its base offset."""
    info = cluster.find_leader(topic, partition)
    topic_id = cluster.topic(topic).topic_id
    connection = cluster.connection(info.leader)
    correlation = connection.next_correlation()
    timeout_ms = int(cluster.settings.request_timeout * 1000)
    outgoing = [produce.Outgoing(topic, topic_id, partition, batch)]
    version = produce.version_for(connection.version_of(PRODUCE), outgoing)
    chunks = produce.request(version, correlation, cluster.settings.client_id, timeout_ms, outgoing)
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
