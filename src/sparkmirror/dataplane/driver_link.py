"""The link between a copy task and its driver: a job in, connections that are cut when its tasks should stop out.

Spark can only kill a task. A task that holds a connection to the process that submitted it sees at once when that cuts it, or is
gone: the task then finishes what is in flight, writes its positions and returns. One that cannot connect goes without.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from typing import NamedTuple

log = logging.getLogger(__name__)
_NAME_BYTES = 36
_CONNECT_S = 5.0
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - executors are on other machines then


class LinkAddress(NamedTuple):
    """What a task needs to connect; travels in the plan. `job` is 36 characters that nobody can guess."""

    host: str
    port: int
    job: str


class DriverLinks:
    """The driver's ends of the links to all copy tasks.

    Invariants: connections are kept by job until that is cut; one that comes after that is closed at once, so that no task is
    left running because it was late.
    """

    def __init__(self, host: str, *, is_local: bool) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._held: dict[str, list[socket.socket]] = {}
        self._listener = socket.create_server((host if is_local else _ANY_ADDRESS, 0))
        threading.Thread(target=self._accept, name="driver link", daemon=True).start()

    def expect(self, job: str) -> LinkAddress:
        """From now on tasks of this job may connect."""
        with self._lock:
            self._held[job] = []
        return LinkAddress(self._host, self._listener.getsockname()[1], job)

    def cut(self, job: str) -> None:
        with self._lock:
            held = self._held.pop(job, [])
        for connection in held:
            connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            jobs = list(self._held)
        for job in jobs:
            self.cut(job)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        """Keep a connection that names one of our jobs, close any other."""
        try:
            connection.settimeout(_CONNECT_S)
            name = connection.recv(_NAME_BYTES, socket.MSG_WAITALL).decode("ascii")
        except (OSError, UnicodeDecodeError):
            name = ""
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                held.append(connection)
                return
        connection.close()


class DriverLink:
    """The copy task's end.

    Invariant: once `is_cut` was true it stays so; it is never true for a task that could not connect.
    """

    def __init__(self, address: LinkAddress | None) -> None:
        self._socket: socket.socket | None = None
        self._is_cut = False
        if address is None:
            return
        try:
            self._socket = socket.create_connection((address.host, address.port), _CONNECT_S)
            self._socket.sendall(address.job.encode("ascii"))
        except OSError as error:
            log.info(
                "Cannot reach the driver at %s:%d (%s); this task will be stopped by force.",
                *address[:2],
                error,
            )
            self.close()

    @property
    def is_cut(self) -> bool:
        """Nothing is ever sent this way, so whatever can be read is the end."""
        if self._socket is not None and not self._is_cut:
            readable, _, _ = select.select([self._socket], [], [], 0)
            self._is_cut = bool(readable)
        return self._is_cut

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
