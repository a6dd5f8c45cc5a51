"""Fetch with incremental sessions (KIP-227): partitions wanted in, frames out; answers in, record views out.

Version 13 (topic ids, so that a re-created topic cannot be read by mistake, and the diverging epoch after an unclean
election) where the broker has it (3.1 on), else version 11 (2.4 on). Both carry leader epochs and the client's rack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparkmirror.kafka.primitives import (
    I32,
    Reader,
    compact_string,
    request_head,
    string,
    uvarint,
)

API_KEY = 1
_HEAD = struct.Struct(">iiiibii")
_PARTITION_V11 = struct.Struct(">iiqqi")
_PARTITION_V13 = struct.Struct(">iiqiqib")
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_FULL, _NO_SESSION = 0, -1  # session epochs: begin one; do without

TopicPartition = tuple[str, int]


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


def fetch_version(versions: dict[int, tuple[int, int]]) -> int:
    """13 or 11, whichever is the newest that the broker takes."""
    _, high = versions.get(API_KEY, (0, 0))
    return 13 if high >= 13 else 11


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
    wanted before. At most one request is outstanding.
    """

    def __init__(self, limits: FetchLimits, version: int, *, kept: bool = True) -> None:
        self._limits = limits
        self._version = version
        self._first_epoch = _FULL if kept else _NO_SESSION
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._dirty: set[TopicPartition] = set()
        self._gone: dict[TopicPartition, bytes] = {}
        self._topics: dict[bytes, str] = {}
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
        self._dirty.add(key)
        if topic_id is not None and topic_id != wanted.topic_id:
            self.reset()  # the topic was created again: the broker's session must not keep the old one

    def forget(self, key: TopicPartition) -> None:
        wanted = self._wanted.pop(key, None)
        self._dirty.discard(key)
        if wanted is not None:
            self._gone[key] = wanted.topic_id

    def begin(self, version: int) -> None:
        """A new connection: nothing is known to the broker, and it speaks this version."""
        self._version = version
        self.reset()

    def reset(self) -> None:
        self._id, self._epoch = 0, self._first_epoch
        self._dirty = set(self._wanted)
        self._gone.clear()
        self._is_answer_void = True

    def request(self, correlation: int, client_id: str) -> bytes:
        """The framed request; from here on the broker is taken to know everything that is wanted."""
        flexible = self._version >= 12
        limits = self._limits
        parts = [
            request_head(API_KEY, self._version, correlation, client_id, flexible=flexible),
            _HEAD.pack(
                -1,
                limits.max_wait_ms,
                min(limits.min_bytes, self.max_bytes),
                self.max_bytes,
                limits.isolation,
                self._id,
                self._epoch,
            ),
        ]
        keys = self._dirty if self._id else self._wanted.keys()
        if flexible:
            self._body_v13(parts, keys)
            parts += [compact_string(limits.rack), b"\0"]
        else:
            self._body_v11(parts, keys)
            parts.append(string(limits.rack))
        self._dirty = set()
        self._gone = {}
        self._is_answer_void = False
        body = b"".join(parts)
        return I32.pack(len(body)) + body

    def _body_v13(self, parts: list[bytes], keys: Iterable[TopicPartition]) -> None:
        by_topic: dict[bytes, list[bytes]] = {}
        for key in keys:
            topic_id, offset, leader_epoch, last_epoch, max_bytes = self._wanted[key]
            by_topic.setdefault(topic_id, []).append(
                _PARTITION_V13.pack(key[1], leader_epoch, offset, last_epoch, -1, max_bytes, 0)
            )
        parts.append(uvarint(len(by_topic) + 1))
        for topic_id, rows in by_topic.items():
            parts += [topic_id, uvarint(len(rows) + 1), *rows, b"\0"]
        gone: dict[bytes, list[bytes]] = {}
        for key, topic_id in self._gone.items():
            gone.setdefault(topic_id, []).append(I32.pack(key[1]))
        parts.append(uvarint(len(gone) + 1))
        for topic_id, rows in gone.items():
            parts += [topic_id, uvarint(len(rows) + 1), *rows, b"\0"]

    def _body_v11(self, parts: list[bytes], keys: Iterable[TopicPartition]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        for key in keys:
            _, offset, leader_epoch, _, max_bytes = self._wanted[key]
            by_topic.setdefault(key[0], []).append(
                _PARTITION_V11.pack(key[1], leader_epoch, offset, -1, max_bytes)
            )
        parts.append(I32.pack(len(by_topic)))
        for topic, rows in by_topic.items():
            parts += [string(topic), I32.pack(len(rows)), *rows]
        gone: dict[str, list[bytes]] = {}
        for topic, partition in self._gone:
            gone.setdefault(topic, []).append(I32.pack(partition))
        parts.append(I32.pack(len(gone)))
        for topic, rows in gone.items():
            parts += [string(topic), I32.pack(len(rows)), *rows]

    def answer(self, payload: memoryview) -> FetchAnswer:
        """Read an answer; on a session error everything will be sent anew."""
        flexible = self._version >= 12
        reader = Reader(payload, 4)
        if flexible:
            reader.tags()
        throttle, error, session_id = reader.i32(), reader.i16(), reader.i32()
        if error:
            self.reset()
            return FetchAnswer(error, throttle, 0, [])
        partitions: list[Fetched] = []
        for _ in range(reader.array(flexible=flexible)):
            name = reader.uuid() if flexible else reader.text(flexible=False)
            topic = self._topics.get(name, "") if isinstance(name, bytes) else name or ""
            count = reader.array(flexible=flexible)
            partitions += [_read_partition(reader, topic, flexible=flexible) for _ in range(count)]
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


def _read_partition(reader: Reader, topic: str, *, flexible: bool) -> Fetched:
    partition, error = reader.i32(), reader.i16()
    high_watermark, stable, log_start = reader.i64(), reader.i64(), reader.i64()
    aborted = []
    for _ in range(reader.array(flexible=flexible)):
        aborted.append((reader.i64(), reader.i64()))
        if flexible:
            reader.tags()
    preferred = reader.i32()
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
