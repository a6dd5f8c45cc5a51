"""HTTP/1.1 on one connection: uvicorn's fast protocol, with limits to what a client may cost before anybody knows who he is.

It also takes offers of other protocols for what they are, offers.
"""

from __future__ import annotations

import asyncio
import http
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sparkmirror.config.rest import HttpLimits

_UPGRADE = re.compile(rb"(?<=\r\n)U(?=pgrade[ \t]*:)", re.IGNORECASE)


class Door:
    """The limits of one server, who is connected to its listeners, and what they have sent that is not dealt with yet."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self._count = 0
        self._by_address: Counter[str] = Counter()
        self._held: Counter[str] = Counter()

    def enter(self, address: str) -> str:
        """Why one more connection is refused; empty if it is not. Whoever was let in leaves again."""
        limits = self.limits
        if self._count >= limits.connections:
            return f"There are {self._count} connections, as many as rest.max.connections allows."
        if self._by_address[address] >= limits.connections_per_address:
            return (
                f"There are {self._by_address[address]} connections from {address}, as many as "
                "rest.max.connections.per.address allows."
            )
        self._count += 1
        self._by_address[address] += 1
        return ""

    def hold(self, address: str, size: int) -> bool:
        """Whether so many more bytes of bodies may be held; if so, they are, until they are released.

        One address has half of the room at most, so that it cannot shut out the others.
        """
        limits = self.limits
        own = max(limits.body_bytes, limits.bodies_bytes // 2)
        if self._held.total() + size > limits.bodies_bytes or self._held[address] + size > own:
            return False
        self._held[address] += size
        return True

    def release(self, address: str, size: int) -> None:
        self._held[address] -= size
        if not self._held[address]:
            del self._held[address]

    def leave(self, address: str) -> None:
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class TlsListener(socket.socket):
    """A listening socket whose connections are at the door from their first packet on, not only after their handshake.

    Too many are closed without a word: nothing can be said before the handshake.
    """

    door: Door

    @classmethod
    def of(cls, listener: socket.socket, door: Door) -> TlsListener:
        """A second one for a socket that listens; each is to be closed."""
        kind = listener.family, listener.type, listener.proto
        made = cls(*kind, fileno=os.dup(listener.fileno()))
        made.door = door
        return made

    def accept(self) -> tuple[socket.socket, object]:
        plain, address = super().accept()
        if self.door.enter(address[0]):
            plain.close()
            raise ConnectionAbortedError  # as if the client had gone: the loop goes on with the next
        kind = plain.family, plain.type, plain.proto
        connection = _Entered(*kind, fileno=plain.detach())
        connection.left = lambda: self.door.leave(address[0])
        return connection, address


class _Entered(socket.socket):
    """A connection that leaves the door when it is closed, whoever closes it."""

    left: Callable[[], None] | None = None

    def close(self) -> None:
        left, self.left = self.left, None
        if left is not None:
            left()
        super().close()


class ConnectProtocol(HttpToolsProtocol):
    """One connection.

    Java's own HTTP client offers HTTP/2 in its first request; the parser would then drop the body of that request. The offer gets
    another name before the parser sees it. It keeps its length, and JSON has no line that looks like it.

    Invariants: `_timer` runs while something is to come from the client, and at no other time; what a refused connection sends is
    not looked at, and what comes of a body behind its answer is thrown away.
    """

    door: Door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does this only for sockets that were made with the protocol spelt out; without it a client that
        # delays its acknowledgements waits 40 ms between the head and the body of every answer.
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer: asyncio.TimerHandle | None = None
        self._is_refused = False
        self._head = self._fields = 0
        self._body = 0
        self._beside = 0
        self._held = 0
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        is_tls = transport.get_extra_info("sslcontext") is not None  # then it has entered already
        why = "" if is_tls else self.door.enter(self._address)
        self._has_entered = not why and not is_tls
        if why:
            self._refuse(503, why)
        else:
            self._wait(self.door.limits.idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        if self._has_entered:
            self.door.leave(self._address)
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        is_begin = self._head == 0
        self._head += len(data)
        if is_begin:
            self._wait(self.door.limits.request)
        self._beside += len(data)
        super().data_received(_UPGRADE.sub(b"X", data) if b"pgrade" in data.lower() else data)
        longest = self.door.limits.header_bytes
        # Behind the head: sizes of chunks, and fields behind the body, which nobody needs.
        if (self._head > longest or self._beside > longest) and not self._is_refused:
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._fields += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head >= 0:  # not behind a body
            self._fields += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head = -(1 << 62)  # what follows is the body
        self._beside = 0
        if self._fields > self.door.limits.header_bytes:  # all of it came at once
            self._refuse_head()
            return
        length = next((v for n, v in self.headers if n == b"content-length"), b"0")
        if length.isdigit() and int(length) > self.door.limits.body_bytes:
            self._refuse_body()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        self._beside = 0
        if self._is_refused or self._is_answered:
            return
        if self._body > self.door.limits.body_bytes:
            self._refuse_body()
        elif not self.door.hold(self._address, len(body)):
            self._refuse(503, "The bodies of all requests are longer than rest.max.bodies.bytes.")
        else:
            self._held += len(body)
            super().on_body(body)

    @property
    def _is_answered(self) -> bool:
        """Whether the answer to what is being received has been given already, as that to a path that is not there."""
        return bool(
            getattr(self.cycle, "response_complete", False)
        )  # there is no cycle before the first request

    def on_message_complete(self) -> None:
        self._wait(self.door.limits.idle if self._is_answered else None)
        self._head = self._body = self._beside = 0
        if not self._is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._release()
        super().on_response_complete()

    def _release(self) -> None:
        if self._held:
            self.door.release(self._address, self._held)
            self._held = 0

    def _refuse_head(self) -> None:
        self._refuse(431, "The head of the request is longer than rest.max.header.bytes.")

    def _refuse_body(self) -> None:
        self._refuse(413, "The body of the request is longer than rest.max.body.bytes.")

    def _wait(self, seconds: float | None) -> None:
        """The client has so long to send what is to come; None: nothing is."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._head and not self._is_answered:
            self._refuse(408, "The request did not come within rest.request.receive.timeout.ms.")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer, and hear no more."""
        self._is_refused = True
        self._wait(None)
        if self._is_answered:  # to what is being received
            self.transport.close()
            return
        body = json.dumps({"error_code": status, "message": message}).encode()
        phrase = http.HTTPStatus(status).phrase
        head = (
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(head.encode() + body)
        self.transport.close()


def protocol_behind(door: Door) -> type[ConnectProtocol]:
    """The protocol of the listeners of one server."""
    return type("ConnectProtocol", (ConnectProtocol,), {"door": door})
