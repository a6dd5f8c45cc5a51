"""One story told through a client of Connect's REST: what the client can do comes in, what it saw goes out as JSON.

It runs in the client's own environment, so it needs nothing but Python. Arguments: the worker's address, the name of a
connector, its config as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_PATIENCE_S = 60.0
_POLL_S = 0.1
_BUSY = ("rebalance", "unassigned")
"""A worker that says this is about to say something else: it is asked again."""
_STALE = {"topics": ("heartbeats",)}
"""The same, of a step: topics that were just forgotten."""
_GONE = "gone"


class Given(NamedTuple):
    """What a driver is started with."""

    url: str
    name: str
    config: dict[str, str]

    @property
    def update(self) -> dict[str, str]:
        return {**self.config, "emit.heartbeats.interval.seconds": "2"}

    @property
    def wrong(self) -> dict[str, str]:
        return {**self.config, "tasks.max": "none"}


Client = Mapping[str, Callable[[], Any]]
"""What a client can do, by the names of the steps below; what it cannot is left out."""

_STEPS = (
    ("root", ""),
    ("list", ""),
    ("plugins", ""),
    ("validate", ""),
    ("validate wrong", ""),
    ("absent", ""),
    ("absent status", ""),
    ("create wrong", ""),
    ("create", "RUNNING"),
    ("list", ""),
    ("expand", ""),
    ("get", ""),
    ("config", ""),
    ("status", ""),
    ("tasks", ""),
    ("task status", ""),
    ("restart task", "RUNNING"),
    ("create again", ""),
    ("pause", "PAUSED"),
    ("status", ""),
    ("resume", "RUNNING"),
    ("restart", "RUNNING"),
    ("restart all", "RUNNING"),
    ("update", "RUNNING"),
    ("config", ""),
    ("stop", "STOPPED"),
    ("status", ""),
    ("reset topics", ""),
    ("topics", ""),
    ("logger", ""),
    ("delete", _GONE),
    ("get", ""),
    ("list", ""),
)
"""Each step, and the state the connector must have reached before the next."""


def given() -> Given:
    url, name, config = sys.argv[1:4]
    return Given(url, name, json.loads(config))


def tell(client: Client, told: Given) -> None:
    """Do every step that the client can do, and print what came of it."""
    seen = []
    for step, state in _STEPS:
        if step in client:
            seen.append([step, _outcome(client[step], (*_BUSY, *_STALE.get(step, ())))])
        if state and (step in client):
            _await(told, state)
    json.dump(seen, sys.stdout)


def _outcome(action: Callable[[], Any], busy: Sequence[str]) -> Any:
    """What a step gives, or the error it ends with. A worker that is busy with a rebalance is asked again."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            found = json.loads(json.dumps(action(), default=str))
        except Exception as error:  # noqa: BLE001 - the client's own errors are what is compared
            found = {"error": f"{type(error).__name__}: {error}", "answer": _said(error)}
        said = json.dumps(found).lower()
        if not any(word in said for word in busy) or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_S)


def _said(error: Exception) -> str:
    """What the worker answered, where the client's error has it."""
    return str(getattr(getattr(error, "response", None), "text", ""))


def _await(told: Given, state: str) -> None:
    """Without the client: until the connector and its task, if it has one, are in this state."""
    deadline = time.monotonic() + _PATIENCE_S
    tasks = 0 if state in ("STOPPED", _GONE) else 1
    while time.monotonic() < deadline:
        if _states(told) == [state] * (1 + tasks):
            return
        time.sleep(_POLL_S)
    raise TimeoutError(f"{told.name} is not {state}")


def _states(told: Given) -> list[str]:
    try:
        with urllib.request.urlopen(f"{told.url}/connectors/{told.name}/status") as answer:  # noqa: S310 - a local worker
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        return [_GONE if error.code == 404 else ""]
    return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]
