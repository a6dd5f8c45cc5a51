"""Produce: batches in, one frame out as a list of chunks (record bytes are referenced, not copied); answers in.

In the newest version that the broker offers (`api_versions`), from 3 to 13; 13 has topic ids, so that a re-created target is not
written to by mistake. One batch per partition and request is the broker's rule.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparkmirror.kafka.api_versions import PRODUCE
from sparkmirror.kafka.primitives import (
    I32,
    Reader,
    compact_string,
    request_head,
    string,
    uvarint,
)

_HEAD_FLEXIBLE = struct.Struct(">bhi")  # no transactional id, acks, timeout
_HEAD = struct.Struct(">hhii")  # no transactional id, acks, timeout, topic count
_ALL_REPLICAS = -1
_NO_ID = bytes(16)
_BY_NAME = 12  # the newest version that names topics
_RESULT = struct.Struct(">ihq8xq")  # partition, error, base offset, (log append time), log start
_RESULT_3 = struct.Struct(">ihq8x")  # without where the log starts
_PLAIN = struct.Struct(">ihq8xq3s")  # the same, and what follows if there is nothing more to say
_NOTHING_MORE = b"\1\0\0"  # no record errors, no message, no tagged fields: nearly always


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


def version_for(offered: int, batches: Sequence[Outgoing]) -> int:
    """The version for a request with these batches: topics without an id are named, whatever the broker offers."""
    if offered > _BY_NAME and any(batch.topic_id == _NO_ID for batch in batches):
        return _BY_NAME
    return offered


def request(
    version: int, correlation: int, client_id: str, timeout_ms: int, batches: Sequence[Outgoing]
) -> list[bytes | bytearray | memoryview]:
    """The framed request as chunks for `sendmsg`."""
    flexible = version >= 9
    by_topic: dict[tuple[str, bytes], list[Outgoing]] = {}
    total = 0
    for batch in batches:
        key = (batch.topic, batch.topic_id)
        rows = by_topic.get(key)
        if rows is None:
            by_topic[key] = [batch]
        else:
            rows.append(batch)
    head = request_head(PRODUCE.key, version, correlation, client_id, flexible=flexible)
    if flexible:
        count = uvarint(len(by_topic) + 1)
        pending = head + _HEAD_FLEXIBLE.pack(0, _ALL_REPLICAS, timeout_ms) + count
    else:
        pending = head + _HEAD.pack(-1, _ALL_REPLICAS, timeout_ms, len(by_topic))
    end = b"\0" if flexible else b""  # no tagged fields
    chunks: list[bytes | bytearray | memoryview] = []
    for (topic, topic_id), rows in by_topic.items():
        if flexible:
            name = topic_id if version > _BY_NAME else compact_string(topic)
            pending += name + uvarint(len(rows) + 1)
        else:
            pending += string(topic) + I32.pack(len(rows))
        for _, _, partition, data in rows:
            size = len(data)
            pending += I32.pack(partition) + (uvarint(size + 1) if flexible else I32.pack(size))
            chunks.append(pending)
            chunks.append(data)
            total += len(pending) + size
            pending = end
        pending += end
    pending += end
    if pending:
        chunks.append(pending)
    chunks[0] = I32.pack(total + len(pending)) + chunks[0]
    return chunks


def answer(version: int, payload: memoryview, topics: Mapping[bytes, str]) -> ProduceAnswer:
    """Read an answer; `topics` names the topic ids that were sent."""
    flexible = version >= 9
    reader = Reader(payload, 4)
    if flexible:
        reader.tags()
    partitions: list[Produced] = []
    for _ in range(reader.array(flexible=flexible)):
        names_ids = version > _BY_NAME
        topic = topics.get(reader.uuid()) if names_ids else reader.text(flexible=flexible)
        count = reader.array(flexible=flexible)
        if flexible and (rows := _plain_rows(reader, topic or "", count)):
            partitions += rows
        else:
            partitions += [_read_partition(reader, topic or "", version) for _ in range(count)]
        if flexible:
            reader.tags()
    return ProduceAnswer(reader.i32(), partitions)


def _plain_rows(reader: Reader, topic: str, count: int) -> list[Produced] | None:
    """All partitions of a topic at once, if none has more to say than its offset: nearly always."""
    end = reader.position + count * _PLAIN.size
    view = reader.view[reader.position : end]
    if len(view) < count * _PLAIN.size:
        return None
    rows = []
    for partition, error, base_offset, log_start, rest in _PLAIN.iter_unpack(view):
        if rest != _NOTHING_MORE:
            return None
        rows.append(Produced(topic, partition, error, base_offset, log_start, None))
    reader.position = end
    return rows


def _read_partition(reader: Reader, topic: str, version: int) -> Produced:
    flexible = version >= 9
    result = _RESULT if version >= 5 else _RESULT_3
    partition, error, base_offset, *log_start = result.unpack_from(reader.view, reader.position)
    reader.position += result.size
    start = log_start[0] if log_start else -1
    if version < 8:
        return Produced(topic, partition, error, base_offset, start, None)
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
    return Produced(topic, partition, error, base_offset, start, message)
