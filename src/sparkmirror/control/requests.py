"""Questions to the herder: calls from any thread in, run one after the other in the herder's own."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedTooLong
from typing import Any, TypeVar

from sparkmirror.errors import ConnectError, SparkMirrorError

log = logging.getLogger(__name__)
T = TypeVar("T")
_LONG_S = 5.0
_Waiting = tuple[float, int, Callable[[], Any], "Future[Any]"]


class RequestQueue:
    """What the herder is asked, in order of the time at which it is due.

    Invariants: every request is run once, in the thread that calls `run_due`, or ended with an error by `close`; `stage` says
    what that thread is doing, for those who wait in vain.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()
        self._is_closed = False
        self.stage = "starting"

    def ask(self, action: Callable[[], T], timeout: float) -> T:
        """Have this run in the herder's thread, and wait for what it gives."""
        future = self.later(action, 0.0)
        try:
            return future.result(timeout)
        except WaitedTooLong:
            future.cancel()
            raise ConnectError(
                f"Request timed out. The worker is currently {self.stage}.",
                "Check that the worker's Kafka cluster can be reached; the worker's log says more.",
            ) from None

    def later(self, action: Callable[[], T], delay: float) -> Future[T]:
        """Have this run in the herder's thread after `delay` seconds."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                future.set_exception(ConnectError("The worker is shutting down."))
                return future
            due = time.monotonic() + delay
            heapq.heappush(self._waiting, (due, next(self._numbers), action, future))
        self._wake()
        return future

    def soon(self, action: Callable[[], None], delay: float = 0.0) -> None:
        """`later` for what nobody waits for: what goes wrong is told in the log."""
        self.later(action, delay).add_done_callback(_tell_failure)

    def next_due(self) -> float:
        """Seconds until something is due; infinite if nothing waits."""
        with self._lock:
            if not self._waiting:
                return float("inf")
            return max(0.0, self._waiting[0][0] - time.monotonic())

    def run_due(self) -> None:
        """Run all that is due by now (not what is asked meanwhile).

        When that takes long (each may wait for a slow broker), the rest is left for the next call: who calls has a group to
        take part in.
        """
        began = time.monotonic()
        while (due := self._pop(began)) is not None:
            _, _, action, future = due
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
                future.set_exception(error)
            if time.monotonic() - began > _LONG_S:
                return

    def _pop(self, now: float) -> _Waiting | None:
        with self._lock:
            is_due = bool(self._waiting) and self._waiting[0][0] <= now
            return heapq.heappop(self._waiting) if is_due else None

    def close(self) -> None:
        """Nobody will answer any more."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
        for _, _, _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(ConnectError("The worker is shutting down."))


def _tell_failure(done: Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if isinstance(error, SparkMirrorError):
        log.warning("%s", error)
    elif error is not None:
        log.error("A decision went wrong.", exc_info=error)
