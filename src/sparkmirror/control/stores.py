"""The three stores of a worker as one: they are started together and stopped together, none waits for another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from .config_store import ConfigStore
from .offset_store import OffsetStore
from .status_store import StatusStore


@dataclass(frozen=True, slots=True)
class Stores:
    configs: ConfigStore
    statuses: StatusStore
    offsets: OffsetStore

    def start(self) -> None:
        """Read them all, however long the cluster takes to be there; raises the first error."""
        starts = (self.configs.start, self.statuses.start, self.offsets.start)
        for started in [_in_thread(start) for start in starts]:
            started.result()

    def stop(self, timeout: float) -> None:
        """Stop them all; what takes longer is left to end by itself."""
        stops = (self.configs.stop, self.statuses.stop, self.offsets.stop)
        wait([_in_thread(stop, timeout) for stop in stops], timeout)


def _in_thread(action: Callable[..., None], *arguments: float) -> Future[None]:
    """Not in a pool: a process does not end before its pools' threads do, and these may have to wait for a broker."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            action(*arguments)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="stores", daemon=True).start()
    return done
