"""Where a copy task listens for the tasks of queries, as its poller sees it: never waits."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from sparkmirror.errors import SparkError

from .address import Address
from .ports import listen


class TaskListener:
    """Accepts connections for the copy loop; `accepted` gets each."""

    wants_write = False

    def __init__(
        self, host: str, ports: Sequence[int], accepted: Callable[[socket.socket], None]
    ) -> None:
        """SparkError if no port is free."""
        try:
            self._socket = listen(host, ports)
        except OSError as error:
            raise SparkError(
                f"A copy task cannot listen at {host} for tasks of queries: {error}.",
                "Give mirror.task.ports at least one free port for each slot of an executor's host.",
            ) from error
        self._socket.setblocking(False)
        self._accepted = accepted
        self.is_open = True

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return Address(str(host), int(port))

    def fileno(self) -> int:
        return self._socket.fileno()

    def ready(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        self._accepted(connection)

    def flush_quietly(self) -> None:
        """Nothing is ever written to it."""

    def close(self) -> None:
        self.is_open = False
        self._socket.close()
