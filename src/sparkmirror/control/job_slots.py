"""Slots for the Spark job of a connector: the executors in; how many Spark tasks it gets, and when it is planned again, out.

On a cluster executors come late, go, and are taken by others. A Spark task runs until its job ends, so one that waits for a slot
may wait for very long, and its partitions with it: a job never has more tasks than can run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.spark.demand import Demand
from sparkmirror.spark.executors import Executors, ExecutorWatch
from sparkmirror.spark.session import SparkSession

log = logging.getLogger(__name__)
_LOOK_S = 0.25
_LATE_S = 15.0
"""How long a Spark task may wait for a slot before state and log show it."""
_STEADY_S, _MOST_STEADY_S = 3.0, 48.0
_OFTEN_S = 60.0


class RunningJob(Protocol):
    @property
    def waiting(self) -> list[TaskPlan]: ...
    @property
    def launched(self) -> int: ...


class JobSlots:
    """The slots of one job after the other.

    Invariants: `_most` holds while the executors are `_capped`; `_watch` is None while tasks may still wait for executors that
    Spark is asking for.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._planned: Executors | None = None
        self._watch: ExecutorWatch | None = None
        self._demand: Demand | None = None
        self._is_packed = False
        """Whether executors that Spark asked for have not come in time."""
        self._capped: Executors | None = None
        self._most = 0
        self._steady = _STEADY_S
        self._planned_at = self._submitted_at = 0.0
        self._tasks = 0

    def wait(
        self, wanted: int, changed: threading.Event, late: Callable[[str], None]
    ) -> int | None:
        """How many slots there are to plan for, waited for; None once `changed` is set. `late` gets the reason after 15 s."""
        spark = self._spark
        began = since = time.monotonic()
        seen: Executors | None = None
        while not changed.is_set():
            there = spark.executors()
            if there is None:
                return wanted
            now = time.monotonic()
            if there != seen:
                seen, since = there, now
            if spark.is_dynamic and there.slots < wanted and not self._is_packed:
                self._plan_for(there, now)
                return min(wanted, spark.promised or wanted)
            is_known = self._planned is not None or now - since >= _STEADY_S
            if there.slots and (is_known or there.slots >= min(wanted, spark.promised or wanted)):
                self._plan_for(there, now)
                return min(there.slots, self._most) if there == self._capped else there.slots
            if now - began >= _LATE_S:
                late(f"No Spark task can run: {spark.described()}.")
            changed.wait(_LOOK_S)
        return None

    def _plan_for(self, there: Executors, now: float) -> None:
        is_often = self._planned is not None and now - self._planned_at < _OFTEN_S
        changes = there != self._planned
        self._steady = min(self._steady * 2, _MOST_STEADY_S) if is_often and changes else _STEADY_S
        self._planned, self._planned_at = there, now

    def submitted(self, tasks: int, wanted: int) -> None:
        """A job with so many Spark tasks was submitted, of which more would be worth running."""
        self.ended()
        self._tasks, self._submitted_at = tasks, time.monotonic()
        there = self._planned
        if there is None:
            return
        if tasks <= there.slots:
            self._watch = ExecutorWatch(there, tasks, self._steady)
        if self._spark.is_dynamic and self._is_packed and wanted > tasks:
            self._demand = self._spark.demand(wanted - tasks)

    def ended(self) -> None:
        demand, self._demand, self._watch = self._demand, None, None
        if demand is not None:
            demand.close()

    def late(self, job: RunningJob) -> tuple[list[TaskPlan], str]:
        """The plans whose Spark tasks have not begun for too long, and why."""
        waiting = job.waiting
        if not waiting or time.monotonic() - self._submitted_at < _LATE_S:
            return [], ""
        there, count = self._spark.described(), self._without_slot(job)
        if count:
            return waiting, f"{count} of {self._tasks} Spark tasks wait for a slot: {there}."
        return waiting, (
            f"{len(waiting)} of {self._tasks} Spark tasks have a slot and have not begun: Python is slow to start on their "
            f"executors, or fails to; see the executors' logs. {there[0].upper()}{there[1:]}."
        )

    def _without_slot(self, job: RunningJob) -> int:
        """How many Spark tasks Spark has not launched."""
        return max(0, self._tasks - job.launched)

    def is_plan_due(self, job: RunningJob) -> bool:
        """Whether the job should be planned again: executors came or went, or others have taken slots that were counted on."""
        there = self._spark.executors()
        if there is None:
            return False
        if self._demand is not None:
            self._demand.renew()
        waiting, now = len(job.waiting), time.monotonic()
        if self._watch is None and not waiting:
            self._planned = there
            self._watch = ExecutorWatch(there, self._tasks, self._steady)
        is_late = waiting and waiting < self._tasks and now - self._submitted_at >= _LATE_S
        if is_late and (count := self._without_slot(job)):
            self._is_packed = True
            self._capped, self._most = there, max(1, self._tasks - min(count, waiting))
            return True
        return self._watch is not None and self._watch.is_due(there, now)
