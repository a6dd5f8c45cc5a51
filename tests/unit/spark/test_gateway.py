"""A JVM that hangs: nobody waits for it for ever, its session ends without it. A program that does nothing stands for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from sparkmirror.errors import SparkError
from sparkmirror.processes import spawn
from sparkmirror.spark.gateway import Gateway, Pulse, killed_after
from sparkmirror.spark.jvm import LaunchedJvm
from sparkmirror.spark.session import SparkSession

PATIENCE_S = 10.0
Process = subprocess.Popen[bytes]


@pytest.fixture
def jvm() -> Iterator[Process]:
    process = spawn([sys.executable, "-c", "input()"], talks=True)
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.kill()
    process.wait()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_does_not_answer_is_killed(jvm: Process) -> None:
    def ask() -> bool:
        jvm.wait(PATIENCE_S)
        return False

    Pulse(ask, jvm, every=0.01, patience=0.2)
    wait_for(lambda: jvm.poll() is not None)


def test_one_that_answers_is_left_alone(jvm: Process) -> None:
    answers: list[int] = []

    def ask() -> bool:
        answers.append(1)
        return True

    pulse = Pulse(ask, jvm, every=0.01, patience=0.2)
    wait_for(lambda: len(answers) > 30)
    pulse.close()
    assert jvm.poll() is None


def test_a_session_that_is_gone_is_not_asked_again(jvm: Process) -> None:
    answers: list[int] = []

    def ask() -> bool:
        answers.append(1)
        return False

    pulse = Pulse(ask, jvm, every=0.01, patience=0.2)
    wait_for(lambda: not pulse.is_running)
    assert answers == [1]


def test_what_ends_in_time_kills_nobody(jvm: Process) -> None:
    with killed_after(0.2, jvm, "is late"):
        pass
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for timer in timers:
        timer.join(PATIENCE_S)
    assert jvm.poll() is None
    with killed_after(0.01, jvm, "is late"):
        wait_for(lambda: jvm.poll() is not None)


class HungContext:
    """A Spark context whose JVM does not answer as long as it lives."""

    def __init__(self, jvm: Process) -> None:
        self._process = jvm
        self.asked = threading.Event()

    @property
    def _jsc(self) -> Any:
        self.asked.set()
        self._process.wait(PATIENCE_S)
        raise Py4JNetworkError("Answer from Java side is empty")

    def stop(self) -> None:
        assert self._jsc


class HungGateway:
    def __init__(self, jvm: Process) -> None:
        self.process = jvm

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def hung_session(jvm: Process) -> tuple[SparkSession, HungContext]:
    session, context = SparkSession({}), HungContext(jvm)
    session._context = cast(Any, context)
    cast(LaunchedJvm, session._jvm)._gateway = cast(Gateway, HungGateway(jvm))
    return session, context


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkmirror.spark.jvm._END_S", 0.3)
    monkeypatch.setattr("sparkmirror.spark.session._START_LEFT_S", 0.3)


@pytest.mark.usefixtures("in_a_hurry")
def test_a_session_that_hangs_is_stopped_by_killing_it(jvm: Process) -> None:
    session, _ = hung_session(jvm)
    began = time.monotonic()
    session.stop()
    assert time.monotonic() - began < 2.0
    assert jvm.poll() is not None


@pytest.mark.usefixtures("in_a_hurry")
def test_a_stop_reaches_whoever_waits_for_a_session_that_hangs(jvm: Process) -> None:
    """It is not started again behind the back of the stop."""
    session, context = hung_session(jvm)
    errors: list[SparkError] = []

    def start() -> None:
        with pytest.raises(SparkError) as caught:
            session.start()
        errors.append(caught.value)

    starting = threading.Thread(target=start)
    starting.start()
    assert context.asked.wait(PATIENCE_S)
    began = time.monotonic()
    session.stop()
    assert time.monotonic() - began < 2.0
    starting.join(PATIENCE_S)
    assert len(errors) == 1
    assert not session.is_alive
    assert jvm.poll() is not None


def test_options_of_the_user_are_on_no_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text(f"#!{sys.executable}\ninput()\n")
    fake.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gateway = Gateway("64m", ["-Da=hush", '-Db=two words and a "quote" \\'])
    try:
        arguments = cast("list[str]", gateway.process.args)
        (passed,) = [each for each in arguments if each.startswith("@")]
        file = Path(passed.removeprefix("@"))
        assert "hush" not in " ".join(arguments)
        assert file.read_text() == '"-Da=hush"\n"-Db=two words and a \\"quote\\" \\\\"'
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    finally:
        gateway.close()
    assert not file.parent.exists()
