"""Levels of loggers, changed while the worker runs."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest

from sparkmirror.control.loggers import LoggerLevel, Loggers


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Every logger gets its level back."""
    root = logging.getLogger()
    known = logging.root.manager.loggerDict
    before = {
        name: logger.level for name, logger in known.items() if isinstance(logger, logging.Logger)
    }
    level = root.level
    yield
    root.setLevel(level)
    for name, logger in known.items():
        if isinstance(logger, logging.Logger):
            logger.setLevel(before.get(name, logging.NOTSET))


def _loggers() -> Loggers:
    return Loggers(itertools.count(1000).__next__)


def test_a_level_reaches_all_below() -> None:
    logging.getLogger("levels.a.b")
    logging.getLogger("levels.ab")
    loggers = _loggers()
    assert loggers.set("levels.a", "debug") == ["levels.a", "levels.a.b"]
    assert logging.getLogger("levels.a.b").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("levels.ab").isEnabledFor(logging.DEBUG)
    assert loggers.get("levels.a.b") == LoggerLevel("DEBUG", 1000)
    assert logging.getLogger("levels.a.c").isEnabledFor(logging.DEBUG)  # of later ones too


def test_setting_it_again_changes_nothing() -> None:
    loggers = _loggers()
    assert loggers.set("levels.c", "ERROR") == ["levels.c"]
    assert loggers.set("levels.c", "error") == []
    assert loggers.get("levels.c") == LoggerLevel("ERROR", 1000)
    logging.getLogger("levels.c.d").setLevel(logging.INFO)
    assert loggers.set("levels.c", "ERROR") == ["levels.c.d"]
    assert loggers.get("levels.c") == LoggerLevel("ERROR", 1000)


def test_names_of_java_are_kept() -> None:
    loggers, name = _loggers(), "org.apache.kafka.connect.runtime.WorkerSourceTask"
    assert loggers.get(name) is None
    assert loggers.set(name, "TRACE") == [name]
    assert loggers.get(name) == LoggerLevel("TRACE", 1000)
    assert name in loggers.all()


@pytest.mark.parametrize("level", ["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_levels(level: str) -> None:
    loggers = _loggers()
    assert loggers.is_level(level.lower())
    loggers.set("levels.e", "ALL")
    loggers.set("levels.e", level)
    shown = loggers.get("levels.e")
    assert shown is not None
    assert shown.level == level
    assert logging.getLogger("levels.e").isEnabledFor(logging.CRITICAL) == (level != "OFF")


def test_root() -> None:
    loggers = _loggers()
    logging.getLogger("levels.f").setLevel(logging.ERROR)
    changed = loggers.set("root", "WARN" if logging.getLogger().level != 30 else "INFO")
    assert {"root", "levels.f"} <= set(changed)
    assert changed == sorted(changed)
    everything = loggers.all()
    assert list(everything) == sorted(everything)
    assert everything["root"].last_modified == 1000
    assert not loggers.is_level("loud")


def test_libraries_that_log_what_they_send_are_not_let() -> None:
    py4j = logging.getLogger("py4j.clientserver")
    py4j.setLevel(logging.ERROR)
    loggers = _loggers()
    assert "py4j.clientserver" not in loggers.set("root", "DEBUG")
    assert loggers.set("py4j", "TRACE") == []
    assert not py4j.isEnabledFor(logging.WARNING)
    assert "py4j.clientserver" in loggers.set("root", "WARN")


def test_names_that_would_take_memory_for_good_are_refused() -> None:
    """Python keeps each prefix of a name."""
    loggers = _loggers()
    assert "at most 256 characters and 32 parts" in str(loggers.problem("a." * 15_000 + "b"))
    assert "has 257 and 1" in str(loggers.problem("a" * 257))
    assert loggers.problem("a." * 31 + "b") is None
    assert loggers.problem("root") is None


def test_so_many_loggers_are_made_by_setting_them_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparkmirror.control.loggers._MOST_MADE", 2)
    logging.getLogger("levels.there")
    loggers = _loggers()
    for name in ("levels.there", "levels.made1", "levels.made2"):
        assert loggers.problem(name) is None
        loggers.set(name, "INFO")
    assert "levels.made3 would be one more" in str(loggers.problem("levels.made3"))
    assert loggers.problem("levels.made2") is None
