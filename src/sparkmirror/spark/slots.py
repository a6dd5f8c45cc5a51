"""Spark's slots, shared between the jobs of a process: jobs in, how many tasks each may have out.

A task runs until its epoch is over, so a job that waits for a slot would wait for very long: nobody takes more than a share.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Sharer(Protocol):
    """A job that has slots. Called from any thread."""

    def share_changed(self, share: int) -> None: ...


class Slots:
    """Who shares.

    Invariant: the shares of all add up to no more than `total`, unless there are more jobs than slots.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[Sharer] = []

    def enter(self, job: Sharer, total: int) -> None:
        self._change(job, total, is_in=True)

    def leave(self, job: Sharer, total: int) -> None:
        self._change(job, total, is_in=False)

    def _change(self, job: Sharer, total: int, *, is_in: bool) -> None:
        with self._lock:
            if is_in == (job in self._jobs):
                return
            if is_in:
                self._jobs.append(job)
            else:
                self._jobs.remove(job)
            others = [other for other in self._jobs if other is not job]
            share = self._share(total)
        for other in others:
            other.share_changed(share)

    def share(self, total: int) -> int:
        with self._lock:
            return self._share(total)

    def _share(self, total: int) -> int:
        return max(1, total // max(1, len(self._jobs)))
