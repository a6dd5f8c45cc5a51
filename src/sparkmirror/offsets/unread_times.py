"""The earliest time among records that are still to be read: a partition's records in, that of all from any offset on out.

Times need not go up with offsets: a record may come late, or from a clock that is slow. So it is not enough to look at the next
record. What is kept are the records that are earlier than everything behind them.

A partition is read from its end to its beginning, stretch by stretch: who is near the end need not wait for who is far behind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_MOST = 8192


class UnreadTimes:
    """One stretch of a partition, from `start` to `end`.

    Invariants: `_offsets` and `_times` go up. The time at the first of `_offsets` that is not below an offset is the earliest of
    all records from that offset on, or an earlier one.
    """

    __slots__ = ("_offsets", "_times", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        """The offset up to which records were taken in."""
        self._offsets: list[int] = []
        self._times: list[int] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def take(self, offset: int, time: int) -> None:
        """The next record."""
        offsets, times = self._offsets, self._times
        while times and times[-1] >= time:
            times.pop()
            offsets.pop()
        offsets.append(offset)
        times.append(time)
        self.end = offset + 1
        if len(offsets) > _MOST:
            self._thin()

    def covers(self, offset: int, end: int) -> bool:
        """Whether everything between is known."""
        return self.start <= offset and end <= self.end

    def earliest(self, offset: int) -> int | None:
        """A time that no record from an offset on is before; None if there are none."""
        at = bisect_left(self._offsets, offset)
        return self._times[at] if at < len(self._times) else None

    def forget(self, before: int) -> None:
        """Nobody asks for offsets before this one any more."""
        if before > self.start:
            at = bisect_left(self._offsets, before)
            del self._offsets[:at], self._times[:at]
            self.start = before

    def append(self, later: UnreadTimes) -> None:
        """What was taken in from the end of this one on."""
        for offset, time in zip(later._offsets, later._times, strict=True):
            self.take(offset, time)
        self.end = later.end

    def _thin(self) -> None:
        """Of the older half, every two become one, with the offset of the later and the time of the earlier: never too late."""
        half = len(self._offsets) // 4 * 2
        self._offsets[:half] = self._offsets[1:half:2]
        self._times[:half] = self._times[0:half:2]


class UnreadStretches:
    """One partition, of which only some stretches were read.

    Invariants: stretches go up, and there is something unknown between any two. So what is known up to the end of the log is in
    the last one.
    """

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[UnreadTimes] = []

    def keep(self, lowest: int, end: int) -> None:
        """Nobody asks for offsets before `lowest` any more, and the log ends at `end`."""
        known = self._stretches
        if known and known[-1].end > end:  # it was cut: what comes there now is something else
            known.clear()
        self._stretches = [stretch for stretch in known if stretch.end >= lowest]
        for stretch in self._stretches:
            stretch.forget(lowest)

    def next_gap(self, wanted: Sequence[int], end: int) -> tuple[UnreadTimes, int] | None:
        """What is to be read next for groups at these offsets (which go up): a stretch to go on with, and up to where.

        It is the last group among those that wait whose turn it is.
        """
        known = self._stretches
        is_at_end = bool(known) and known[-1].end >= end
        waiting = bisect_left(wanted, known[-1].start if is_at_end else end)
        if not waiting:
            return None
        offset = wanted[waiting - 1]
        at = bisect_right(known, offset, key=lambda stretch: stretch.start)
        if not at or known[at - 1].end < offset:
            known.insert(at, UnreadTimes(offset))
            at += 1
        return known[at - 1], known[at].start if at < len(known) else end

    def join(self) -> None:
        """Stretches that have met become one."""
        joined: list[UnreadTimes] = []
        for stretch in self._stretches:
            if joined and joined[-1].end >= stretch.start:
                joined[-1].append(stretch)
            else:
                joined.append(stretch)
        self._stretches = joined

    def covers(self, offset: int, end: int) -> bool:
        """Whether everything between is known."""
        return bool(self._stretches) and self._stretches[-1].covers(offset, end)

    def earliest(self, offset: int) -> int | None:
        """A time that no record from an offset on is before, if that offset is covered; None if there are none."""
        return self._stretches[-1].earliest(offset)
