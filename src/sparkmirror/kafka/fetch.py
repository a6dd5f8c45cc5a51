"""Fetch with incremental sessions (KIP-227): partitions wanted in, frames out; answers in, record views out.

In the newest version that the broker offers (`api_versions`), from 4 to 13. Older ones leave fields out: 13 has topic ids, so
that a re-created topic cannot be read by mistake; 12 the last fetched epoch, by which the broker tells of an unclean election; 11
the client's rack; 9 leader epochs; 7 sessions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sparkmirror.kafka.api_versions import FETCH
from sparkmirror.kafka.primitives import (
    I32,
    Reader,
    compact_string,
    request_head,
    string,
    uvarint,
)

_HEAD = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")
_ROW_4 = struct.Struct(">iqi")
_ROW_5 = struct.Struct(">iqqi")
_ROW_9 = struct.Struct(">iiqqi")
_ROW_12 = struct.Struct(">iiqiqib")
_NO_ID = bytes(16)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_FULL, _NO_SESSION = 0, -1  # session epochs: begin one; do without

_BY_NAME = 12
"""The newest version that names topics."""

TopicPartition = tuple[str, int]
TopicKey = tuple[str, bytes]
"""A topic by its name and its id."""


class Wanted(NamedTuple):
    """What to read of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    last_epoch: int
    max_bytes: int


class Fetched(NamedTuple):
    """What came of one partition."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: list[tuple[int, int]]
    preferred_replica: int
    records: memoryview
    diverging: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long a broker may wait and how much it may send."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 << 20
    partition_max_bytes: int = 8 << 20
    isolation: int = READ_COMMITTED
    rack: str = ""


class FetchAnswer(NamedTuple):
    error: int
    throttle_ms: int
    session_id: int
    partitions: list[Fetched]
    outdated: Sequence[Fetched] = ()
    """What came of partitions that were forgotten, or wanted from elsewhere, since the request."""


class _Layout(NamedTuple):
    """Which fields a version has."""

    names_ids: bool
    is_flexible: bool
    has_rack: bool
    has_epochs: bool
    has_sessions: bool
    has_log_start: bool


@cache
def _layout(version: int) -> _Layout:
    return _Layout(*(version >= since for since in (13, 12, 11, 9, 7, 5)))


def compares_epochs(version: int) -> bool:
    """Whether a Fetch carries the last fetched epoch, by which the broker notices that its log was cut back since."""
    return version >= 12


def carries_topic_ids(version: int) -> bool:
    """Whether a Fetch names topics by their ids."""
    return version >= 13


class FetchSession:
    """The session with one broker: only what changed since the last request is sent.

    Invariants: `_wanted` is what the broker should know after the next request; `_dirty` and `_gone` are exactly the
    differences to what it knows now. Any session error empties the broker's side, so `reset` makes everything dirty.
    What comes of a partition that was wanted anew or forgotten after the request is not given out: it would be of the offset
    wanted before. At most one request is outstanding. While a topic without an id is wanted (`_without_id`), all are named by
    their names, whatever the broker offers.
    """

    def __init__(self, limits: FetchLimits, version: int, *, kept: bool = True) -> None:
        self._limits = limits
        self._offered = self._version = version
        self._first_epoch = _FULL if kept else _NO_SESSION
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._dirty: set[TopicPartition] = set()
        self._gone: dict[TopicPartition, bytes] = {}
        self._topics: dict[bytes, str] = {}
        self._without_id: set[TopicPartition] = set()
        self._id = 0
        self._epoch = self._first_epoch
        self._is_answer_void = False
        self.max_bytes = limits.max_bytes
        """The most that the next answer may bring; one batch may be more."""

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._wanted

    def partitions(self) -> Iterable[TopicPartition]:
        return self._wanted.keys()

    def want(self, key: TopicPartition, wanted: Wanted) -> None:
        known = self._wanted.get(key)
        # Another `max_bytes` alone waits for the next offset: what is on the way is still wanted.
        if known is not None and known[:-1] == wanted[:-1]:
            return
        if known is None:
            topic_id = self._gone.pop(key, None)
        else:
            topic_id = known.topic_id
            # Goes to the end: without a session, brokers serve the first ones first.
            del self._wanted[key]
        self._wanted[key] = wanted
        self._topics[wanted.topic_id] = key[0]
        if wanted.topic_id == _NO_ID:
            self._without_id.add(key)
        else:
            self._without_id.discard(key)
        self._dirty.add(key)
        if topic_id is not None and topic_id != wanted.topic_id:
            self.reset()  # the topic was created again: the broker's session must not keep the old one

    def forget(self, key: TopicPartition) -> None:
        wanted = self._wanted.pop(key, None)
        self._dirty.discard(key)
        self._without_id.discard(key)
        if wanted is not None:
            self._gone[key] = wanted.topic_id

    def begin(self, version: int) -> None:
        """A new connection: nothing is known to the broker, and it offers this version."""
        self._offered = version
        self.reset()

    def reset(self) -> None:
        self._id, self._epoch = 0, self._first_epoch
        self._dirty = set(self._wanted)
        self._gone.clear()
        self._is_answer_void = True

    def request(self, correlation: int, client_id: str) -> bytes:
        """The framed request; from here on the broker is taken to know everything that is wanted."""
        self._choose_version()
        version, limits = self._version, self._limits
        layout = _layout(version)
        flexible = layout.is_flexible
        parts = [
            request_head(FETCH.key, version, correlation, client_id, flexible=flexible),
            _HEAD.pack(
                -1,
                limits.max_wait_ms,
                min(limits.min_bytes, self.max_bytes),
                self.max_bytes,
                limits.isolation,
            ),
        ]
        if layout.has_sessions:
            parts.append(_SESSION.pack(self._id, self._epoch))
        self._add_wanted(parts, layout)
        if layout.has_sessions:
            self._add_gone(parts, layout)
        if flexible:
            parts += [compact_string(limits.rack), b"\0"]
        elif layout.has_rack:
            parts.append(string(limits.rack))
        self._dirty = set()
        self._gone = {}
        self._is_answer_void = False
        body = b"".join(parts)
        return I32.pack(len(body)) + body

    def _choose_version(self) -> None:
        """A session whose topics are named in another way than before begins again: brokers refuse to change it."""
        version = min(self._offered, _BY_NAME) if self._without_id else self._offered
        if version != self._version:
            self._version = version
            self.reset()

    def _add_wanted(self, parts: list[bytes], layout: _Layout) -> None:
        keys = self._dirty if self._id else self._wanted.keys()
        by_topic: dict[TopicKey, list[bytes]] = {}
        for key in keys:
            row = _row(layout, key[1], self._wanted[key])
            topic = key[0], self._wanted[key].topic_id
            by_topic.setdefault(topic, []).append(row)
        _add_topics(parts, layout, by_topic)

    def _add_gone(self, parts: list[bytes], layout: _Layout) -> None:
        gone: dict[TopicKey, list[bytes]] = {}
        for key, topic_id in self._gone.items():
            gone.setdefault((key[0], topic_id), []).append(I32.pack(key[1]))
        _add_topics(parts, layout, gone)

    def answer(self, payload: memoryview) -> FetchAnswer:
        """Read an answer; on a session error everything will be sent anew."""
        layout = _layout(self._version)
        flexible = layout.is_flexible
        reader = Reader(payload, 4)
        if flexible:
            reader.tags()
        throttle = reader.i32()
        error, session_id = (reader.i16(), reader.i32()) if layout.has_sessions else (0, 0)
        if error:
            self.reset()
            return FetchAnswer(error, throttle, 0, [])
        partitions: list[Fetched] = []
        for _ in range(reader.array(flexible=flexible)):
            topic = self._read_topic(reader, layout)
            count = reader.array(flexible=flexible)
            partitions += [_read_partition(reader, topic, layout) for _ in range(count)]
            if flexible:
                reader.tags()
        current: list[Fetched] = []
        outdated: list[Fetched] = []
        for row in partitions:
            is_current = self._is_current((row.topic, row.partition))
            (current if is_current else outdated).append(row)
        if not self._is_answer_void:
            self._advance(session_id)
        return FetchAnswer(0, throttle, session_id, current, outdated)

    def _read_topic(self, reader: Reader, layout: _Layout) -> str:
        if layout.names_ids:
            return self._topics.get(reader.uuid(), "")
        return reader.text(flexible=layout.is_flexible) or ""

    def _is_current(self, key: TopicPartition) -> bool:
        return key in self._wanted and key not in self._dirty

    def _advance(self, session_id: int) -> None:
        self._id = session_id
        if (
            session_id == 0
        ):  # none is kept, or the broker has no room for it: every request is a full one
            self._epoch = self._first_epoch
        else:
            self._epoch = 1 if self._epoch >= 0x7FFFFFFF else self._epoch + 1


def _row(layout: _Layout, partition: int, wanted: Wanted) -> bytes:
    _, offset, leader_epoch, last_epoch, max_bytes = wanted
    if layout.is_flexible:
        return _ROW_12.pack(partition, leader_epoch, offset, last_epoch, -1, max_bytes, 0)
    if layout.has_epochs:
        return _ROW_9.pack(partition, leader_epoch, offset, -1, max_bytes)
    if layout.has_log_start:
        return _ROW_5.pack(partition, offset, -1, max_bytes)
    return _ROW_4.pack(partition, offset, max_bytes)


def _add_topics(
    parts: list[bytes], layout: _Layout, topics: Mapping[TopicKey, list[bytes]]
) -> None:
    """Topics with the rows of their partitions, as arrays of this version."""
    if not layout.is_flexible:
        parts.append(I32.pack(len(topics)))
        for (name, _), rows in topics.items():
            parts += [string(name), I32.pack(len(rows)), *rows]
        return
    parts.append(uvarint(len(topics) + 1))
    for (name, topic_id), rows in topics.items():
        topic = topic_id if layout.names_ids else compact_string(name)
        parts += [topic, uvarint(len(rows) + 1), *rows, b"\0"]


def _read_partition(reader: Reader, topic: str, layout: _Layout) -> Fetched:
    flexible = layout.is_flexible
    partition, error = reader.i32(), reader.i16()
    high_watermark, stable = reader.i64(), reader.i64()
    log_start = reader.i64() if layout.has_log_start else -1
    aborted = []
    for _ in range(reader.array(flexible=flexible)):
        aborted.append((reader.i64(), reader.i64()))
        if flexible:
            reader.tags()
    preferred = reader.i32() if layout.has_rack else -1
    records = reader.blob(flexible=flexible)
    diverging = None
    if flexible:
        tags = reader.tags()
        if tags and 0 in tags:
            inner = Reader(tags[0])
            diverging = (inner.i32(), inner.i64())
    return Fetched(
        topic,
        partition,
        error,
        high_watermark,
        stable,
        log_start,
        aborted,
        preferred,
        records,
        diverging if diverging and diverging[1] >= 0 else None,
    )
