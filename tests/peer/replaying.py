"""Requests sent to a worker one after the other: steps come in, what was answered goes out, without what is bound to differ."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from java_connect import Answer, ConnectWorker
from rest_requests import Ask, Await, filled
from validation_answers import same_definition, same_entry

from sparkmirror.config.plugins import STRUCTURED_TRANSFORMATIONS

_PATIENCE_S = 60.0
_IN_A_ROW = 5
_POLL_S = 0.1
_HEADERS = (
    "content-type",
    "location",
    "allow",
    "www-authenticate",
    "vary",
    "cache-control",
    "x-frame-options",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-allow-credentials",
    "access-control-max-age",
)
# A worker that has just changed a connector may be too busy to answer: whoever asks has to ask again.
_MOMENTARY = re.compile(r"rebalance|stale configuration|no known leader", re.IGNORECASE)


class Seen(NamedTuple):
    """An answer in normal form."""

    status: int
    headers: Mapping[str, str]
    body: Any


def replay(
    worker: ConnectWorker, steps: Iterable[Ask | Await], run: str, kafka: str
) -> dict[str, Seen]:
    """The answers by the names of the requests; `run` and `kafka` fill the place-holders."""
    seen = {}
    for step in steps:
        if isinstance(step, Await):
            _await(worker, step)
        else:
            seen[step.name] = normal(step, _ask(worker, step, run, kafka), worker, run)
    return seen


def _await(worker: ConnectWorker, step: Await) -> None:
    """Seen several times in a row: what was just asked for may not have begun yet, and the state be that of before."""
    for _ in range(_IN_A_ROW):
        worker.await_state(step.connector, step.state, step.tasks)
        time.sleep(_POLL_S)


def _ask(worker: ConnectWorker, ask: Ask, run: str, kafka: str) -> Answer:
    body = ask.body if isinstance(ask.body, bytes | None) else filled(ask.body, run, kafka)
    wanted, unwanted = filled(ask.until, run, kafka), filled(ask.until_not, run, kafka)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        answer = worker.request(ask.method, ask.path, body, headers=ask.headers)
        text = json.dumps(answer.body, ensure_ascii=False)
        is_missing = any(part not in text for part in wanted.split("&&"))
        is_awaited = is_missing or (unwanted and unwanted in text)
        is_momentary = answer.status in (409, 500) and _MOMENTARY.search(text)
        # What cannot be asked about (400) will not come about either.
        is_over = ask.is_final or answer.status == 400
        if is_over or not (is_awaited or is_momentary) or time.monotonic() > deadline:
            return answer
        time.sleep(_POLL_S)


def normal(ask: Ask, answer: Answer, worker: ConnectWorker, run: str) -> Seen:
    """An answer without the worker's own names, texts for people, and orders that mean nothing."""
    headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
    if "vary" in headers:
        headers["vary"] = headers["vary"].lower()
    if "access-control-allow-methods" in headers:
        methods = headers["access-control-allow-methods"].split(",")
        headers["access-control-allow-methods"] = ",".join(sorted(methods))
    shown = json.dumps([headers, answer.body])
    shown = shown.replace(worker.worker_id, "@WORKER@").replace(f"-{run}", "-@RUN@")
    headers, body = json.loads(shown)
    path = ask.path.partition("?")[0].rstrip("/")
    return Seen(answer.status, headers, _body(path, body) if answer.status < 400 else body)


def _body(path: str, body: Any) -> Any:
    if path.startswith("/connector-plugins"):
        return _plugins(path, body)
    if path == "/connectors" and isinstance(body, list):
        return sorted(body)
    if path.startswith("/admin/loggers") and isinstance(body, dict):
        return _levels(body)
    return _ordered(body)


def _plugins(path: str, body: Any) -> Any:
    if path.endswith("/validate") and isinstance(body, dict):
        return {**body, "configs": [same_entry(entry) for entry in body["configs"]]}
    if path.endswith("/config") and isinstance(body, list):
        return [same_definition(key) for key in body]
    if isinstance(body, list):
        return [each for each in body if each["class"] not in STRUCTURED_TRANSFORMATIONS]
    return body


def _levels(body: dict[str, Any]) -> Any:
    """When a level was changed is a matter of the clock; whether it was is not."""
    if "last_modified" in body:
        return {**body, "last_modified": body["last_modified"] is not None}
    return {name: _levels(level) for name, level in body.items()}


def _ordered(body: Any) -> Any:
    """Topics and offsets have no order; a trace is in words of its language."""
    if isinstance(body, dict):
        shown = {name: _ordered(value) for name, value in body.items()}
        if isinstance(shown.get("trace"), str):
            shown["trace"] = "..."
        for name in ("topics", "offsets", "tasks"):
            if isinstance(shown.get(name), list):
                shown[name] = sorted(shown[name], key=json.dumps)
        return shown
    if isinstance(body, list):
        return [_ordered(each) for each in body]
    return body
