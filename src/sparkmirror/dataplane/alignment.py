"""Where to go on: a recorded position in, the position that the target's own log bears out, out.

The target is the arbiter. Its leader tells the last sequence number it took from us (DescribeProducers), and its log holds the
records themselves. From the recorded position both logs are walked to the last record that is already there.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparkmirror.errors import NumberingLost
from sparkmirror.formats.position import Numbering, Position, advance, distance
from sparkmirror.kafka import admin, log, records
from sparkmirror.kafka.admin import ProducerState
from sparkmirror.kafka.batches import LOG_APPEND_TIME, Batch, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits

from .stream import Piece, Stream

_TAIL_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)
_VISIBLE_PATIENCE_S = 15.0


class Verdict(enum.Enum):
    """What a position is worth, seen from the target."""

    CURRENT = "nothing was written since"
    AHEAD = "the target holds more"
    BEHIND = "the target lost records that it had acknowledged"
    STALE = "a newer numbering is in use"
    UNKNOWN = "the leader does not remember us"


@dataclass(frozen=True, slots=True)
class Pair:
    """A partition on both sides, with how to read its source."""

    source: Cluster
    target: Cluster
    topic: str
    remote: str
    partition: int
    limits: FetchLimits

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Tail:
    """What of a numbering lies in the target's log from some offset on."""

    count: int
    end_sequence: int
    end_offset: int
    last: records.Record | None
    has_times: bool = True
    """False if the target stamps its own times (LogAppendTime), so that times cannot be compared."""
    digests: tuple[int, ...] = ()


def judge(position: Position, state: ProducerState | None) -> Verdict:
    """Compare a position with what the target's leader remembers of its producer."""
    numbering = position.numbering
    if numbering is None or state is None or state.last_sequence < 0:
        return Verdict.UNKNOWN
    if state.epoch > numbering.epoch:
        return Verdict.STALE
    if state.epoch < numbering.epoch:
        return Verdict.UNKNOWN
    gap = distance(advance(state.last_sequence, 1), position.sequence)
    if gap == 0:
        return Verdict.CURRENT
    return Verdict.AHEAD if gap > 0 else Verdict.BEHIND


def align(
    pair: Pair,
    position: Position,
    state: ProducerState | None,
    history: Sequence[Position] = (),
) -> Position:
    """The position moved to what the target really holds of its numbering; any verdict but STALE.

    `history` holds earlier positions of the same numbering: if the target fell behind, the walk begins at the newest that it
    still covers, else where the numbering began.
    """
    verdict = judge(position, state)
    if verdict is Verdict.CURRENT:
        return position
    if verdict is Verdict.BEHIND:
        position = _covered(position, state, history)
    expected = None if state is None or verdict is Verdict.UNKNOWN else state.last_sequence
    tail = _visible_tail(pair, position, expected)
    if tail.count == 0:
        return replace(position, target_offset=max(position.target_offset, tail.end_offset))
    return _walk(pair, position, tail)


def _covered(
    position: Position, state: ProducerState | None, history: Sequence[Position]
) -> Position:
    """The newest earlier position that the target still covers; where the numbering began is always right, if a longer way."""
    if state is not None:
        end = advance(state.last_sequence, 1)
        for earlier in reversed(history):
            if earlier.numbering == position.numbering and distance(end, earlier.sequence) >= 0:
                return earlier
    start, target = position.origin
    return replace(position, offset=start - 1, sequence=0, target_offset=target, leader_epoch=-1)


def _visible_tail(pair: Pair, position: Position, expected: int | None) -> Tail:
    """The tail up to the last sequence the leader took; what is not replicated yet becomes visible in a moment."""
    deadline = time.monotonic() + _VISIBLE_PATIENCE_S
    while True:
        tail = read_tail(pair, position)
        if expected is None or distance(tail.end_sequence, advance(expected, 1)) >= 0:
            return tail
        if time.monotonic() > deadline:
            return tail
        time.sleep(0.05)


def read_tail(pair: Pair, position: Position, *, digests: bool = False) -> Tail:
    """Read the target from the position's target offset to its end and keep what belongs to the numbering."""
    numbering = position.numbering
    assert numbering is not None  # noqa: S101 - callers align only numbered positions
    key = (pair.remote, pair.partition)
    end = admin.list_offsets(pair.target, [key], admin.LATEST)[key]
    start = max(position.target_offset, admin.list_offsets(pair.target, [key], admin.EARLIEST)[key])
    count, sequence = 0, position.sequence
    last: memoryview | None = None
    found: list[int] = []
    has_times = True
    for batch in _batches(pair, start, end):
        if not _is_ours(batch, numbering):
            continue
        has_times = not batch.attributes & LOG_APPEND_TIME
        gained = distance(advance(batch.base_sequence, batch.count), sequence)
        if gained <= 0:
            continue
        count += gained
        sequence = advance(sequence, gained)
        last = batch.view
        if digests:
            found += [digest(record, has_times) for record in records.decode(batch.view)]
    record = records.decode(last)[-1] if last is not None else None
    return Tail(count, sequence, end, record, has_times, tuple(found))


def _is_ours(batch: Batch, numbering: Numbering) -> bool:
    return (
        batch.producer_id == numbering.producer_id
        and batch.producer_epoch == numbering.epoch
        and not batch.is_control
    )


def _batches(pair: Pair, start: int, end: int) -> Iterator[Batch]:
    for fetched in log.read(pair.target, pair.remote, pair.partition, start, end, _TAIL_LIMITS):
        for view in whole_batches(fetched.records):
            batch = Batch(view)
            if start <= batch.last_offset and batch.base_offset < end:
                yield batch


def _walk(pair: Pair, position: Position, tail: Tail) -> Position:
    """Pass over as many records of the source stream as the target holds, and check that the last one is the same."""
    earliest = _earliest(pair)
    if earliest > position.next_offset:
        return anchor(pair, position)
    left = tail.count
    for piece in pieces(pair, position.next_offset):
        if piece.count < left:
            left -= piece.count
            continue
        record = piece.records()[left - 1]
        if tail.last is not None and not records.same_content(record, tail.last):
            raise NumberingLost(
                f"{pair}: record {record.offset} of the source is not what stands last in {pair.remote} under producer "
                f"{position.numbering}.",
                f"Another program may write to {pair.remote}, or the source was changed. Compare both topics, then reset the "
                "position of this partition to start over.",
            )
        return replace(
            position,
            offset=record.offset,
            sequence=tail.end_sequence,
            target_offset=tail.end_offset,
            leader_epoch=piece.leader_epoch,
        )
    raise AssertionError  # pieces() never ends


def pieces(pair: Pair, start: int) -> Iterator[Piece]:
    """The source stream from an offset on, waiting at its end."""
    stream = Stream(start, pair.limits.isolation)
    for fetched in log.read(pair.source, pair.topic, pair.partition, start, 1 << 62, pair.limits):
        yield from stream.feed(fetched)


def anchor(pair: Pair, position: Position) -> Position:
    """Find by content how far the target has come, where the records in between may be gone from the source.

    The source may have lost records to compaction or retention since they were copied, so counting does not tell. The last
    record of the tail that is still in the source is the anchor. Looking from the end, and taking the earliest place where it
    occurs, errs towards repeating a record, never towards leaving one out. The result keeps the old numbering's fields; the
    caller takes a new one.
    """
    tail = read_tail(pair, position, digests=True)
    if tail.count == 0:
        return replace(position, target_offset=tail.end_offset)
    start = max(position.next_offset, _earliest(pair))
    places: dict[int, tuple[int, int]] = {}
    seen = 0
    for piece in _available(pair, start):
        for record in piece.records():
            places.setdefault(digest(record, tail.has_times), (record.offset, piece.leader_epoch))
        seen += piece.count
        if seen >= tail.count:  # of what was copied, no more than this can be left
            break
    for wanted in reversed(tail.digests):
        if wanted in places:
            offset, epoch = places[wanted]
            return replace(
                position,
                offset=offset,
                sequence=tail.end_sequence,
                target_offset=tail.end_offset,
                leader_epoch=epoch,
            )
    return replace(
        position,
        offset=start - 1,
        sequence=tail.end_sequence,
        target_offset=tail.end_offset,
        leader_epoch=-1,
    )


def _available(pair: Pair, start: int) -> Iterator[Piece]:
    """The source stream up to its end as it is now, without waiting for more."""
    key = (pair.topic, pair.partition)
    end = admin.list_offsets(pair.source, [key], admin.LATEST, pair.limits.isolation)[key]
    stream = Stream(start, pair.limits.isolation)
    for fetched in log.read(pair.source, pair.topic, pair.partition, start, end, pair.limits):
        yield from stream.feed(fetched)


def _earliest(pair: Pair) -> int:
    key = (pair.topic, pair.partition)
    return admin.list_offsets(pair.source, [key], admin.EARLIEST)[key]


def digest(record: records.Record, has_times: bool) -> int:
    """A number that tells records apart."""
    time_of = record.timestamp if has_times else 0
    return hash((time_of, record.key, record.value, tuple(record.headers)))
