"""Queries give way: the process of a step, or Spark's JVM, comes in; its threads that work on queries get the processor last.

A query needs many times the processor's time of a copy. Where there is not enough for both, copies of other topics go on as if
there were no query, and the query takes what is left.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_NICE = 15
_LOOK_S = 2.0
# As the system cuts their names: those that run tasks, and those that compile what tasks run.
_THREADS = ("Executor task l", "C2 CompilerThre")


def give_way() -> None:
    """Let all others have the processor before this process."""
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) < _NICE:
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)


class TaskThreads:
    """The threads of a JVM that run Spark's tasks. Those of copy tasks only wait, so that it does not matter to them.

    Invariant: `_done` holds threads that were told; new ones begin with the priority of the process.
    """

    def __init__(self, pid: int | None) -> None:
        self._tasks = None if pid is None else Path(f"/proc/{pid}/task")
        self._done: set[str] = set()
        self._look_at = 0.0

    def give_way(self) -> None:
        """Now and again: look for new threads. Where the system does not allow it, or has no such thing, nothing happens."""
        now = time.monotonic()
        if self._tasks is None or now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        try:
            known = {entry.name for entry in self._tasks.iterdir()}
        except OSError:
            self._tasks = None
            return
        self._done &= known
        for thread in known - self._done:
            self._done.add(thread)
            with contextlib.suppress(OSError, ValueError):
                if (self._tasks / thread / "comm").read_text().startswith(_THREADS):
                    os.setpriority(os.PRIO_PROCESS, int(thread), _NICE)
