"""A herder in memory for tests of REST: it keeps what it is told and answers at once, or blocks when a test wants it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparkmirror.control.herding import Created, Signature, SourceOffset, SourcePartition
from sparkmirror.control.states import (
    ConnectorInfo,
    ConnectorState,
    Health,
    RestartRequest,
    ServerInfo,
    State,
    TargetState,
    TaskId,
    TaskInfo,
    TaskState,
)
from sparkmirror.errors import BadRequest, Conflict, Forbidden, NotFound, NotHere

WORKER_ID = "127.0.0.1:8083"
_VISIBLE = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


class MemoryHerder:
    """Connectors with one task each.

    `leader` makes every decision raise NotHere with that address; `blocked` makes every decision wait until it is set.
    `tracks_topics` False switches the topics off. `calls` names what was asked of it.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Be as new."""
        self.configs: dict[str, dict[str, str]] = {}
        self.targets: dict[str, TargetState] = {}
        self.positions: dict[str, dict[str, tuple[SourcePartition, Mapping[str, Any]]]] = {}
        self.traces: dict[str, str] = {}
        self.cluster_loggers: list[tuple[str, str]] = []
        self.signed: list[Signature] = []
        self.task_sets: dict[str, list[dict[str, str]]] = {}
        self.calls: list[str] = []
        self.current_health = Health("healthy", "Worker has completed startup and is ready.")
        self.leader: str | None = None
        self.is_leader = True
        self.tracks_topics = True
        self.unblocked = threading.Event()
        self.unblocked.set()
        self.before: Callable[[], None] | None = None

    # -- from memory ---------------------------------------------------------------------------------
    def server_info(self) -> ServerInfo:
        return ServerInfo("4.3.1", "26b251a451ce941d", "ec8-APn3QeGCppyXitUjGg")

    def connectors(self) -> list[str]:
        return list(self.configs)

    def connector_status(self, name: str) -> ConnectorState:
        if name not in self.configs:
            raise NotFound(f"No status found for connector {name}")
        target = self.targets[name]
        tasks = () if target is TargetState.STOPPED else (self._task(name, 0),)
        trace = self.traces.get(name)
        state = State.FAILED if trace else _VISIBLE[target]
        return ConnectorState(name, state, WORKER_ID, tasks, trace=trace, version="4.3.1")

    def _task(self, name: str, number: int) -> TaskState:
        return TaskState(number, _VISIBLE[self.targets[name]], WORKER_ID, version="4.3.1")

    def task_status(self, task: TaskId) -> TaskState:
        if task.connector not in self.configs or task.task != 0:
            raise NotFound(f"No status found for task {task}")
        return self._task(task.connector, task.task)

    def active_topics(self, name: str) -> list[str]:
        if not self.tracks_topics:
            raise Forbidden("Topic tracking is disabled.")
        return ["A.orders"] if name in self.configs else []

    # -- decisions -----------------------------------------------------------------------------------
    def _decide(
        self, what: str, name: str | None = None, missing: str = "Connector {} not found"
    ) -> None:
        self.calls.append(what)
        self.unblocked.wait()
        if self.before is not None:
            self.before()
        if not self.is_leader:
            raise NotHere("Only the leader decides this.", url=self.leader)
        if name is not None and name not in self.configs:
            raise NotFound(missing.format(name))

    def health(self) -> Health:
        self.unblocked.wait()
        return self.current_health

    def connector_info(self, name: str) -> ConnectorInfo:
        self._decide("connector_info", name)
        return self._info(name)

    def _info(self, name: str) -> ConnectorInfo:
        running = self.targets[name] is not TargetState.STOPPED
        return ConnectorInfo(name, self.configs[name], (TaskId(name, 0),) if running else ())

    def connector_config(self, name: str) -> Mapping[str, str]:
        self._decide("connector_config", name)
        return self.configs[name]

    def task_configs(self, name: str) -> list[TaskInfo]:
        self._decide("task_configs", name)
        return [TaskInfo(TaskId(name, 0), {**self.configs[name], "task.index": "0"})]

    def put_connector(
        self,
        name: str,
        config: Mapping[str, str | None],
        initial_state: TargetState | None,
        *,
        may_replace: bool,
    ) -> Created:
        self._decide("put_connector")
        if not name or None in config.values():
            raise BadRequest("Connector configuration is invalid and contains 1 error(s).")
        if name in self.configs and not may_replace:
            raise Conflict(f"Connector {name} already exists")
        is_new = name not in self.configs
        self.configs[name] = {key: value for key, value in config.items() if value is not None}
        self.targets[name] = initial_state or self.targets.get(name, TargetState.STARTED)
        return Created(is_new, self._info(name))

    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        self._decide("patch_connector", name)
        merged: dict[str, str | None] = {**self.configs[name], **patch}
        self.configs[name] = {key: value for key, value in merged.items() if value is not None}
        return self._info(name)

    def delete_connector(self, name: str) -> None:
        self._decide("delete_connector", name)
        del self.configs[name]

    def pause(self, name: str) -> None:
        self._target("pause", name, TargetState.PAUSED)

    def resume(self, name: str) -> None:
        self._target("resume", name, TargetState.STARTED)

    def stop_connector(self, name: str) -> None:
        self._target("stop_connector", name, TargetState.STOPPED)

    def _target(self, what: str, name: str, state: TargetState) -> None:
        self._decide(what, name, "Unknown connector {}")
        self.targets[name] = state

    def restart_connector(self, name: str) -> None:
        self._decide(f"restart_connector({name})", name, "Unknown connector: {}")

    def restart(self, request: RestartRequest) -> ConnectorState:
        self._decide(
            f"restart(only_failed={request.only_failed}, include_tasks={request.include_tasks})",
            request.connector,
            "Unknown connector: {}",
        )
        tasks = (TaskState(0, State.RESTARTING, WORKER_ID),)
        return ConnectorState(request.connector, State.RESTARTING, WORKER_ID, tasks)

    def restart_task(self, task: TaskId) -> None:
        self._decide(f"restart_task({task})", task.connector, "Unknown connector: {}")
        if task.task != 0:
            raise NotFound(f"Unknown task: {task}")

    def reset_active_topics(self, name: str) -> None:
        self._decide("reset_active_topics")

    def offsets(self, name: str) -> list[tuple[SourcePartition, Mapping[str, Any]]]:
        self._decide("offsets", name)
        return list(self.positions.get(name, {}).values())

    def alter_offsets(
        self, name: str, offsets: Sequence[tuple[SourcePartition | None, SourceOffset]]
    ) -> str:
        self._decide("alter_offsets", name)
        if self.targets[name] is not TargetState.STOPPED:
            raise BadRequest("Connectors must be in the STOPPED state before their offsets change.")
        known = self.positions.setdefault(name, {})
        for partition, offset in offsets:
            if offset is None:
                known.pop(str(partition), None)
            else:
                known[str(partition)] = (partition or {}, offset)
        return "The offsets for this connector have been altered successfully"

    def reset_offsets(self, name: str) -> str:
        self._decide("reset_offsets", name)
        self.positions.pop(name, None)
        return "The offsets for this connector have been reset successfully"

    def set_cluster_logger(self, logger: str, level: str) -> None:
        self._decide("set_cluster_logger")
        self.cluster_loggers.append((logger, level))

    # -- from other workers ----------------------------------------------------------------------------
    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: Signature
    ) -> None:
        self._signed(signature)
        self._decide("put_task_configs")
        self.task_sets[name] = [dict(config) for config in configs]

    def fence_zombies(self, name: str, signature: Signature) -> None:
        self._signed(signature)
        self._decide("fence_zombies")

    def require_signed(self, signature: Signature) -> None:
        self._signed(signature)
        self.signed.pop()

    def _signed(self, signature: Signature) -> None:
        if signature.signature is None or signature.algorithm is None:
            raise BadRequest("Internal request missing required signature")
        if signature.signature != "Z29vZA==":
            raise Forbidden("Internal request contained invalid signature.")
        self.signed.append(signature)


class MemoryPlugins:
    """One connector plugin and one converter."""

    def list_plugins(self, connectors_only: bool) -> list[dict[str, Any]]:
        plugins = [
            {
                "class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
                "type": "source",
                "version": "4.3.1",
            }
        ]
        if not connectors_only:
            plugins.append(
                {
                    "class": "org.apache.kafka.connect.converters.ByteArrayConverter",
                    "type": "converter",
                    "version": "4.3.1",
                }
            )
        return plugins

    def plugin_definitions(self, name: str, version: str | None) -> list[dict[str, Any]]:
        if name != "MirrorSourceConnector":
            raise NotFound(f"Unknown plugin {name}.")
        return [{"name": "topics", "type": "LIST", "default_value": version}]

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> dict[str, Any]:
        return {"name": plugin, "error_count": 0, "groups": [], "configs": [dict(config)]}
