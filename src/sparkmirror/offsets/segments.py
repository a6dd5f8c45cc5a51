"""Rules on single segments of the offset map: a segment in, what an offset is by it, or a part of it, out."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from functools import lru_cache

from sparkmirror.formats.offset_map import Place, Run, Segment, TopicIds, packed

MOST_NUMBERS = 512
"""Of a segment's pairs: what a segment that grows is written with again and again stays small."""
_MOST_OPENED = 1024  # of 6 KB at most


def within(segment: Segment, offset: int) -> int:
    """What an offset before the segment's end is on the target: of its record, or of the next one there."""
    if not segment.pairs:
        return segment.target_start + max(0, offset - segment.source_start)
    sources, ends, targets = _opened(segment)
    at = bisect_right(ends, offset)
    return targets[at] + max(0, offset - sources[at])


@lru_cache(maxsize=_MOST_OPENED)
def _opened(segment: Segment) -> tuple[array[int], array[int], array[int]]:
    """Where each run begins and ends on the source, and begins on the target: many groups are looked up in the same segments."""
    runs = list(segment.runs())
    return (
        array("q", [run.source for run in runs]),
        array("q", [run.source_end for run in runs]),
        array("q", [run.target for run in runs]),
    )


def clipped(segment: Segment, start: int, end: int) -> list[Run]:
    """What of its runs lies between two target offsets."""
    found = []
    for run in segment.runs():
        passed = max(0, start - run.target)
        length = min(run.target_end, end) - run.target - passed
        if length > 0:
            found.append(Run(run.source + passed, run.target + passed, length))
    return found


def cut(segment: Segment, target_end: int) -> list[Segment]:
    """What is left of a segment before a target offset: itself, shorter, or nothing."""
    runs = clipped(segment, segment.target_start, target_end)
    return [of_runs(segment.place, segment.ids, runs)] if runs else []


def of_runs(place: Place, ids: TopicIds, runs: list[Run]) -> Segment:
    """A segment of runs that go up on both sides."""
    first, last = runs[0], runs[-1]
    numbers: list[int] = []
    source, target = first.source, first.target
    for run in runs:
        if run.target > target:
            numbers += (run.target - target, 0)
        if numbers and run.source == source and run.target == target and numbers[-1]:
            numbers[-1] += run.length
        else:
            numbers += (run.source - source, run.length)
        source, target = run.source_end, run.target_end
    pairs = packed(numbers) if len(numbers) > 2 else b""
    return Segment(place, ids, first.source, last.source_end, first.target, last.target_end, pairs)


def merged(before: Segment, after: Segment) -> Segment | None:
    """Two neighbours as one; None if they do not follow each other on both sides, or would be too large together."""
    if (
        before.ids != after.ids
        or before.target_end != after.target_start
        or before.source_end > after.source_start
    ):
        return None
    one = of_runs(before.place, before.ids, [*before.runs(), *after.runs()])
    return one if len(one.pairs) <= MOST_NUMBERS else None
