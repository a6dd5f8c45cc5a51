"""The driver's one listener: each connection of a task is handed to the handler of its purpose.

A connection is handed on after its greeting. Until then it has some seconds, and few such connections are kept: the oldest are
closed for new ones, so that connections without a greeting keep nobody out.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

from .address import (
    GREETING_BYTES,
    NO_TLS,
    Address,
    Driver,
    Purpose,
    SessionSecret,
    purpose_of,
)
from .connecting import prepare, receive_exactly
from .ports import ANY_PORT, listen, plain_host
from .session_tls import server_context

log = logging.getLogger(__name__)
_GREETING_S = 20.0
_MOST_GREETING = 64
_BACKLOG = 512
_TELL_AGAIN_S = 60.0
_ACCEPT_AGAIN_S = 0.1


class DriverListener:
    """Serves the tasks of a Spark session.

    Invariants: a handler gets only connections with the session's token (and, with TLS, its key); it runs in a thread of the
    connection's own. Connections for a purpose without a handler are closed. `_greeting` has those without a greeting, the oldest
    first.
    """

    def __init__(
        self,
        host: str,
        bind: str,
        secret: SessionSecret,
        port: int = 0,
        task_ports: tuple[int, ...] = ANY_PORT,
    ) -> None:
        """`host`: where tasks connect to. OSError if nothing can listen at `bind`."""
        self._socket = listen(bind, [port], _BACKLOG)
        address = Address(plain_host(host), self._socket.getsockname()[1])
        self.driver = Driver(address, secret, task_ports)
        """What tasks need to know of it."""
        self._handlers: dict[Purpose, Callable[[socket.socket], None]] = {}
        self._lock = threading.Lock()
        self._greeting: dict[socket.socket, None] = {}
        self._is_closed = threading.Event()
        self._refused_at = -_TELL_AGAIN_S
        threading.Thread(target=self._accept, name="driver listener", daemon=True).start()

    def serve(self, purpose: Purpose, handler: Callable[[socket.socket], None] | None) -> None:
        """Hand connections for a purpose to `handler` from now on; None: close them."""
        if handler is None:
            self._handlers.pop(purpose, None)
        else:
            self._handlers[purpose] = handler

    def close(self) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            waiting = list(self._greeting)
        for connection in waiting:
            _shut(connection)

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                self._accept_one()
            except (OSError, RuntimeError) as error:  # no thread, or no file descriptor left
                if not self._is_closed.wait(_ACCEPT_AGAIN_S):
                    self._tell_refused("a task", str(error))

    def _accept_one(self) -> None:
        connection, peer = self._socket.accept()
        try:
            prepare(connection)
            connection.settimeout(_GREETING_S)
            if self.driver.secret.key != NO_TLS:
                connection = server_context(self.driver.secret.key).wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            self._make_room()
            with self._lock:
                self._greeting[connection] = None
            threading.Thread(target=self._take, args=(connection, peer[0]), daemon=True).start()
        except (OSError, RuntimeError):
            self._greeted(connection)
            connection.close()
            raise

    def _make_room(self) -> None:
        with self._lock:
            oldest = list(self._greeting)[: max(0, len(self._greeting) - _MOST_GREETING + 1)]
            for connection in oldest:
                del self._greeting[connection]
        for connection in oldest:
            _shut(connection)

    def _greeted(self, connection: socket.socket) -> None:
        with self._lock:
            self._greeting.pop(connection, None)

    def _take(self, connection: socket.socket, peer: str) -> None:
        try:
            purpose = self._purpose(connection)
        except OSError as error:
            self._tell_refused(peer, str(error))
            connection.close()
            return
        finally:
            self._greeted(connection)
        handler = None if purpose is None else self._handlers.get(purpose)
        if handler is None:
            if purpose is None:
                self._tell_refused(peer, "it does not know the token of this Spark session")
            connection.close()
            return
        handler(connection)

    def _purpose(self, connection: socket.socket) -> Purpose | None:
        """What the connection is for; None if it is not of this session, OSError if it breaks or takes too long."""
        deadline = time.monotonic() + _GREETING_S
        handshake: Callable[[], None] | None = getattr(connection, "do_handshake", None)
        if handshake is not None:
            handshake()
        data = receive_exactly(connection, GREETING_BYTES, deadline - time.monotonic())
        return purpose_of(data, self.driver.secret.token)

    def _tell_refused(self, peer: str, why: str) -> None:
        now = time.monotonic()
        if now - self._refused_at >= _TELL_AGAIN_S:
            self._refused_at = now
            log.warning(
                "Refused a connection from %s to %s: %s. Further refusals are not logged for %.0f s.",
                peer,
                self.driver.address,
                why,
                _TELL_AGAIN_S,
            )


def _shut(connection: socket.socket) -> None:
    """Have the thread that waits for this connection's greeting see its end."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
