"""Doing things again: work comes in, it is repeated until it succeeds, is no longer wanted, or cannot succeed.

Each try that fails is told in one line. An error that may pass is one whose `retriable` is true; any other is raised.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

from sparkmirror.errors import KafkaError
from sparkmirror.kafka.cluster import back_off

log = logging.getLogger(__name__)
_FIRST, _MOST = 0.5, 10.0
_LONGEST = 3600.0  # one wait; a longer interval takes several


def patiently(action: Callable[[], object], stopping: threading.Event, label: str) -> bool:
    """Repeat until it succeeds: True; False if told to stop before."""
    for wait in back_off(_FIRST, _MOST):
        if stopping.is_set():
            return False
        try:
            action()
            return True
        except KafkaError as error:
            if not error.retriable:
                raise
            log.warning("%s: %s Trying again in %.1f s.", label, error, wait)
        stopping.wait(wait)
    raise AssertionError  # back_off never ends


def pause(stopping: threading.Event, seconds: float) -> bool:
    """Wait; True if told to stop meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if stopping.wait(min(left, _LONGEST)):
            return True
    return stopping.is_set()


class Job:
    """Something that a loop does at intervals, and sooner after a failure that may pass.

    Invariant: `due` (monotonic) is when it is to be done next, one interval after it was begun last. The first time is after one
    interval too.
    """

    def __init__(self, label: str, interval: float, action: Callable[[], object]) -> None:
        self._label = label
        self._interval = interval
        self._action = action
        self._waits: Iterator[float] | None = None
        self.due = time.monotonic() + interval

    @property
    def left(self) -> float:
        """Seconds until it is due; 0 if it is."""
        return max(0.0, self.due - time.monotonic())

    def run(self) -> None:
        """Do it now."""
        began = time.monotonic()
        try:
            self._action()
        except KafkaError as error:
            if not error.retriable:
                raise
            self._waits = self._waits or back_off(_FIRST, _MOST)
            wait = next(self._waits)
            log.warning("%s: %s Trying again in %.1f s.", self._label, error, wait)
            self.due = time.monotonic() + wait
        else:
            self._waits = None
            self.due = began + self._interval
