"""What people and other workers may ask of a worker: calls in, decisions of the herder and answers out.

Reads are answered at once from what this worker knows. Changes are decided in the herder's thread, by the leader of the group:
on another worker they end in `NotHere`, which says who has to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sparkmirror.config.connect_validation import require_valid
from sparkmirror.config.connector_rules import QueryCheck
from sparkmirror.errors import (
    BadRequest,
    Conflict,
    ConnectError,
    Forbidden,
    NotFound,
    NotHere,
    SparkMirrorError,
    Unavailable,
)

from .herder import ConnectHerder
from .herding import Created, Signature, SourceOffset, SourcePartition
from .kinds import kind_of
from .offset_rules import ConnectorKind
from .restarts import Item
from .signing import verify
from .states import (
    COMMIT,
    VERSION,
    ClusterConfig,
    ConnectorInfo,
    ConnectorState,
    Health,
    RestartRequest,
    ServerInfo,
    TargetState,
    TaskId,
    TaskInfo,
    TaskState,
)
from .statuses import restart_plan

T = TypeVar("T")


class Operations:
    """One worker's answers. May be called from any thread; `timeout` and `health_timeout` in seconds.

    Configs are validated in the thread that calls: to look at a query may take as long as Spark takes to start, and the herder
    does not wait for it. `may_be_unsigned`: in a group whose protocol has no keys to sign with, workers are believed as they are.
    """

    def __init__(
        self,
        herder: ConnectHerder,
        timeout: float = 90.0,
        health_timeout: float = 10.0,
        queries: QueryCheck | None = None,
        *,
        may_be_unsigned: bool = True,
    ) -> None:
        self._herder = herder
        self._queries = queries
        self._may_be_unsigned = may_be_unsigned
        self._timeout = timeout
        self._health_timeout = health_timeout

    def _ask(self, action: Callable[[], T]) -> T:
        return self._herder.requests.ask(action, self._timeout)

    def _snapshot(self) -> ClusterConfig:
        return self._herder.stores.configs.snapshot()

    def _require_known(
        self, name: str, message: str = "Connector {} not found"
    ) -> Mapping[str, str]:
        props = self._snapshot().connectors.get(name)
        if props is None:
            raise NotFound(message.format(name))
        return props

    def _require_leader(self, what: str) -> None:
        group = self._herder.group
        if not group.is_leader:
            raise NotHere(f"Only the leader can {what}.", url=group.leader_url)

    # -- reads --------------------------------------------------------------------------------------

    def server_info(self) -> ServerInfo:
        cluster_id = self._herder.cluster_id
        if cluster_id is None:
            raise Unavailable("The worker has not reached its Kafka cluster yet.")
        return ServerInfo(VERSION, COMMIT, cluster_id)

    def health(self) -> Health:
        if not self._herder.is_ready:
            return Health("starting", f"Worker is still {self._herder.requests.stage}.")
        try:
            self._herder.requests.ask(lambda: None, self._health_timeout)
        except SparkMirrorError as error:
            return Health("unhealthy", error.message)
        return Health("healthy", "Worker has completed startup and is ready to handle requests.")

    def connectors(self) -> list[str]:
        return list(self._snapshot().connectors)

    def connector_status(self, name: str) -> ConnectorState:
        return self._herder.statuses.connector(name)

    def task_status(self, task: TaskId) -> TaskState:
        return self._herder.statuses.task(task)

    def connector_info(self, name: str) -> ConnectorInfo:
        return self._info(name, self._require_known(name))

    def _info(self, name: str, props: Mapping[str, str]) -> ConnectorInfo:
        return ConnectorInfo(name, props, self._snapshot().tasks_of(name))

    def connector_config(self, name: str) -> Mapping[str, str]:
        return self._require_known(name)

    def task_configs(self, name: str) -> list[TaskInfo]:
        self._require_known(name)
        config = self._snapshot()
        return [TaskInfo(task, config.tasks[task]) for task in config.tasks_of(name)]

    # -- configs ------------------------------------------------------------------------------------

    def put_connector(
        self,
        name: str,
        config: Mapping[str, str | None],
        initial_state: TargetState | None,
        *,
        may_replace: bool,
    ) -> Created:
        props = self._valid(config)
        return self._ask(lambda: self._put(name, props, initial_state, may_replace=may_replace))

    def _valid(self, config: Mapping[str, str | None]) -> dict[str, str]:
        require_valid(config, self._herder.config, self._queries)
        return {key: value for key, value in config.items() if value is not None}

    def _put(
        self,
        name: str,
        props: Mapping[str, str],
        initial_state: TargetState | None,
        *,
        may_replace: bool,
    ) -> Created:
        self._require_leader("set connector configs")
        store = self._herder.stores.configs
        is_new = not store.contains(name)
        if not is_new and not may_replace:
            raise Conflict(f"Connector {name} already exists")
        store.put_connector(name, props, initial_state if is_new else None)
        return Created(is_new, self._info(name, props))

    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        def known() -> Mapping[str, str]:
            self._require_leader("set connector configs")
            return self._require_known(name)

        def put(before: Mapping[str, str], props: Mapping[str, str]) -> ConnectorInfo | None:
            if known() != before:  # somebody else was faster: what was merged is out of date
                return None
            return self._put(name, props, None, may_replace=True).info

        while True:
            before = self._ask(known)
            props = self._valid(
                {key: value for key, value in {**before, **patch}.items() if value is not None}
            )
            info = self._ask(partial(put, before, props))
            if info is not None:
                return info

    def delete_connector(self, name: str) -> None:
        def delete() -> None:
            self._require_leader("delete connectors")
            self._require_known(name)
            self._herder.stores.configs.remove_connector(name)

        self._ask(delete)

    # -- states -------------------------------------------------------------------------------------

    def pause(self, name: str) -> None:
        self._set_state(name, TargetState.PAUSED)

    def resume(self, name: str) -> None:
        self._set_state(name, TargetState.STARTED)

    def _set_state(self, name: str, state: TargetState) -> None:
        def put() -> None:
            # Here, not before: the state of one deleted meanwhile would be that of the next with its name.
            self._require_known(name, "Unknown connector {}")
            self._herder.stores.configs.put_target_state(name, state)

        self._require_known(name, "Unknown connector {}")
        self._ask(put)

    def stop_connector(self, name: str) -> None:
        def stop() -> None:
            self._require_leader("stop connectors")
            self._require_known(name, "Unknown connector {}")
            store = self._herder.stores.configs
            # In this order: whoever sees the state must not start tasks that were to go.
            store.put_task_configs(name, [])
            store.put_target_state(name, TargetState.STOPPED)

        self._ask(stop)

    # -- restarts -----------------------------------------------------------------------------------

    def restart_connector(self, name: str) -> None:
        herder = self._herder

        def restart() -> Callable[[float], bool]:
            self._require_known(name, "Unknown connector: {}")
            self._require_owner(name, name in herder.workload.connectors)
            herder.restarts.forget(name)
            waiter = herder.until_said(name)
            herder.workload.restart_connector(name, self._snapshot())
            return waiter.wait

        self._ask(restart)(self._timeout)
        if herder.has_failed(name):
            raise ConnectError(f"Failed to start connector: {name}")

    def restart_task(self, task: TaskId) -> None:
        herder = self._herder

        def restart() -> Callable[[float], bool]:
            self._require_known(task.connector, "Unknown connector: {}")
            if task not in self._snapshot().tasks:
                raise NotFound(f"Unknown task: {task}")
            self._require_owner(task, task in herder.workload.tasks)
            herder.restarts.forget(task)
            waiter = herder.until_said(task)
            herder.workload.restart_tasks([task], self._snapshot(), say=False)
            return waiter.wait

        self._ask(restart)(self._timeout)
        if herder.has_failed(task):
            raise ConnectError(f"Failed to start task: {task}")

    def _require_owner(self, item: Item, is_mine: bool) -> None:
        if is_mine:
            return
        group = self._herder.group
        url = group.owner_url(item) if group.is_leader else group.leader_url
        raise NotHere(f"{item} is not assigned to this worker.", url=url)

    def restart(self, request: RestartRequest) -> ConnectorState:
        def plan() -> ConnectorState:
            self._require_leader("process restart requests")
            self._require_known(request.connector, "Unknown connector: {}")
            found = restart_plan(self._herder.statuses.connector(request.connector), request)
            self._herder.stores.configs.put_restart_request(request)
            return found

        return self._ask(plan)

    # -- topics -------------------------------------------------------------------------------------

    def active_topics(self, name: str) -> list[str]:
        self._require_tracking()
        return sorted(self._herder.stores.statuses.topics(name))

    def reset_active_topics(self, name: str) -> None:
        self._require_tracking()
        if not self._herder.config.topic_tracking_allow_reset:
            raise Forbidden("Topic tracking reset is disabled.")
        self._herder.stores.statuses.delete_topics(name)

    def _require_tracking(self) -> None:
        if not self._herder.config.topic_tracking:
            raise Forbidden("Topic tracking is disabled.")

    # -- offsets ------------------------------------------------------------------------------------

    def offsets(self, name: str) -> list[tuple[SourcePartition, Mapping[str, Any]]]:
        self._require_known(name)
        return self._herder.stores.offsets.offsets(name)

    def alter_offsets(
        self, name: str, offsets: Sequence[tuple[SourcePartition | None, SourceOffset]]
    ) -> str:
        def alter() -> None:
            kind = self._require_stopped(name, "alter connector offsets")
            self._herder.stores.offsets.alter(name, kind, offsets)

        self._ask(alter)
        return "The offsets for this connector have been altered successfully"

    def reset_offsets(self, name: str) -> str:
        def reset() -> None:
            self._require_stopped(name, "reset connector offsets")
            self._herder.stores.offsets.reset(name)

        self._ask(reset)
        return "The offsets for this connector have been reset successfully"

    def _require_stopped(self, name: str, what: str) -> ConnectorKind:
        self._require_leader(what)
        props = self._require_known(name)
        config = self._snapshot()
        if config.target_state(name) is not TargetState.STOPPED or config.task_counts.get(name, 0):
            raise BadRequest(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
                f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )
        return kind_of(props).offsets

    # -- loggers, other workers -----------------------------------------------------------------------

    def set_cluster_logger(self, logger: str, level: str) -> None:
        self._ask(lambda: self._herder.stores.configs.put_logger_level(logger, level))

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: Signature
    ) -> None:
        def put() -> None:
            self._verify(signature)
            self._require_leader("write task configs")
            self._require_known(name)
            self._herder.stores.configs.put_task_configs(name, configs)

        self._ask(put)

    def fence_zombies(self, name: str, signature: Signature) -> None:
        """Nothing to fence: a zombie of ours offers the numbers that the target has, and is refused."""

        def fence() -> None:
            self._verify(signature)
            self._require_leader("fence source tasks")
            self._require_known(name)
            count = self._snapshot().task_counts.get(name, 0)
            self._herder.stores.configs.put_task_count_record(name, count)

        self._ask(fence)

    def require_signed(self, signature: Signature) -> None:
        self._verify(signature)

    def _verify(self, signature: Signature) -> None:
        if self._herder.group.protocol_version >= 2:
            permitted = self._herder.config.signing.verification_algorithms
            verify(signature, self._snapshot().session_key, permitted)
        elif not self._may_be_unsigned:
            raise Forbidden(
                "The workers of this group do not sign what they ask of each other, and this one asks for a login.",
                "Set connect.protocol=sessioned on every worker of the group.",
            )
