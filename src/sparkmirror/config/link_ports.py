"""Ports between the Spark driver and its tasks: `mirror.*` keys in, port numbers out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkmirror.errors import ConfigError

_DRIVER, _TASKS = "mirror.driver.port", "mirror.task.ports"
_MOST = 65535


@dataclass(frozen=True, slots=True)
class LinkPorts:
    """Where driver and copy tasks listen; 0: at a port that the system chooses."""

    driver: int = 0
    tasks: tuple[int, ...] = (0,)

    @classmethod
    def parse(cls, mirror: Mapping[str, str]) -> LinkPorts:
        """ConfigError, naming the key, if a value is not a port or a range of ports."""
        driver = _port(_DRIVER, mirror.get(_DRIVER, "0"), least=0)
        tasks = mirror.get(_TASKS, "").strip()
        return cls(driver, _range(tasks) if tasks else (0,))


def _range(value: str) -> tuple[int, ...]:
    match = re.fullmatch(r"(\d+)\s*(?:-\s*(\d+))?", value)
    if match is None:
        raise ConfigError(
            f"{_TASKS}={value} is not a range of ports.", f"Write it as {_TASKS}=20000-20063."
        )
    first = _port(_TASKS, match[1], least=1)
    last = _port(_TASKS, match[2] or match[1], least=1)
    if last < first:
        raise ConfigError(
            f"{_TASKS}={value} ends before it begins.", f"Write it as {_TASKS}={last}-{first}."
        )
    return tuple(range(first, last + 1))


def _port(key: str, value: str, least: int) -> int:
    text = value.strip()
    if not re.fullmatch(r"\d{1,5}", text) or not least <= int(text) <= _MOST:
        raise ConfigError(
            f"{key}={text} is not a port.", f"Use a number between {least} and {_MOST}."
        )
    return int(text)
