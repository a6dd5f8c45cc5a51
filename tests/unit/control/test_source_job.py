"""Source tasks on a worker: what is told of them when Spark, other workers or a mistake come in the way."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.control.source_job import SourceJob
from sparkmirror.control.task_reports import TaskReports
from sparkmirror.control.worker import _as_written
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.errors import QueryRefused, SparkError, SparkMirrorError
from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.spark.accumulators import Lag
from sparkmirror.spark.executors import Executors
from sparkmirror.spark.session import SparkSession
from sparkmirror.spark.slots import Slots

PATIENCE_S = 10.0
WORKER = WorkerConfig.parse(
    {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "config.storage.topic": "c",
        "offset.storage.topic": "o",
        "status.storage.topic": "s",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
)
TASK = {
    "name": "msc",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "a",
    "target.cluster.alias": "b",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
    "task.assigned.partitions": "t-0",
}


class Spark:
    """A session that cannot be started, as long as `error` says why."""

    is_roomy = True
    is_dynamic = False
    is_on_cluster = False
    promised = None

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.slots = Slots()
        self.may_start = threading.Event()
        self.may_start.set()
        self.starts = 0

    def executors(self) -> Executors | None:
        """It is a local one."""
        return None

    def width(self, slots: int) -> int:
        return 1

    def start(self, *, queries: bool = False, is_wanted: Callable[[], bool]) -> None:
        self.starts += 1
        self.may_start.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error


class Watcher:
    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.attempts: list[int] = []
        self.errors: list[SparkMirrorError] = []

    def stands_still(self, task: int, error: SparkMirrorError, attempts: int) -> None:
        self.errors.append(error)
        self.said.append(("stands still", task))
        self.attempts.append(attempts)

    def waits(self, task: int, reason: str) -> None:
        self.said.append((f"waits: {reason}", task))

    def goes_on(self, task: int) -> None:
        self.said.append(("goes on", task))

    def noted(self, task: int, text: str) -> None:
        self.said.append((text, task))

    def wrote(self, task: int, topic: str) -> None:
        self.said.append((topic, task))

    def failed(self, error: SparkMirrorError) -> None:
        self.said.append(("failed", -1))


def job_of(spark: Spark, watcher: Watcher, tasks: Mapping[int, Mapping[str, str]]) -> SourceJob:
    job = SourceJob("msc", WORKER, cast(SparkSession, spark), watcher)
    job.set_tasks(tasks)
    return job


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def report(task: int, error: str, attempts: int = 0) -> Progress:
    state = "FAILED" if error else "RUNNING"
    row = PartitionProgress("t", task, "a.t", 0, 0, 0, 0, 0, -1, state, error, "", attempts)
    return Progress("msc", task, 0, 0, (row,))


def test_without_spark_tasks_stand_still_until_it_comes_up() -> None:
    spark, watcher = Spark(SparkError("no Java")), Watcher()
    job = job_of(spark, watcher, {0: TASK, 1: TASK})
    wait_for(lambda: watcher.attempts[-2:] == [1, 1])  # Spark was tried again
    spark.error = None  # what comes after it has no cluster to ask, which is tried again
    wait_for(lambda: ("goes on", 1) in watcher.said)
    job.stop()
    assert watcher.said[:2] == [("stands still", 0), ("stands still", 1)]
    assert watcher.said[-2:] == [("goes on", 0), ("goes on", 1)]


def test_a_stop_does_not_wait_for_spark_to_come_up() -> None:
    spark = Spark(SparkError("no Java"))
    spark.may_start.clear()
    job = job_of(spark, Watcher(), {0: TASK})
    job.stop()
    assert job.join(0.0), "nothing was ever copied"
    spark.may_start.set()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_is_wrong_with_tasks_that_are_not_wanted_any_more_is_not_told(
    is_stopped: bool,
) -> None:
    """Spark looks at a query for seconds; meanwhile somebody has corrected it."""
    spark, watcher = Spark(QueryRefused("There is no column nothing.")), Watcher()
    spark.may_start.clear()
    job = job_of(spark, watcher, {0: TASK})
    wait_for(lambda: job._standing.keys() == {0})
    if is_stopped:
        job.stop()
        spark.may_start.set()
        wait_for(lambda: job.has_ended)
        assert watcher.said == []
        return
    job.set_tasks({0: {**TASK, "transform.sql": "SELECT value FROM records"}})
    spark.may_start.set()
    wait_for(lambda: bool(watcher.said))  # the same is wrong with the new ones
    assert watcher.said == [("failed", -1)]
    assert spark.starts == 2
    job.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_that_crashed_says_so() -> None:
    watcher = Watcher()
    job = job_of(Spark(ZeroDivisionError()), watcher, {0: TASK})
    wait_for(lambda: job.has_ended)
    assert watcher.said == [("failed", -1)]
    assert not job.is_alive
    job.stop()
    assert job.join(0.0)


def test_what_stands_still_is_told_once_a_restart_and_only_of_our_tasks() -> None:
    watcher = Watcher()
    spark = Spark(None)
    spark.may_start.clear()
    job = job_of(spark, watcher, {0: TASK, 1: TASK})
    wait_for(lambda: job._standing.keys() == {0, 1})
    for error in ("too large", "too large", ""):
        job._note([report(0, error), report(7, error)])
    assert watcher.said == [("stands still", 0), ("goes on", 0)]
    job._note([report(0, "too large")])
    job.set_tasks({1: TASK})
    job._note([report(0, "too large")])
    assert watcher.said[2:] == [("stands still", 0)], "it is not ours any more"
    job.stop()
    spark.may_start.set()


def test_a_report_in_several_records_is_taken_as_one() -> None:
    """A partition stands still that the other records of the report say nothing of."""
    watcher = Watcher()
    spark = Spark(None)
    spark.may_start.clear()
    job = job_of(spark, watcher, {0: TASK})
    wait_for(lambda: job._standing.keys() == {0})
    fine = [PartitionProgress("t", n, "a.t", 0, 0, 0, 0, 0, -1) for n in range(4)]
    bad = replace(fine[1], state="FAILED", error="too large")
    for parts in (((fine[0], bad), (fine[2], fine[3])), ((fine[2], fine[3]), (fine[0], fine[1]))):
        job._note([Progress("msc", 0, 0, 0, part) for part in parts])
    assert watcher.said == [("stands still", 0), ("goes on", 0)]
    job.stop()
    spark.may_start.set()


def test_every_new_attempt_is_told() -> None:
    watcher = Watcher()
    spark = Spark(None)
    spark.may_start.clear()
    job = job_of(spark, watcher, {0: TASK})
    wait_for(lambda: job._standing.keys() == {0})
    job._note([report(0, "too large", attempts) for attempts in (0, 0, 1, 1, 2)])
    job._note([report(0, ""), report(0, "too large")])
    assert watcher.attempts == [0, 1, 2, 0]
    job.stop()
    spark.may_start.set()


def applied(partition: int, since: int, until: int = -1) -> Progress:
    row = PartitionProgress("t", partition, "a.t", 0, 0, 0, 0, 0, -1, since=since, until=until)
    return Progress("msc", 0, 0, 0, (row,))


def test_it_is_told_from_where_a_query_applies() -> None:
    watcher = Watcher()
    spark = Spark(None)
    spark.may_start.clear()
    job = job_of(spark, watcher, {0: TASK, 1: TASK})
    wait_for(lambda: job._reaches.keys() == {0, 1})
    job._note([applied(1, 12), applied(0, -1), applied(1, 12), applied(0, 7, 99), applied(0, 100)])
    first = "The query applies from t-1 offset 12 on."
    assert watcher.said == [
        (first, 0),
        (f"{first} What was set before still applies up to t-0 offset 99.", 0),
        ("The query applies from t-0 offset 100, t-1 offset 12 on.", 0),
    ]
    job.set_tasks({1: TASK})
    job.set_tasks({0: TASK, 1: TASK})  # it was started anew: nothing is noted of it now
    wait_for(lambda: job._reaches.keys() == {0, 1})
    job._note([applied(1, 12)])
    assert watcher.said[3:] == [(first, 0)]
    job.stop()
    job._note([applied(1, -1)])
    assert watcher.said[4:] == [], "who comes after it speaks of the task"
    spark.may_start.set()


class Job:
    """A Spark job that runs until it is told to end."""

    error: SparkError | None = None
    waiting: Sequence[object] = ()
    ledger = ()

    def __init__(self) -> None:
        self.finished = threading.Event()

    def let_go(self) -> None:
        self.finished.set()

    def end(self, grace: float) -> None:
        self.let_go()


class Metrics:
    def show(self, records: int, bytes_: int, lag: Lag) -> None:
        """Nothing was copied."""
        assert (records, bytes_) == (0, 0)


class SparkThatRuns(Spark):
    def __init__(self) -> None:
        super().__init__(None)
        self.jobs: list[Job] = []

    def accumulators(self, source: str, target: str, connector: str) -> Metrics:
        return Metrics()

    def submit(self, name: str, plans: Sequence[object]) -> Job:
        self.jobs.append(Job())
        return self.jobs[-1]


class SparkWhoseJobsFail(SparkThatRuns):
    """Its jobs fail as long as `why` is there; later ones run, with Spark tasks that have not begun."""

    def __init__(self, waiting: Sequence[object]) -> None:
        super().__init__()
        self.why: SparkError | None = SparkError("sparkmirror is not installed on the executors.")
        self.is_submit_refused = False
        self._waiting = waiting

    def submit(self, name: str, plans: Sequence[object]) -> Job:
        if self.is_submit_refused and self.why is not None:
            raise self.why
        job = super().submit(name, plans)
        job.error, job.waiting = self.why, self._waiting
        if self.why is not None:
            job.finished.set()
        return job


def waiting_plan(*tasks: int) -> object:
    return SimpleNamespace(
        index=tasks[0], partitions=[SimpleNamespace(task=task) for task in tasks]
    )


@pytest.mark.parametrize("is_submit_refused", [False, True])
def test_a_spark_job_that_fails_is_shown_until_copy_tasks_of_a_later_one_have_begun(
    monkeypatch: pytest.MonkeyPatch, is_submit_refused: bool
) -> None:
    monkeypatch.setattr("sparkmirror.control.source_job.task_plans", lambda *_: [])
    monkeypatch.setattr("sparkmirror.control.source_job._LOOK_S", 0.01)
    spark, watcher = SparkWhoseJobsFail([waiting_plan(0), waiting_plan(1)]), Watcher()
    spark.is_submit_refused = is_submit_refused
    job = job_of(cast(Spark, spark), watcher, {0: TASK, 1: TASK})
    wait_for(lambda: watcher.attempts[-2:] == [1, 1])  # a second job failed
    assert watcher.said[:2] == [("stands still", 0), ("stands still", 1)]
    assert "sparkmirror is not installed on the executors." in str(watcher.errors[0])
    assert isinstance(watcher.errors[0], SparkError), "for which no task is given up"
    assert ("goes on", 0) not in watcher.said, "the next one was submitted only"
    spark.why = None
    wait_for(lambda: bool(spark.jobs) and not spark.jobs[-1].finished.is_set())
    spark.jobs[-1].waiting = [waiting_plan(1)]
    wait_for(lambda: ("goes on", 0) in watcher.said)
    assert ("goes on", 1) not in watcher.said, "its copy task has not begun"
    spark.jobs[-1].waiting = []
    wait_for(lambda: ("goes on", 1) in watcher.said)
    job.stop()
    wait_for(lambda: job.has_ended)
    assert watcher.said[-2:] == [("goes on", 0), ("goes on", 1)]


def test_tasks_are_told_to_end_at_once_also_while_nobody_can_say_how_they_fare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparkmirror.control.source_job.task_plans", lambda *_: [])
    spark = SparkThatRuns()
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # the target takes calls, and never answers
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        job = job_of(spark, Watcher(), {0: {**TASK, "target.cluster.bootstrap.servers": address}})
        silent.settimeout(PATIENCE_S)
        with silent.accept()[0]:  # it is being asked for reports
            job.stop()
            assert spark.jobs[0].finished.is_set()
    wait_for(lambda: job.has_ended)


def test_waiting_for_a_slot_is_told_in_log_state_note_and_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[tuple[list[tuple[str, int]], str]] = []

    def tell_waiting(_: TaskReports, plans: Sequence[TaskPlan], reason: str) -> None:
        reported.append(([part.key for plan in plans for part in plan.partitions], reason))

    monkeypatch.setattr("sparkmirror.control.job_slots._LATE_S", 0.0)
    monkeypatch.setattr("sparkmirror.control.job_slots._REGISTER_S", 0.0)
    monkeypatch.setattr("sparkmirror.control.job_slots._LOOK_S", 0.01)
    monkeypatch.setattr("sparkmirror.control.source_job._TELL_AGAIN_S", 0.05)
    monkeypatch.setattr(TaskReports, "tell_waiting", tell_waiting)
    monkeypatch.setattr("sparkmirror.control.source_job.task_plans", lambda *_: [])
    spark, watcher = SparkOnCluster(), Watcher()
    job = job_of(spark, watcher, {0: TASK, 1: {**TASK, "task.assigned.partitions": "t-1,u-0"}})
    none = "No Spark task can run: no executor is registered at spark://m."
    wait_for(lambda: len(reported) > 3)
    assert reported[:2] == [([("t", 0), ("t", 1), ("u", 0)], none)] * 2, "told again and again"
    assert watcher.said == [(none, 0), (f"waits: {none}", 0), (none, 1), (f"waits: {none}", 1)]
    assert [r.message for r in caplog.records] == [f"Connector msc: {none}"]
    spark.there = Executors(1, frozenset("0"))
    wait_for(lambda: len(spark.jobs) == 1)
    assert watcher.said[4:] == [("", 0), ("goes on", 0), ("", 1), ("goes on", 1)]
    job.stop()
    wait_for(lambda: job.has_ended)


def test_the_state_follows_the_reason_for_waiting_and_keeps_other_errors() -> None:
    spark, watcher = Spark(None), Watcher()
    spark.may_start.clear()
    job = job_of(spark, watcher, {0: TASK, 1: TASK})
    wait_for(lambda: job._standing.keys() == {0, 1})
    for reason, late in (("2 of 2 wait", {0, 1}), ("1 of 2 wait", {1}), ("1 of 2 wait", {1})):
        job._tell_waiting(reason, late, lambda: None)
    told = [("2 of 2 wait", 0), ("waits: 2 of 2 wait", 0)]
    told += [("2 of 2 wait", 1), ("waits: 2 of 2 wait", 1)]
    told += [("", 0), ("goes on", 0), ("1 of 2 wait", 1), ("waits: 1 of 2 wait", 1)]
    assert watcher.said == told
    waiting = replace(report(1, "1 of 2 wait").partitions[0], state="WAITING")
    job._note([Progress("msc", 1, 0, 0, (waiting,))])
    assert watcher.said == told, "that was our own report"
    job._note([report(1, "too large")])
    told += [("1 of 2 wait", 1), ("stands still", 1)]
    assert watcher.said == told
    job._tell_waiting("", (), lambda: None)
    assert watcher.said[len(told) :] == [("", 1), ("stands still", 1)]
    job.stop()
    spark.may_start.set()


class SparkOnCluster(SparkThatRuns):
    """A cluster that has no executors at first."""

    there = Executors(0, frozenset())

    def executors(self) -> Executors:
        return self.there

    def described(self) -> str:
        return "no executor is registered at spark://m"


class Other:
    """Another job that shares the slots."""

    def share_changed(self, share: int) -> None: ...


def test_a_job_that_waits_for_a_person_leaves_its_slots_to_the_others() -> None:
    spark, watcher = Spark(None), Watcher()
    other = Other()
    spark.slots.enter(other, 8, 8)
    job = job_of(spark, watcher, {0: TASK})  # its clusters are out of reach, which is tried again
    wait_for(lambda: spark.slots.share(other, 8) == 7)
    job.set_tasks({0: {**TASK, "tasks.max": "none"}})
    wait_for(lambda: watcher.said == [("failed", -1)])
    wait_for(lambda: spark.slots.share(other, 8) == 8)
    job.set_tasks({0: TASK})
    wait_for(lambda: spark.slots.share(other, 8) == 7)
    job.stop()
    wait_for(lambda: job.has_ended)
    assert spark.slots.share(other, 8) == 8


def test_a_secret_that_has_changed_is_not_written_out() -> None:
    written, resolved = {"password": "${file:f:k}", "name": "n"}, {"password": "new", "name": "n"}
    assert _as_written("password", "old", written, resolved) == "${file:f:k}"
    assert _as_written("name", "n", written, resolved) == "n"
    assert _as_written("task.index", "0", written, resolved) == "0"
