"""Connect's status topic: typed records in, keys and values out, and back.

    status-connector-<name>                   what a worker last said of a connector
    status-task-<name>-<i>                    and of a task
    status-topic-<topic>:connector-<name>     a connector has written to this topic

A tombstone takes each of them away. Field order and blanks are those of Java's workers, which read the same topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from . import java_json
from .java_json import fields_of, integer, string

STATES: Final = (
    "UNASSIGNED",
    "RUNNING",
    "PAUSED",
    "FAILED",
    "RESTARTING",
    "STOPPED",
    "DESTROYED",
)
_CONNECTOR = "status-connector-"
_TASK = "status-task-"
_TOPIC = "status-topic-"
_OF_CONNECTOR = ":connector-"


@dataclass(frozen=True, slots=True)
class StatusFields:
    state: str
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None
    restarts: int = 0
    """How often it was started again by itself, in a row. Ours: left out where it is 0; Java's workers do not look at it."""
    note: str = ""
    """What people should know of it. Ours, too."""


@dataclass(frozen=True, slots=True)
class ConnectorStatusRecord:
    connector: str
    status: StatusFields | None


@dataclass(frozen=True, slots=True)
class TaskStatusRecord:
    connector: str
    task: int
    status: StatusFields | None


@dataclass(frozen=True, slots=True)
class TopicUse:
    """Which task wrote to a topic first, and when."""

    task: int
    discovered_ms: int


@dataclass(frozen=True, slots=True)
class TopicStatusRecord:
    connector: str
    topic: str
    use: TopicUse | None


StatusRecord = ConnectorStatusRecord | TaskStatusRecord | TopicStatusRecord


def encode(record: StatusRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record; the value of a tombstone is None."""
    key, fields = _written(record)
    value = None if fields is None else java_json.encode(fields)
    return key.encode(errors="replace"), value


def _written(record: StatusRecord) -> tuple[str, dict[str, Any] | None]:
    match record:
        case ConnectorStatusRecord(connector, status):
            return f"{_CONNECTOR}{connector}", _status_fields(status)
        case TaskStatusRecord(connector, task, status):
            return f"{_TASK}{connector}-{task}", _status_fields(status)
        case TopicStatusRecord(connector, topic, use):
            key = f"{_TOPIC}{topic}{_OF_CONNECTOR}{connector}"
            return key, None if use is None else {"topic": _topic_fields(connector, topic, use)}


def _status_fields(status: StatusFields | None) -> dict[str, Any] | None:
    if status is None:
        return None
    fields: dict[str, Any] = {
        "state": status.state,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }
    if status.restarts:
        fields["restarts"] = status.restarts
    if status.note:
        fields["note"] = status.note
    return fields


def _topic_fields(connector: str, topic: str, use: TopicUse) -> dict[str, Any]:
    return {
        "name": topic,
        "connector": connector,
        "task": use.task,
        "discoverTimestamp": use.discovered_ms,
    }


def decode(key: bytes | None, value: bytes | None) -> StatusRecord:
    """The record of a key and a value; ValueError, in words for a log line, if they are none."""
    name = "" if key is None else key.decode(errors="replace")
    for prefix, read in _READERS:
        if name.startswith(prefix):
            return read(name.removeprefix(prefix), value)
    raise ValueError("its key is of no known kind")


def _connector(name: str, value: bytes | None) -> StatusRecord:
    return ConnectorStatusRecord(name, _status(value))


def _task(name: str, value: bytes | None) -> StatusRecord:
    connector, dash, number = name.rpartition("-")
    if not dash or not (number.isascii() and number.isdigit()):
        raise ValueError("its key does not end in the number of a task")
    return TaskStatusRecord(connector, int(number), _status(value))


def _topic(name: str, value: bytes | None) -> StatusRecord:
    # The name of a topic has no colon; that of a connector may have several.
    topic, found, connector = name.partition(_OF_CONNECTOR)
    if not (topic and found and connector):
        raise ValueError("its key does not name a topic and a connector")
    if value is None:
        return TopicStatusRecord(connector, topic, None)
    fields = fields_of(value).get("topic")
    if not isinstance(fields, dict):
        raise ValueError("its field 'topic' is not an object")
    use = TopicUse(integer(fields, "task"), integer(fields, "discoverTimestamp"))
    return TopicStatusRecord(connector, topic, use)


_READERS: Final[tuple[tuple[str, Callable[[str, bytes | None], StatusRecord]], ...]] = (
    (_CONNECTOR, _connector),
    (_TASK, _task),
    (_TOPIC, _topic),
)


def _status(value: bytes | None) -> StatusFields | None:
    if value is None:
        return None
    fields = fields_of(value)
    state = fields.get("state")
    if state not in STATES:
        raise ValueError(f"{state!r} is no state")
    return StatusFields(
        state,
        string(fields, "worker_id"),
        integer(fields, "generation"),
        _text_or_none(fields, "trace"),
        _text_or_none(fields, "version"),
        integer(fields, "restarts") if "restarts" in fields else 0,
        _text_or_none(fields, "note") or "",
    )


def _text_or_none(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None
