"""The link between a copy task and its driver: a job in, connections that are cut when its tasks should stop out.

Spark can only kill a task. A task that holds a connection to the process that submitted it sees at once when that cuts it, or is
gone: the task then finishes what is in flight, writes its positions and returns. One that cannot connect goes without.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
import threading
from typing import NamedTuple

log = logging.getLogger(__name__)
_HELLO = struct.Struct(">36sI")
"""The job's id and the number of the plan."""
# A host that is cut off says nothing, not even that a connection has ended: both ends look for each other.
_IDLE_S, _PROBE_S, _PROBES = 5, 2, 3
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
    left running because it was late. `_begun` holds the plans of each job for which a task has connected.
    """

    def __init__(self, host: str, *, is_local: bool) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._held: dict[str, list[socket.socket]] = {}
        self._begun: dict[str, set[int]] = {}
        self._listener = socket.create_server((host if is_local else _ANY_ADDRESS, 0))
        threading.Thread(target=self._accept, name="driver link", daemon=True).start()

    def expect(self, job: str) -> LinkAddress:
        """From now on tasks of this job may connect."""
        with self._lock:
            self._held[job], self._begun[job] = [], set()
        return LinkAddress(self._host, self._listener.getsockname()[1], job)

    def begun(self, job: str) -> frozenset[int]:
        """The plans of the job for which a task has begun."""
        with self._lock:
            return frozenset(self._begun.get(job, ()))

    def cut(self, job: str) -> None:
        with self._lock:
            held = self._held.pop(job, [])
            self._begun.pop(job, None)
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
            hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
            name, plan = _HELLO.unpack(hello)
            job = name.decode("ascii")
            _keep_alive(connection)
        except (OSError, UnicodeDecodeError, struct.error):
            connection.close()
            return
        with self._lock:
            held = self._held.get(job)
            if held is not None:
                held.append(connection)
                self._begun[job].add(plan)
                return
        connection.close()


class DriverLink:
    """The copy task's end.

    Invariant: once `is_cut` was true it stays so; it is never true for a task that could not connect.
    """

    def __init__(self, address: LinkAddress | None, plan: int = 0) -> None:
        self._socket: socket.socket | None = None
        self._is_cut = False
        if address is None:
            return
        try:
            self._socket = socket.create_connection((address.host, address.port), _CONNECT_S)
            _keep_alive(self._socket)
            self._socket.sendall(_HELLO.pack(address.job.encode("ascii"), plan))
        except OSError as error:
            log.info(
                "Cannot reach the driver at %s:%d (%s); this task will be stopped by force.",
                *address[:2],
                error,
            )
            self.close()

    @property
    def host(self) -> str:
        """Our address on the way to the driver; empty without a link."""
        return "" if self._socket is None else str(self._socket.getsockname()[0])

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


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _PROBE_S),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
