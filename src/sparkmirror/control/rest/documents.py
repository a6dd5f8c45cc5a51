"""The JSON of Connect's REST: words of `states` go out as documents; request bodies come in as what a herder takes.

A body is read as Java's worker reads it: a number or boolean where a text belongs is taken as it was written, a field nobody
knows is an error. What cannot be read is answered with 500 (`ConnectError`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sparkmirror.config.keys import java_trim
from sparkmirror.control.herding import SourceOffset, SourcePartition
from sparkmirror.control.states import (
    ConnectorInfo,
    ConnectorState,
    TargetState,
    TaskId,
    TaskInfo,
    TaskState,
)
from sparkmirror.errors import ConnectError

Config = dict[str, str | None]

UNDEFINED_VERSION = "undefined"
"""Of a plugin that says no version; None is a version that is not known at the moment."""

_INITIAL_STATES = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


def encode(document: object) -> bytes:
    """JSON as Connect writes it: no blanks, characters as they are."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", errors="replace")


# -- answers ----------------------------------------------------------------------------------------


def error_document(status: int, message: str | None) -> dict[str, Any]:
    return {"error_code": status, "message": message}


def info_document(info: ConnectorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "config": dict(info.config),
        "tasks": [_task_id(task) for task in info.tasks],
        "type": info.type,
    }


def status_document(status: ConnectorState) -> dict[str, Any]:
    return {
        "name": status.name,
        "connector": _instance(status),
        "tasks": [task_status_document(task) for task in status.tasks],
        "type": status.type,
    }


def task_status_document(task: TaskState) -> dict[str, Any]:
    return {"id": task.id, **_instance(task)}


def tasks_document(tasks: Iterable[TaskInfo]) -> list[dict[str, Any]]:
    return [{"id": _task_id(task.id), "config": dict(task.config)} for task in tasks]


def offsets_document(
    offsets: Iterable[tuple[SourcePartition, Mapping[str, Any]]],
) -> dict[str, Any]:
    return {
        "offsets": [
            {"partition": dict(partition), "offset": dict(offset)} for partition, offset in offsets
        ]
    }


def _task_id(task: TaskId) -> dict[str, Any]:
    return {"connector": task.connector, "task": task.task}


def _instance(status: ConnectorState | TaskState) -> dict[str, Any]:
    """A trace is shown only where there is one, a version unless the plugin has none, a note (ours) where there is one."""
    document: dict[str, Any] = {"state": status.state.value, "worker_id": status.worker_id}
    if status.version != UNDEFINED_VERSION:
        document["version"] = status.version
    if status.trace:
        document["trace"] = status.trace
    if status.note:
        document["note"] = status.note
    return document


# -- requests ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateRequest:
    name: str
    config: Config
    initial_state: TargetState | None


def read_create_request(body: bytes) -> CreateRequest:
    fields = _fields(_read_text(body), ("name", "config", "initial_state"))
    config = fields.get("config")
    if config is None:
        raise ConnectError('The request has no "config".')
    name = _text(fields.get("name"), "name")
    return CreateRequest(
        name=java_trim(name or ""),
        config=_texts(config, "config"),
        initial_state=_initial_state(fields.get("initial_state")),
    )


def read_config(body: bytes) -> Config:
    document = _read_text(body)
    if document is None:
        raise ConnectError("The request has no body; a JSON object with the config belongs there.")
    return _texts(document, "config")


def read_task_configs(body: bytes) -> list[dict[str, str]]:
    configs = _read_text(body)
    if not isinstance(configs, list):
        raise ConnectError("Task configs are a JSON array of objects.")
    return [
        {key: value or "" for key, value in _texts(each, f"[{index}]").items()}
        for index, each in enumerate(configs)
    ]


def read_offsets(
    body: bytes,
) -> list[tuple[SourcePartition | None, SourceOffset]] | None:
    """None if no offsets are named at all."""
    document = _read(body)
    if document is None:
        raise ConnectError("The request has no body; a JSON object with the offsets belongs there.")
    offsets = _fields(document, ("offsets",)).get("offsets")
    if offsets is None:
        return None
    if not isinstance(offsets, list):
        _mismatch("offsets", "an array")
    found: list[tuple[SourcePartition | None, SourceOffset]] = []
    for index, each in enumerate(offsets):
        fields = _fields(each, ("partition", "offset"))
        where = f"offsets[{index}]"
        found.append(
            (
                _object_or_null(fields.get("partition"), f"{where}.partition"),
                _object_or_null(fields.get("offset"), f"{where}.offset"),
            )
        )
    return found


def read_level(body: bytes) -> str | None:
    """The level in the body of a logger request; fields besides it are of no account."""
    document = _read_text(body)
    if document is None:
        raise ConnectError("The request has no body; a JSON object with the level belongs there.")
    return _texts(document, "body").get("level")


def _initial_state(value: object) -> TargetState | None:
    text = _text(value, "initial_state")
    if text is None:
        return None
    state = _INITIAL_STATES.get(text.upper())
    if state is None:
        raise ConnectError(f"initial_state: {text} is none of {', '.join(_INITIAL_STATES)}.")
    return state


def _texts(value: object, where: str) -> Config:
    if not isinstance(value, dict):
        _mismatch(where, "an object")
    return {key: _text(each, f'{where}["{key}"]') for key, each in value.items()}


def _text(value: object, where: str) -> str | None:
    """Numbers come as text already (`_TEXT_DECODER`)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    _mismatch(where, "a text, a number, true, false or null")


def _fields(value: object, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        _mismatch("the body", "an object")
    for name in value:
        if name not in known:
            raise ConnectError(
                f'Unrecognized field "{name}": the fields known here are {", ".join(known)}.'
            )
    return value


def _object_or_null(value: object, where: str) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    _mismatch(where, "an object or null")


def _mismatch(where: str, wanted: str) -> NoReturn:
    raise ConnectError(f"Cannot read the JSON document: {where} must be {wanted}.")


def _not_json(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_not_json)
_TEXT_DECODER = json.JSONDecoder(parse_constant=_not_json, parse_int=str, parse_float=str)


def _read(body: bytes, decoder: json.JSONDecoder = _DECODER) -> Any:
    """The document in a body; None for an empty one."""
    try:
        text = body.decode(json.detect_encoding(body)).strip(" \t\r\n")
        return decoder.decode(text) if text else None
    except (ValueError, RecursionError) as error:
        raise ConnectError(f"Cannot read the JSON document: {error}") from error


def _read_text(body: bytes) -> Any:
    return _read(body, _TEXT_DECODER)
