"""Where a group finds the records that it has not read: the segments of a partition in, target offsets out.

A position that was set back leaves records on the target twice, one that was set forward leaves records out, and after both the
target has other records in another order than the source. Wherever a group stands, a copy of each record that it has not read
must lie at its target offset or behind. The last copy of each is enough, so the highest such offset is the lowest one among the
last copies of the records from the group's offset on.

Holes may hold records of which the map does not tell. What may be in them follows from the segments on both sides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from sparkmirror.formats.offset_map import Run, Segment

from .segments import cut, of_runs, within


class Hole(NamedTuple):
    """Records of the target between two segments that the map does not tell of."""

    before: Segment
    after: Segment

    @property
    def is_set_back(self) -> bool:
        """Whether the position was set back in it."""
        return self.after.source_start < self.before.source_end

    @property
    def sources(self) -> tuple[int, int]:
        """Which source offsets may be in it: the first, and the end.

        A copy that runs on from one segment to the other has only those between them. Where the position was set back, as many as
        the hole is long may follow the segment before it, and as many may precede the one behind.
        """
        start = max(0, min(self.before.source_end, self.after.source_start - self._size))
        if self.is_set_back:
            return start, self.before.source_end + self._size
        return start, self.after.source_start

    @property
    def targets(self) -> tuple[int, int]:
        return self.before.target_end, self.after.target_start

    @property
    def likely_sources(self) -> tuple[int, int]:
        """Where its records are to be looked for: also where a position was set back by less than the hole is long."""
        start, end = self.sources
        return start, max(end, self.before.source_end + self._size)

    @property
    def _size(self) -> int:
        return self.after.target_start - self.before.target_end


class CopyIndex:
    """An index of a line of segments, which go up on the target and do not overlap there.

    Invariants: `copies` goes up on the source, without overlaps, and has the last copy of every record. `_steps` are those copies
    that have all later records behind them, so they go up on both sides. `_hole_ends` and `_hole_starts` go up too: a group
    before a source offset of the former may have unread records in the hole that begins at the target offset in the latter.
    In a plain line, whose segments go up on the source as well, `copies`, `_steps` and the line are one list.
    """

    __slots__ = (
        "_hole_ends",
        "_hole_starts",
        "_lowest_behind",
        "_step_ends",
        "_steps",
        "copies",
        "first_end",
        "is_plain",
    )

    def __init__(self, line: list[Segment]) -> None:
        self.is_plain = all(a.source_end <= b.source_start for a, b in pairwise(line))
        self.copies = line if self.is_plain else last_copies(line)
        self._steps = line if self.is_plain else _steps(self.copies)
        self._step_ends = [step.source_end for step in self._steps]
        self._hole_ends: list[int] = []
        self._hole_starts: list[int] = []
        for start, end in reversed(list(_obstacles(line))):
            if not self._hole_ends or end > self._hole_ends[-1]:
                self._hole_starts.append(start)
                self._hole_ends.append(end)
        self.first_end = _uncovered((0, line[0].source_start), line) if line else 0
        """A group before this source offset may have unread records before the first segment."""
        self._lowest_behind = [] if self.is_plain else _lowest_behind(line)

    def takes_last(self, segment: Segment) -> bool:
        """The last segment of the line has grown; False if the index must be made again."""
        if self.is_plain:
            self._step_ends[-1] = segment.source_end
        return self.is_plain

    def takes_next(self, before: Segment, segment: Segment) -> bool:
        """There is one more segment behind the last one of the line; False if the index must be made again."""
        if not self.is_plain or segment.source_start < before.source_end:
            return False
        if segment.target_start > before.target_end and segment.source_start > before.source_end:
            self._hole_starts.append(before.target_end)
            self._hole_ends.append(segment.source_start)
        self._step_ends.append(segment.source_end)
        return True

    def first_unread(self, offset: int) -> int | None:
        """The highest target offset with copies of all known records from a source offset on; None if there are none."""
        at = bisect_right(self._step_ends, offset)
        return within(self._steps[at], offset) if at < len(self._steps) else None

    def first_hole(self, offset: int) -> int | None:
        """Where the first hole begins that may hold records from a source offset on which have no later copy."""
        at = bisect_right(self._hole_ends, offset)
        return self._hole_starts[at] if at < len(self._hole_starts) else None

    def boundaries(self) -> Iterator[int]:
        """The source offsets at which another run or another hole begins to count, in order; some of them twice."""
        runs = (run for step in self._steps for run in step.runs())
        return merge(self._hole_ends, chain.from_iterable((r.source, r.source_end) for r in runs))

    def lowest_behind(self, number: int, source: int) -> int:
        """The lowest source offset that may lie behind a segment of the line, or `source` if that is lower."""
        return source if self.is_plain else min(source, self._lowest_behind[number])


def holes(line: Sequence[Segment]) -> Iterator[Hole]:
    """Neighbors with records of the target between them of which nothing is known."""
    for before, after in pairwise(line):
        if after.target_start > before.target_end:
            yield Hole(before, after)


def last_copies(line: Sequence[Segment]) -> list[Segment]:
    """The last copy of each record, in the order of the source: segments of which no two span the same source offset."""
    found: list[Segment] = []
    for segment in line:
        first = bisect_right(found, segment.source_start, key=_source_end)
        end = bisect_left(found, segment.source_end, key=_source_start)
        found[first:end] = _overlaid(found[first:end], segment)
    return found


_source_start = attrgetter("source_start")
_source_end = attrgetter("source_end")


def _overlaid(earlier: Sequence[Segment], segment: Segment) -> list[Segment]:
    """A segment, and what it leaves of earlier ones that span source offsets of it."""
    if not earlier:
        return [segment]
    runs = list(segment.runs())
    rows = [(len(earlier), run) for run in runs]
    for owner, one in enumerate(earlier):
        rows += [(owner, run) for run in _without(one.runs(), runs)]
    rows.sort(key=itemgetter(1))
    return [
        of_runs(segment.place, segment.ids, [run for _, run in group])
        for _, group in groupby(rows, key=itemgetter(0))
    ]


def _without(runs: Iterator[Run], others: Sequence[Run]) -> Iterator[Run]:
    """What of runs is in none of the others; all go up on the source."""
    for run in runs:
        rest = run
        for other in others[bisect_right(others, run.source, key=attrgetter("source_end")) :]:
            if other.source >= rest.source_end:
                break
            if other.source > rest.source:
                yield rest._replace(length=other.source - rest.source)
            passed = min(other.source_end, rest.source_end) - rest.source
            rest = Run(rest.source + passed, rest.target + passed, rest.length - passed)
        if rest.length:
            yield rest


def _steps(copies: Sequence[Segment]) -> list[Segment]:
    """Of the last copies, in the order of the source, those that have all later records behind them."""
    found: list[Segment] = []
    for segment in reversed(copies):
        kept = [segment]
        if found and segment.target_end > found[-1].target_start:
            kept = cut(segment, found[-1].target_start)
        found += kept
    found.reverse()
    return found


def _obstacles(line: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """Holes with records that may have no later copy, the last one first: where each begins, and before which source offset."""
    lowest = line[-1].source_start if line else 0
    for number in range(len(line) - 1, 0, -1):
        before, after = line[number - 1], line[number]
        lowest = min(lowest, after.source_start)
        if after.target_start <= before.target_end:
            continue
        start, end = Hole(before, after).sources
        if end > lowest:
            end = _uncovered((start, end), line[number:])
        if end > start:
            yield before.target_end, end


def _uncovered(sources: tuple[int, int], segments: Sequence[Segment]) -> int:
    """Where source offsets end that no segment spans; the first of all if there are none."""
    start, end = sources
    spans = [(one.source_end, one.source_start) for one in segments if one.source_start < end]
    for span_end, span_start in sorted(spans, reverse=True):
        if span_end < end:
            break
        end = min(end, span_start)
    return max(start, end)


def _lowest_behind(line: Sequence[Segment]) -> list[int]:
    """For each segment the lowest source offset that may lie behind it, in other segments and in holes."""
    found = [line[-1].source_end]
    for before, after in reversed(list(pairwise(line))):
        lowest = min(found[-1], after.source_start)
        if after.target_start > before.target_end:
            lowest = min(lowest, Hole(before, after).sources[0])
        found.append(lowest)
    found.reverse()
    return found
