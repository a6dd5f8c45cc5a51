"""Listens on one of several ports: a host and ports in, a listening socket out."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

ANY_PORT = (0,)


def listen(host: str, ports: Iterable[int], backlog: int | None = None) -> socket.socket:
    """At the first port that is free; OSError of the last one if none is. Also at IPv6 addresses."""
    family, _, _, _, address = socket.getaddrinfo(
        host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    last = OSError(errno.EINVAL, "no port to listen at")
    for port in ports:
        try:
            return socket.create_server((address[0], port), family=family, backlog=backlog)
        except OSError as error:
            last = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    raise last
