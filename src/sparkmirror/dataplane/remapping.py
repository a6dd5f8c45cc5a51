"""The offset map made anew from both logs: a partition and a stretch of its target log in, the runs that stand there out."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from sparkmirror.formats.offset_map import Run
from sparkmirror.kafka import admin, log, records
from sparkmirror.kafka.batches import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Batch,
    magic_of,
    whole_batches,
)
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits
from sparkmirror.kafka.records import Record
from sparkmirror.offsets.matching import Seen, matched

from .alignment import Pair
from .stream import Stream

_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)


def remap(
    pair: Pair, source: tuple[int, int], target: tuple[int, int], stopping: threading.Event
) -> Iterator[Run]:
    """The runs between these offsets of both sides (the ends are not among them), as far as both logs still have them."""
    first = _first_of_target(pair, target)
    if first is None:
        return
    has_times, begin = first
    start = max(source[0], _earliest(pair))
    if has_times and not _is_timeless(pair, start, source[1]):
        start = max(start, _before(pair, begin))
    yield from matched(
        _source(pair, start, source[1], has_times, stopping),
        _target(pair, target, has_times, stopping),
    )


def _first_of_target(pair: Pair, target: tuple[int, int]) -> tuple[bool, int] | None:
    """Whether the target's records have the times of the source's, and the time of the first."""
    for batch in _target_batches(pair, target):
        for record in records.decode(batch.view):
            if record.offset >= target[0]:
                return not batch.attributes & LOG_APPEND_TIME, record.timestamp
    return None


def _earliest(pair: Pair) -> int:
    key = (pair.topic, pair.partition)
    return admin.list_offsets(pair.source, [key], admin.EARLIEST)[key]


def _before(pair: Pair, time: int) -> int:
    """An offset at or before every record of that time: 0 if it cannot be told."""
    key = (pair.topic, pair.partition)
    return max(0, admin.list_offsets(pair.source, [key], max(0, time))[key]) if time >= 0 else 0


def _is_timeless(pair: Pair, start: int, end: int) -> bool:
    """Whether the source's records have no times there, by which they could be found."""
    stream = Stream(start, pair.limits.isolation)
    for fetched in log.read(pair.source, pair.topic, pair.partition, start, end, pair.limits):
        for piece in stream.feed(fetched):
            return piece.records()[0].timestamp == NO_TIMESTAMP
    return False


def _source(
    pair: Pair, start: int, end: int, has_times: bool, stopping: threading.Event
) -> Iterator[Seen]:
    stream = Stream(start, pair.limits.isolation)
    for fetched in log.read(pair.source, pair.topic, pair.partition, start, end, pair.limits):
        for piece in stream.feed(fetched):
            for record in piece.records():
                if start <= record.offset < end:
                    yield _seen(record, has_times)
        if stopping.is_set():
            return


def _target(
    pair: Pair, target: tuple[int, int], has_times: bool, stopping: threading.Event
) -> Iterator[Seen]:
    start, end = target
    for batch in _target_batches(pair, target):
        for record in records.decode(batch.view):
            if start <= record.offset < end:
                yield _seen(record, has_times)
        if stopping.is_set():
            return


def _target_batches(pair: Pair, target: tuple[int, int]) -> Iterator[Batch]:
    start, end = target
    for fetched in log.read(pair.target, pair.remote, pair.at, start, end, _LIMITS):
        for view in whole_batches(fetched.records):
            if magic_of(view) < 2:
                continue
            batch = Batch(view)
            if start <= batch.last_offset and batch.base_offset < end and not batch.is_control:
                yield batch


def _seen(record: Record, has_times: bool) -> Seen:
    content = record.key, record.value, tuple(record.headers)
    timeless = hash((NO_TIMESTAMP, *content))
    if not has_times:
        return Seen(record.offset, timeless, 0)
    return Seen(record.offset, hash((record.timestamp, *content)), record.timestamp, timeless)
