"""What a Spark session is made of, before there is a JVM."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from sparkmirror.errors import SparkError
from sparkmirror.spark.session import SparkSession


class Jvm:
    """One that makes no context: what it was asked for is noted."""

    process = None
    takes_options = True

    def __init__(self, given: Mapping[str, str], *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._given = dict(given)
        self.python: str | None = None

    def given(self) -> dict[str, str]:
        return self._given

    def open(self, config: Mapping[str, str]) -> SparkContext:
        self.python = os.environ.get("PYSPARK_PYTHON")
        raise SparkError("There is no JVM.")

    def close(self, context: SparkContext | None) -> None:
        """There is none."""


def python_of(file: Mapping[str, str], jvm: Jvm) -> str | None:
    with pytest.raises(SparkError, match="There is no JVM"):
        SparkSession(file, jvm).start()
    return jvm.python


@pytest.mark.parametrize(
    ("file", "given", "exported", "expected"),
    [
        (
            "/file/python",
            "/submit/python",
            "/submit/python",
            "/file/python",
        ),  # as spark-submit does
        (None, "/submit/python", "/exported/python", "/submit/python"),
        (None, None, "/exported/python", "/exported/python"),
        (None, None, None, sys.executable),
    ],
)
def test_the_python_of_the_workers_file_wins_then_spark_submits_then_the_environments(
    monkeypatch: pytest.MonkeyPatch,
    file: str | None,
    given: str | None,
    exported: str | None,
    expected: str,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", exported or "")
    if exported is None:
        monkeypatch.delenv("PYSPARK_PYTHON")

    def settings(python: str | None) -> dict[str, str]:
        return {} if python is None else {"spark.pyspark.python": python}

    assert python_of(settings(file), Jvm(settings(given))) == expected


def test_the_environment_of_a_program_with_a_session_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/exported/python")
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert python_of({"spark.pyspark.python": "/file/python"}, Jvm({}, is_shared=True)) is None


@pytest.mark.parametrize("is_shared", [False, True])
def test_it_is_told_whether_speculation_is_ignored_or_stays_in_force(
    caplog: pytest.LogCaptureFixture, is_shared: bool
) -> None:
    SparkSession({}, Jvm({"spark.speculation": "true"}, is_shared=is_shared))
    assert ("stays in force" in caplog.text) == is_shared
    assert ("is ignored" in caplog.text) != is_shared


class SlowJvm(Jvm):
    """One that takes until `may_open` to make a context, which fails."""

    def __init__(self) -> None:
        super().__init__({})
        self.is_opening, self.may_open = threading.Event(), threading.Event()
        self.opened = 0

    def open(self, config: Mapping[str, str]) -> SparkContext:
        self.opened += 1
        self.is_opening.set()
        assert self.may_open.wait(10)
        return super().open(config)


def test_a_start_for_queries_that_is_not_wanted_any_more_starts_nothing() -> None:
    """Tasks of a query that was stored are gone when the start ahead of them is over: Spark would be started twice."""
    jvm = SlowJvm()
    session = SparkSession({}, jvm)

    def fails() -> None:
        with pytest.raises(SparkError):
            session.start()

    first = threading.Thread(target=fails)
    first.start()
    assert jvm.is_opening.wait(10)
    is_changed = threading.Event()
    second = threading.Thread(
        target=partial(session.start, queries=True, is_wanted=lambda: not is_changed.is_set())
    )
    second.start()
    is_changed.set()
    jvm.may_open.set()
    first.join(10)
    second.join(10)
    assert jvm.opened == 1


class Context:
    """One whose driver tells executors another address than that of this machine alone."""

    def __init__(self, master: str) -> None:
        self.master = master

    def getConf(self) -> Mapping[str, str]:
        return {"spark.driver.host": "192.0.2.1", "spark.driver.bindAddress": "127.0.0.2"}


def test_jobs_are_not_added_while_another_thread_looks_through_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = SparkSession({}, Jvm({}, is_shared=True))
    is_locked: list[bool] = []

    class Jobs:
        def add(self, job: object) -> None:
            is_locked.append(session._lock.locked())

    class Job:
        def __init__(self, context: object, name: str, plans: Sequence[Any], *_: object) -> None:
            self.finished = threading.Event()

    monkeypatch.setattr("sparkmirror.spark.session.CopyJob", Job)
    monkeypatch.setattr("sparkmirror.spark.session.DriverLinks", lambda _: None)
    monkeypatch.setattr(session, "_listening", lambda _: SimpleNamespace(driver=None))
    monkeypatch.setattr(session, "_context", Context("local[2]"))
    monkeypatch.setattr(session, "_jobs", Jobs())
    session.submit("mm2", [])
    assert is_locked == [True]


@pytest.mark.parametrize(
    ("master", "address", "bound"),
    [("local[2]", "127.0.0.1", "127.0.0.1"), ("spark://m:7077", "192.0.2.1", "127.0.0.2")],
)
def test_the_driver_of_a_local_session_listens_for_this_machine_alone(
    master: str, address: str, bound: str
) -> None:
    """There is no TLS between it and its tasks."""
    session = SparkSession({}, Jvm({}, is_shared=True))
    listener = session._listening(cast(SparkContext, Context(master)))
    try:
        assert listener.driver.address.host == address
        assert listener._socket.getsockname()[0] == bound
        assert bool(listener.driver.secret.key) == (bound == "127.0.0.2")
    finally:
        listener.close()


def test_it_is_told_that_sparks_ports_are_open(caplog: pytest.LogCaptureFixture) -> None:
    SparkSession({"spark.master": "spark://m:7077"}, Jvm({}, is_shared=False))
    assert "spark.authenticate" in caplog.text
    caplog.clear()
    SparkSession({}, Jvm({}, is_shared=False))
    assert "spark.authenticate" not in caplog.text
