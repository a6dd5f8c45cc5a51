"""Connects to a listener of the session: an address and the session's key in, a socket that has greeted out."""

from __future__ import annotations

import socket
import time

from sparkmirror.errors import SparkError

from .address import Address, Purpose, greeting
from .session_tls import NO_TLS, client_context

_CONNECT_S = 10.0
_HANDSHAKE_S = 60.0
"""A copy task answers when its loop comes around to it."""
_KEYS = {
    Purpose.DRIVER_LINK: ("the driver", "mirror.driver.port", "spark.driver.host"),
    Purpose.QUERIES: ("the driver", "mirror.driver.port", "spark.driver.host"),
    Purpose.SLICES: ("the copy task", "mirror.task.ports", ""),
}
"""Who listens, and the keys that set port and host."""
# A host that is cut off says nothing, not even that a connection has ended: both ends look for each other.
_IDLE_S, _PROBE_S, _PROBES = 5, 2, 3


def connect(address: Address, purpose: Purpose, session_key: str) -> socket.socket:
    """A blocking socket; SparkError, with the keys to look at, if the listener cannot be reached."""
    plain: socket.socket | None = None
    try:
        found = plain = socket.create_connection((address.host, address.port), _CONNECT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(plain)
        if session_key != NO_TLS:
            plain.settimeout(_HANDSHAKE_S)
            found = client_context(session_key).wrap_socket(plain)
        found.sendall(greeting(address.token, purpose))
        found.settimeout(None)
    except OSError as error:
        if plain is not None:
            plain.close()
        raise _unreachable(address, purpose, error) from error
    return found


def _unreachable(address: Address, purpose: Purpose, error: OSError) -> SparkError:
    who, port_key, host_key = _KEYS[purpose]
    remedy = f"Let the executors' hosts connect to that port; {port_key} sets it"
    if host_key:
        remedy += f", {host_key} the address"
    return SparkError(
        f"{socket.gethostname()} cannot connect to {who} at {address}: {error}.", f"{remedy}."
    )


def receive_exactly(connection: socket.socket, count: int, seconds: float) -> bytes:
    """So many bytes; OSError if they do not come in that time. The socket blocks for ever afterwards, as it did before."""
    deadline = time.monotonic() + seconds
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        got = connection.recv(count - len(data))
        if not got:
            raise ConnectionError(f"it was closed after {len(data)} of {count} bytes")
        data += got
    connection.settimeout(None)
    return bytes(data)


def keep_alive(connection: socket.socket) -> None:
    """Have the system notice, within seconds, that the other host is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _PROBE_S),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
