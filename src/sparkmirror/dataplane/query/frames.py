"""Messages between a copy task, the driver and the tasks of a query: messages in, frames on a socket out, and back.

A frame is the length of what follows its head, a kind, and a payload: JSON for words, Arrow for records. Connections have sent
their greeting (`dataplane.links`) before the first frame.
"""

from __future__ import annotations

import contextlib
import enum
import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from sparkmirror.dataplane.links.address import (
    GREETING_BYTES,
    NO_TLS,
    Address,
    Purpose,
    SessionSecret,
    purpose_of,
)
from sparkmirror.dataplane.links.connecting import connect
from sparkmirror.dataplane.links.session_tls import server_context
from sparkmirror.errors import SparkError
from sparkmirror.kafka.access.transport import TlsSocket, Transport

_HEAD = struct.Struct(">IB")
_WEIGHT = struct.Struct(">Q")
_MOST_RECORD_BYTES = 1 << 30
_MOST_WORD_BYTES = 16 << 20
_READ_BYTES = 1 << 20
_LINE_BYTES = 256 << 10
_MOST_PARTS = 64


class Kind(enum.IntEnum):
    """Who says it, and what follows."""

    HELLO = 1
    """A copy task to the driver: where the copy task listens."""
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


_WITH_RECORDS = frozenset({Kind.SLICE, Kind.RESULT})


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

    def feed(self, data: bytes | memoryview) -> Iterator[Message]:
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
            most = _MOST_RECORD_BYTES if self._kind in _WITH_RECORDS else _MOST_WORD_BYTES
            if length > most:
                raise SparkError(f"A message of {length:,} bytes is too long for its kind.")
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
    def to(cls, address: Address, secret: SessionSecret) -> Call:
        """Connect to a copy task; SparkError if it cannot be reached."""
        return cls(connect(address, Purpose.SLICES, secret))

    def fileno(self) -> int:
        return self._socket.fileno()

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

    Invariants: `_out` holds what was said and not taken by the system yet, in order. Nothing is read as a frame before the right
    greeting.
    """

    def __init__(self, transport: Transport, token: str = "") -> None:
        """`token`: what the greeting has to hold that comes first; empty: no greeting comes."""
        self._transport = transport
        self._token = token
        self._greeting = bytearray()
        self._inbox = Inbox()
        self._room = memoryview(bytearray(_LINE_BYTES))
        self._out: deque[memoryview] = deque()
        self.is_open = True
        self.is_known = not token
        """Whether the other end is of this session."""

    @classmethod
    def of(cls, connection: socket.socket) -> Line:
        """Over a connection that has greeted."""
        connection.setblocking(False)
        return cls(TlsSocket(connection) if isinstance(connection, ssl.SSLSocket) else connection)

    @classmethod
    def accepted(cls, connection: socket.socket, secret: SessionSecret) -> Line:
        """Over a connection that has still to greet; the TLS handshake is a part of reading. OSError if it is gone."""
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if secret.key == NO_TLS:
            return cls(connection, secret.token)
        wrapped = server_context(secret.key).wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return cls(TlsSocket(wrapped), secret.token)

    def fileno(self) -> int:
        return self._transport.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._out)

    def send(self, *parts: bytes | memoryview) -> None:
        self._out.extend(map(memoryview, parts))
        self.flush_quietly()

    def flush_quietly(self) -> None:
        try:
            while self._out:
                self._sent(self._transport.sendmsg([*islice(self._out, _MOST_PARTS)]))
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _sent(self, count: int) -> None:
        while self._out and count >= len(self._out[0]):
            count -= len(self._out.popleft())
        if count:
            self._out[0] = self._out[0][count:]

    def receive(self) -> list[Message]:
        """What has come in; closed if the other end is gone, sends nonsense or does not belong to the session."""
        found: list[Message] = []
        try:
            while True:
                count = self._transport.recv_into(self._room)
                if count == 0:
                    raise ConnectionResetError
                found += self._inbox.feed(self._greeted(self._room[:count]))
                if count < len(self._room):
                    return found
        except BlockingIOError:
            return found
        except (OSError, SparkError, ValueError):
            self.close()
            return found

    def _greeted(self, data: memoryview) -> memoryview:
        """What follows the greeting; SparkError if that is not a right one."""
        if self.is_known:
            return data
        missing = GREETING_BYTES - len(self._greeting)
        self._greeting += data[:missing]
        if len(self._greeting) == GREETING_BYTES:
            if purpose_of(self._greeting, self._token) is not Purpose.SLICES:
                raise SparkError("The greeting is not one of this session.")
            self.is_known = True
        return data[missing:]

    def close(self) -> None:
        self.is_open = False
        self._out.clear()
        self._transport.close()
