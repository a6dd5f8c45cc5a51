"""Connections to a listener of the session, with the greeting sent."""

from __future__ import annotations

import socket
import time

from sparkmirror.errors import SparkError

from .address import NO_TLS, Address, Purpose, SessionSecret, greeting
from .session_tls import client_context

_PATIENCE_S = 20.0
"""For how long a listener that does not accept is tried again: names and routes of new hosts come late."""
_TRY_S = 10.0
_FIRST_WAIT_S, _MOST_WAIT_S = 0.1, 2.0
_HANDSHAKE_S = 60.0
"""A copy task answers when its loop comes around to it."""
_KEYS = {
    Purpose.DRIVER_LINK: ("the driver", "mirror.driver.port", "spark.driver.host"),
    Purpose.QUERIES: ("the driver", "mirror.driver.port", "spark.driver.host"),
    Purpose.SLICES: ("the copy task", "mirror.task.ports", ""),
}
"""Who listens, and the keys that set port and host."""
# A host that is cut off sends nothing, not even that a connection has ended: both ends probe each other.
_IDLE_S, _PROBE_S, _PROBES = 5, 2, 3


def connect(address: Address, purpose: Purpose, secret: SessionSecret) -> socket.socket:
    """A blocking socket; SparkError, with the keys to look at, if the listener cannot be reached."""
    try:
        found = _reached(address)
        try:
            if secret.key != NO_TLS:
                found.settimeout(_HANDSHAKE_S)
                found = client_context(secret.key).wrap_socket(found)
            found.sendall(greeting(secret.token, purpose))
            found.settimeout(None)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise unreachable(address, purpose, error) from error
    return found


def _reached(address: Address) -> socket.socket:
    """A plain connection; OSError of the last try when none came about in time."""
    deadline, wait = time.monotonic() + _PATIENCE_S, _FIRST_WAIT_S
    while True:
        left = deadline - time.monotonic()
        try:
            found = socket.create_connection(address, max(0.1, min(_TRY_S, left)))
        except OSError:
            if left <= wait:
                raise
            time.sleep(wait)
            wait = min(wait * 2, _MOST_WAIT_S)
        else:
            prepare(found)
            return found


def unreachable(address: Address, purpose: Purpose, error: Exception) -> SparkError:
    """The error for a listener that cannot be reached: address, port, cause, and the keys that set them."""
    who, port_key, host_key = _KEYS[purpose]
    remedy = f"Let the executors' hosts connect to that port; {port_key} sets it"
    if host_key:
        remedy += f", {host_key} the address"
    return SparkError(
        f"{socket.gethostname()} cannot connect to {who} at {address}: {error}.", f"{remedy}."
    )


def receive_exactly(connection: socket.socket, count: int, seconds: float | None) -> bytes:
    """So many bytes; OSError if they do not come in that time (None: for ever). The socket blocks for ever afterwards."""
    deadline = None if seconds is None else time.monotonic() + seconds
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
        got = connection.recv(count - len(data))
        if not got:
            raise ConnectionError(f"it was closed after {len(data)} of {count} bytes")
        data += got
    connection.settimeout(None)
    return bytes(data)


def prepare(connection: socket.socket) -> None:
    """Send at once, and notice within seconds that the other host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _PROBE_S),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
