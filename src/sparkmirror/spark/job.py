"""A Spark job that copies: plans in, one Spark task per plan; its ledger when the epoch is over."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark import RDD, InheritableThread, SparkContext
from pyspark.traceback_utils import SCCallSiteSync

from sparkmirror.dataplane.copy import LedgerRow
from sparkmirror.dataplane.job_label import CALL_SITE, JobLabel
from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, ignoring_gone
from sparkmirror.dataplane.links.address import Driver
from sparkmirror.dataplane.links.driver_link import DriverLinks
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.dataplane.query.priority import GIVING_WAY
from sparkmirror.dataplane.rate_shares import RateShares
from sparkmirror.errors import SparkError, SparkMirrorError

from .failures import failure
from .worker import plan_row, run_plans

_CANCEL_AGAIN_S = 0.25
_environment = threading.Lock()
"""Held while the environment of Python workers is another."""


class Launched(NamedTuple):
    """Spark tasks that have a slot, and those that are done."""

    active: int
    completed: int


class CopyJob:
    """One epoch of a flow: a Spark job that runs until it is done, cancelled or lost.

    Invariant: `finished` is set exactly once, after `ledger` or `error` has its value.
    """

    def __init__(
        self,
        context: SparkContext,
        name: str,
        plans: Sequence[TaskPlan],
        links: DriverLinks,
        driver: Driver,
    ) -> None:
        self._context = context
        self._name = name
        self._id = uuid.uuid4()
        self._links = links
        links.expect(self._id, RateShares.of(plans))
        self._plans = [replace(plan, driver=driver, job=self._id) for plan in plans]
        self.ledger: list[LedgerRow] = []
        self.error: SparkMirrorError | None = None
        self.cancelled = False
        self.finished = threading.Event()
        self._thread = InheritableThread(target=self._run, daemon=True, name=f"spark {name}")
        try:
            self._thread.start()
        except CALL_ERRORS as error:
            raise failure("The Spark session is gone", error, context) from error

    def _run(self) -> None:
        context = self._context
        is_done = False
        try:
            label = JobLabel.of(self._plans)
            description = label.copying(len(self._plans))
            context.setJobGroup(str(self._id), description, interruptOnCancel=True)
            kinds = [
                [plan for plan in self._plans if not plan.gives_way],
                [plan for plan in self._plans if plan.gives_way],
            ]
            rows = [self._rows(plans) for plans in kinds if plans]
            # `collect` leaves the call site to who set it before.
            with SCCallSiteSync(context):  # type: ignore[no-untyped-call]
                context.setLocalProperty(CALL_SITE, f"copy {label.flow}")
                self.ledger = list(context.union(rows).collect())
            is_done = True
        except CALL_ERRORS as error:
            if not self.cancelled:
                self.error = failure(f"The Spark job of flow {self._name} ended", error, context)
        finally:
            if not (is_done or self.error or self.cancelled):  # a defect: its trace is in the log
                self.error = SparkError(
                    f"The thread of the Spark job of flow {self._name} crashed."
                )
            self._links.cut(self._id)
            self.finished.set()

    def _rows(self, plans: Sequence[TaskPlan]) -> RDD[LedgerRow]:
        """The ledgers of plans of one kind. Those at low CPU priority have Python workers of their own: a worker cannot
        raise its priority again, and Spark would reuse it for other plans."""
        context = self._context
        plan_rows = [plan_row(plan) for plan in plans]
        rows = context.parallelize(plan_rows, len(plan_rows)).mapPartitions(run_plans)
        with _environment:
            context.environment |= GIVING_WAY if plans[0].gives_way else {}
            try:
                rows._jrdd  # noqa: B018 - the environment of its workers is settled with that
            finally:
                for name in GIVING_WAY:
                    context.environment.pop(name, None)
        return rows

    @property
    def waiting(self) -> list[TaskPlan]:
        """The plans whose Spark tasks have not begun, or have ended: in order, or to be tried again by Spark."""
        if self.finished.is_set():
            return []
        begun = self._links.begun(self._id)
        return [plan for plan in self._plans if plan.index not in begun]

    @property
    def launched(self) -> Launched:
        """How many of its Spark tasks have a slot, and are done; SparkError once the session is gone."""
        try:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(self._id))]
            numbers = {int(number) for job in jobs if job is not None for number in job.stageIds}
            stages = [tracker.getStageInfo(number) for number in numbers]
        except CALL_ERRORS as error:
            raise failure("The Spark session is gone", error, self._context) from error
        known = [each for each in stages if each]
        return Launched(
            sum(each.numActiveTasks for each in known),
            sum(each.numCompletedTasks for each in known),
        )

    def let_go(self) -> None:
        """Let the tasks finish what is in flight, write their positions and end; nobody is waited for."""
        self._links.cut(self._id)

    def end(self, grace: float) -> None:
        """Let the tasks end; what runs on after `grace` seconds is killed."""
        self.let_go()
        if not self.finished.wait(grace):
            self.cancel()

    def cancel(self, timeout: float = 10.0) -> None:
        """End the job: its Python workers are killed, which is always safe.

        Told again until it has ended: Spark knows of a job only some time after it was submitted.
        """
        self.cancelled = True
        deadline = time.monotonic() + timeout
        while not self.finished.is_set() and time.monotonic() < deadline:
            with ignoring_gone(self._context):
                self._context.cancelJobGroup(str(self._id))
            self.finished.wait(_CANCEL_AGAIN_S)
