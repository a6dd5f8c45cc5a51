"""Runs what the herder decides: connectors and tasks in; threads, Spark jobs, and what becomes of them out.

Called from the herder's thread only; what it tells the herder (`WorkerEvents`) comes from any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkmirror.config.overrides import require_allowed
from sparkmirror.config.providers import resolve_named
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.connector import Connector
from sparkmirror.errors import ConfigError, NoSlot, SparkMirrorError
from sparkmirror.spark.session import SparkSession
from sparkmirror.veil import VEIL

from .kinds import MAKERS, Kind, kind_of
from .runs import ConnectorRun, ThreadRun
from .source_job import SourceJob
from .states import State, TargetState, TaskId

log = logging.getLogger(__name__)


class WorkerEvents(Protocol):
    """The herder, as its worker sees it. Called from any thread; must not block."""

    def connector_said(self, name: str, state: State, error: BaseException | None) -> None: ...
    def connector_noted(self, name: str, text: str) -> None: ...
    def task_said(
        self, task: TaskId, state: State, error: BaseException | None, attempts: int = 0
    ) -> None:
        """`attempts`: how often a task that mends itself was tried again since it stands still."""

    def task_noted(self, task: TaskId, text: str) -> None: ...
    def reconfigure(self, name: str) -> None: ...
    def wrote(self, task: TaskId, topic: str) -> None: ...


class Offsets(Protocol):
    """The worker's offsets topic, as tasks use it."""

    def append(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None: ...
    def load(self, connector: str) -> Mapping[bytes, bytes]: ...


class _Context:
    """What a connector may say."""

    def __init__(self, name: str, run: ConnectorRun, events: WorkerEvents) -> None:
        self._name = name
        self._run = run
        self._events = events

    def request_task_reconfiguration(self) -> None:
        self._events.reconfigure(self._name)

    def fail(self, error: SparkMirrorError) -> None:
        self._run.fail(error)

    def note(self, text: str) -> None:
        self._run.while_wanted(lambda: self._events.connector_noted(self._name, text))


class _TaskContext:
    """What a task that is a thread may say and ask."""

    def __init__(self, task: TaskId, events: WorkerEvents, offsets: Offsets) -> None:
        self._task = task
        self._events = events
        self._offsets = offsets

    def wrote(self, topic: str) -> None:
        self._events.wrote(self._task, topic)

    def store_offsets(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._offsets.append(offsets)

    def load_offsets(self) -> Mapping[bytes, bytes]:
        return self._offsets.load(self._task.connector)


class _JobWatcher:
    """Passes on how source tasks fare."""

    def __init__(self, name: str, worker: Worker, events: WorkerEvents) -> None:
        self._name = name
        self._worker = worker
        self._events = events

    def stands_still(self, task: int, error: SparkMirrorError, attempts: int) -> None:
        self._events.task_said(TaskId(self._name, task), State.FAILED, error, attempts)

    def waits(self, task: int, reason: str) -> None:
        self._events.task_said(TaskId(self._name, task), State.FAILED, NoSlot(reason))

    def goes_on(self, task: int) -> None:
        log.info("Task %s goes on.", TaskId(self._name, task))
        self._events.task_said(TaskId(self._name, task), State.RUNNING, None)

    def noted(self, task: int, text: str) -> None:
        self._events.task_noted(TaskId(self._name, task), text)

    def wrote(self, task: int, topic: str) -> None:
        self._events.wrote(TaskId(self._name, task), topic)

    def failed(self, error: SparkMirrorError) -> None:
        for task in self._worker.started_tasks(self._name):
            self._events.task_said(task, State.FAILED, error)


@dataclass(slots=True)
class _Task:
    """A task that this worker has. `run` is its thread, if it has one and is not paused."""

    kind: Kind
    written: Mapping[str, str]
    config: Mapping[str, str]
    """What was written, with references resolved."""
    is_paused: bool = False
    is_given_up: bool = False
    run: ThreadRun | None = None


class Worker:
    """The connectors and tasks of one worker.

    Invariants: a connector or task is started once until it is stopped; source tasks of one connector that are not paused are
    together in one `SourceJob`; when `await_stopped` returns, what was told to stop or to pause does not write any more, unless
    the time-out has passed (then it is told in the log, and the target's leaders keep it from doing harm).
    """

    def __init__(
        self, config: WorkerConfig, spark: SparkSession, offsets: Offsets, events: WorkerEvents
    ) -> None:
        self._config = config
        self._spark = spark
        self._offsets = offsets
        self._events = events
        self._connectors: dict[str, ConnectorRun | None] = {}
        self._props: dict[str, Mapping[str, str]] = {}
        self._tasks: dict[TaskId, _Task] = {}
        self._jobs: dict[str, SourceJob] = {}
        self._patience = config.task_shutdown_graceful_timeout_ms / 1000
        self._ending: list[ThreadRun | SourceJob] = []
        """Told to end, and not waited for yet."""
        self._pausing: list[TaskId] = []
        """Told to pause, and not said to be paused yet."""

    @property
    def connectors(self) -> list[str]:
        return list(self._connectors)

    @property
    def tasks(self) -> list[TaskId]:
        return list(self._tasks)

    def started_tasks(self, name: str) -> list[TaskId]:
        return [
            task
            for task, known in list(self._tasks.items())
            if task.connector == name and not known.is_paused
        ]

    # -- connectors -------------------------------------------------------------------------------

    def start_connector(self, name: str, props: Mapping[str, str], state: TargetState) -> None:
        """Start it, or only take note of it while it is paused or stopped."""
        self._stop_connector_run(name)
        self._props[name] = props
        if state is not TargetState.STARTED:
            self._connectors[name] = None
            shown = State.PAUSED if state is TargetState.PAUSED else State.STOPPED
            self._events.connector_said(name, shown, None)
            return

        def make(run: ConnectorRun) -> Connector:
            resolved = self._resolved(props)
            context = _Context(name, run, self._events)
            return MAKERS[kind_of(resolved)].connector(resolved, context, self._config)

        def said(state: State, error: BaseException | None) -> None:
            self._events.connector_said(name, state, error)

        run = ConnectorRun(name, make, said)
        self._connectors[name] = run
        run.start()

    def stop_connector(self, name: str) -> None:
        self._stop_connector_run(name)
        self._connectors.pop(name, None)
        self._props.pop(name, None)

    def _stop_connector_run(self, name: str) -> None:
        run = self._connectors.get(name)
        if run is not None:
            run.stop()

    def task_configs(self, name: str) -> list[dict[str, str]] | None:
        """What the connector wants its tasks to be, as it was written (references not resolved); None unless it is running."""
        run = self._connectors.get(name)
        connector = None if run is None else run.running
        if connector is None:
            return None
        written = self._props[name]
        resolved = self._resolved(written)
        return [
            {key: _as_written(key, value, written, resolved) for key, value in config.items()}
            for config in connector.task_configs(int(resolved.get("tasks.max", "1")))
        ]

    def _resolved(self, props: Mapping[str, str]) -> dict[str, str]:
        permits = self._config.permits
        resolved = resolve_named(props, self._config.raw, known=permits.references)
        VEIL.learn(resolved)
        permits.require(resolved)  # whoever has written it, and wherever
        require_allowed(resolved, self._config.override_policy)
        return resolved

    # -- tasks ------------------------------------------------------------------------------------

    def start_tasks(
        self, tasks: Mapping[TaskId, Mapping[str, str]], state: Callable[[str], TargetState]
    ) -> None:
        """Start these (they are not running)."""
        source: set[str] = set()
        for task, props in tasks.items():
            try:
                resolved = self._resolved(props)
                kind = kind_of(resolved)
            except ConfigError as error:
                self._events.task_said(task, State.FAILED, error)
                continue
            is_paused = state(task.connector) is not TargetState.STARTED
            known = self._tasks[task] = _Task(kind, props, resolved, is_paused)
            if kind is Kind.SOURCE:
                source.add(task.connector)
                self._events.task_noted(task, "")  # what was noted of it before is over
            elif not is_paused:
                self._start_thread(task, known)
            if is_paused or kind is Kind.SOURCE:
                shown = State.PAUSED if is_paused else State.RUNNING
                self._events.task_said(task, shown, None)
        for name in source:
            self._submit(name)

    def _start_thread(self, task: TaskId, known: _Task) -> None:
        make = MAKERS[known.kind].task
        assert make is not None  # noqa: S101 - source tasks do not come here
        context = _TaskContext(task, self._events, self._offsets)

        def said(state: State, error: BaseException | None) -> None:
            self._events.task_said(task, state, error)

        known.run = ThreadRun(str(task), lambda: make(known.config, context), said)
        known.run.start()

    def _submit(self, name: str) -> SourceJob | None:
        """Let the job of a connector copy what its tasks say now; gives the job, to be waited for."""
        wanted = {
            task.task: known.config
            for task, known in self._tasks.items()
            if task.connector == name
            and known.kind is Kind.SOURCE
            and not known.is_paused
            and not known.is_given_up
        }
        job = self._jobs.get(name)
        if job is not None and job.has_ended:  # it crashed: nothing waits for its tasks any more
            del self._jobs[name]
            job = None
        if not wanted:
            self._jobs.pop(name, None)
            if job is not None:
                job.stop()
            return job
        if job is None:
            watcher = _JobWatcher(name, self, self._events)
            job = self._jobs[name] = SourceJob(name, self._config, self._spark, watcher)
        job.set_tasks(wanted)
        return job

    def stop_tasks(self, tasks: Collection[TaskId]) -> None:
        """Tell these to stop; `await_stopped` waits until they do not write any more."""
        self._end({task: self._tasks.pop(task) for task in tasks if task in self._tasks})

    def _end(self, stopped: Mapping[TaskId, _Task]) -> None:
        for known in stopped.values():
            if known.run is not None:
                known.run.stop()
                self._ending.append(known.run)
        names = {task.connector for task, known in stopped.items() if known.kind is Kind.SOURCE}
        self._ending += [job for job in map(self._submit, names) if job is not None]

    def await_stopped(self) -> None:
        """Wait until what was told to stop or to pause does not write any more: all of it together has one time-out."""
        ending, self._ending = set(self._ending), []
        deadline = time.monotonic() + self._patience
        late = [run for run in ending if not run.join(max(0.0, deadline - time.monotonic()))]
        if late:
            log.warning(
                "Tasks (%d runs) did not stop within task.shutdown.graceful.timeout.ms (%g s); they are left behind.",
                len(late),
                self._patience,
            )
        pausing, self._pausing = self._pausing, []
        for task in pausing:
            self._events.task_said(task, State.PAUSED, None)

    def mends_itself(self, task: TaskId) -> bool:
        """Whether a task that stands still is tried again without being started anew: a copy task does that, by partition."""
        known = self._tasks.get(task)
        job = self._jobs.get(task.connector)
        return known is not None and known.kind is Kind.SOURCE and job is not None and job.is_alive

    def renew(self, task: TaskId) -> None:
        """Give the tasks of a connector, one of which stands still, what their references stand for by now."""
        is_new = False
        for each, known in self._tasks.items():
            if each.connector != task.connector or known.kind is not Kind.SOURCE:
                continue
            try:
                resolved = self._resolved(known.written)
            except ConfigError as error:  # they are being changed: it may be there next time
                log.warning("Task %s keeps the secrets that it has: %s", each, error)
                return
            is_new |= resolved != known.config
            known.config = resolved
        if is_new:
            log.info(
                "Connector %s: its tasks get the secrets that are in force now.", task.connector
            )
            self._submit(task.connector)

    def give_up(self, task: TaskId) -> None:
        """Let a source task rest until it is started again."""
        known = self._tasks.get(task)
        if known is not None and not known.is_given_up:
            known.is_given_up = True
            self._submit(task.connector)

    # -- target states ----------------------------------------------------------------------------

    def set_target_state(self, name: str, props: Mapping[str, str], state: TargetState) -> None:
        """Start the connector and the tasks of it that are here, or tell them to pause (`await_stopped`)."""
        if name in self._connectors:
            self.start_connector(name, props, state)
        is_paused = state is not TargetState.STARTED
        changed = {
            task: known
            for task, known in self._tasks.items()
            if task.connector == name and known.is_paused != is_paused
        }
        for known in changed.values():
            known.is_paused = is_paused
            known.is_given_up = False  # it is started anew, if it is to run
        if is_paused:
            self._pausing += changed
            self._end(changed)
            return
        for task, known in changed.items():
            if known.kind is not Kind.SOURCE:
                self._start_thread(task, known)
        if any(known.kind is Kind.SOURCE for known in changed.values()):
            self._submit(name)
        for task, known in changed.items():
            if known.kind is Kind.SOURCE:
                self._events.task_said(task, State.RUNNING, None)


def _as_written(
    key: str, value: str, written: Mapping[str, str], resolved: Mapping[str, str]
) -> str:
    """A value of a task config: the reference of the connector's config, if it has one, rather than the secret.

    Also where the secret is another one by now than the one that the connector was started with.
    """
    is_reference = key in written and written[key] != resolved.get(key)
    return written[key] if is_reference else value
