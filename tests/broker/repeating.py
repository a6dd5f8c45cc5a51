"""Something that is done again and again beside a test, until its block is left: what it fails with is raised there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_END_S = 60.0


class Repeating:
    """`with Repeating(action, pause): …`, in a thread of its own."""

    def __init__(self, action: Callable[[], object], pause: float) -> None:
        self._action = action
        self._pause = pause
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(_END_S)
        assert not self._thread.is_alive()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.wait(self._pause):
                self._action()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
