"""The levels of loggers, changed while the worker runs: names and levels come in, the changed names go out.

Names are those of Python's loggers (`sparkmirror.*`); any other name, such as those of Java's classes, is taken and kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

ROOT = "root"
_TRACE = 5
# Python keeps a name for every prefix of a name, for as long as the process lives.
_LONGEST_NAME, _MOST_PARTS, _MOST_MADE = 256, 32, 1000
_OFF = logging.CRITICAL + 50
# Libraries that log what they send, tokens too, if they are let: they are not.
_TELLTALES = ("py4j", "botocore", "urllib3")
_LEVELS = {
    "OFF": _OFF,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": _TRACE,
    "ALL": 1,
}


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    level: str
    last_modified: int | None
    """Milliseconds since 1970; None if it was never changed here."""


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Loggers:
    """The loggers of this process.

    Invariants:
    - A change of a name reaches every known logger at or below it, and is remembered for those only whose level it changed.
    - Names that no code logs under exist from the time they are set.
    - Libraries that would log secrets keep their level when one below WARN is asked for.
    """

    def __init__(self, clock_ms: Callable[[], int] = _clock_ms) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._modified: dict[str, int] = {}
        self._made = 0
        """How many loggers are there because their level was set."""

    @staticmethod
    def is_level(level: str) -> bool:
        return level.upper() in _LEVELS

    def problem(self, name: str) -> str | None:
        """Why the level of a logger cannot be set; None if it can."""
        if len(name) > _LONGEST_NAME or name.count(".") >= _MOST_PARTS:
            return (
                f"The name of a logger has at most {_LONGEST_NAME} characters and {_MOST_PARTS} parts; {name[:40]}... has "
                f"{len(name)} and {name.count('.') + 1}."
            )
        if self._made >= _MOST_MADE and self.get(name) is None:
            return (
                f"{_MOST_MADE} loggers that nobody logs under have been given a level since this worker was started; "
                f"{name} would be one more."
            )
        return None

    def all(self) -> dict[str, LoggerLevel]:
        """Root and every known logger with the level that counts for it, sorted by name."""
        with self._lock:
            return {name: self._show(name) for name in sorted({ROOT, *_known()})}

    def get(self, name: str) -> LoggerLevel | None:
        """None for a logger that nobody logs under."""
        with self._lock:
            known = name == ROOT or name in _known()
            return self._show(name) if known else None

    def set(self, name: str, level: str) -> list[str]:
        """Set a logger and those below it; gives the names of those that had another level, sorted.

        `level` is one of Java's, in any case. The name must be one without a `problem`.
        """
        wanted = _LEVELS[level.upper()]
        with self._lock:
            names = {name} | {
                known for known in _known() if name == ROOT or known.startswith(f"{name}.")
            }
            if wanted < logging.WARNING:
                names = {each for each in names if each.partition(".")[0] not in _TELLTALES}
            self._made += name != ROOT and name not in _known()
            loggers = {each: _logger(each) for each in sorted(names)}
            # Looked at before any is set: a level is handed down at once.
            changed = [
                each for each, logger in loggers.items() if logger.getEffectiveLevel() != wanted
            ]
            for logger in loggers.values():
                logger.setLevel(wanted)
            self._modified |= dict.fromkeys(changed, self._clock_ms())
            return changed

    def _show(self, name: str) -> LoggerLevel:
        level = _logger(name).getEffectiveLevel()
        return LoggerLevel(_name_of(level), self._modified.get(name))


LOGGERS = Loggers()
"""Loggers belong to the process, so what is remembered of them does too."""


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _known() -> dict[str, logging.Logger]:
    """Every logger but the root."""
    # A copy in one step: other threads create loggers meanwhile.
    loggers = list(logging.root.manager.loggerDict.items())
    return {name: logger for name, logger in loggers if isinstance(logger, logging.Logger)}


def _name_of(level: int) -> str:
    """Python's levels may lie between Java's: the next one that lets no more through."""
    return min(
        ((value, name) for name, value in _LEVELS.items() if value >= level), default=(0, "OFF")
    )[1]
