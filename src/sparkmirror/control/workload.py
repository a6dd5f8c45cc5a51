"""What this worker should run, brought about: the configs and the assignment in, starts and stops on the worker out.

Looks at what is, not at what has happened: however many changes were missed or came at once, the outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from .states import Assignment, ClusterConfig, State, TargetState, TaskId

Props = Mapping[str, str]


class Runs(Protocol):
    """What starts and stops things: the worker."""

    def start_connector(self, name: str, props: Props, state: TargetState) -> None: ...
    def stop_connector(self, name: str) -> None: ...
    def start_tasks(
        self, tasks: Mapping[TaskId, Props], state: Callable[[str], TargetState]
    ) -> None: ...
    def stop_tasks(self, tasks: Collection[TaskId]) -> None: ...
    def set_target_state(self, name: str, props: Props, state: TargetState) -> None: ...


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

    def bring_about(self, config: ClusterConfig, owned: Assignment) -> None:
        """Stop what should not run, start what should, and start anew what is configured otherwise by now."""
        connectors = {n: config.connectors[n] for n in owned.connectors if n in config.connectors}
        tasks = {t: config.tasks[t] for t in owned.tasks if t in config.tasks}
        self._stop_tasks([t for t, props in self._tasks.items() if tasks.get(t) != props])
        self._stop_connectors([name for name in self._connectors if name not in connectors])
        names = {*connectors, *(task.connector for task in tasks)}
        self._follow_states(names, config)
        for name, props in connectors.items():
            if self._connectors.get(name) != props:
                self._start_connector(name, props, config)
        missing = {t: props for t, props in tasks.items() if t not in self._tasks}
        self._start_tasks(missing, config)

    def _follow_states(self, names: Collection[str], config: ClusterConfig) -> None:
        for name in names:
            state = config.target_state(name)
            if self._states.get(name, state) is not state:
                self._worker.set_target_state(name, self._connectors.get(name, {}), state)
            self._states[name] = state
        for name in [name for name in self._states if name not in names]:
            del self._states[name]

    def _start_connector(self, name: str, props: Props, config: ClusterConfig) -> None:
        self._connectors[name] = props
        self._worker.start_connector(name, props, config.target_state(name))

    def _start_tasks(self, tasks: Mapping[TaskId, Props], config: ClusterConfig) -> None:
        if tasks:
            self._tasks.update(tasks)
            self._worker.start_tasks(tasks, config.target_state)

    def _stop_tasks(self, tasks: Collection[TaskId]) -> None:
        if not tasks:
            return
        self._worker.stop_tasks(tasks)
        for task in tasks:
            del self._tasks[task]
            self._statuses.put_task(task, State.UNASSIGNED)

    def _stop_connectors(self, names: Collection[str]) -> None:
        for name in names:
            self._worker.stop_connector(name)
            del self._connectors[name]
            self._statuses.put_connector(name, State.UNASSIGNED)

    def give_back(self, connectors: Collection[str], tasks: Collection[TaskId]) -> None:
        """Stop these; others may start them when this returns."""
        self._stop_tasks([task for task in tasks if task in self._tasks])
        self._stop_connectors([name for name in connectors if name in self._connectors])

    # -- restarts ---------------------------------------------------------------------------------

    def restart_connector(self, name: str, config: ClusterConfig) -> None:
        if name in self._connectors and name in config.connectors:
            self._start_connector(name, config.connectors[name], config)

    def restart_tasks(self, tasks: Collection[TaskId], config: ClusterConfig, *, say: bool) -> None:
        mine = [task for task in tasks if task in self._tasks]
        self._stop_tasks(mine)
        if say:
            for task in mine:
                self._statuses.put_task(task, State.RESTARTING)
        self._start_tasks({t: config.tasks[t] for t in mine if t in config.tasks}, config)

    def stop(self) -> None:
        """Stop everything, and say so."""
        self._stop_connectors(list(self._connectors))
        self._stop_tasks(list(self._tasks))
