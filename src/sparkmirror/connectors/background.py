"""What a connector does beside its tasks: work in, a thread out for which `start` waits no longer than it should."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sparkmirror.errors import SparkMirrorError

Work = Callable[[], None]
_LONGEST = 3600.0


class Background:
    """One thread of a connector.

    `start` returns when the work says that it is `ready`, or has ended, or when `patience` seconds have passed: a connector
    whose clusters are down is running, and goes on as soon as they are back.

    Invariant: an error is raised by `start` if that still waits, else it goes to `fail`; never to both.
    """

    def __init__(
        self, name: str, work: Work, fail: Callable[[SparkMirrorError], None], patience: float
    ) -> None:
        self.stopping = threading.Event()
        self._name = name
        self._work = work
        self._fail = fail
        self._patience = min(patience, _LONGEST)
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._is_awaited = True
        self._error: SparkMirrorError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._settled.wait(self._patience)
        with self._lock:
            self._is_awaited = False
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Tell it to end; what it is waiting for on the network is not waited for here."""
        self.stopping.set()
        self._settled.set()

    def ready(self) -> bool:
        """Called by the work: what `start` promises is done. True if `start` had given up waiting for it."""
        with self._lock:
            self._settled.set()
            return not self._is_awaited

    def _run(self) -> None:
        try:
            self._work()
        except SparkMirrorError as error:
            self._failed(error)
        except BaseException as error:  # a mistake of ours: shown as one, with its trace in the log
            self._failed(SparkMirrorError(f"{self._name} crashed: {error!r}"))
            raise
        finally:
            self._settled.set()

    def _failed(self, error: SparkMirrorError) -> None:
        with self._lock:
            if self._is_awaited:
                self._error = error
                return
        if not self.stopping.is_set():
            self._fail(error)
