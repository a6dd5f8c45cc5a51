"""Produce: batches in, one frame out as a list of chunks (record bytes are referenced, not copied); answers in.

Version 13 (topic ids, so that a re-created target is not written to by mistake) where the broker has it (4.1 on),
else version 8 (2.4 on). One batch per partition and request is the broker's rule.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from sparkmirror.kafka.primitives import I16, I32, Reader, request_head, string, uvarint

API_KEY = 0
_HEAD_V8 = struct.Struct(">hhii")  # no transactional id, acks, timeout, topic count
_ALL_REPLICAS = -1


class Outgoing(NamedTuple):
    """One batch on its way to one partition."""

    topic: str
    topic_id: bytes
    partition: int
    batch: bytearray | memoryview


class Produced(NamedTuple):
    """What the broker said of one partition."""

    topic: str
    partition: int
    error: int
    base_offset: int
    log_start: int
    message: str | None


class ProduceAnswer(NamedTuple):
    throttle_ms: int
    partitions: list[Produced]


def produce_version(versions: dict[int, tuple[int, int]]) -> int:
    """13 or 8, whichever is the newest that the broker takes."""
    _, high = versions.get(API_KEY, (0, 0))
    return 13 if high >= 13 else 8


def request(
    version: int, correlation: int, client_id: str, timeout_ms: int, batches: Sequence[Outgoing]
) -> list[bytes | bytearray | memoryview]:
    """The framed request as chunks for `sendmsg`."""
    flexible = version >= 9
    head = request_head(API_KEY, version, correlation, client_id, flexible=flexible)
    by_topic: dict[tuple[str, bytes], list[Outgoing]] = {}
    for batch in batches:
        by_topic.setdefault((batch.topic, batch.topic_id), []).append(batch)
    chunks: list[bytes | bytearray | memoryview] = []
    if flexible:
        pending = head + b"\0" + I16.pack(_ALL_REPLICAS) + I32.pack(timeout_ms)
        pending += uvarint(len(by_topic) + 1)
    else:
        pending = head + _HEAD_V8.pack(-1, _ALL_REPLICAS, timeout_ms, len(by_topic))
    for (topic, topic_id), rows in by_topic.items():
        pending += (
            topic_id + uvarint(len(rows) + 1) if flexible else (string(topic) + I32.pack(len(rows)))
        )
        for row in rows:
            size = len(row.batch)
            pending += I32.pack(row.partition)
            pending += uvarint(size + 1) if flexible else I32.pack(size)
            chunks += [pending, row.batch]
            pending = b"\0" if flexible else b""
        if flexible:
            pending += b"\0"
    if flexible:
        pending += b"\0"
    if pending:
        chunks.append(pending)
    total = sum(len(chunk) for chunk in chunks)
    chunks[0] = I32.pack(total) + chunks[0]
    return chunks


def answer(version: int, payload: memoryview, topics: dict[bytes, str]) -> ProduceAnswer:
    """Read an answer; `topics` names the topic ids that were sent."""
    flexible = version >= 9
    reader = Reader(payload, 4)
    if flexible:
        reader.tags()
    partitions: list[Produced] = []
    for _ in range(reader.array(flexible=flexible)):
        topic = topics.get(reader.uuid(), "") if flexible else reader.text(flexible=False) or ""
        count = reader.array(flexible=flexible)
        partitions += [_read_partition(reader, topic, flexible=flexible) for _ in range(count)]
        if flexible:
            reader.tags()
    return ProduceAnswer(reader.i32(), partitions)


def _read_partition(reader: Reader, topic: str, *, flexible: bool) -> Produced:
    partition, error, base_offset = reader.i32(), reader.i16(), reader.i64()
    reader.i64()  # log append time
    log_start = reader.i64()
    details = []
    for _ in range(reader.array(flexible=flexible)):
        reader.i32()
        details.append(reader.text(flexible=flexible))
        if flexible:
            reader.tags()
    message = reader.text(flexible=flexible)
    if flexible:
        reader.tags()
    if details and details[0]:
        message = f"{message or ''} {details[0]}".strip()
    return Produced(topic, partition, error, base_offset, log_start, message)
