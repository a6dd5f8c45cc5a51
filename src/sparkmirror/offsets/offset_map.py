"""What every offset of a source partition is on the target: segments of the offset map in, exact translations out.

Each run is a fact that somebody saw acknowledged, so segments of several writers (a twin, a zombie, a repair) may overlap and
still agree. Facts grow old when the target's log is cut back, or when a topic is created anew: what was written later counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

from sparkmirror.formats.offset_map import Place, Segment, TopicIds

from .copy_index import CopyIndex, Hole, holes
from .coverage import Coverage
from .segments import clipped, cut


class Translation(NamedTuple):
    """Where a group goes on; no record that it has not read lies before."""

    offset: int
    is_exact: bool
    """False: some that it has read may lie behind, since it is not known (yet) what stands there."""


class PartitionMap:
    """The segments of one partition.

    Invariants: `_segments` holds all that is in the topic, by target offset, each with its place in the log; `ids` are those of
    the newest, or of the ones before it where it has none; topics were last created again at `_since`. `_line` holds those that
    count in the order of the target's offsets, without overlaps, and without what others contain or contradict. `_index` is of
    that line. Both are None until they are needed again.
    """

    __slots__ = (
        "_index",
        "_line",
        "_newest",
        "_reached",
        "_segments",
        "_since",
        "ids",
        "place",
        "written_at",
    )

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ids = TopicIds()
        self._newest = -1
        self._since = -1
        self._segments: dict[int, tuple[int, Segment]] = {}
        self._line: list[Segment] | None = None
        self._index: CopyIndex | None = None
        self._reached = -1
        self.written_at = -1
        """When the last of what is known was written (ms)."""

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, segment: Segment, order: int, written_at: int = -1) -> None:
        """A segment was read; `order` is its place in the log, `written_at` its time."""
        self._segments[segment.target_start] = (order, segment)
        is_newest = order > self._newest
        if is_newest:
            self._newest = order
            self._take_ids(segment.ids, order)
        counts = self._counts(order, segment)
        if counts and segment.target_end > self._reached:
            self._reached, self.written_at = segment.target_end, written_at
        if self._line and is_newest and counts:
            self._join(self._line, segment)
        else:
            self._line = None

    def _take_ids(self, ids: TopicIds, order: int) -> None:
        """Those of the newest segment."""
        if ids.agrees(self.ids):
            ids = ids.or_else(self.ids)
        else:
            self._reached, self._since = -1, order
        if ids != self.ids:
            self.ids, self._line = ids, None

    def _counts(self, order: int, segment: Segment) -> bool:
        """Whether a segment is of the topics as they are now: one without ids is not if topics were created again after it."""
        return segment.ids == self.ids or (order >= self._since and segment.ids.agrees(self.ids))

    def remove(self, target_start: int) -> None:
        if self._segments.pop(target_start, None) is not None:
            self._line = None

    def _join(self, line: list[Segment], segment: Segment) -> None:
        """The usual news: the last segment has grown, or there is one more behind it."""
        last, index = line[-1], self._index
        if segment.target_start == last.target_start and segment.source_start == last.source_start:
            line[-1] = segment
            is_indexed = index is not None and index.takes_last(segment)
        elif segment.target_start >= last.target_end:
            is_indexed = index is not None and index.takes_next(last, segment)
            line.append(segment)
        else:
            self._line = None
            return
        if not is_indexed:
            self._index = None

    # -- in order -----------------------------------------------------------------------------

    @property
    def line(self) -> list[Segment]:
        """What holds, in the order of the target's offsets."""
        if self._line is None:
            line = _Line()
            for order, segment in (self._segments[start] for start in sorted(self._segments)):
                if self._counts(order, segment):
                    line.put(order, segment)
            self._line, self._index = line.segments, None
        return self._line

    @property
    def _indexed(self) -> CopyIndex:
        line = self.line
        if self._index is None:
            self._index = CopyIndex(line)
        return self._index

    @property
    def void(self) -> list[Segment]:
        """What says nothing (any more)."""
        held = {segment.target_start for segment in self.line}
        return [segment for start, (_, segment) in self._segments.items() if start not in held]

    # -- translation --------------------------------------------------------------------------

    def translate(
        self, offset: int, log_start: int | None, shared: Coverage | None = None
    ) -> Translation | None:
        """Where a group that reads `offset` next goes on; None if that lies before what is known.

        `log_start` is where the target's log begins, if it is known: where the map begins there too, nothing lies before it.
        `shared` tells of all source partitions if several feed this one: what came from others is nothing to wait at.
        """
        line = self.line
        if not line:
            return None
        index, start = self._indexed, log_start or 0
        if offset < index.first_end:
            known_to = start if shared is None else shared.passed(start)
            if log_start is None or line[0].target_start > known_to:
                return None
        unread, hole = index.first_unread(offset), index.first_hole(offset)
        end = line[-1].target_end if unread is None else unread
        if hole is not None and hole < end:
            reached = hole if shared is None else shared.passed(max(hole, start))
            if reached < end:
                return Translation(reached, False)
        if unread is not None:
            return Translation(unread, True)
        if shared is not None:
            end = shared.passed(max(end, start))
        return Translation(end, offset == line[-1].source_end)

    def boundaries(self) -> Iterator[int]:
        """Source offsets, in order, between which translations either stay the same or go up with the offset."""
        line = self.line
        if not line:
            return iter(())
        index = self._indexed
        ends = {index.first_end, line[-1].source_end, line[-1].source_end + 1, self.source_end}
        return merge(index.boundaries(), sorted(ends))

    def bound(self, offset: int) -> int | None:
        """The target offset that no translation may exceed, by whatever means it was found; None if there is none.

        Offset syncs may tell more of a hole, but nothing of positions that were set back.
        """
        if not self.line:
            return None
        index = self._indexed
        known = [index.first_unread(offset), None if index.is_plain else index.first_hole(offset)]
        return min((target for target in known if target is not None), default=None)

    @property
    def source_end(self) -> int:
        """The source offset after the last one that has a copy; there must be one."""
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
        copies = self._indexed.copies
        at = bisect_right(copies, offset, key=lambda segment: segment.source_start) - 1
        if at < 0:
            return False
        reached = offset
        for segment in islice(copies, at, None):
            for run in segment.runs():
                if run.source > reached:
                    return False
                reached = max(reached, run.source_end)
        return True

    def translate_back(self, offset: int) -> int | None:
        """What a group that reads `offset` of the target next has still to read of the source; None if nothing is known there.

        It may have come over when the target had other copies, so whatever lies behind counts as not read.
        """
        line = self.line
        number = bisect_right(line, offset, key=lambda segment: segment.target_start) - 1
        if number < 0:
            return None
        source = line[number].source_end
        for run in line[number].runs():
            if offset < run.target_end:
                source = run.source + max(0, offset - run.target)
                break
        return self._indexed.lowest_behind(number, source)

    def holes(self) -> Iterator[Hole]:
        """Neighbors with records of the target between them of which nothing is known."""
        return holes(self.line)


class _Line:
    """Segments that are put in the order of the target's offsets, each with its place in the log, as they go together.

    What was written later counts where two contradict each other. Then the target's log was cut back, and all that was written
    before and lies behind is void.

    Invariants: `_cut_back` is when the log was last known to be cut back. `_seen` tells up to which target offsets others
    than the last segment say the same as it does, and when they did.
    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._order = -1
        self._seen: list[tuple[int, int]] = []
        self._cut_back = -1

    def put(self, order: int, segment: Segment) -> None:
        if order < self._cut_back:
            return
        seen: list[tuple[int, int]] = []
        if self.segments and segment.target_start < self.segments[-1].target_end:
            before = self.segments[-1]
            if _agree(before, segment):
                if segment.target_end <= before.target_end:
                    self._seen.append((segment.target_end, order))
                    return
                seen = [*self._seen, (before.target_end, self._order)]
            else:
                there = self._order_at(segment.target_start)
                self._cut_back = max(there, order)
                if order < there:
                    return
            self.segments[-1:] = cut(before, segment.target_start)
        self.segments.append(segment)
        self._order, self._seen = order, seen

    def _order_at(self, target: int) -> int:
        """When something was last written of what the last segment says of a target offset."""
        return max([self._order, *(order for end, order in self._seen if target < end)])


def _agree(before: Segment, segment: Segment) -> bool:
    """Whether two segments say the same of the target offsets that both tell of."""
    start, end = segment.target_start, min(before.target_end, segment.target_end)
    return clipped(before, start, end) == clipped(segment, start, end)


class OffsetMap:
    """All partitions of a map.

    Invariant: `_coverages` holds what nothing was read of since it was made.
    """

    def __init__(self) -> None:
        self._places: dict[Place, PartitionMap] = {}
        self._of_source: dict[tuple[str, int], set[Place]] = {}
        self._of_target: dict[tuple[str, int], set[Place]] = {}
        self._coverages: dict[tuple[str, int], Coverage] = {}
        self.changed: set[Place] = set()
        """Those of which something was read since somebody last cleared this."""

    @property
    def places(self) -> dict[Place, PartitionMap]:
        return self._places

    def get(self, place: Place) -> PartitionMap | None:
        return self._places.get(place)

    def put(self, segment: Segment, order: int, written_at: int = -1) -> None:
        found = self._places.get(segment.place)
        if found is None:
            place = segment.place
            found = self._places[place] = PartitionMap(place)
            self._of_source.setdefault(place[:2], set()).add(place)
            self._of_target.setdefault(place[2:], set()).add(place)
        found.put(segment, order, written_at)
        self._has_changed(segment.place)

    def remove(self, place: Place, target_start: int) -> None:
        found = self._places.get(place)
        if found is not None:
            found.remove(target_start)
            self._has_changed(place)
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

    def coverage(self, remote: str, partition: int) -> Coverage | None:
        """What is known of a target partition that several source partitions feed; None if it is one alone."""
        places = self.to_target(remote, partition)
        if len(places) < 2:
            return None
        found = self._coverages.get((remote, partition))
        if found is None:
            maps = (self._places[place] for place in places)
            runs = (run for one in maps for segment in one.line for run in segment.runs())
            found = self._coverages[remote, partition] = Coverage(runs)
        return found

    def _has_changed(self, place: Place) -> None:
        self.changed.add(place)
        self._coverages.pop(place[2:], None)
