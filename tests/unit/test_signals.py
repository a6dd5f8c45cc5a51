"""Signals: each is passed on, whatever the main thread is doing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sparkmirror.signals import Signals

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield Signals()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_comes_while_the_main_thread_holds_a_lock(
    signals: Signals, number: int
) -> None:
    ending: Any = threading.Event()
    signals.pass_to(ending.set)
    with ending._cond:  # as it is for a moment whenever somebody waits
        os.kill(os.getpid(), number)
    assert ending.wait(10)


def test_a_signal_that_comes_before_anybody_wants_to_know(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    ending = threading.Event()
    signals.pass_to(ending.set)
    assert ending.wait(10)


def test_every_signal_is_passed_on(signals: Signals) -> None:
    heard = threading.Semaphore(0)
    signals.pass_to(heard.release)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard.acquire(timeout=10)
