"""Where to go on where records carry no numbers (at-least-once): a position in, the one that the target's log bears out, out.

What lies behind the position may have been written by a task before this one: a record of the source counts as copied if it, and
all before it, are found there in their order. Whatever is not sure is copied again.

The position's target offset is the end that the log must have. A log that is shorter has lost that many records, whoever wrote
them: as many of the source are copied again. One that has grown again meanwhile is not told from one that lost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparkmirror.formats.position import NO_FINGERPRINT, Position, advance

from . import anchors
from .alignment import Aligned, Pair, available, earliest_of, offsets_of, rewind
from .anchors import Mark
from .tail import everything, mark_of


def align(pair: Pair, position: Position, end: int) -> Aligned:
    """The position moved to what the target really holds; `end` is where the target's log ends."""
    lost = position.target_offset - end
    if lost > 0:
        return _rewound(pair, position, lost)
    if (
        pair.is_shared or not pair.is_comparable
    ):  # what looks like ours may be another partition's, or ours look otherwise
        return Aligned(position)
    return _moved(pair, position)


def _moved(pair: Pair, position: Position) -> Aligned:
    """The position behind the last record of the source that is on the target behind it."""
    marks = _marks(pair, position.next_offset)
    copies = everything(pair.target, pair.remote, pair.at, position.target_offset)
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
    return Aligned(moved, copies=offsets_of(found))


def _covered(position: Position, marks: list[Mark], copies: list[Mark]) -> Aligned:
    found = anchors.covered(marks, copies)
    if not found:
        return Aligned(position)
    last = found[-1][0]
    moved = replace(position, offset=last.offset, fingerprint=last.fingerprint)
    return Aligned(moved, copies=offsets_of(found))


def _marks(pair: Pair, start: int) -> Iterator[Mark]:
    """The records of the source from an offset on."""
    for piece in available(pair, max(start, earliest_of(pair))):
        fingerprint = piece.fingerprint
        for offset, record in piece.records_with_offsets():
            yield replace(mark_of(record, has_times=True, fingerprint=fingerprint), offset=offset)


def _rewound(pair: Pair, position: Position, lost: int) -> Aligned:
    """So many records earlier, also from before the numbering began: a new one begins there, for the stored position is ahead."""
    at_end = replace(position, target_offset=position.target_offset - lost)
    back = rewind(pair, at_end, lost)
    if (
        back is None
    ):  # retention took them, and perhaps some that were never copied: that is told by who asks
        offset = min(earliest_of(pair) - 1, position.offset)
        back = replace(at_end, offset=offset, fingerprint=NO_FINGERPRINT)
    trouble = (
        f"{pair.remote} lost acknowledged records (unclean election, or created again?): those from offset {back.next_offset} to "
        f"{position.offset} of the source are copied again."
    )
    return Aligned(back, keeps_numbering=False, trouble=trouble)
