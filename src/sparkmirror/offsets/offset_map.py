"""What every offset of a source partition is on the target: segments of the offset map in, exact translations out.

Each run is a fact that somebody saw acknowledged, so segments of several writers (a twin, a zombie, a repair) may overlap and
still agree. Facts grow old when the target's log is cut back, or when a topic is created anew: what was written later counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from sparkmirror.formats.offset_map import Place, Segment, TopicIds

from .segments import cut, source_at, within


class Translation(NamedTuple):
    """Where a group goes on; no record that it has not read lies before."""

    offset: int
    is_exact: bool
    """False: some that it has read may lie behind, since it is not known (yet) what stands there."""


class PartitionMap:
    """The segments of one partition.

    Invariants: `_segments` holds all that is in the topic, by target offset, each with its place in the log; `ids` are those of
    the newest. `_line` holds those of `ids` in the order of the target's offsets, without those that others contain or
    contradict, and `_visible` the positions in it of those that are not behind a later copy of the same records, so that their
    source offsets go up; both are None until they are needed again.
    """

    __slots__ = ("_line", "_newest", "_segments", "_starts", "_visible", "ids", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ids = TopicIds()
        self._newest = -1
        self._segments: dict[int, tuple[int, Segment]] = {}
        self._line: list[Segment] | None = None
        self._visible: list[int] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, segment: Segment, order: int) -> None:
        """A segment was read; `order` is its place in the log."""
        self._segments[segment.target_start] = (order, segment)
        if order > self._newest:
            self._newest = order
            if segment.ids != self.ids:
                self.ids = segment.ids
                self._line = None
        if self._line and segment.ids == self.ids:
            self._join(self._line, segment)
        else:
            self._line = None

    def remove(self, target_start: int) -> None:
        if self._segments.pop(target_start, None) is not None:
            self._line = None

    def _join(self, line: list[Segment], segment: Segment) -> None:
        """The usual news: the last segment has grown, or there is one more behind it."""
        last = line[-1]
        if segment.target_start == last.target_start and segment.source_start == last.source_start:
            line[-1] = segment
        elif segment.target_start >= last.target_end:
            self._see(line, segment)
        else:
            self._line = None

    # -- in order -----------------------------------------------------------------------------

    @property
    def line(self) -> list[Segment]:
        """What holds, in the order of the target's offsets."""
        if self._line is None:
            self._line = self._lined_up()
        return self._line

    @property
    def void(self) -> list[Segment]:
        """What says nothing (any more)."""
        held = {segment.target_start for segment in self.line}
        return [segment for start, (_, segment) in self._segments.items() if start not in held]

    def _lined_up(self) -> list[Segment]:
        line: list[tuple[int, Segment]] = []
        for order, segment in (self._segments[start] for start in sorted(self._segments)):
            if segment.ids != self.ids:
                continue
            if line and segment.target_start < line[-1][1].target_end:
                before_order, before = line[-1]
                if source_at(before, segment.target_start) == segment.source_start:
                    if segment.target_end <= before.target_end:
                        continue
                elif order < before_order:
                    continue
                else:
                    line[-1:] = [(before_order, part) for part in cut(before, segment.target_start)]
            line.append((order, segment))
        self._visible, self._starts = [], []
        found: list[Segment] = []
        for _, segment in line:
            self._see(found, segment)
        return found

    def _see(self, line: list[Segment], segment: Segment) -> None:
        while self._starts and self._starts[-1] >= segment.source_start:
            self._starts.pop()
            self._visible.pop()
        self._starts.append(segment.source_start)
        self._visible.append(len(line))
        line.append(segment)

    # -- translation --------------------------------------------------------------------------

    def translate(self, offset: int, log_start: int | None) -> Translation | None:
        """Where a group that reads `offset` next goes on; None if that lies before what is known.

        `log_start` is where the target's log begins, if it is known: where the map begins there too, nothing lies before it.
        """
        line = self.line
        if not line:
            return None
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            is_whole = log_start is not None and line[0].target_start <= log_start
            return Translation(line[self._visible[0]].target_start, True) if is_whole else None
        number = self._visible[at]
        segment = line[number]
        if offset < segment.source_end:
            return Translation(within(segment, offset), True)
        # Nothing behind it can have an offset up to this one: else that would be seen in its stead.
        after = line[number + 1] if number + 1 < len(line) else None
        is_known = after is not None and after.target_start <= segment.target_end
        return Translation(segment.target_end, is_known or offset == segment.source_end)

    def is_passed(self, offset: int) -> bool:
        """Whether a group that reads `offset` next has read all that is known."""
        return bool(self.line) and offset >= self._segments_end()

    def _segments_end(self) -> int:
        return max(segment.source_end for segment in self.line)

    def is_dense_from(self, target: int) -> bool:
        """Whether it is known of every record of the target, from this offset to the last that is known, what it is a copy of."""
        reached = target
        for segment in self.line:
            if segment.target_end <= reached:
                continue
            if segment.target_start > reached:
                return False
            for run in segment.runs():
                if run.target > reached:
                    return False
                reached = max(reached, run.target_end)
        return True

    def is_whole_from(self, offset: int) -> bool:
        """Whether it is known of every source offset, from this one to the last that is known, where its record is."""
        line = self.line
        if not line:
            return False
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return False
        reached = offset
        for number in self._visible[at:]:
            for run in line[number].runs():
                if run.source > reached:
                    return False
                reached = max(reached, run.source_end)
        return True

    def translate_back(self, offset: int) -> int | None:
        """What a group that reads `offset` of the target next has still to read of the source; None if nothing is known there."""
        line = self.line
        number = bisect_right(line, offset, key=lambda segment: segment.target_start) - 1
        if number < 0:
            return None
        for run in line[number].runs():
            if offset < run.target_end:
                return run.source + max(0, offset - run.target)
        return line[number].source_end

    def holes(self) -> Iterator[tuple[Segment, Segment]]:
        """Neighbours with records of the target between them of which nothing is known."""
        line = self.line
        for before, after in pairwise(line):
            if after.target_start > before.target_end:
                yield before, after


class OffsetMap:
    """All partitions of a map."""

    def __init__(self) -> None:
        self._places: dict[Place, PartitionMap] = {}
        self._of_source: dict[tuple[str, int], set[Place]] = {}
        self._of_target: dict[tuple[str, int], set[Place]] = {}
        self.changed: set[Place] = set()
        """Those of which something was read since somebody last cleared this."""

    @property
    def places(self) -> dict[Place, PartitionMap]:
        return self._places

    def get(self, place: Place) -> PartitionMap | None:
        return self._places.get(place)

    def put(self, segment: Segment, order: int) -> None:
        found = self._places.get(segment.place)
        if found is None:
            place = segment.place
            found = self._places[place] = PartitionMap(place)
            self._of_source.setdefault(place[:2], set()).add(place)
            self._of_target.setdefault(place[2:], set()).add(place)
        found.put(segment, order)
        self.changed.add(segment.place)

    def remove(self, place: Place, target_start: int) -> None:
        found = self._places.get(place)
        if found is not None:
            found.remove(target_start)
            self.changed.add(place)
            if not len(found):
                del self._places[place]
                self._of_source[place[:2]].discard(place)
                self._of_target[place[2:]].discard(place)

    def from_source(self, topic: str, partition: int) -> Collection[Place]:
        """Where records of a source partition went."""
        return self._of_source.get((topic, partition), ())

    def to_target(self, remote: str, partition: int) -> Collection[Place]:
        """Where records of a target partition came from."""
        return self._of_target.get((remote, partition), ())


def covered(maps: Sequence[PartitionMap], start: int) -> int:
    """The first target offset from `start` on of which none of these, all of one target partition, tells where it comes from."""
    runs = sorted(
        (run.target, run.target_end)
        for one in maps
        for segment in one.line
        if segment.target_end > start
        for run in segment.runs()
    )
    reached = start
    for begin, end in runs:
        if begin > reached:
            break
        reached = max(reached, end)
    return reached
