"""SIGTERM and Ctrl-C: signals in; a call from a thread of its own out.

A handler runs in the main thread between any two of its steps, also while that holds a lock. One that waits for the same lock, be
it only to set the event that the main thread waits for, waits for ever. So the handler writes a byte, which another thread reads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

_LOOK_S = 1.0


class Signals:
    """Heard from the first moment on: one that comes before anybody wants to know is passed on later."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):  # nobody has read thousands of them
            os.write(self._writing, b"!")

    def pass_to(self, stop: Callable[[], None]) -> None:
        """Call `stop` at every signal."""
        threading.Thread(target=self._pass_on, args=(stop,), name="signals", daemon=True).start()

    def end_with_parent(self) -> None:
        """From now on the end of our parent is a signal, too: the JVM of spark-submit does not pass on how it ends."""
        threading.Thread(target=self._watch_parent, name="parent", daemon=True).start()

    def _watch_parent(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        self._heard(signal.SIGTERM, None)

    def _pass_on(self, stop: Callable[[], None]) -> None:
        while os.read(self._reading, 1):
            stop()
