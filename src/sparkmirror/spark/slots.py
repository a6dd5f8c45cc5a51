"""Spark's slots, shared between the jobs of a process: what each job wants in; how many tasks each may have out.

A task runs until its epoch is over, so a job that waits for a slot would wait for very long: nobody takes more than a share.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol


class Sharer(Protocol):
    """A job that has slots. Called from any thread."""

    def share_changed(self, share: int) -> None: ...


def shares(total: int, wanted: Sequence[int]) -> list[int]:
    """Max-min fairness: no job gets more than it wants, the rest is shared equally; each gets at least one."""
    found = [1] * len(wanted)
    left = total
    for number, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        found[index] = max(1, min(wanted[index], left // (len(wanted) - number)))
        left = max(0, left - found[index])
    return found


class Slots:
    """Who shares.

    Invariant: the shares of all add up to no more than `total`, unless there are more jobs than slots.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[Sharer, int] = {}

    def enter(self, job: Sharer, wanted: int, total: int) -> None:
        """From now on the job shares, or wants another number of slots than before."""
        with self._lock:
            if self._wanted.get(job) == wanted:
                return
            self._wanted[job] = wanted
        self._tell_others(job, total)

    def leave(self, job: Sharer, total: int) -> None:
        with self._lock:
            if self._wanted.pop(job, None) is None:
                return
        self._tell_others(job, total)

    def _tell_others(self, job: Sharer, total: int) -> None:
        for other, share in self._shares(total).items():
            if other is not job:
                other.share_changed(share)

    def share(self, job: Sharer, total: int) -> int:
        """How many slots the job may use, which has entered."""
        return self._shares(total)[job]

    def _shares(self, total: int) -> dict[Sharer, int]:
        with self._lock:
            return dict(zip(self._wanted, shares(total, list(self._wanted.values())), strict=True))
