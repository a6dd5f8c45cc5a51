"""The herder: one loop that decides what this worker runs. Rebalances, configs and requests in; work started and stopped out.

All decisions are made in one thread. Whoever asks from elsewhere waits in `RequestQueue`; the rest of the control room only
tells (`ConfigNews`, `WorkerEvents`) or is told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import (
    ConnectError,
    KafkaError,
    NoSlot,
    NotFound,
    SparkError,
    SparkMirrorError,
)
from sparkmirror.kafka.cluster import back_off
from sparkmirror.spark.session import SparkSession

from .config_news import ConfigNews
from .file_connectors import FileConnectors
from .forwarding import WorkerClient
from .group_assignment import Group, GroupAssignment
from .loggers import LOGGERS
from .requests import RequestQueue
from .restarts import Item, Restarts
from .signing import is_key_due, new_session_key
from .states import (
    ClusterConfig,
    RestartRequest,
    State,
    TaskId,
)
from .statuses import Statuses, is_known, restart_plan
from .stores import Stores
from .task_configs import TaskConfigs
from .worker import Worker
from .workload import Workload

log = logging.getLogger(__name__)
_LONGEST_TURN_S = 5.0
_RETRY_S = (0.25, 10.0)
_LAST_S = 1.0  # for all that is left to do when tasks have used up their grace
_LAPSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this worker is to the others."""

    url: str
    worker_id: str


class ConnectHerder:
    """One worker's herder.

    Invariant: `workload` is changed in the herder's thread only.
    """

    def __init__(
        self,
        config: WorkerConfig,
        identity: Identity,
        news: ConfigNews,
        stores: Stores,
        spark: SparkSession,
        cluster_id: Callable[[], str],
        file: FileConnectors | None = None,
    ) -> None:
        self.config = config
        self._cluster_id = cluster_id
        self.cluster_id: str | None = None
        """Of the worker's own cluster; None until it was asked."""
        self.identity = identity
        self.stores = stores
        self.requests = RequestQueue(self.wake)
        self.restarts = Restarts()
        self._news = news
        self._failed: dict[Item, str] = {}
        self._running: set[Item] = set()
        """What was last said to be RUNNING here."""
        self._notes: dict[Item, str] = {}
        """What people should know of what runs here."""
        self._waits = back_off(*_RETRY_S)
        self._file = file
        self._group: Group | None = None
        self.statuses = Statuses(stores.statuses, identity.worker_id, lambda: self.group.generation)
        self.worker = Worker(config, spark, stores.offsets, self)
        self.workload = Workload(self.worker, self.statuses)
        self._task_configs = TaskConfigs(config.signing, stores.configs, self.worker, self.requests)
        self._assignment: GroupAssignment | None = None
        self._shared = ClusterConfig()
        self._was_leader = False
        self._stopping = threading.Event()
        self._grace = config.task_shutdown_graceful_timeout_ms / 1000
        self._ends_by = 0.0
        self._waiters: dict[Item, list[threading.Event]] = {}
        self.is_ready = False
        self.error: SparkMirrorError | None = None
        self._thread = threading.Thread(target=self._run, name="herder", daemon=True)

    # -- life -------------------------------------------------------------------------------------

    @property
    def group(self) -> Group:
        if self._group is None:
            raise ConnectError("The worker has not joined its group yet.")
        return self._group

    def join(self, group: Group) -> None:
        """The group that this herder takes part in; before `start`."""
        self._group = group
        self._task_configs.group = group

    def call_with(self, client: WorkerClient) -> None:
        """How to reach other workers; before `start`."""
        self._task_configs.client = client

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end: work is stopped, the group left."""
        self._ends_by = time.monotonic() + (self._grace if self.is_ready else 0.0)  # no tasks yet
        self._stopping.set()
        self.wake()
        # It may be waiting for its cluster: at the start, or with a write that has more time than we have.
        if not self.is_ready:
            self.stores.stop(0.0)
        elif not self.stores.configs.is_answering:
            self.stores.configs.stop(0.0)

    def await_end(self) -> bool:
        """After `stop`: whether it has ended in the time that it has for that."""
        return self.wait(max(0.0, self._ends_by + _LAST_S + _LAPSE_S - time.monotonic()))

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has ended by then."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wake(self) -> None:
        if self._group is not None:
            self._group.wakeup()

    def shared(self) -> ClusterConfig:
        """The configs that work is shared out by; the group asks when it joins and when it shares out."""
        self._shared = self.stores.configs.snapshot()
        return self._shared

    def _run(self) -> None:
        try:
            if self._open():
                self.is_ready = True
                log.info("Worker %s is ready.", self.identity.worker_id)
                while not self._stopping.is_set():
                    self._turn()
        except SparkMirrorError as error:
            log.error("Worker %s stopped: %s", self.identity.worker_id, error)
            self.error = error
        except BaseException as error:  # a mistake of ours: in the exit code, and with its trace
            self.error = SparkMirrorError(f"The herder crashed: {error!r}")
            raise
        finally:
            self._close()

    def _open(self) -> bool:
        """Read the stores, however long the cluster takes to be there; False if told to stop."""
        self.requests.stage = "reading its internal topics"
        try:
            self.stores.start()
            self.cluster_id = self._cluster_id()
        except SparkMirrorError:
            if self._stopping.is_set():
                return False
            raise
        return True

    def _close(self) -> None:
        """In this order: tasks end and write their positions, that is said, the group is left to others."""
        self.requests.stage = "shutting down"
        deadline = self._ends_by or time.monotonic() + self._grace

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        try:
            self.workload.stop()
            deadline = max(deadline, time.monotonic() + _LAST_S)
            self.stores.statuses.flush(left() / 2)
            self.group.close(left())
        except SparkMirrorError as error:
            log.warning("Not everything ended in order: %s", error)
        finally:
            self.stores.stop(left())
            self.requests.close()

    # -- the loop ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        try:
            self.requests.stage = "taking part in its group"
            self.group.poll(self._time_left())
            self.requests.stage = "starting and stopping work"
            self._lead()
            if self._assignment is not None:
                self._take_up(self._assignment)
            elif self._news.take_change():
                self._follow_configs()
            self._obey_news()
            self._restart_due()
            self._tell_settled()
            if self.group.is_leader:  # after our own work was stopped, if that is what has ended it
                self.statuses.remove_unknown(self.stores.configs.snapshot())
            if self.group.is_settled:  # else nobody could say who leads, and who owns what
                self.requests.stage = "answering requests"
                self.requests.run_due()
        except (ConnectError, KafkaError) as error:
            wait = next(self._waits)
            log.warning(
                "Worker %s: %s Trying again in %.1f s.", self.identity.worker_id, error, wait
            )
            self._stopping.wait(wait)
        else:
            self._waits = back_off(*_RETRY_S)

    def _time_left(self) -> float:
        due = self.restarts.next_due()
        restart = float("inf") if due is None else max(0.0, due - time.monotonic())
        asked = self.requests.next_due() if self.group.is_settled else float("inf")
        return min(_LONGEST_TURN_S, asked, restart)

    def on_revoked(self, leader: str, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        self.workload.give_back(connectors, tasks)
        given: list[Item] = [*connectors, *tasks]
        for item in given:  # another worker's by now
            self._failed.pop(item, None)
            self._notes.pop(item, None)
            self._running.discard(item)
            self.restarts.forget(item)

    def on_assigned(self, assignment: GroupAssignment, generation: int) -> None:
        self._assignment = assignment
        log.info(
            "Worker %s: %d connector(s) and %d task(s) since generation %d; the leader is %s.",
            self.identity.worker_id,
            len(assignment.assigned.connectors),
            len(assignment.assigned.tasks),
            generation,
            assignment.leader_url or assignment.leader,
        )

    def _take_up(self, assignment: GroupAssignment) -> None:
        """Begin what a rebalance has brought."""
        timeout = self.config.worker_sync_timeout_ms / 1000
        if assignment.failed or self.stores.configs.snapshot().offset < assignment.config_offset:
            self.stores.configs.refresh(timeout)
        self._assignment = None
        if not assignment.failed:
            self._news.take_change()
            self._follow_configs()

    def _follow_configs(self) -> None:
        removed = self._news.take_removed()
        config = self.stores.configs.snapshot()
        if (
            config.connectors.keys() != self._shared.connectors.keys()
            or config.task_counts != self._shared.task_counts
        ):
            self.group.request_rejoin("connectors or tasks were added or removed")
        for name in [item for item in self.workload.connectors if item not in config.connectors]:
            self.restarts.forget(name)
        self.workload.bring_about(config, self.group.owned, removed)

    def _lead(self) -> None:
        """The leader's duties."""
        is_leader = self.group.is_leader
        if is_leader:
            config = self.stores.configs.snapshot()
            self._rotate_key(config)
            if not self._was_leader:
                self._write_file(config)
        self._was_leader = is_leader

    def _rotate_key(self, config: ClusterConfig) -> None:
        signing = self.config.signing
        now = int(time.time() * 1000)
        if self.group.protocol_version >= 2 and is_key_due(
            config.session_key, signing.key_algorithm, signing.key_size, signing.key_ttl_ms, now
        ):
            key = new_session_key(signing.key_algorithm, signing.key_size, now)
            self.stores.configs.put_session_key(key)

    def _write_file(self, config: ClusterConfig) -> None:
        """Dedicated mode: have the connectors as the file has them, before one is started as it was stored."""
        due = {} if self._file is None else self._file.to_write(config.connectors)
        for name, props in due.items():
            log.info("Writing the config of connector %s (enabled=%s).", name, props["enabled"])
            self.stores.configs.put_connector(name, props, None)
        if due:
            self.stores.configs.refresh(self.config.worker_sync_timeout_ms / 1000)

    def _obey_news(self) -> None:
        for namespace, level in self._news.take_levels().items():
            problem = LOGGERS.problem(namespace)
            if problem is not None:
                log.warning("The config topic has a level for a logger. %s", problem)
            elif LOGGERS.is_level(level):
                LOGGERS.set(namespace, level)
            else:  # somebody else has written it: REST takes no such level
                log.warning(
                    "Logger %s: the config topic has the level %s, which is none.", namespace, level
                )
        requests = self._news.take_restarts()
        if requests:
            config = self.stores.configs.snapshot()
            # All tasks at once: each may be slow to end.
            tasks = [task for request in requests for task in self._obey_restart(request, config)]
            self.workload.restart_tasks(tasks, config, say=True)

    def _obey_restart(self, request: RestartRequest, config: ClusterConfig) -> list[TaskId]:
        """Do our part of a restart that somebody has asked for; gives the tasks that are left to be restarted."""
        try:
            plan = restart_plan(self.statuses.connector(request.connector), request)
        except NotFound as error:  # deleted since, or not started anywhere yet
            log.info("Connector %s is not restarted: %s", request.connector, error)
            return []
        tasks = [
            TaskId(plan.name, task.id) for task in plan.tasks if task.state is State.RESTARTING
        ]
        if plan.state is State.RESTARTING and plan.name in self.workload.connectors:
            self.restarts.forget(plan.name)
            self.statuses.put_connector(plan.name, State.RESTARTING)
            self.workload.restart_connector(plan.name, config)
        for task in tasks:
            self.restarts.forget(task)
        return tasks

    def _restart_due(self) -> None:
        config = self.stores.configs.snapshot()
        due = self.restarts.take_due(time.monotonic())
        for item in due:
            log.info("Starting %s again (attempt %d).", item, self.restarts.attempts(item))
            if isinstance(item, str):
                self.workload.restart_connector(item, config)
        tasks = [item for item in due if isinstance(item, TaskId)]
        if tasks:
            self.workload.restart_tasks(tasks, config, say=False)

    def _tell_settled(self) -> None:
        """Who runs well again: the attempts that it took are not shown any longer."""
        for item in self.restarts.take_settled(time.monotonic()):
            self.statuses.tell_settled(item)

    # -- what the worker tells (from any thread) ----------------------------------------------------

    def connector_said(self, name: str, state: State, error: BaseException | None) -> None:
        is_running = state is State.RUNNING
        (self._running.add if is_running else self._running.discard)(name)
        note = self._notes.get(name, "") if is_running else ""
        self.statuses.put_connector(name, state, error, self.restarts.attempts(name), note)
        if state is State.RUNNING:
            self.reconfigure(name)
        self._said(name, name, state, error)

    def connector_noted(self, name: str, text: str) -> None:
        if self._notes.get(name, "") == text:
            return
        self._notes[name] = text
        if name in self._running:
            restarts = self.restarts.attempts(name)
            self.statuses.put_connector(name, State.RUNNING, None, restarts, text)

    def task_said(
        self, task: TaskId, state: State, error: BaseException | None, attempts: int = 0
    ) -> None:
        (self._running.add if state is State.RUNNING else self._running.discard)(task)
        note = self._notes.get(task, "") if state in (State.RUNNING, State.FAILED) else ""
        restarts = attempts + self.restarts.attempts(task)
        self.statuses.put_task(task, state, error, restarts, note)
        self._said(task, task.connector, state, error)

    def task_noted(self, task: TaskId, text: str) -> None:
        if self._notes.get(task, "") == text:
            return
        self._notes[task] = text
        if task in self._running:
            restarts = self.restarts.attempts(task)
            self.statuses.put_task(task, State.RUNNING, None, restarts, text)

    def failures(self) -> list[str]:
        """What stands still here, and why."""
        return list(self._failed.values())

    def has_failed(self, item: Item) -> bool:
        """Whether the last that was said here of a connector or task is that it stands still."""
        return item in self._failed

    def _said(self, item: Item, connector: str, state: State, error: BaseException | None) -> None:
        if state is State.FAILED:
            self._failed[item] = str(error)
        else:
            self._failed.pop(item, None)
        for waiter in self._waiters.pop(item, []):
            waiter.set()
        if state is State.FAILED and not isinstance(error, NoSlot):
            is_of_spark = isinstance(error, SparkError)
            self.requests.soon(lambda: self._plan_restart(item, connector, is_of_spark=is_of_spark))

    def _plan_restart(self, item: Item, connector: str, *, is_of_spark: bool) -> None:
        props = self.stores.configs.snapshot().connectors.get(connector)
        if props is None:
            return
        try:
            policy = self.config.restart.for_connector(props)
        except SparkMirrorError:  # its own keys for this are wrong: that is what failed
            policy = self.config.restart
        if isinstance(item, TaskId) and self.worker.mends_itself(item):
            if policy.enabled:
                self.worker.renew(item)
            elif (
                not is_of_spark
            ):  # a lost executor, or a driver that was killed, is no fault of the task
                self.worker.give_up(item)
            return
        due = self.restarts.failed(item, policy, time.monotonic())
        if due is not None:
            log.info("%s will be started again in %.1f s.", item, due - time.monotonic())

    def reconfigure(self, name: str) -> None:
        self._task_configs.look(name)

    def wrote(self, task: TaskId, topic: str) -> None:
        if self.config.topic_tracking:
            now = int(time.time() * 1000)
            self.stores.statuses.put_topic(task.connector, topic, task.task, now)

    def status_read(self, item: Item) -> None:
        """Somebody has said something of a connector or task; a last word on what is gone is for the leader to take away."""
        if self.group.is_leader and not is_known(self.stores.configs.snapshot(), item):
            self.wake()

    # -- for those who wait -----------------------------------------------------------------------

    def until_said(self, item: Item) -> threading.Event:
        """Set when the worker next says something of a connector or task."""
        waiter = threading.Event()
        self._waiters.setdefault(item, []).append(waiter)
        return waiter
