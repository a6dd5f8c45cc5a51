"""Where to go on: a recorded position in, the position that the target's own log bears out, out.

The target is the arbiter. Its leader tells the last sequence number it took from us (DescribeProducers), and its log holds the
records themselves. From the recorded position both logs are walked to the last record that is already there.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from sparkmirror.errors import NotIdempotent, NumberingLost, ReplicationError
from sparkmirror.formats.position import (
    NO_FINGERPRINT,
    Fingerprint,
    Position,
    advance,
    distance,
)
from sparkmirror.kafka import admin, log, messages, records
from sparkmirror.kafka.admin import ProducerState
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import FetchLimits

from . import anchors
from .anchors import Mark
from .stream import Piece, Stream
from .tail import Tail, begins_below, last_held, mark_of, read_content, read_tail

_VISIBLE_PATIENCE_S = 5.0
_MARGIN = 1000
_OFFSET_NOT_AVAILABLE = 78


class Verdict(enum.Enum):
    """What a position is worth, seen from the target."""

    CURRENT = "nothing was written since"
    AHEAD = "the target holds more"
    BEHIND = "the leader knows less than it had acknowledged"
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
    compacted: bool = False
    remote_partition: int = -1
    """Where the records go, if that is another partition."""
    shape: Callable[[Sequence[Piece]], list[Piece]] | None = None
    """What of some pieces goes there, and how; None: all, as it is."""
    is_shared: bool = False
    """Whether records of other partitions go there as well."""
    is_comparable: bool = True
    """Whether the same record of the source looks the same there each time."""

    @property
    def at(self) -> int:
        """The partition on the target."""
        return self.partition if self.remote_partition < 0 else self.remote_partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Aligned:
    """A position that the target bears out."""

    position: Position
    keeps_numbering: bool = True
    """False: sequence numbers no longer stand for the same records to everybody, or the leader does not expect the next one."""
    trouble: str = ""
    """What is not as it was, to be reported."""
    copies: tuple[tuple[int, int], ...] = ()
    """The source and target offsets of those records behind the position that were found by their content."""


class WithoutNumbers(ReplicationError):
    """Records behind a position carry no numbers: only their content tells whether they are copies."""


def judge(position: Position, state: ProducerState | None) -> Verdict:
    """Compare a position with what the target's leader remembers of its producer."""
    numbering = position.numbering
    if numbering is None or state is None or state.last_sequence < 0:
        return Verdict.UNKNOWN
    if state.epoch > numbering.epoch:
        return Verdict.STALE
    if state.epoch < numbering.epoch:  # nothing of this numbering is known there
        return Verdict.CURRENT if position.is_origin else Verdict.BEHIND
    gap = distance(advance(state.last_sequence, 1), position.sequence)
    if gap == 0:
        return Verdict.CURRENT
    return Verdict.AHEAD if gap > 0 else Verdict.BEHIND


def align(pair: Pair, position: Position, state: ProducerState | None, end: int) -> Aligned:
    """The position moved to what the target really holds of its numbering; `end` is where the target's log ends."""
    verdict = judge(position, state)
    is_untouched = (
        verdict is Verdict.UNKNOWN and position.is_origin and end == position.target_offset
    )
    if verdict is Verdict.CURRENT or is_untouched:
        return Aligned(replace(position, target_offset=min(position.target_offset, end)))
    if verdict is Verdict.STALE:
        return _by_content(pair, position)
    expected = _expected(position, state)
    try:
        if verdict is Verdict.BEHIND or end < position.target_offset:
            return _recovered(pair, position, expected)
        tail = _visible_tail(pair, position, expected)
        if verdict is Verdict.UNKNOWN:
            _require_numbers(pair, position, tail)
        if tail.is_cut:
            return _recovered(pair, position, expected)
        return _counted(pair, position, tail)
    except NumberingLost:
        return _by_content(pair, position)


def _require_numbers(pair: Pair, position: Position, tail: Tail) -> None:
    """An error if records that may have been sent with numbers are on the target without them.

    Only where no record of the numbering is there. NotIdempotent if the last before the position is without, which was
    acknowledged under this numbering; WithoutNumbers if the first behind it is: a late one from before it may be.
    """
    if tail.has_numbers:
        return
    for found in tail.unnumbered:
        if found is not None and _is_ours(pair, position, found):
            is_behind = found.offset >= position.target_offset
            if is_behind and pair.is_comparable and not pair.is_shared:
                raise WithoutNumbers(
                    f"{pair}: record {found.offset} of {pair.remote} has no number."
                )
            raise NotIdempotent(
                f"{pair}: record {found.offset} of {pair.remote} on {pair.target.settings} was sent with a producer id and a "
                "sequence number, and is kept without them: after a failure the target could not tell which records it has, and "
                "they would be written twice.",
                "Set mirror.delivery=at-least-once for this flow: after a failure some records may be repeated then, as with "
                "MirrorMaker 2, and none is lost.",
            )


def _is_ours(pair: Pair, position: Position, found: Mark) -> bool:
    """Whether a record of the target is a copy of the last that was copied, or of the next if it lies behind the position."""
    earliest = earliest_of(pair)
    if found.offset >= position.target_offset:
        following = next(available(pair, max(position.next_offset, earliest)), None)
        if following is None:
            return False
        first = following.records()[0]
        return anchors.is_copy(found, mark_of(first, has_times=True))
    last = None
    for piece in available(pair, max(position.next_offset - _MARGIN, earliest)):
        for offset, record in piece.records_with_offsets():
            if offset > position.offset:
                break
            last = record
    return last is not None and anchors.is_copy(found, mark_of(last, has_times=True))


def _expected(position: Position, state: ProducerState | None) -> int | None:
    """The sequence number that the leader wants next; None if it takes any."""
    if state is None or position.numbering is None or state.last_sequence < 0:
        return None
    return advance(state.last_sequence, 1) if state.epoch == position.numbering.epoch else 0


# -- the target holds more ------------------------------------------------------------------------


def _visible_tail(pair: Pair, position: Position, expected: int | None) -> Tail:
    """The tail up to the number that the leader wants next; what is not replicated yet becomes visible in a moment."""
    deadline = time.monotonic() + _VISIBLE_PATIENCE_S
    while True:
        tail = read_tail(pair.target, pair.remote, pair.at, position)
        if expected is None or tail.is_cut or tail.missing:
            return tail
        gained = distance(expected, tail.end_sequence)
        if gained <= 0:
            return tail
        if tail.is_pruned:
            # Gone by the target's own retention: only the leader can tell how many there were.
            return replace(tail, count=tail.count + gained, end_sequence=expected, last=None)
        if time.monotonic() > deadline:
            raise messages.broker_error(
                _OFFSET_NOT_AVAILABLE,
                f"{pair}: the last records in {pair.remote} on {pair.target.settings} are not replicated yet",
            )
        time.sleep(0.05)


def _counted(pair: Pair, position: Position, tail: Tail) -> Aligned:
    """Pass over as many records of the source stream as the target holds."""
    if pair.compacted or (tail.count > 0 and earliest_of(pair) > position.next_offset):
        return _by_content(pair, position)
    moved = walk(pair, position, tail.count, tail.last)
    end = max(position.target_offset, tail.end_offset)
    return Aligned(replace(moved, target_offset=end), not tail.missing, _told(pair, tail))


def _told(pair: Pair, tail: Tail) -> str:
    """What of the tail is not as it should be."""
    if tail.missing:
        return (
            f"{tail.missing} record(s) from number {tail.end_sequence} on are not in {pair.remote}, though later ones are; all "
            "are copied (again) from there."
        )
    if tail.repeated:
        return f"{pair.remote} got {tail.repeated} record(s) a second time, from a copy that came late."
    return ""


def walk(
    pair: Pair, position: Position, count: int, last: records.Record | None = None
) -> Position:
    """The position `count` records of the source stream later, where the record `last` must be."""
    if count == 0:
        return position
    left = count
    for piece in available(pair, position.next_offset):
        if piece.count < left:
            left -= piece.count
            continue
        record = piece.records()[left - 1]
        if last is not None and not records.same_content(record, last):
            raise NumberingLost(
                f"{pair}: record {record.offset} of the source is not what stands last in {pair.remote} under producer "
                f"{position.numbering}."
            )
        return replace(
            position,
            offset=record.offset,
            sequence=advance(position.sequence, count),
            fingerprint=_fingerprint(pair, piece),
        )
    raise NumberingLost(
        f"{pair}: {pair.remote} holds {left} record(s) more under producer {position.numbering} than the source."
    )


def _fingerprint(pair: Pair, piece: Piece) -> Fingerprint:
    """That of the source batch; a shaped piece has only the leader epoch of its own."""
    found = piece.fingerprint
    return found if pair.shape is None else Fingerprint(found.leader_epoch)


def available(pair: Pair, start: int) -> Iterator[Piece]:
    """The source stream up to its end as it is now, without waiting for more."""
    key = (pair.topic, pair.partition)
    end = admin.list_offsets(pair.source, [key], admin.LATEST, pair.limits.isolation)[key]
    stream = Stream(start, pair.limits.isolation)
    for fetched in log.read(pair.source, pair.topic, pair.partition, start, end, pair.limits):
        pieces = stream.feed(fetched)
        yield from pieces if pair.shape is None else pair.shape(pieces)


def earliest_of(pair: Pair) -> int:
    key = (pair.topic, pair.partition)
    return admin.list_offsets(pair.source, [key], admin.EARLIEST)[key]


# -- the target holds less ------------------------------------------------------------------------


def _recovered(pair: Pair, position: Position, expected: int | None) -> Aligned:
    """The target lost records that it had acknowledged, or its leader only lost count of them: its log tells which."""
    held = last_held(pair.target, pair.remote, pair.at, position, expected)
    tail = _visible_tail(pair, held, expected)
    keeps = not tail.missing and expected in (None, tail.end_sequence)
    at_end = replace(position, target_offset=tail.end_offset)
    gained = distance(tail.end_sequence, position.sequence)
    begin = begins_below(pair.target, pair.remote, pair.at, position)
    before = position.origin[1] - (tail.end_offset if begin is None else begin)
    if before > 0:  # lost from before the numbering began
        at_origin = replace(at_end, offset=position.origin[0] - 1, sequence=0)
        return _copied_again(pair, at_origin, before, keeps=False, lost=before - min(0, gained))
    if gained > 0 and pair.compacted:
        return _by_content(pair, replace(position, target_offset=held.target_offset))
    if gained >= 0:
        moved = walk(pair, at_end, gained, tail.last if gained else None)
        return Aligned(moved, keeps, _told(pair, tail))
    return _copied_again(pair, at_end, -gained, keeps=keeps, lost=-gained)


def _copied_again(pair: Pair, position: Position, count: int, *, keeps: bool, lost: int) -> Aligned:
    """The position so many records earlier; `lost` is what to tell."""
    trouble = f"{pair.remote} lost {lost} acknowledged record(s) (unclean election, or created again?); they are copied again."
    rewound = rewind(pair, position, count)
    if rewound is None:
        trouble += " Some of them are gone from the source as well."
        return Aligned(_at_beginning(pair, position), False, trouble)
    return Aligned(rewound, keeps, trouble)


def _at_beginning(pair: Pair, position: Position) -> Position:
    return replace(position, offset=earliest_of(pair) - 1, fingerprint=NO_FINGERPRINT)


def rewind(pair: Pair, position: Position, count: int) -> Position | None:
    """The position `count` records earlier; None if the source does not have them any more."""
    earliest, margin = earliest_of(pair), _MARGIN
    while True:
        start = max(earliest, position.next_offset - count - margin)
        before = _count_before(pair, start, position.next_offset)
        if before >= count:
            sequence = advance(position.sequence, -before)
            begin = replace(
                position, offset=start - 1, sequence=sequence, fingerprint=NO_FINGERPRINT
            )
            return walk(pair, begin, before - count)
        if start == earliest:
            return None
        margin *= 8


def _count_before(pair: Pair, start: int, end: int) -> int:
    """How many records of the stream lie from `start` on and before `end`."""
    count = 0
    for piece in available(pair, start):
        if piece.last_offset >= end:
            if piece.first_offset < end:
                count += sum(record.offset < end for record in piece.records())
            break
        count += piece.count
    return count


# -- the source is not what it was ----------------------------------------------------------------


def _by_content(pair: Pair, position: Position) -> Aligned:
    """Find by content how far the target has come; a new numbering must begin there."""
    tail = read_content(pair.target, pair.remote, pair.at, position)
    at_end = replace(position, target_offset=max(position.target_offset, tail.end_offset))
    if tail.count == 0:
        return Aligned(at_end, False)
    earliest = earliest_of(pair)
    start = max(position.next_offset, earliest)
    marks = list(_marks(pair, start, tail.count, has_times=tail.has_times))
    found: list[tuple[Mark, Mark | None]]
    before, trouble = Mark(position.offset, None, 0, position.fingerprint), ""
    if pair.compacted or tail.is_mixed:
        found = anchors.covered(marks, tail.marks)
    elif earliest > position.next_offset:
        copied = position.offset + tail.count
        done = anchors.overlap(marks, tail.marks, copied)
        found = list(zip(marks[:done], tail.marks[len(tail.marks) - done :], strict=False))
        before = Mark(min(earliest - 1, copied), None, 0)
    else:
        unseen = max(0, tail.count - len(tail.marks))
        done = anchors.common(marks, tail.marks, unseen)
        found = list(zip(marks[:done], chain(repeat(None, unseen), tail.marks), strict=False))
        trouble = (
            f"of the {tail.count} record(s) that were copied after offset {position.offset}, the source has only {done} "
            f"(unclean election?); the others stay in {pair.remote}."
        )
    last = found[-1][0] if found else before
    moved = replace(at_end, offset=last.offset, fingerprint=last.fingerprint)
    return Aligned(moved, False, trouble, offsets_of(found))


def offsets_of(found: Iterable[tuple[Mark, Mark | None]]) -> tuple[tuple[int, int], ...]:
    """The source and target offsets of records whose copies were found."""
    return tuple((mark.offset, copy.offset) for mark, copy in found if copy is not None)


def _marks(pair: Pair, start: int, most: int, *, has_times: bool) -> Iterator[Mark]:
    """The first `most` records of the source from an offset on: of what was copied, no more than this can be left."""
    left = most
    for piece in available(pair, start):
        for record in piece.records()[:left]:
            yield mark_of(record, has_times, _fingerprint(pair, piece))
        left -= piece.count
        if left <= 0:
            return
