"""Options that a Java program would be started with: the environment comes in, the value of one option goes out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

VARIABLES = ("KAFKA_OPTS", "JAVA_TOOL_OPTIONS")


def system_property(environment: Mapping[str, str], name: str) -> str | None:
    """The value of `-DNAME=…`, the last one if it is there twice, as Java takes it; None if it is nowhere."""
    option = f"-D{name}="
    for variable in VARIABLES:
        for given in reversed(_split(environment.get(variable, ""))):
            if given.startswith(option):
                return given.removeprefix(option)
    return None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
