"""HTTP/1.1 on one connection: uvicorn's fast protocol, which here takes offers of other protocols for what they are, offers."""

from __future__ import annotations

import asyncio
import re
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_UPGRADE = re.compile(rb"(?<=\r\n)U(?=pgrade[ \t]*:)", re.IGNORECASE)


class ConnectProtocol(HttpToolsProtocol):
    """Java's own HTTP client offers HTTP/2 in its first request; the parser would then drop the body of that request.

    The offer gets another name before the parser sees it. It keeps its length, and JSON has no line that looks like it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does this only for sockets that were made with the protocol spelt out; without it a client that
        # delays its acknowledgements waits 40 ms between the head and the body of every answer.
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(_UPGRADE.sub(b"X", data) if b"pgrade" in data.lower() else data)
