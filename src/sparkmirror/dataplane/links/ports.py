"""Listening sockets: at one of several ports, at the address that Java would choose for a host name."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

ANY_PORT = (0,)


def plain_host(host: str) -> str:
    """A host without the brackets in which Spark writes addresses of IPv6."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def listen(host: str, ports: Iterable[int], backlog: int | None = None) -> socket.socket:
    """Listen at the first port that is free; OSError of the last one if none is.

    Where a name has addresses of both kinds, that of IPv4 is taken, as Java does; `::` is for both kinds.
    """
    family, address = _address(plain_host(host))
    is_dual = address == "::" and socket.has_dualstack_ipv6()
    last = OSError(errno.EINVAL, "no port to listen at")
    for port in ports:
        try:
            return socket.create_server(
                (address, port), family=family, backlog=backlog, dualstack_ipv6=is_dual
            )
        except OSError as error:
            last = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    raise last


def _address(host: str) -> tuple[socket.AddressFamily, str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, str(address[0])
