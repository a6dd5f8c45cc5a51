"""What this worker should run, brought about: the configs and the assignment in, starts and stops on the worker out.

Looks at what is, not at what has happened: however many changes were missed or came at once, the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from .states import Assignment, ClusterConfig, State, TargetState, TaskId

Props = Mapping[str, str]
_STARTED = TargetState.STARTED


class Runs(Protocol):
    """What starts and stops things: the worker."""

    def start_connector(self, name: str, props: Props, state: TargetState) -> None: ...
    def stop_connector(self, name: str) -> None: ...
    def start_tasks(
        self, tasks: Mapping[TaskId, Props], state: Callable[[str], TargetState]
    ) -> None: ...
    def stop_tasks(self, tasks: Collection[TaskId]) -> None:
        """Tell them to stop; nobody is waited for."""

    def set_target_state(self, name: str, props: Props, state: TargetState) -> None:
        """Start, or tell to pause; nobody is waited for."""

    def await_stopped(self) -> None:
        """Until all that were told to stop or to pause have done so: all of them have the same time."""


class Says(Protocol):
    """Where it is written what becomes of them: the statuses."""

    def put_connector(self, name: str, state: State) -> None: ...
    def put_task(self, task: TaskId, state: State) -> None: ...


class Workload:
    """The connectors and tasks that this worker has been given.

    Invariant: `_connectors`, `_states` and `_tasks` are what the worker was last told to run, and how. Belongs to the herder's
    thread.
    """

    def __init__(self, worker: Runs, statuses: Says) -> None:
        self._worker = worker
        self._statuses = statuses
        self._connectors: dict[str, Props] = {}
        self._states: dict[str, TargetState] = {}
        self._tasks: dict[TaskId, Props] = {}

    @property
    def connectors(self) -> Collection[str]:
        return self._connectors.keys()

    @property
    def tasks(self) -> Collection[TaskId]:
        return self._tasks.keys()

    def bring_about(
        self, config: ClusterConfig, owned: Assignment, removed: Collection[str] = ()
    ) -> None:
        """Stop what should not run, start what should, and start anew what is configured otherwise by now.

        Of connectors that were `removed` nothing runs on: one that was created again since is another, even if it is configured
        alike.
        """
        connectors = {n: config.connectors[n] for n in owned.connectors if n in config.connectors}
        tasks = {t: config.tasks[t] for t in owned.tasks if t in config.tasks}
        gone = [n for n in self._connectors if n not in connectors or n in removed]
        stale = [
            t for t, props in self._tasks.items() if tasks.get(t) != props or t.connector in removed
        ]
        changed = self._changed_states({*connectors, *(task.connector for task in tasks)}, config)
        self._tell_to_stop(gone, stale)
        self._set_states({n: state for n, state in changed.items() if state is not _STARTED})
        self._await_stopped(gone, stale)
        self._set_states({n: state for n, state in changed.items() if state is _STARTED})
        for name, props in connectors.items():
            if self._connectors.get(name) != props:
                self._start_connector(name, props, config)
        missing = {t: props for t, props in tasks.items() if t not in self._tasks}
        self._start_tasks(missing, config)

    def _changed_states(
        self, names: Collection[str], config: ClusterConfig
    ) -> dict[str, TargetState]:
        """Of these, what the worker knows in another state; from now on they are known in theirs."""
        before = self._states
        self._states = {name: config.target_state(name) for name in names}
        return {n: state for n, state in self._states.items() if before.get(n, state) is not state}

    def _set_states(self, states: Mapping[str, TargetState]) -> None:
        for name, state in states.items():
            self._worker.set_target_state(name, self._connectors.get(name, {}), state)

    def _start_connector(self, name: str, props: Props, config: ClusterConfig) -> None:
        self._connectors[name] = props
        self._worker.start_connector(name, props, config.target_state(name))

    def _start_tasks(self, tasks: Mapping[TaskId, Props], config: ClusterConfig) -> None:
        if tasks:
            self._tasks.update(tasks)
            self._worker.start_tasks(tasks, config.target_state)

    def _stop(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        self._tell_to_stop(connectors, tasks)
        self._await_stopped(connectors, tasks)

    def _tell_to_stop(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        """All are told before anybody is waited for: together they take as long as the slowest."""
        for name in connectors:
            self._worker.stop_connector(name)
            del self._connectors[name]
        self._worker.stop_tasks(tasks)
        for task in tasks:
            del self._tasks[task]

    def _await_stopped(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        self._worker.await_stopped()
        for task in tasks:
            self._statuses.put_task(task, State.UNASSIGNED)
        for name in connectors:
            self._statuses.put_connector(name, State.UNASSIGNED)

    def give_back(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        """Stop these; others may start them when this returns."""
        self._stop(
            [name for name in connectors if name in self._connectors],
            [task for task in tasks if task in self._tasks],
        )

    # -- restarts ---------------------------------------------------------------------------------

    def restart_connector(self, name: str, config: ClusterConfig) -> None:
        if name in self._connectors and name in config.connectors:
            self._start_connector(name, config.connectors[name], config)

    def restart_tasks(self, tasks: Collection[TaskId], config: ClusterConfig, *, say: bool) -> None:
        mine = [task for task in tasks if task in self._tasks]
        self._stop([], mine)
        if say:
            for task in mine:
                self._statuses.put_task(task, State.RESTARTING)
        self._start_tasks({t: config.tasks[t] for t in mine if t in config.tasks}, config)

    def stop(self) -> None:
        """Stop everything, and say so."""
        self._stop(list(self._connectors), list(self._tasks))
