"""Driver links: connections that are cut when the tasks of a job should stop.

Spark can only kill a task. A copy task holds a connection to the driver that submitted it, and sees at once when the driver cuts
it, or is gone: the task then finishes what is in flight, writes its positions and returns.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import uuid

from .address import Driver, Purpose
from .connecting import connect, receive_exactly, unreachable
from .driver_listener import DriverListener

_TASK = struct.Struct(">16sI")
"""The job's id and the number of the plan, after the greeting."""
_ACCEPTED, _CUT = b"+", b"-"
"""The driver's answer: the task runs, or its job has ended already."""
_ANSWER_S = 60.0


class DriverLinks:
    """The driver's ends of the links to all copy tasks.

    Invariants: connections are kept by job until that is cut; one that comes after that is closed at once, so that no task is
    left running because it was late. `_begun` holds the plans of each job for which a task has connected.
    """

    def __init__(self, listener: DriverListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._held: dict[uuid.UUID, list[socket.socket]] = {}
        self._begun: dict[uuid.UUID, set[int]] = {}
        listener.serve(Purpose.DRIVER_LINK, self._take)

    def expect(self, job: uuid.UUID) -> None:
        """From now on tasks of this job may connect."""
        with self._lock:
            self._held[job], self._begun[job] = [], set()

    def begun(self, job: uuid.UUID) -> frozenset[int]:
        """The plans of the job for which a task has begun."""
        with self._lock:
            return frozenset(self._begun.get(job, ()))

    def cut(self, job: uuid.UUID) -> None:
        with self._lock:
            held = self._held.pop(job, [])
            self._begun.pop(job, None)
        for connection in held:
            connection.close()

    def close(self) -> None:
        self._listener.serve(Purpose.DRIVER_LINK, None)
        with self._lock:
            jobs = list(self._held)
        for job in jobs:
            self.cut(job)

    def _take(self, connection: socket.socket) -> None:
        """Keep a connection of one of our jobs, and say so; close any other."""
        try:
            job, plan = _TASK.unpack(receive_exactly(connection, _TASK.size, _ANSWER_S))
            number = uuid.UUID(bytes=job)
            with self._lock:
                is_expected = number in self._held
            connection.sendall(_ACCEPTED if is_expected else _CUT)
        except OSError:
            connection.close()
            return
        with self._lock:
            held = self._held.get(number)
            if held is not None:
                held.append(connection)
                self._begun[number].add(plan)
                return
        connection.close()


class DriverLink:
    """The copy task's end.

    Invariant: once `is_cut` was true it stays so; it is never true for a task without a driver.
    """

    def __init__(self, driver: Driver | None, job: uuid.UUID, plan: int = 0) -> None:
        """SparkError, with the keys to look at, if the driver cannot be reached or does not answer."""
        self._socket: socket.socket | None = None
        self._is_cut = False
        if driver is None:
            return
        self._socket = connect(driver.address, Purpose.DRIVER_LINK, driver.secret)
        try:
            self._socket.sendall(_TASK.pack(job.bytes, plan))
            self._is_cut = receive_exactly(self._socket, 1, _ANSWER_S) != _ACCEPTED
            self._socket.setblocking(False)
        except OSError as error:
            self.close()
            raise unreachable(driver.address, Purpose.DRIVER_LINK, error) from error

    @property
    def host(self) -> str:
        """Our address on the way to the driver; empty without a link."""
        return "" if self._socket is None else str(self._socket.getsockname()[0])

    @property
    def is_cut(self) -> bool:
        if self._socket is not None and not self._is_cut:
            self._is_cut = _has_ended(self._socket)
        return self._is_cut

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _has_ended(connection: socket.socket) -> bool:
    """The driver sends nothing; TLS itself may."""
    try:
        connection.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True
