"""Which offsets of a target partition are known where several source partitions feed it: their runs in, stretches out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from sparkmirror.formats.offset_map import Run


class Coverage:
    """Where copies are known to lie, whichever source they came from.

    Invariant: `_starts` and `_ends` are those of stretches that go up and neither overlap nor touch.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted((run.target, run.target_end) for run in runs):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)

    def passed(self, target: int) -> int:
        """The first target offset from this one on of which it is not known where it comes from."""
        at = bisect_right(self._starts, target) - 1
        return target if at < 0 else max(target, self._ends[at])
