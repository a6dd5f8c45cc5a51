"""What of an offset map can go or be joined: the segments of a partition in, rows to be written to its topic out."""

from __future__ import annotations

from sparkmirror.formats.offset_map import Segment, SegmentKey

from .copy_index import Hole
from .offset_map import PartitionMap
from .segments import merged

Changes = dict[SegmentKey, Segment | None]
"""Segments to be written, and (None) keys to be removed, in that order of writing."""


def tidied(known: PartitionMap, log_start: int) -> Changes:
    """What makes the map of a partition smaller without its saying less.

    Void segments go, and those of records that the target has no more; neighbors become one. The last segment stays as it is:
    its writer may be about to write it again, longer. Source offsets that neighbors pass over, and that were copied before, stay
    between two segments: there the position was set forward, and a copy of them in a hole is perhaps the only one.
    """
    line = known.line
    gone = {segment.key for segment in known.void}
    written: dict[SegmentKey, Segment] = {}
    kept: Segment | None = None
    reached = 0
    for number, segment in enumerate(line[:-1]):
        if number:
            reached = max(reached, _reached(line[number - 1], segment))
        if segment.target_end <= log_start:
            gone.add(segment.key)
            continue
        one = (
            None
            if kept is None or _is_set_forward(kept, segment, reached)
            else merged(kept, segment)
        )
        if one is None:
            kept = segment
            continue
        written[one.key] = kept = one
        gone.add(segment.key)
    # What is written in place of others must be there before they go.
    return {**written, **dict.fromkeys(gone - written.keys())}


def _reached(before: Segment, after: Segment) -> int:
    """Where the source offsets end that are in a segment, or may be in the hole behind it."""
    is_hole = before.target_end < after.target_start
    return max(before.source_end, Hole(before, after).sources[1] if is_hole else 0)


def _is_set_forward(before: Segment, after: Segment, reached: int) -> bool:
    """Whether neighbors pass over source offsets that were perhaps copied before."""
    return before.source_end < min(after.source_start, reached)


def removed(known: PartitionMap) -> Changes:
    """Everything goes: the topic that it is about is gone."""
    return dict.fromkeys(segment.key for segment in [*known.line, *known.void])
