"""The offset map as it grows: runs that the target has acknowledged in, segments to be written out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from sparkmirror.formats.offset_map import Place, Run, Segment, SegmentKey, TopicIds, packed

from .segments import MOST_NUMBERS

MOST_CLOSED = 20_000
"""Of segments that could not be written: some 10 MB. What is dropped leaves holes, before which groups stay."""


class _Growing:
    """The segment of one partition that runs are added to.

    Invariant: `_numbers` are the pairs of all its runs; the last number is the length of a run that may still grow.
    """

    __slots__ = (
        "_numbers",
        "ids",
        "place",
        "source_end",
        "source_start",
        "target_end",
        "target_start",
    )

    def __init__(self, place: Place, ids: TopicIds, run: Run) -> None:
        self.place = place
        self.ids = ids
        self.source_start, self.target_start = run.source, run.target
        self.source_end, self.target_end = run.source_end, run.target_end
        self._numbers = [0, run.length]

    def takes(self, ids: TopicIds, run: Run) -> bool:
        """Whether it goes on with this run: up on both sides, of the same topics, and not too long."""
        return (
            run.source >= self.source_end
            and run.target >= self.target_end
            and ids == self.ids
            and (self._follows(run) or len(self._numbers) < MOST_NUMBERS)
        )

    def add(self, run: Run) -> None:
        if self._follows(run):
            self._numbers[-1] += run.length
        else:
            if run.target > self.target_end:
                self._numbers += (run.target - self.target_end, 0)
            self._numbers += (run.source - self.source_end, run.length)
        self.source_end, self.target_end = run.source_end, run.target_end

    def _follows(self, run: Run) -> bool:
        return run.source == self.source_end and run.target == self.target_end

    def segment(self) -> Segment:
        return Segment(
            self.place,
            self.ids,
            self.source_start,
            self.source_end,
            self.target_start,
            self.target_end,
            packed(self._numbers) if len(self._numbers) > 2 else b"",
        )


class MapWriter:
    """What of the map is to be written.

    Invariants: `_growing` holds the last segment of each partition; `_changed` the partitions whose last segment is not (known to
    be) written as it is; `_closed` the segments before those, of the same topics (`_ids`), that are not written yet, but for
    `dropped` ones, which were too many.
    """

    def __init__(self) -> None:
        self._growing: dict[Place, _Growing] = {}
        self._changed: set[Place] = set()
        self._closed: dict[SegmentKey, Segment] = {}
        self._ids: dict[Place, TopicIds] = {}
        self.dropped = 0

    @property
    def is_idle(self) -> bool:
        return not self._changed and not self._closed

    def acknowledged(self, place: Place, ids: TopicIds, run: Run) -> None:
        """The target has these records."""
        growing = self._growing.get(place)
        if growing is not None and growing.takes(ids, run):
            growing.add(run)
        else:
            self._close(place)
            known = self._ids.get(place, ids)
            if not known.agrees(ids):
                self._drop(place)
                known = ids
            self._ids[place] = ids.or_else(known)
            self._growing[place] = _Growing(place, ids, run)
        self._changed.add(place)

    def interrupt(self, partitions: Collection[tuple[str, int]]) -> None:
        """What comes next of these source partitions begins a segment: another task has perhaps written what lies between."""
        for place in [p for p in self._growing if (p.topic, p.partition) in partitions]:
            self._close(place)

    def _close(self, place: Place) -> None:
        growing = self._growing.pop(place, None)
        if growing is not None and place in self._changed:
            self._changed.discard(place)
            segment = growing.segment()
            self._closed[segment.key] = segment

    def _drop(self, place: Place) -> None:
        """One of the topics was created again: what is not written of the old one must not be written behind the new one."""
        for key in [key for key in self._closed if key.place == place]:
            del self._closed[key]

    def take(self) -> list[Segment]:
        """Everything that is to be written now; who cannot write it gives it back."""
        found = [
            *self._closed.values(),
            *(self._growing[place].segment() for place in self._changed),
        ]
        self._closed.clear()
        self._changed.clear()
        return found

    def take_one(self) -> list[Segment]:
        """One of these, if there is one."""
        if self._closed:
            return [self._closed.pop(next(iter(self._closed)))]
        return [self._growing[self._changed.pop()].segment()] if self._changed else []

    def give_back(self, segments: Iterable[Segment]) -> None:
        """These were not written: they are to be taken again, unless they have grown meanwhile and are anyway."""
        for segment in segments:
            if not self._ids.get(segment.place, segment.ids).agrees(segment.ids):
                continue
            growing = self._growing.get(segment.place)
            if growing is not None and growing.segment().key == segment.key:
                self._changed.add(segment.place)
            else:
                self._closed.setdefault(segment.key, segment)
        surplus = len(self._closed) - MOST_CLOSED
        for key in list(islice(self._closed, max(0, surplus))):
            del self._closed[key]
            self.dropped += 1
