"""Segments and maps of one partition, for the tests of the offset map's rules."""

from __future__ import annotations

from sparkmirror.formats.offset_map import Place, Run, Segment, TopicIds
from sparkmirror.offsets.offset_map import PartitionMap
from sparkmirror.offsets.segments import of_runs

PLACE = Place("t", 0, "A.t", 0)
IDS = TopicIds(b"s" * 16, b"t" * 16)
OTHER = TopicIds(b"S" * 16, b"T" * 16)
"""Of topics that were created anew."""


def segment(*runs: tuple[int, int, int], ids: TopicIds = IDS) -> Segment:
    return of_runs(PLACE, ids, [Run(*run) for run in runs])


def known(*segments: Segment) -> PartitionMap:
    """A map that was written in this order."""
    found = PartitionMap(PLACE)
    for order, one in enumerate(segments):
        found.put(one, order)
    return found
