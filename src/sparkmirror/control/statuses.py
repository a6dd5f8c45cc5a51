"""What is said of connectors and tasks: states in, records of the status topic out; and back, as answers to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparkmirror.errors import NotFound

from .restarts import Item
from .runs import trace_of
from .states import (
    VERSION,
    ClusterConfig,
    ConnectorState,
    RestartRequest,
    State,
    Status,
    TaskId,
    TaskState,
)
from .status_store import StatusStore

_SAFE = (State.FAILED, State.UNASSIGNED)


class Statuses:
    """One worker's word on what it runs. May be called from any thread."""

    def __init__(self, store: StatusStore, worker_id: str, generation: Callable[[], int]) -> None:
        self._store = store
        self._worker_id = worker_id
        self._generation = generation
        self._removed: dict[Item, Status] = {}
        """What was to be seen of them at the last look; a worker's last word may come after the removal."""

    def put_connector(
        self,
        name: str,
        state: State,
        error: BaseException | None = None,
        restarts: int = 0,
        note: str = "",
    ) -> None:
        status = replace(self._status(state, error, restarts), note=note)
        if state in _SAFE:
            self._store.put_connector_safe(name, status)
        else:
            self._store.put_connector(name, status)

    def put_task(
        self,
        task: TaskId,
        state: State,
        error: BaseException | None = None,
        restarts: int = 0,
        note: str = "",
    ) -> None:
        status = replace(self._status(state, error, restarts), note=note)
        if state in _SAFE:
            self._store.put_task_safe(task, status)
        else:
            self._store.put_task(task, status)

    def tell_settled(self, item: Item) -> None:
        """It runs, and how often it was started again before is of no account any more."""
        known = self._store.everything().get(item)
        if (
            known is None
            or known.state is not State.RUNNING
            or known.worker_id != self._worker_id
            or not known.restarts
        ):
            return
        if isinstance(item, TaskId):
            self.put_task(item, State.RUNNING, note=known.note)
        else:
            self.put_connector(item, State.RUNNING, note=known.note)

    def _status(self, state: State, error: BaseException | None, restarts: int) -> Status:
        trace = None if error is None else trace_of(error)
        version = None if state is State.UNASSIGNED else VERSION
        return Status(state, self._worker_id, self._generation(), trace, version, restarts)

    def remove_unknown(self, config: ClusterConfig) -> None:
        """Take away what is said of connectors and tasks that do not exist any more: the leader's duty."""
        unknown = {
            item: status
            for item, status in self._store.everything().items()
            if not is_known(config, item)
        }
        for item, status in unknown.items():
            if self._removed.get(item) is status:  # it is seen until its removal was read back
                continue
            if isinstance(item, TaskId):
                self._store.delete_task(item)
            else:
                self._store.delete_connector(item)
                self._store.delete_topics(item)
        self._removed = unknown

    # -- answers ----------------------------------------------------------------------------------

    def connector(self, name: str) -> ConnectorState:
        status = self._store.connector(name)
        if status is None:
            raise NotFound(f"No status found for connector {name}")
        tasks = sorted(self._store.tasks(name).items())
        return ConnectorState(
            name=name,
            state=status.state,
            worker_id=status.worker_id,
            tasks=tuple(_task_state(number, known) for number, known in tasks),
            trace=status.trace,
            version=status.version,
            restarts=status.restarts,
            note=status.note,
        )

    def task(self, task: TaskId) -> TaskState:
        status = self._store.task(task)
        if status is None:
            raise NotFound(f"No status found for task {task}")
        return _task_state(task.task, status)


def restart_plan(current: ConnectorState, request: RestartRequest) -> ConnectorState:
    """What a restart request comes to: the same with RESTARTING where something is restarted."""
    restarts = [
        task
        for task in current.tasks
        if request.include_tasks and (not request.only_failed or task.state is State.FAILED)
    ]
    is_restarted = not request.only_failed or current.state is State.FAILED
    # Why something failed stays to be seen until it has started again, as with a Java worker.
    return replace(
        current,
        state=State.RESTARTING if is_restarted else current.state,
        tasks=tuple(
            replace(task, state=State.RESTARTING) if task in restarts else task
            for task in current.tasks
        ),
    )


def is_known(config: ClusterConfig, item: Item) -> bool:
    """Whether a connector or task exists."""
    if isinstance(item, TaskId):
        return item.connector in config.connectors and item in config.tasks_of(item.connector)
    return item in config.connectors


def _task_state(number: int, status: Status) -> TaskState:
    return TaskState(
        number,
        status.state,
        status.worker_id,
        status.trace,
        status.version,
        status.restarts,
        status.note,
    )
