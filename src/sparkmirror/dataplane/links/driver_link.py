"""Driver links: connections that are cut when the tasks of a job should stop, and that carry rate limits.

Spark can only kill a task. A copy task holds a connection to the driver that submitted it, and sees at once when the driver cuts
it, or is gone: the task then finishes what is in flight, writes its positions and returns.

Where tasks of a job share rate limits, they send what they have read, and the driver answers each message with new shares: JSON,
with its length before it. Otherwise nothing is sent.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import uuid
from dataclasses import dataclass, field

from sparkmirror.dataplane.rate_shares import RateShares
from sparkmirror.errors import SparkError

from .address import Driver, Purpose
from .connecting import connect, receive_exactly, unreachable
from .driver_listener import DriverListener

_TASK = struct.Struct(">16sI")
"""The job's id and the number of the plan, after the greeting."""
_ACCEPTED, _CUT = b"+", b"-"
"""The driver's answer: the task runs, or its job has ended already."""
_ANSWER_S = 60.0
_LENGTH = struct.Struct(">I")
_MOST = 4 << 20
"""Bytes of a message, in both directions: some 80 for each limited topic that is read."""
_READ = 1 << 16


@dataclass(slots=True)
class _Job:
    """What is kept of a job until it is cut."""

    shares: RateShares | None
    held: dict[socket.socket, int] = field(default_factory=dict)
    """The connections of its tasks, with the plan of each."""


class DriverLinks:
    """The driver's ends of the links to all copy tasks.

    Invariants: connections are kept by job until that is cut; one that comes after that is closed at once, so that no task is
    left running because it was late. A connection on which shares are exchanged is closed by the thread that serves it.
    """

    def __init__(self, listener: DriverListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._jobs: dict[uuid.UUID, _Job] = {}
        listener.serve(Purpose.DRIVER_LINK, self._take)

    def expect(self, job: uuid.UUID, shares: RateShares | None = None) -> None:
        """From now on tasks of this job may connect; `shares`: of the rate limits that they share, if they do."""
        with self._lock:
            self._jobs[job] = _Job(shares)

    def begun(self, job: uuid.UUID) -> frozenset[int]:
        """The plans of the job for which a task has begun, and not ended since, in order or not."""
        with self._lock:
            known = self._jobs.get(job)
            if known is None:
                return frozenset()
            if known.shares is None:  # nobody else reads from these
                for connection in [each for each in known.held if _has_ended(each)]:
                    del known.held[connection]
                    connection.close()
            return frozenset(known.held.values())

    def cut(self, job: uuid.UUID) -> None:
        with self._lock:
            known = self._jobs.pop(job, None)
        for connection in () if known is None else list(known.held):
            if known is None or known.shares is None:
                connection.close()
            else:
                _shut(connection)

    def close(self) -> None:
        self._listener.serve(Purpose.DRIVER_LINK, None)
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            self.cut(job)

    def _take(self, connection: socket.socket) -> None:
        """Keep a connection of one of our jobs, and say so; close any other."""
        try:
            job, plan = _TASK.unpack(receive_exactly(connection, _TASK.size, _ANSWER_S))
            number = uuid.UUID(bytes=job)
            with self._lock:
                is_expected = number in self._jobs
            connection.sendall(_ACCEPTED if is_expected else _CUT)
        except OSError:
            connection.close()
            return
        with self._lock:
            known = self._jobs.get(number)
            if known is not None:
                if known.shares is None:
                    connection.setblocking(False)
                known.held[connection] = plan
        if known is None:
            connection.close()
        elif known.shares is not None:
            with contextlib.closing(connection), contextlib.suppress(OSError):
                _exchange(connection, plan, known.shares)
            with self._lock:
                known.held.pop(connection, None)


def _exchange(connection: socket.socket, plan: int, shares: RateShares) -> None:
    """Answer every message of a task with its shares; OSError once the connection has ended."""
    _receive(connection)
    answer = shares.shares(plan)  # it may be another attempt: what the last one used says nothing
    while True:
        message = json.dumps(answer).encode()
        connection.sendall(_LENGTH.pack(len(message)) + message)
        answer = shares.answer(plan, json.loads(_receive(connection)))


def _receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(receive_exactly(connection, _LENGTH.size, None))
    if length > _MOST:
        raise ConnectionError(f"a message of {length} bytes: more than {_MOST}")
    return receive_exactly(connection, length, None)


def _has_ended(connection: socket.socket) -> bool:
    """Of a task that sends nothing: whether it has closed its end, or its process is gone."""
    try:
        return not connection.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _shut(connection: socket.socket) -> None:
    """End it for both sides, also for a thread that waits for its next message."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class DriverLink:
    """The copy task's end. Never blocks once it is connected.

    Invariant: once `is_cut` was true it stays so; it is never true for a task without a driver.
    """

    def __init__(self, driver: Driver | None, job: uuid.UUID, plan: int = 0) -> None:
        """SparkError, with the keys to look at, if the driver cannot be reached or does not answer."""
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._received = bytearray()
        self._unsent = bytearray()
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
            self._is_cut = self._has_ended(self._socket)
        return self._is_cut

    def _has_ended(self, connection: socket.socket) -> bool:
        """Reads what the driver has sent, if it has; TLS itself may send, too."""
        try:
            data = connection.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        self._received += data
        # One answer is under way at most: more is not of our driver, and nobody reads it.
        return not data or len(self._received) > _LENGTH.size + _MOST

    def send(self, message: bytes) -> None:
        """As much of it as goes now; the rest goes with the next call of `received`."""
        self._unsent += _LENGTH.pack(len(message)) + message
        self._flush()

    def _flush(self) -> None:
        if self._socket is None or self._is_cut:
            return
        try:
            sent = self._socket.send(bytes(self._unsent))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self._is_cut = True
            return
        del self._unsent[:sent]

    def received(self) -> list[bytes]:
        """The messages that `is_cut` has found to be there since the last call. SparkError if one is too long."""
        if self._unsent:
            self._flush()
        found = []
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            if length > _MOST:
                raise SparkError(
                    f"The driver announced a message of {length} bytes: more than {_MOST}."
                )
            end = _LENGTH.size + length
            if len(self._received) < end:
                break
            found.append(bytes(self._received[_LENGTH.size : end]))
            del self._received[:end]
        return found

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
