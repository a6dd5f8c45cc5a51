"""The source tasks of one connector on this worker: task configs in, one Spark job that copies their partitions; states out.

A thread plans, submits, and waits for the job's end or for a change of its tasks, again and again. It also reads what the copy
tasks report, since a task on an executor has no other way to say that it stands still.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source import assigned_partitions
from sparkmirror.connectors.source_settings import SourceSettings, source_settings
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.dataplane.reporting import Standing
from sparkmirror.errors import AccessFailed, SparkError, SparkMirrorError
from sparkmirror.formats.progress import Progress
from sparkmirror.kafka.cluster import Cluster, back_off
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.spark.accumulators import CopyAccumulators
from sparkmirror.spark.job import CopyJob
from sparkmirror.spark.placement import where
from sparkmirror.spark.session import SparkSession

from .copy_counts import CopyCounts
from .job_slots import JobSlots
from .partition_loads import PartitionLoads
from .plan_files import PlanFiles
from .query_reach import QueryReach
from .task_plans import Room, task_plans, unplaced, wanted_tasks
from .task_reports import WAITING, TaskReports

log = logging.getLogger(__name__)
_LOOK_S = 1.0
_STEADY_S = 30.0
_TELL_AGAIN_S = 30.0
"""Who reads progress takes an older report for that of a task which is gone."""
_RETRY_WAITS_S = (0.2, 10.0)
_WITHOUT_SPARK: TopicPartition = ("", -1)
"""Stands for all partitions of a task while there is no Spark session."""
_WITHOUT_TARGET: TopicPartition = ("", -2)
"""The same while the target does not let us in, where the task would say so."""
_WITHOUT_SLOT: TopicPartition = ("", -3)
"""The same while its Spark task waits for a slot."""
_AFTER_FAILED_JOB: TopicPartition = ("", -4)
"""The same after a Spark job that failed, until the copy tasks of a later one have begun."""
_OF_SPARK = {_WITHOUT_SPARK, _WITHOUT_SLOT, _AFTER_FAILED_JOB}


class TaskWatcher(Protocol):
    """Who wants to know how the tasks fare. Called from the job's thread."""

    def stands_still(self, task: int, error: SparkMirrorError, attempts: int) -> None:
        """At least one partition of the task does not go on; it is tried again by itself. Told again at each new attempt."""

    def waits(self, task: int, reason: str) -> None:
        """Nothing but a slot is missing: it begins by itself. Told again when the reason changes."""

    def goes_on(self, task: int) -> None:
        """All partitions of a task that stood still go on."""

    def noted(self, task: int, text: str) -> None:
        """What people should know of a task; empty: nothing."""

    def wrote(self, task: int, topic: str) -> None: ...
    def failed(self, error: SparkMirrorError) -> None:
        """None of the tasks can go on without a person."""


class SourceJob:
    """All source tasks of one connector on one worker.

    Invariants: at most one Spark job is under way; it is cancelled before the next is submitted, and when `stop` returns
    (within its time-out) no partition of it is written any more. `set_tasks` takes effect at once.
    """

    def __init__(
        self,
        name: str,
        worker: WorkerConfig,
        spark: SparkSession,
        watcher: TaskWatcher,
    ) -> None:
        self._name = name
        self._worker = worker
        self._spark = spark
        self._spark_tasks = 0
        self._slots = JobSlots(spark, self)
        self._told_waiting, self._told_waiting_at = "", 0.0
        self._loads = PartitionLoads()
        self._files = PlanFiles()
        self._counts = CopyCounts()
        self._metrics: CopyAccumulators | None = None
        self._placed: dict[TopicPartition, int] = {}
        # What is left of the worker's patience is for the killing.
        self._grace = worker.task_shutdown_graceful_timeout_ms / 1000 * 0.7
        self._watcher = watcher
        self._lock = threading.Lock()
        self._tasks: dict[int, Mapping[str, str]] = {}
        self._is_copying = False
        self._job: CopyJob | None = None
        self._settled = threading.Event()
        """Set while nothing but `_tasks` is being copied."""
        self._settled.set()
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self.is_alive = True
        """False while nothing will be copied before the tasks change."""
        self._standing: dict[int, dict[TopicPartition, Standing]] = {}
        self._told: dict[int, tuple[int, str, bool]] = {}
        """What the watcher got last of each failed task: attempts, the reason for waiting, whether it only waits."""
        self._refused: AccessFailed | None = None
        self._reaches: dict[int, QueryReach] = {}
        """By task, from which offsets on the query applies."""
        self._thread = threading.Thread(target=self._run, name=f"source tasks {name}", daemon=True)
        self._thread.start()

    def set_tasks(self, tasks: Mapping[int, Mapping[str, str]]) -> None:
        """From now on copy what these task configs say; an empty mapping pauses."""
        with self._lock:
            if tasks == self._tasks and self.is_alive:
                return
            self._tasks = dict(tasks)
            for gone in [task for task in self._standing if task not in tasks]:
                self._standing.pop(gone)  # if it comes back it starts without them
                self._told.pop(gone, None)
                self._reaches.pop(gone, None)
            self._end_copying()

    def stop(self) -> None:
        with self._lock:
            self._stopping.set()
            self._end_copying()

    def _end_copying(self) -> None:
        """With the lock. Who waits has something to wait for only if there is a job; Spark may take long to come up."""
        if self._is_copying:
            self._settled.clear()
        if self._job is not None:  # our thread may be busy reading reports
            self._job.let_go()
        self._changed.set()

    def join(self, timeout: float) -> bool:
        """Wait until nothing is copied that `set_tasks` or `stop` has ended; whether that is so by then."""
        return self._settled.wait(timeout)

    @property
    def has_ended(self) -> bool:
        """Whether its thread is gone: it will not do anything any more."""
        return not self._thread.is_alive()

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # a defect: shown as one, with its trace in the log
            self.is_alive = False
            self._watcher.failed(
                SparkMirrorError(f"The source tasks of {self._name} crashed: {error!r}")
            )
            raise
        finally:
            self._leave()
            self._settled.set()

    def _loop(self) -> None:
        waits = back_off(*_RETRY_WAITS_S)
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._epoch()
            except SparkMirrorError as error:
                if not error.retriable and self._changed.is_set():
                    continue  # it is of tasks that are not wanted any more; or it comes again
                if not error.retriable:
                    log.error("Connector %s: its tasks stopped: %s", self._name, error)
                    self.is_alive = False
                    self._watcher.failed(error)
                    self._leave()  # that may take long, and others could use the slots
                    self._changed.wait()
                    self.is_alive = True
                    continue
                wait = next(waits)
                log.warning("Connector %s: %s Trying again in %.1f s.", self._name, error, wait)
                self._changed.wait(wait)
            if time.monotonic() - began > _STEADY_S:
                waits = back_off(*_RETRY_WAITS_S)

    def _epoch(self) -> None:
        """Plan, run one job until it ends or the tasks change."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._changed.clear()
            tasks = dict(self._tasks)
            # What stood still before stays noted: the watcher gets a call when the next job copies it.
            self._standing = {task: self._standing.get(task, {}) for task in tasks}
            self._reaches = {task: self._reaches.get(task, QueryReach()) for task in tasks}
        if not any(assigned_partitions(task) for task in tasks.values()):
            self._leave()
            self._changed.wait()
            return
        began = time.monotonic()
        settings = source_settings(next(iter(tasks.values())), self._worker)
        self._start_spark(queries=settings.copy.query is not None)
        wanted = wanted_tasks(settings, tasks, is_roomy=self._spark.is_roomy)
        tell = partial(self._tell_none, settings, tasks)
        clusters = Cluster(settings.source), Cluster(settings.target)
        try:
            if not self._slots.wait(wanted, began, self._changed, tell):
                return
            self._tell_waiting("", (), lambda: None)
            if settings.copy.query is not None:
                self._spark.queries.check(settings.copy.query)
            plans = self._plans(settings, tasks, clusters)
            with self._lock:
                if self._changed.is_set():
                    return
                self._is_copying = True
            config = settings.config
            self._metrics = self._spark.accumulators(
                config.source_alias, config.target_alias, self._name
            )
            job = self._job = self._spark.submit(self._name, plans)
            self._slots.submitted(len(plans))
            log.info("Connector %s: %d Spark task(s) submitted.", self._name, len(plans))
            self._follow(job, TaskReports(clusters[1], settings))
            if job.error is not None:
                raise job.error
        except SparkError as error:
            if not self._changed.is_set():  # else it may be of tasks that are not wanted any more
                self._hold_up(_AFTER_FAILED_JOB, str(error))
            raise
        finally:
            with self._lock:
                self._is_copying = False
                self._job = None
                self._settled.set()
            self._spark_tasks = 0
            self._slots.ended()
            for cluster in clusters:
                cluster.close()

    def _follow(self, job: CopyJob, reports: TaskReports) -> None:
        """Until the job ends, or has to because the tasks or the executors have changed."""
        try:
            while not self._changed.wait(_LOOK_S) and not job.finished.is_set():
                self._note(reports.new())
                self._note_refusal(reports.refused)
                self._note_late(job, reports)
                self._note_begun(job)
                if reason := self._why_plan_again(job):
                    log.info(
                        "Connector %s: planning its Spark tasks again: %s.", self._name, reason
                    )
                    break
        finally:
            if not job.finished.is_set():
                job.end(self._grace)
        self._note(reports.new())  # what was said last
        self._counts.note_ledger(job.ledger)
        self._show_counts()

    def _why_plan_again(self, job: CopyJob) -> str:
        """Empty: there is no reason."""
        if self._slots.is_plan_due(job):
            return self._spark.described()
        changed = self._files.changed()
        return f"{' and '.join(changed)} changed" if changed else ""

    def _plans(
        self,
        settings: SourceSettings,
        tasks: Mapping[int, Mapping[str, str]],
        clusters: tuple[Cluster, Cluster],
    ) -> list[TaskPlan]:
        is_roomy = self._spark.is_roomy
        loads = self._loads.at(int(time.time() * 1000))
        room = Room(self._slots.plan(), is_roomy, loads, self._placed)
        plans = task_plans(self._name, settings, tasks, clusters, room)
        if self._spark.is_on_cluster:
            plans = self._files.put_into(plans)
        self._placed = where([plan.partitions for plan in plans])
        self._loads.keep(self._placed)
        self._counts.assign(self._placed)
        # Query tasks run at low CPU priority, and take nothing of other jobs' share where slots are plenty.
        self._spark_tasks = sum(not (is_roomy and plan.gives_way) for plan in plans)
        return plans

    def _note_refusal(self, refused: AccessFailed | None) -> None:
        """Tasks cannot report to a target that refuses their login: their state is set here."""
        if refused is not self._refused:  # the same until it is asked again
            self._refused = refused
            self._hold_up(_WITHOUT_TARGET, None if refused is None else str(refused))

    def _note_late(self, job: CopyJob, reports: TaskReports) -> None:
        """A Spark task that waits for a slot cannot report."""
        plans, reason = self._slots.late(job)
        late = {part.task for plan in plans for part in plan.partitions}
        self._tell_waiting(reason, late, lambda: reports.tell_waiting(plans, reason))

    def _note_begun(self, job: CopyJob) -> None:
        """The failure of an earlier job is over for tasks whose copy tasks have all begun."""
        if not any(_AFTER_FAILED_JOB in standing for standing in list(self._standing.values())):
            return
        waiting = {part.task for plan in job.waiting for part in plan.partitions}
        if job.finished.is_set():  # then nobody knows which had begun
            return
        for task, standing in list(self._standing.items()):
            if task in waiting or standing.pop(_AFTER_FAILED_JOB, None) is None:
                continue
            if not standing:
                self._tell_going_on(task)

    def _tell_none(
        self, settings: SourceSettings, tasks: Mapping[int, Mapping[str, str]], reason: str
    ) -> None:
        """There is no executor, so nothing is planned."""

        def report() -> None:
            with closing(Cluster(settings.target)) as target:
                plans = unplaced(self._name, settings, tasks)
                TaskReports(target, settings).tell_waiting(plans, reason)

        self._tell_waiting(reason, tasks, report)

    def _tell_waiting(self, reason: str, late: Collection[int], report: Callable[[], None]) -> None:
        """Of connector tasks that wait for a slot, in log, state, note and progress; an empty reason: none does."""
        now, is_new = time.monotonic(), reason != self._told_waiting
        self._told_waiting = reason
        if reason and is_new:
            log.warning("Connector %s: %s", self._name, reason)
        self._hold_up(_WITHOUT_SLOT, reason or None, late, is_again=False)
        if reason and (is_new or now - self._told_waiting_at >= _TELL_AGAIN_S):
            self._told_waiting_at = now
            report()

    def _start_spark(self, *, queries: bool) -> None:
        """A task that has no Spark to run on stands still, and is shown so while Spark is tried again."""
        try:
            self._spark.start(queries=queries, is_wanted=lambda: not self._changed.is_set())
        except SparkError as error:
            self._hold_up(_WITHOUT_SPARK, str(error))
            raise
        self._hold_up(_WITHOUT_SPARK, None)

    def _hold_up(
        self,
        why: TopicPartition,
        reason: str | None,
        only: Collection[int] | None = None,
        *,
        is_again: bool = True,
    ) -> None:
        """All tasks, or `only` these, stand still for a reason; None: they do not any more. `is_again`: it was tried again."""
        for task, standing in list(self._standing.items()):
            before = standing.pop(why, None)
            is_held_up = reason is not None and (only is None or task in only)
            if before is not None and why == _WITHOUT_SLOT and not is_held_up:
                self._watcher.noted(task, self._note_of(task))
            if reason is not None and is_held_up:
                attempts = 0 if before is None else before.attempts + is_again
                standing[why] = Standing(reason, attempts)
                self._tell_standing(task, standing)
            elif before is not None and standing:
                self._tell_standing(task, standing)
            elif before is not None:
                self._tell_going_on(task)

    def share_changed(self, share: int) -> None:
        """Other jobs came or went: give back what is more than our share now."""
        if self._spark_tasks > share:
            self._changed.set()

    def _leave(self) -> None:
        self._counts.assign(())
        self._show_counts()
        self._slots.leave()

    def _note(self, reports: Sequence[Progress]) -> None:
        self._loads.note(reports)
        self._counts.note(report for report in reports if report.task in self._standing)
        self._show_counts()
        for report in reports:
            self._note_one(report)

    def _show_counts(self) -> None:
        if self._metrics is not None:
            self._metrics.show(*self._counts.take(), self._counts.lag)

    def _note_one(self, report: Progress) -> None:
        standing = self._standing.get(report.task)
        if standing is None:  # another worker has this task, and speaks for it
            return
        stood = bool(standing)
        for row in report.partitions:
            key = (row.topic, row.partition)
            if row.state == WAITING:  # what we have said ourselves
                continue
            if row.error:
                standing[key] = Standing(row.error, row.attempts)
            else:
                standing.pop(key, None)
            for topic in row.written:
                self._watcher.wrote(report.task, topic)
        self._tell_reach(report)
        if standing:
            self._tell_standing(report.task, standing)
        elif stood:
            self._tell_going_on(report.task)

    def _tell_reach(self, report: Progress) -> None:
        reach = self._reaches.get(report.task)
        if reach is not None and reach.take(report.partitions) and not self._stopping.is_set():
            self._watcher.noted(report.task, self._note_of(report.task))

    def _note_of(self, task: int) -> str:
        """What people should know of a task."""
        waits = self._standing.get(task, {}).get(_WITHOUT_SLOT)
        reach = self._reaches.get(task)
        notes = "" if waits is None else waits.error, "" if reach is None else reach.note
        return " ".join(filter(None, notes))

    def _tell_standing(self, task: int, standing: Mapping[TopicPartition, Standing]) -> None:
        waits = standing.get(_WITHOUT_SLOT)
        reason = "" if waits is None else waits.error
        attempts = max(each.attempts for each in standing.values())
        only_waits = standing.keys() == {_WITHOUT_SLOT}
        if self._told.get(task) == (attempts, reason, only_waits):
            return
        self._told[task] = attempts, reason, only_waits
        if waits is not None:
            self._watcher.noted(task, self._note_of(task))
        if only_waits:
            self._watcher.waits(task, reason)
        else:
            errors = sorted({each.error for each in standing.values()})
            # Of Spark alone: it comes back without a person, so the task is never given up for it.
            kind = SparkError if standing.keys() <= _OF_SPARK else SparkMirrorError
            self._watcher.stands_still(task, kind("\n".join(errors)), attempts)

    def _tell_going_on(self, task: int) -> None:
        self._told.pop(task, None)
        self._watcher.goes_on(task)
