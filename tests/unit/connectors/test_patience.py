"""Doing things again, in the loop of a task and in the thread of a connector."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sparkmirror.connectors import patience
from sparkmirror.connectors.background import Background
from sparkmirror.connectors.patience import Job, patiently, pause
from sparkmirror.errors import ConfigError, ConnectionFailed, KafkaError, SparkMirrorError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST", 0.001)
    monkeypatch.setattr(patience, "_MOST", 0.004)


class Failing:
    """Fails as often as it is told to, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors: Iterator[Exception] = iter(errors)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        for error in self.errors:
            raise error


def test_what_may_pass_is_tried_again_with_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    action = Failing(ConnectionFailed("Down."), ConnectionFailed("Still down.", "Start it."))
    assert patiently(action, threading.Event(), "Task t-0")
    assert action.calls == 3
    first, second = caplog.messages
    assert first.startswith("Task t-0: Down. Trying again in ")
    assert second.startswith("Task t-0: Still down. Start it. Trying again in ")


def test_what_cannot_pass_is_raised() -> None:
    for error in (KafkaError("No."), ConfigError("Wrong.")):
        with pytest.raises(type(error)):
            patiently(Failing(ConnectionFailed("Down."), error), threading.Event(), "t")


def test_a_stop_ends_it() -> None:
    stopping = threading.Event()

    def action() -> None:
        stopping.set()
        raise ConnectionFailed("Down.")

    assert not patiently(action, stopping, "t")
    assert not patiently(Failing(), stopping, "t")
    assert pause(stopping, 1e12)


def test_pause_waits_no_longer_than_asked() -> None:
    assert not pause(threading.Event(), 0.01)


def test_a_job_is_due_after_its_interval_and_sooner_after_a_failure() -> None:
    action = Failing(ConnectionFailed("Down."), ConnectionFailed("Down."))
    job = Job("t", 1000.0, action)
    assert 990 < job.left <= 1000
    for _ in range(2):
        job.run()
        assert job.left < 0.01
    job.run()
    assert 990 < job.left <= 1000
    job = Job("t", 0.0, Failing(KafkaError("No.")))
    assert job.left == 0
    with pytest.raises(KafkaError):
        job.run()


class Fails:
    """Keeps what a connector failed with."""

    def __init__(self) -> None:
        self.error: SparkMirrorError | None = None
        self.told = threading.Event()

    def __call__(self, error: SparkMirrorError) -> None:
        self.error = error
        self.told.set()


def test_start_waits_until_the_work_is_ready() -> None:
    goes_on = threading.Event()
    is_late: list[bool] = []

    def work() -> None:
        is_late.append(background.ready())
        goes_on.wait(10)

    background = Background("c", work, Fails(), 10.0)
    background.start()
    assert is_late == [False]
    goes_on.set()


def test_start_raises_what_the_work_fails_with() -> None:
    fails = Fails()
    background = Background("c", Failing(ConfigError("Wrong.")), fails, 10.0)
    with pytest.raises(ConfigError):
        background.start()
    assert not fails.told.is_set()


def test_start_does_not_wait_for_ever_and_later_errors_are_told() -> None:
    fails, goes_on = Fails(), threading.Event()
    is_late: list[bool] = []

    def work() -> None:
        goes_on.wait(10)
        is_late.append(background.ready())
        raise KafkaError("No.")

    background = Background("c", work, fails, 0.01)
    background.start()
    goes_on.set()
    assert fails.told.wait(10)
    assert is_late == [True]
    assert fails.error is not None and fails.error.message == "No."


def test_a_mistake_of_ours_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[type[BaseException]] = []
    ended = threading.Event()

    def trace(args: threading.ExceptHookArgs) -> None:
        traces.append(args.exc_type)
        ended.set()

    monkeypatch.setattr(threading, "excepthook", trace)
    with pytest.raises(SparkMirrorError, match="c crashed"):
        Background("c", Failing(ZeroDivisionError("oh")), Fails(), 10.0).start()
    assert ended.wait(10)
    assert traces == [ZeroDivisionError]


def test_nobody_is_told_after_a_stop() -> None:
    fails, goes_on, done = Fails(), threading.Event(), threading.Event()

    def work() -> None:
        goes_on.wait(10)
        try:
            raise KafkaError("No.")
        finally:
            done.set()

    background = Background("c", work, fails, 0.01)
    background.start()
    background.stop()
    goes_on.set()
    assert done.wait(10)
    assert background.stopping.is_set()
    assert not fails.told.wait(0.05)
