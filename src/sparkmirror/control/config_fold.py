"""What the config topic says: its records in, one after the other; an immutable snapshot and what changed out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from sparkmirror.formats import config_log
from sparkmirror.formats.config_log import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
)

from .states import ClusterConfig, RestartRequest, SessionKey, TargetState, TaskId

log = logging.getLogger(__name__)


class ConfigListener(Protocol):
    """Is told what changed, by the thread that reads the topic: it must neither take long nor write to the store."""

    def connector_config_updated(self, name: str) -> None: ...
    def connector_config_removed(self, name: str) -> None: ...
    def task_configs_updated(self, tasks: list[TaskId]) -> None:
        """Task configs were committed; none are named if a connector has no tasks now, or an incomplete set."""

    def target_state_changed(self, name: str) -> None: ...
    def session_key_updated(self, key: SessionKey) -> None: ...
    def restart_requested(self, request: RestartRequest) -> None: ...
    def logger_level_updated(self, namespace: str, level: str) -> None: ...


Notice = Callable[[ConfigListener], None]
Properties = Mapping[str, str]


class ConfigFold:
    """The state that the records so far add up to. For one thread at a time.

    Invariants: a task config counts only from the commit on that follows it, and only if the connector is known then and all
    of its tasks are there. So tasks of a deleted connector, which are never taken out of the log, cannot come back with a
    connector of the same name that is created later.
    """

    def __init__(self) -> None:
        self._offset = -1
        self._session_key: SessionKey | None = None
        self._connectors: dict[str, Properties] = {}
        self._target_states: dict[str, TargetState] = {}
        self._deferred: dict[str, dict[int, Properties]] = {}
        self._tasks: dict[str, tuple[Properties, ...]] = {}
        self._inconsistent: set[str] = set()
        self._task_count_records: dict[str, int] = {}
        self._pending_fencing: set[str] = set()
        self._snapshot: ClusterConfig | None = None

    def __contains__(self, connector: str) -> bool:
        return connector in self._connectors

    def snapshot(self) -> ClusterConfig:
        """The state as a value; the same one until the next record."""
        if self._snapshot is None:
            self._snapshot = self._built()
        return self._snapshot

    def _built(self) -> ClusterConfig:
        tasks = {
            TaskId(connector, number): properties
            for connector, configs in self._tasks.items()
            for number, properties in enumerate(configs)
        }
        return ClusterConfig(
            offset=self._offset,
            session_key=self._session_key,
            connectors=MappingProxyType(dict(self._connectors)),
            target_states=MappingProxyType(dict(self._target_states)),
            task_counts=MappingProxyType({name: len(c) for name, c in self._tasks.items()}),
            tasks=MappingProxyType(tasks),
            inconsistent=frozenset(self._inconsistent),
            task_count_records=MappingProxyType(dict(self._task_count_records)),
            pending_fencing=frozenset(self._pending_fencing),
        )

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> Notice | None:
        """Take a record in; gives what to tell a listener, if anything changed."""
        self._snapshot = None
        self._offset = offset + 1  # as Java's workers count: the offset of the next record
        try:
            record = config_log.decode(key, value)
        except ValueError as reason:
            shown = key and key[:80]
            log.warning("Config record %r at offset %d is skipped: %s.", shown, offset, reason)
            return None
        return self._applied(record)

    def _applied(self, record: ConfigRecord) -> Notice | None:
        match record:
            case ConnectorRecord(name, None):
                return self._removed(name)
            case ConnectorRecord(name, properties) if properties is not None:
                self._connectors[name] = MappingProxyType(dict(properties))
                return lambda listener: listener.connector_config_updated(name)
            case TargetStateRecord(name, state):
                return self._target_state(name, state)
            case TaskRecord(name, task, properties):
                self._deferred.setdefault(name, {})[task] = MappingProxyType(dict(properties))
            case CommitRecord(name, tasks):
                return self._committed(name, tasks)
            case TaskCountRecord(name, tasks):
                self._task_count_records[name] = tasks
                self._pending_fencing.discard(name)
            case _:
                return self._announced(record)
        return None

    def _announced(self, record: ConfigRecord) -> Notice | None:
        """Records that are passed on."""
        match record:
            case SessionKeyRecord(secret, algorithm, created_ms):
                key = self._session_key = SessionKey(secret, algorithm, created_ms)
                return lambda listener: listener.session_key_updated(key)
            case RestartRecord(name, include_tasks, only_failed):
                request = RestartRequest(name, only_failed, include_tasks)
                return lambda listener: listener.restart_requested(request)
            case LoggerRecord(namespace, level):
                return lambda listener: listener.logger_level_updated(namespace, level)
        return None

    def _removed(self, name: str) -> Notice | None:
        was_known = name in self._connectors
        self._connectors.pop(name, None)
        self._forget_tasks(name)
        if not was_known:
            return None
        return lambda listener: listener.connector_config_removed(name)

    def _forget_tasks(self, name: str) -> None:
        self._deferred.pop(name, None)
        self._tasks.pop(name, None)
        self._inconsistent.discard(name)

    def _target_state(self, name: str, state: str | None) -> Notice | None:
        before = self._target_states.pop(name, TargetState.STARTED)
        after = TargetState.STARTED if state is None else TargetState(state)
        if state is not None:
            self._target_states[name] = after
        # A state may be set before its connector is created, and is taken away after it was deleted.
        if after == before or name not in self._connectors:
            return None
        return lambda listener: listener.target_state_changed(name)

    def _committed(self, name: str, tasks: int) -> Notice | None:
        deferred = self._deferred.pop(name, {})
        if name not in self._connectors:
            self._forget_tasks(name)
            return None
        updated: list[TaskId] = []
        if all(number in deferred for number in range(tasks)):
            self._tasks[name] = tuple(deferred[number] for number in range(tasks))
            self._inconsistent.discard(name)
            self._pending_fencing.add(name)
            updated = [TaskId(name, number) for number in range(tasks)]
        else:
            # Compaction took a part of an old set of tasks: the connector has to make them anew.
            log.info("The task configs of connector %s are not complete.", name)
            self._tasks.pop(name, None)
            self._inconsistent.add(name)
        return partial(_tell_tasks, tasks=updated)


def _tell_tasks(listener: ConfigListener, tasks: list[TaskId]) -> None:
    listener.task_configs_updated(tasks)
