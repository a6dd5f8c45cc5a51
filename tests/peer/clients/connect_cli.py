"""The story through the command `kafka_connect` of PyPI's kafka-connect-cli."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from story import given, tell

told = given()
command = Path(sys.executable).with_name("kafka_connect")
configuration = json.dumps(told.config)


def run(kind: str, action: str, *more: str) -> Callable[[], list[object]]:
    def call() -> list[object]:
        done = subprocess.run(
            [command, kind, action, "--url", told.url, *more],
            capture_output=True,
            text=True,
            check=False,
        )
        return [done.returncode, done.stdout]

    return call


def connector(action: str, *more: str, name: str = told.name) -> Callable[[], list[object]]:
    return run("connector", action, "--name", name, *more)


tell(
    {
        "list": run("connector", "list"),
        "absent": connector("configuration", name="absent"),
        "absent status": connector("get", name="absent"),
        "create wrong": connector("create", "--configuration", json.dumps(told.wrong)),
        "create": connector("create", "--configuration", configuration),
        "create again": connector("create", "--configuration", configuration),
        "get": connector("get"),
        "config": connector("configuration"),
        "tasks": run("task", "list", "--connector", told.name),
        "restart task": run("task", "restart", "--connector", told.name, "--task", "0"),
        "pause": connector("pause"),
        "resume": connector("resume"),
        "restart": connector("restart"),
        "update": connector("update", "--configuration", json.dumps(told.update)),
        "delete": connector("delete"),
    },
    told,
)
