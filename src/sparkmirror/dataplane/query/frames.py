"""What a copy task, the driver and the steps of a query say to each other: messages in, frames on a socket out, and back.

A frame is the length of what follows its head, a kind, and a payload: JSON for what is said, Arrow for records.
"""

from __future__ import annotations

import contextlib
import enum
import json
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from sparkmirror.errors import SparkError

_HEAD = struct.Struct(">IB")
_WEIGHT = struct.Struct(">Q")
_MOST_BYTES = 1 << 30
_READ_BYTES = 1 << 20
_CONNECT_S = 10.0


class Kind(enum.IntEnum):
    """Who says it, and what follows."""

    HELLO = 1
    """Anybody who connects: the password, and for a copy task where its own door is."""
    PREPARE = 2
    """A copy task to the driver: the query that it needs."""
    PREPARED = 3
    REFUSED = 4
    WAITING = 5
    """A copy task to the driver: there are records for this query."""
    DONE = 6
    """The driver to a copy task: what it gave out in this job is through."""
    FAILED = 7
    TAKE = 8
    """The first step to a copy task: the next slice, please."""
    SLICE = 9
    """A copy task to the first step: how much its records are, and what the query is given of them."""
    NOTHING = 10
    RESULT = 11
    """The last step to a copy task: what came out."""
    END = 12
    """The last step has nothing more to say."""
    HEARD = 13
    SCHEMA = 14
    """The last step to a copy task: of which job, and in which columns, the results are that follow."""
    LOST = 15
    """The driver to a copy task: it could not look at the query, which need not be the query's fault."""


class Door(NamedTuple):
    """Where somebody listens, and the password."""

    host: str
    port: int
    token: str


class Message(NamedTuple):
    kind: Kind
    payload: memoryview

    @property
    def fields(self) -> dict[str, Any]:
        return dict(json.loads(bytes(self.payload)))


def frame(kind: Kind, payload: bytes | memoryview = b"") -> bytes:
    return _HEAD.pack(len(payload), kind) + payload


def headed(kind: Kind, payload: memoryview) -> tuple[bytes, memoryview]:
    """A frame in two parts, so that a large payload need not be copied."""
    return _HEAD.pack(len(payload), kind), payload


def weighed(kind: Kind, weight: int, payload: memoryview) -> tuple[bytes, memoryview]:
    """The same, for what stands for more than it is."""
    return _HEAD.pack(_WEIGHT.size + len(payload), kind) + _WEIGHT.pack(weight), payload


def weight_of(payload: memoryview) -> tuple[int, memoryview]:
    """The weight, and what has it."""
    return _WEIGHT.unpack_from(payload)[0], payload[_WEIGHT.size :]


def said(kind: Kind, **fields: object) -> bytes:
    return frame(kind, json.dumps(fields).encode())


class Inbox:
    """Bytes as they come in; whole messages out.

    Invariant: `_payload` is that of the message whose head was read last, filled up to `_filled`; before that, `_head` gathers.
    """

    def __init__(self) -> None:
        self._head = bytearray()
        self._kind = 0
        self._payload: bytearray | None = None
        self._filled = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes; SparkError if they are none. Each byte is copied once."""
        view = memoryview(data)
        while view or self._is_whole:
            if self._payload is None:
                view = self._begin(view)
            else:
                taken = min(len(view), len(self._payload) - self._filled)
                self._payload[self._filled : self._filled + taken] = view[:taken]
                self._filled += taken
                view = view[taken:]
            if self._is_whole and self._payload is not None:
                message = Message(Kind(self._kind), memoryview(self._payload))
                self._payload = None
                yield message

    @property
    def _is_whole(self) -> bool:
        return self._payload is not None and self._filled == len(self._payload)

    def _begin(self, view: memoryview) -> memoryview:
        """Read (on) a head; gives what is behind it."""
        missing = _HEAD.size - len(self._head)
        self._head += view[:missing]
        if len(self._head) == _HEAD.size:
            length, self._kind = _HEAD.unpack(self._head)
            if length > _MOST_BYTES:
                raise SparkError(f"A message of {length:,} bytes is none of ours.")
            self._head.clear()
            self._payload, self._filled = bytearray(length), 0
        return view[missing:]


class Call:
    """A connection that is waited on: of steps, and of the driver's threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._inbox = Inbox()
        self._messages: deque[Message] = deque()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def to(cls, door: Door, **fields: object) -> Call:
        """Connect and say who we are; SparkError if nobody is there."""
        try:
            connection = socket.create_connection((door.host, door.port), _CONNECT_S)
        except OSError as error:
            raise SparkError(f"Nobody answers on {door.host}:{door.port}: {error}") from error
        connection.settimeout(None)
        call = cls(connection)
        call.send(said(Kind.HELLO, token=door.token, **fields))
        return call

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def own_host(self) -> str:
        """The address that the other end sees us under."""
        return str(self._socket.getsockname()[0])

    def patience(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def send(self, *parts: bytes | memoryview) -> None:
        try:
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise SparkError(f"A connection between the steps of a query broke: {error}") from error

    def receive(self) -> Message:
        """The next message; SparkError when the other end is gone."""
        while not self._messages:
            try:
                data = self._socket.recv(_READ_BYTES)
            except OSError as error:
                raise SparkError(
                    f"A connection between the steps of a query broke: {error}"
                ) from error
            if not data:
                raise SparkError("The other end of a query's connection is gone.")
            self._messages.extend(self._inbox.feed(data))
        return self._messages.popleft()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Line:
    """A connection that is never waited on: of the copy task's loop.

    Invariant: `_out` holds what was said and not taken by the system yet, in order.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._inbox = Inbox()
        self._out: deque[memoryview] = deque()
        self.is_open = True
        self.is_known = False
        """Whether it has said the password."""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    def send(self, *parts: bytes | memoryview) -> None:
        self._out.extend(map(memoryview, parts))
        self.flush_quietly()

    def flush_quietly(self) -> None:
        try:
            while self._out:
                taken = self._socket.send(self._out[0])
                if taken == len(self._out[0]):
                    self._out.popleft()
                else:
                    self._out[0] = self._out[0][taken:]
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def receive(self) -> list[Message]:
        """What has come in; closed if the other end is gone or talks nonsense."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        try:
            return list(self._inbox.feed(data))
        except (SparkError, ValueError):
            self.close()
            return []

    def close(self) -> None:
        self.is_open = False
        self._out.clear()
        self._socket.close()
