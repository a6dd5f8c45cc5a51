"""Slots for the Spark job of a connector: the executors in; how many Spark tasks it gets, and when it is planned again, out.

On a cluster executors come late, go, and are taken by others. A Spark task runs until its job ends, so one that waits for a slot
may wait for very long, and its partitions with it: a job never has more tasks than can run. Only where dynamic allocation has no
executor at all, all tasks are submitted, since Spark asks for executors while tasks wait; later a `Demand` asks for the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.errors import SparkError
from sparkmirror.spark.demand import Demand
from sparkmirror.spark.executors import Executors, ExecutorWatch
from sparkmirror.spark.job import Launched
from sparkmirror.spark.session import SparkSession
from sparkmirror.spark.slots import Sharer

log = logging.getLogger(__name__)
_LOOK_S = 0.25
_LATE_S = 15.0
"""How long a Spark task may wait for a slot before state and log show it."""
_REGISTER_S = 5.0
"""How long executors may take to register before that is missed, however long Spark has taken to start."""
_STEADY_S, _MOST_STEADY_S = 3.0, 48.0
_OFTEN_S = 60.0
_HELD_S, _MOST_HELD_S = 30.0, 300.0
_ANY = 1 << 30
_LOCAL = Executors(_ANY, frozenset())
"""Stands for the executors of a local master, which do not change."""
_NOTHING = Launched(0, 0)


class RunningJob(Protocol):
    @property
    def waiting(self) -> list[TaskPlan]: ...
    @property
    def launched(self) -> Launched: ...


class HeldSlots:
    """Slots that others hold, of a session or program that shares them: how many are left, and until when that is believed."""

    def __init__(self) -> None:
        self._executors: Executors | None = None
        self._left = 0
        self._wait = _HELD_S
        self._until = 0.0

    def note(self, there: Executors, left: int, now: float) -> None:
        """Spark tasks waited in vain; the next try comes after twice the time, unless executors change."""
        is_again = there == self._executors
        self._wait = min(self._wait * 2, _MOST_HELD_S) if is_again else _HELD_S
        self._executors, self._left, self._until = there, left, now + self._wait

    def all_run(self, tasks: int) -> None:
        """So many Spark tasks have begun: the slots were given back if that is more than were left."""
        if tasks > self._left:
            self._executors = None

    def most(self, there: Executors, now: float) -> int:
        return self._left if there == self._executors and now < self._until else _ANY


class JobSlots:
    """The slots of one job after the other.

    Invariants: whatever the executors, a job is under way or its slots are waited for with the reason told; `_is_opening` while
    tasks were submitted for executors that Spark is asking for.
    """

    def __init__(self, spark: SparkSession, sharer: Sharer) -> None:
        self._spark = spark
        self._sharer = sharer
        self._wanted = self._share = self._tasks = 1
        self._planned: Executors | None = None
        self._planned_at = self._submitted_at = self._opening_at = 0.0
        self._steady = _STEADY_S
        self._watch: ExecutorWatch | None = None
        self._is_opening = False
        self._demand: Demand | None = None
        self._held = HeldSlots()
        self._full: Executors | None = None
        """Beside these Spark was asked for more, also for queries, and none came."""
        self._waits: dict[int, float] | None = None
        """By plan, since when its Spark task waits; None before the first look at a job."""

    # -- planning ---------------------------------------------------------------------------------

    def wait(
        self, wanted: int, began: float, changed: threading.Event, late: Callable[[str], None]
    ) -> bool:
        """Until there are slots to plan for; False once `changed` is set. `late` gets the reason 15 s after `began`."""
        spark = self._spark
        since = time.monotonic()
        late_at = max(began + _LATE_S, since + _REGISTER_S)
        seen: Executors | None = None
        enough = min(wanted, spark.promised or wanted)
        self._wanted = wanted
        while not changed.is_set():
            there, now = self._there(), time.monotonic()
            if there != seen:
                seen, since = there, now
            is_known = self._planned is not None or now - since >= _STEADY_S
            can_plan = bool(there.slots) and (is_known or there.slots >= enough)
            if can_plan or (spark.is_dynamic and not there.slots):
                self._plan_for(there, now)
                return True
            if now >= late_at:
                late(f"No Spark task can run: {spark.described()}.")
            changed.wait(_LOOK_S)
        return False

    def _there(self) -> Executors:
        found = self._spark.executors()
        return _LOCAL if found is None else found

    def _plan_for(self, there: Executors, now: float) -> None:
        is_often = self._planned is not None and now - self._planned_at < _OFTEN_S
        changes = there != self._planned
        self._steady = min(self._steady * 2, _MOST_STEADY_S) if is_often and changes else _STEADY_S
        self._planned, self._planned_at = there, now

    def plan(self) -> int:
        """How many Spark tasks to plan on the executors that were waited for."""
        there = self._planned or _LOCAL
        self._spark.slots.enter(self._sharer, self._wanted, self._total(there))
        self._share = max(1, self._share_of(there, time.monotonic()))
        return self._share

    def leave(self) -> None:
        """Nothing is to be copied: others may have the slots."""
        try:
            total = self._total(self._there())
        except SparkError:  # the session is gone, and its slots with it
            total = _ANY
        self._spark.slots.leave(self._sharer, total)

    def _total(self, there: Executors) -> int:
        """How many copy tasks all connectors together may run."""
        if there is _LOCAL:
            return self._spark.width(0)
        if self._spark.is_dynamic and not there.slots:
            return self._spark.promised or _ANY
        # Copy tasks that leave slots to queries would leave them to a `Demand`, too, which is over as soon as it gets one.
        can_grow = self._spark.is_dynamic and there.slots < (self._spark.promised or _ANY)
        is_asking = can_grow and there != self._full
        return there.slots if is_asking else self._spark.width(there.slots)

    def _share_of(self, there: Executors, now: float) -> int:
        if not there.slots and not self._spark.is_dynamic:
            return 0
        share = self._spark.slots.share(self._sharer, self._total(there))
        return min(share, self._held.most(there, now))

    # -- a job ------------------------------------------------------------------------------------

    def submitted(self, tasks: int) -> None:
        """A job with so many Spark tasks was submitted."""
        self.ended()
        there = self._planned or _LOCAL
        self._tasks, self._submitted_at, self._waits = tasks, time.monotonic(), None
        self._is_opening, self._opening_at = tasks > there.slots, self._submitted_at
        # On a local master partitions with a query have as many Spark tasks again, which take nothing of the share.
        self._watch = ExecutorWatch(there, min(tasks, self._share), self._share, self._steady)
        if self._spark.is_dynamic and self._wanted > self._share:
            self._demand = self._spark.demand(self._wanted - self._share)

    def ended(self) -> None:
        demand, self._demand, self._watch = self._demand, None, None
        if demand is not None:
            demand.close()

    def late(self, job: RunningJob) -> tuple[list[TaskPlan], str]:
        """The plans whose Spark tasks have waited for too long, and why."""
        late = self._late(job)
        launched = job.launched if late else _NOTHING
        if not late or launched.completed:  # the epoch is ending: tasks that are done have left
            return [], ""
        there = self._spark.described()
        if count := max(0, self._tasks - launched.active):
            return late, f"{count} of {self._tasks} Spark tasks wait for a slot: {there}."
        return late, (
            f"{len(late)} of {self._tasks} Spark tasks have a slot and have not begun: Python is slow to start on their "
            f"executors, or fails to; see the executors' logs. {there[0].upper()}{there[1:]}."
        )

    def _late(self, job: RunningJob) -> list[TaskPlan]:
        """The plans whose Spark tasks have not run for too long: they wait, or have ended before the others."""
        now = time.monotonic()
        before = self._waits or {}
        since = self._submitted_at if self._waits is None else now
        waiting = job.waiting
        self._waits = {plan.index: before.get(plan.index, since) for plan in waiting}
        return [plan for plan in waiting if now - self._waits[plan.index] >= _LATE_S]

    def is_plan_due(self, job: RunningJob) -> bool:
        """Whether the job should be planned again: slots came or went, or others have taken some that were counted on."""
        there, now = self._there(), time.monotonic()
        if self._watch is None:
            return False
        if self._demand is not None:
            self._demand.renew()
        if self._is_opening and not self._has_opened(there, job, now):
            return False
        if there == self._planned and now - self._submitted_at >= _LATE_S:
            self._full = there
        if self._watch.is_due(there, self._share_of(there, now), now):
            return True
        waiting = len(job.waiting)
        if not waiting:
            self._held.all_run(self._tasks)
            return False
        if waiting == self._tasks or not self._late(
            job
        ):  # if none runs, planning again would not help
            return False
        launched = job.launched
        if (
            launched.completed
        ):  # the partitions of tasks that are done would wait for the end of all others
            return True
        count = 0 if there is _LOCAL else max(0, self._tasks - launched.active)
        if count:
            self._held.note(there, max(1, self._tasks - min(count, waiting)), now)
        return bool(count)

    def _has_opened(self, there: Executors, job: RunningJob, now: float) -> bool:
        """Whether the executors that Spark was asked for have come, or had 15 s since the first of them."""
        if not there.slots:
            self._opening_at = now
        if job.waiting and now - self._opening_at < _LATE_S:
            return False
        self._is_opening, self._planned, self._submitted_at = False, there, now
        share = self._share_of(there, now)
        self._watch = ExecutorWatch(there, self._tasks, max(share, self._share), self._steady)
        return True
