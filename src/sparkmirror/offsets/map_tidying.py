"""What of an offset map can go or be joined: the segments of a partition in, rows to be written to its topic out."""

from __future__ import annotations

from sparkmirror.formats.offset_map import Segment, SegmentKey

from .offset_map import PartitionMap
from .segments import merged

Changes = dict[SegmentKey, Segment | None]
"""Segments to be written, and (None) keys to be removed, in that order of writing."""


def tidied(known: PartitionMap, log_start: int) -> Changes:
    """What makes the map of a partition smaller without its saying less.

    Void segments go, and those of records that the target has no more; neighbours become one. The last segment stays as it is:
    its writer may be about to write it again, longer.
    """
    line = known.line
    gone = {segment.key for segment in known.void}
    written: dict[SegmentKey, Segment] = {}
    kept: Segment | None = None
    for segment in line[:-1]:
        if segment.target_end <= log_start:
            gone.add(segment.key)
            continue
        one = None if kept is None else merged(kept, segment)
        if one is None:
            kept = segment
            continue
        written[one.key] = kept = one
        gone.add(segment.key)
    # What is written in place of others must be there before they go.
    return {**written, **dict.fromkeys(gone - written.keys())}


def removed(known: PartitionMap) -> Changes:
    """Everything goes: the topic that it is about is gone."""
    return dict.fromkeys(segment.key for segment in [*known.line, *known.void])
