"""The earliest time among records that are still to be read: a partition's records in, that of all from any offset on out.

Times need not go up with offsets: a record may come late, or from a clock that is slow. So it is not enough to look at the next
record. What is kept are the records that are earlier than everything behind them.
"""

from __future__ import annotations

from bisect import bisect_left

_MOST = 8192


class UnreadTimes:
    """One partition, from `start` to `end`.

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

    def _thin(self) -> None:
        """Of the older half, every two become one, with the offset of the later and the time of the earlier: never too late."""
        half = len(self._offsets) // 4 * 2
        self._offsets[:half] = self._offsets[1:half:2]
        self._times[:half] = self._times[0:half:2]
