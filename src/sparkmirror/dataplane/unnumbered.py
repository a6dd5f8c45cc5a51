"""Where to go on where records carry no numbers (at-least-once): a position in, the one that their content bears out, out.

A record of the source counts as copied if it, and all before it, are found on the target in their order; what others have written
between them does not matter. Whatever is not sure is copied again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import dropwhile

from sparkmirror.formats.position import Position, advance
from sparkmirror.kafka import admin

from . import anchors
from .alignment import Aligned, Pair, available, earliest_of
from .anchors import Mark
from .tail import everything, mark_of

_NEAR = 1000
"""How far back the last copied record is looked for, in offsets of the source."""
_WIDER = 8


def align(pair: Pair, position: Position, end: int) -> Aligned:
    """The position moved to what the target really holds; `end` is where the target's log ends.

    The record before the position's target offset is the last that was copied, unless the target's log was cut back: then the
    last one that is still there is searched.
    """
    if position.is_origin and end <= position.target_offset:
        return Aligned(replace(position, target_offset=end))
    if _is_held(pair, position, end):
        return _moved(pair, position, _marks(pair, position.next_offset), position.target_offset)
    return _cut_back(pair, position, end)


def _moved(pair: Pair, position: Position, marks: Iterator[Mark], start: int) -> Aligned:
    """The position behind the last of these records of the source that are on the target, from an offset there on."""
    copies = _copies(pair, start)
    if pair.compacted:
        return _covered(position, list(marks), list(copies))
    found = list(anchors.in_order(marks, copies))
    if not found:
        return Aligned(position)
    mark, copied = found[-1]
    moved = replace(
        position,
        offset=mark.offset,
        sequence=advance(position.sequence, len(found)),
        target_offset=copied.offset + 1,
        fingerprint=mark.fingerprint,
    )
    return Aligned(moved, copies=tuple((mark.offset, copy.offset) for mark, copy in found))


def _covered(position: Position, marks: list[Mark], copies: list[Mark]) -> Aligned:
    done = anchors.covered(marks, copies)
    if not done:
        return Aligned(position)
    last = marks[done - 1]
    return Aligned(replace(position, offset=last.offset, fingerprint=last.fingerprint))


def _marks(pair: Pair, start: int) -> Iterator[Mark]:
    """The records of the source from an offset on."""
    for piece in available(pair, max(start, earliest_of(pair))):
        fingerprint = piece.fingerprint
        for offset, record in piece.records_with_offsets():
            yield replace(mark_of(record, has_times=True, fingerprint=fingerprint), offset=offset)


def _copies(pair: Pair, start: int) -> Iterator[Mark]:
    return everything(pair.target, pair.remote, pair.at, start)


# -- a target that lost its end ---------------------------------------------------------------------


def _is_held(pair: Pair, position: Position, end: int) -> bool:
    """Whether the last copied record is where it was written, as far as that can be told."""
    if end < position.target_offset:
        return False
    if position.is_origin or pair.compacted:
        return True
    copy = next(_copies(pair, position.target_offset - 1), None)
    if copy is None or copy.offset >= position.target_offset:
        return True  # retention took it
    near = _marks(pair, position.next_offset - _NEAR)
    last = None
    for mark in near:
        if mark.offset > position.offset:
            break
        last = mark
    return last is None or anchors.is_copy(copy, last)


def _cut_back(pair: Pair, position: Position, end: int) -> Aligned:
    """Search back, in windows that grow, for the last record that was copied and is still there."""
    first, target_first = earliest_of(pair), _log_start(pair)
    source_origin, target_origin = position.origin
    lowest = max(first, min(source_origin, position.next_offset))
    bottom = min(max(target_first, target_origin), end)
    width = _NEAR
    while True:
        start = max(lowest, position.next_offset - width)
        target = max(bottom, min(position.target_offset, end) - 2 * width)
        is_whole = start == lowest and target == bottom
        before = list(_until(pair, start, position.offset))
        copies = list(_copies(pair, target))
        known = {digest for copy in copies for digest in (copy.digest, copy.timeless)}
        held = _from_first(before, known)
        if pair.compacted or (is_whole and not held):
            return _from(pair, position, lowest, bottom, held=False)
        if held:
            return _from(pair, position, held[0].offset, target, held=True)
        width *= _WIDER


def _from(pair: Pair, position: Position, start: int, target: int, *, held: bool) -> Aligned:
    at_start = replace(position, offset=start - 1, target_offset=target)
    if not held:
        return Aligned(at_start, trouble=_lost(pair, position, start))
    found = _moved(pair, at_start, _marks(pair, start), target)
    moved = found.position
    if moved.offset >= position.offset:
        return found
    return replace(found, trouble=_lost(pair, position, moved.next_offset))


def _lost(pair: Pair, position: Position, first: int) -> str:
    return (
        f"{pair.remote} lost acknowledged records (unclean election, or created again?): those from offset {first} to "
        f"{position.offset} of the source are copied again."
    )


def _until(pair: Pair, start: int, last: int) -> Iterator[Mark]:
    for mark in _marks(pair, start):
        if mark.offset > last:
            return
        yield mark


def _from_first(marks: list[Mark], digests: set[int | None]) -> list[Mark]:
    """The marks from the first one on that is among these."""
    return list(dropwhile(lambda mark: digests.isdisjoint((mark.digest, mark.timeless)), marks))


def _log_start(pair: Pair) -> int:
    key = (pair.remote, pair.at)
    return admin.list_offsets(pair.target, [key], admin.EARLIEST)[key]
