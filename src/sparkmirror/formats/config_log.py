"""Connect's config topic: typed records in, keys and values out, and back.

    connector-<name>          the config of a connector; a tombstone deletes it
    task-<name>-<i>           the config of a task, which counts from the next commit on
    commit-<name>             all tasks of a connector are written: so many
    target-state-<name>       what the connector is wanted to be; a tombstone means STARTED
    restart-connector-<name>  a restart is asked for, once
    session-key               the secret with which workers sign what they ask of each other
    tasks-fencing-<name>      how many tasks' producers were fenced last
    logger-cluster-<name>     the level of a logger, on all workers

Field order and blanks are those of Java's workers, which read the same topic.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import java_json
from .java_json import integer, string

TARGET_STATES: Final = ("STARTED", "PAUSED", "STOPPED")
SESSION_KEY: Final = "session-key"
_CONNECTOR = "connector-"
_TASK = "task-"
_COMMIT = "commit-"
_TARGET_STATE = "target-state-"
_RESTART = "restart-connector-"
_TASK_COUNT = "tasks-fencing-"
_LOGGER = "logger-cluster-"


@dataclass(frozen=True, slots=True)
class ConnectorRecord:
    name: str
    properties: Mapping[str, str] | None
    """None deletes the connector."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    connector: str
    task: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommitRecord:
    connector: str
    tasks: int


@dataclass(frozen=True, slots=True)
class TargetStateRecord:
    connector: str
    state: str | None
    """One of `TARGET_STATES`, or None for a tombstone."""


@dataclass(frozen=True, slots=True)
class RestartRecord:
    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True)
class SessionKeyRecord:
    key: bytes
    algorithm: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class TaskCountRecord:
    connector: str
    tasks: int


@dataclass(frozen=True, slots=True)
class LoggerRecord:
    namespace: str
    level: str


ConfigRecord = (
    ConnectorRecord
    | TaskRecord
    | CommitRecord
    | TargetStateRecord
    | RestartRecord
    | SessionKeyRecord
    | TaskCountRecord
    | LoggerRecord
)


def encode(record: ConfigRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record; the value of a tombstone is None."""
    key, fields = _written(record)
    value = None if fields is None else java_json.encode(fields)
    return key.encode(errors="replace"), value


def _written(record: ConfigRecord) -> tuple[str, dict[str, Any] | None]:
    match record:
        case ConnectorRecord(name, properties):
            return (
                f"{_CONNECTOR}{name}",
                None if properties is None else {"properties": properties},
            )
        case TaskRecord(name, task, properties):
            return f"{_TASK}{name}-{task}", {"properties": properties}
        case CommitRecord(name, tasks):
            return f"{_COMMIT}{name}", {"tasks": tasks}
        case TargetStateRecord(name, state):
            return f"{_TARGET_STATE}{name}", None if state is None else _target_state_fields(state)
        case RestartRecord(name, include_tasks, only_failed):
            return (
                f"{_RESTART}{name}",
                {"include-tasks": include_tasks, "only-failed": only_failed},
            )
        case SessionKeyRecord(secret, algorithm, created_ms):
            text = base64.b64encode(secret).decode()
            return (
                SESSION_KEY,
                {"key": text, "algorithm": algorithm, "creation-timestamp": created_ms},
            )
        case TaskCountRecord(name, tasks):
            return f"{_TASK_COUNT}{name}", {"task-count": tasks}
        case LoggerRecord(namespace, level):
            return f"{_LOGGER}{namespace}", {"level": level}


def _target_state_fields(state: str) -> dict[str, Any]:
    # Workers before 3.5 know no STOPPED and read the first field only.
    return {"state": "PAUSED" if state == "STOPPED" else state, "state.v2": state}


_LONGEST_KEY = 1100
"""Of a connector's name, which has at most 1000 bytes, and what stands around it."""


def decode(key: bytes | None, value: bytes | None) -> ConfigRecord:
    """The record of a key and a value; ValueError, in words for a log line, if they are none."""
    name = "" if key is None else key.decode(errors="replace")
    if len(name) > _LONGEST_KEY:
        raise ValueError("its key is too long: workers could not tell each other of that name")
    for prefix, read in _READERS:
        if name.startswith(prefix):
            return read(name.removeprefix(prefix), value)
    raise ValueError("its key is of no known kind")


def _connector(name: str, value: bytes | None) -> ConfigRecord:
    return ConnectorRecord(name, None if value is None else _properties(_fields(value)))


def _task(name: str, value: bytes | None) -> ConfigRecord:
    connector, dash, number = name.rpartition("-")
    if not dash or not (number.isascii() and number.isdigit()):
        raise ValueError("its key does not end in the number of a task")
    return TaskRecord(connector, int(number), _properties(_fields(value)))


def _commit(name: str, value: bytes | None) -> ConfigRecord:
    return CommitRecord(name, integer(_fields(value), "tasks"))


def _target_state(name: str, value: bytes | None) -> ConfigRecord:
    if value is None:
        return TargetStateRecord(name, None)
    fields = _fields(value)
    for field in ("state.v2", "state"):
        if fields.get(field) in TARGET_STATES:
            return TargetStateRecord(name, fields[field])
    raise ValueError(f"it names no target state ({', '.join(TARGET_STATES)})")


def _restart(name: str, value: bytes | None) -> ConfigRecord:
    fields = _fields(value)
    return RestartRecord(
        name, fields.get("include-tasks") is True, fields.get("only-failed") is True
    )


def _session_key(name: str, value: bytes | None) -> ConfigRecord:
    if name:
        raise ValueError("its key is of no known kind")
    fields = _fields(value)
    try:
        secret = base64.b64decode(string(fields, "key"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"its field 'key' is not base64 ({error})") from None
    return SessionKeyRecord(
        secret, string(fields, "algorithm"), integer(fields, "creation-timestamp")
    )


def _task_count(name: str, value: bytes | None) -> ConfigRecord:
    return TaskCountRecord(name, integer(_fields(value), "task-count"))


def _logger(name: str, value: bytes | None) -> ConfigRecord:
    return LoggerRecord(name, string(_fields(value), "level"))


_READERS: Final[tuple[tuple[str, Callable[[str, bytes | None], ConfigRecord]], ...]] = (
    (_CONNECTOR, _connector),
    (_TASK, _task),
    (_COMMIT, _commit),
    (_TARGET_STATE, _target_state),
    (_RESTART, _restart),
    (SESSION_KEY, _session_key),
    (_TASK_COUNT, _task_count),
    (_LOGGER, _logger),
)


def _fields(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise ValueError("it is a tombstone, which means nothing here")
    return java_json.fields_of(value)


def _properties(fields: dict[str, Any]) -> dict[str, str]:
    properties = fields.get("properties")
    if not isinstance(properties, dict):
        raise ValueError("its field 'properties' is not an object")
    try:
        return {
            name: item if isinstance(item, str) else java_json.encode(item).decode()
            for name, item in properties.items()
            if item is not None
        }
    except RecursionError:
        raise ValueError("its field 'properties' is nested too deeply") from None
