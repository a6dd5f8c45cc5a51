"""What runs on a worker besides source tasks: a connector or a task in, a thread of its own; its states out."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable

from sparkmirror.connectors.connector import Connector, ThreadTask
from sparkmirror.errors import SparkMirrorError
from sparkmirror.veil import VEIL

from .states import State

log = logging.getLogger(__name__)
Said = Callable[[State, BaseException | None], None]


def trace_of(error: BaseException) -> str:
    """An error as it is shown in a status: what happened and what to do first, then where."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    frames = "".join(traceback.format_tb(error.__traceback__))
    return VEIL.hide(f"{kind}: {error}\n{frames}".rstrip())


class ConnectorRun:
    """One connector.

    Invariants: `say` is called with RUNNING or FAILED once for each start, and with FAILED again if the connector gives up later;
    never after `stop`. The connector is asked for task configs only while it is RUNNING.
    """

    def __init__(self, name: str, make: Callable[[ConnectorRun], Connector], say: Said) -> None:
        self._name = name
        self._make = make
        self._say = say
        self._connector: Connector | None = None
        self._is_running = False
        self._is_stopped = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._start, name=f"connector {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _start(self) -> None:
        try:
            connector = self._make(self)
            with self._lock:
                self._connector = connector
                if self._is_stopped:
                    return
            connector.start()
        except SparkMirrorError as error:
            self.fail(error)
        except BaseException as error:  # a mistake of ours: shown as one
            self.fail(error)
            raise
        else:
            self._tell(State.RUNNING, None)

    def fail(self, error: BaseException) -> None:
        log.error("Connector %s failed: %s", self._name, error)
        self._tell(State.FAILED, error)

    def _tell(self, state: State, error: BaseException | None) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._is_running = state is State.RUNNING
            self._say(
                state, error
            )  # in the lock: whoever has stopped us may say something else right after

    def while_wanted(self, say: Callable[[], None]) -> None:
        """Say something of the connector, unless it was stopped."""
        with self._lock:
            if not self._is_stopped:
                say()

    @property
    def running(self) -> Connector | None:
        """The connector, while it can be asked for task configs."""
        with self._lock:
            return self._connector if self._is_running and not self._is_stopped else None

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            connector = self._connector
        if connector is not None:
            try:
                connector.stop()
            except SparkMirrorError as error:
                log.warning("Connector %s did not stop in order: %s", self._name, error)

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


class ThreadRun:
    """One task that is a thread.

    Invariant: `say` is called with RUNNING once and, if the task gives up, with FAILED after that; never after `stop`.
    """

    def __init__(self, name: str, make: Callable[[], ThreadTask], say: Said) -> None:
        self._name = name
        self._make = make
        self._say = say
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"task {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            task = self._make()
            self._tell(State.RUNNING, None)
            task.run(self._stopping)
        except SparkMirrorError as error:
            log.error("Task %s failed: %s", self._name, error)
            self._tell(State.FAILED, error)
        except BaseException as error:  # a mistake of ours: shown as one
            self._tell(State.FAILED, error)
            raise

    def _tell(self, state: State, error: BaseException | None) -> None:
        with self._lock:
            if not self._stopping.is_set():
                self._say(state, error)

    def stop(self) -> None:
        with self._lock:
            self._stopping.set()

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()
