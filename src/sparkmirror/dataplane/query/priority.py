"""Queries give way: their Python workers, or Spark's JVM, come in; what works on queries there gets the processor last.

A query needs many times the processor's time of a copy. Where there is not enough for both, copies of other topics go on as if
there were no query, and the query takes what is left.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

GIVING_WAY = {"SPARKMIRROR_GIVES_WAY": "1"}
"""The environment of Python workers that give way. By it Spark tells them from others, and has them forked by another daemon."""
_NICE = 19
_LOOK_S = 2.0
# As the system cuts their names: those that run tasks, and those that compile what queries make the JVM do.
_THREADS = ("Executor task l", "C1 CompilerThre", "C2 CompilerThre")
_LONGEST_NAME = 15


def give_way_if_told() -> None:
    """Let all others have the processor before this process, and those that are forked from it."""
    if GIVING_WAY.items() <= os.environ.items():
        _give_way(0)


class QueryThreads:
    """The threads of a JVM that work on queries. Those that run copy tasks only wait, so that it does not matter to them.

    Where the system does not allow it, or has no such thing, nothing happens.

    Invariant: `_done` holds threads that were told; new ones begin with the priority of the process.
    """

    def __init__(self, pid: int | None) -> None:
        self._tasks = None if pid is None else Path(f"/proc/{pid}/task")
        self._done: set[str] = set()
        self._look_at = 0.0

    def give_way(self) -> None:
        """Now and again: look for new threads that run tasks."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        known = self._names()
        self._done &= known.keys()
        for thread in known.keys() - self._done:
            self._done.add(thread)
            if known[thread].startswith(_THREADS):
                _give_way(int(thread))

    def give_way_as(self, name: str) -> None:
        """The thread of this name: one that plans a query."""
        for thread, known in self._names().items():
            if known == name[:_LONGEST_NAME]:
                _give_way(int(thread))

    def _names(self) -> dict[str, str]:
        """By their numbers."""
        found: dict[str, str] = {}
        if self._tasks is not None:
            with contextlib.suppress(OSError):
                for entry in self._tasks.iterdir():
                    with contextlib.suppress(OSError):  # it has just ended
                        found[entry.name] = (entry / "comm").read_text().rstrip("\n")
        return found


def _give_way(thread: int) -> None:
    """0: this one."""
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) < _NICE:
            os.setpriority(os.PRIO_PROCESS, thread, _NICE)
