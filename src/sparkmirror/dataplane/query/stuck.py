"""Threads of Spark's JVM that go on with runs of queries that were given up: their stages come in; how many are left goes out.

Spark interrupts the threads of a job that is cancelled. An expression that does not look at interrupts, such as a pattern that
backtracks on a long text, goes on, for ever if need be, and Java has no way to end its thread: only the end of the JVM is one.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from typing import Any

from pyspark import SparkContext

from sparkmirror.dataplane.jvm_calls import ignoring_gone

log = logging.getLogger(__name__)
_NAME = re.compile(r"Executor task launch worker for task \d+\.\d+ in stage (?P<stage>\d+)\.")
_GRACE_S = 5.0
_LOOK_S = 0.5
_MOST = 8


class StuckThreads:
    """Those of one local session; where executors are other processes, Spark's task reaper ends these."""

    def __init__(self, context: SparkContext, jvm: int | None) -> None:
        """`jvm`: the process of a local session of our own."""
        self._context = context
        self._jvm = jvm
        self._stages: set[int] = set()

    def given_up(self, flow: str, group: str) -> int:
        """How many threads go on some moments after a job was cancelled; if they are too many, the JVM is ended."""
        left = 0
        if self._jvm is None:
            return left
        deadline = time.monotonic() + _GRACE_S
        with ignoring_gone(self._context):
            self._stages |= self._stages_of(group)
            while (left := self._count()) and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        if left >= _MOST:
            log.error(
                "Flow %s: %d threads of Spark still work on runs of queries that were given up. The Spark session is started "
                "anew to end them; all flows go on in a moment.",
                flow,
                left,
            )
            os.kill(self._jvm, signal.SIGKILL)
        return left

    def _stages_of(self, group: str) -> set[int]:
        tracker = self._context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
        return {int(stage) for job in jobs if job is not None for stage in job.stageIds}

    def _count(self) -> int:
        jvm: Any = self._context._jvm
        names = [thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
        found = [match for name in names if (match := _NAME.match(name))]
        running = [int(match["stage"]) for match in found]
        self._stages &= set(running)
        return sum(stage in self._stages for stage in running)
