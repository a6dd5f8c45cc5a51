"""The driver's one listener: tasks that connect in, each connection handed to what it is for out.

A connection is handed on after its greeting. Until then it has five seconds, and there are few such connections at a time: more
wait in the system's queue.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

from .address import GREETING_BYTES, Address, Driver, Purpose, new_token, purpose_of
from .connecting import keep_alive, receive_exactly
from .ports import ANY_PORT, listen
from .session_tls import NO_TLS, server_context

log = logging.getLogger(__name__)
_GREETING_S = 5.0
_MOST_GREETING = 64
_BACKLOG = 512
_TELL_AGAIN_S = 60.0
_ACCEPT_AGAIN_S = 0.1


class DriverListener:
    """Serves the tasks of a Spark session.

    Invariant: a handler gets only connections of who knows the token (and, with TLS, has the session's key). Handlers run in a
    thread of their connection's own; what comes for a purpose without a handler is closed.
    """

    def __init__(
        self,
        host: str,
        bind: str,
        port: int = 0,
        session_key: str = NO_TLS,
        task_ports: tuple[int, ...] = ANY_PORT,
    ) -> None:
        """`host`: where tasks connect to. OSError if nothing can listen at `bind`."""
        self._socket = listen(bind, [port], _BACKLOG)
        address = Address(host, self._socket.getsockname()[1], new_token())
        self.driver = Driver(address, session_key, task_ports)
        """What tasks need to know of it."""
        self._handlers: dict[Purpose, Callable[[socket.socket], None]] = {}
        self._greeting = threading.BoundedSemaphore(_MOST_GREETING)
        self._is_closed = threading.Event()
        self._refused_at = -_TELL_AGAIN_S
        threading.Thread(target=self._accept, name="driver listener", daemon=True).start()

    def serve(self, purpose: Purpose, handler: Callable[[socket.socket], None] | None) -> None:
        """Hand connections for a purpose to `handler` from now on; None: to nobody."""
        if handler is None:
            self._handlers.pop(purpose, None)
        else:
            self._handlers[purpose] = handler

    def close(self) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            self._greeting.acquire()
            try:
                connection, peer = self._socket.accept()
            except OSError as error:
                self._greeting.release()
                if not self._is_closed.wait(_ACCEPT_AGAIN_S):
                    log.debug("A connection to %s was not accepted: %s", self.driver.address, error)
                continue
            name = f"connection from {peer[0]}"
            threading.Thread(
                target=self._take, args=(connection, peer[0]), name=name, daemon=True
            ).start()

    def _take(self, connection: socket.socket, peer: str) -> None:
        try:
            met = self._met(connection)
        except OSError as error:
            self._tell_refused(peer, str(error))
            connection.close()
            return
        finally:
            self._greeting.release()
        found, purpose = met
        handler = None if purpose is None else self._handlers.get(purpose)
        if handler is None:
            if purpose is None:
                self._tell_refused(peer, "its greeting is not one of this session")
            found.close()
            return
        handler(found)

    def _met(self, connection: socket.socket) -> tuple[socket.socket, Purpose | None]:
        """The connection, with TLS if the session has it, and what it is for; OSError if it breaks or takes too long."""
        deadline = time.monotonic() + _GREETING_S
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
        connection.settimeout(_GREETING_S)
        if self.driver.session_key != NO_TLS:
            context = server_context(self.driver.session_key)
            connection = context.wrap_socket(connection, server_side=True)
        data = receive_exactly(connection, GREETING_BYTES, deadline - time.monotonic())
        return connection, purpose_of(data, self.driver.address.token)

    def _tell_refused(self, peer: str, why: str) -> None:
        now = time.monotonic()
        if now - self._refused_at >= _TELL_AGAIN_S:
            self._refused_at = now
            log.warning("Refused a connection from %s to %s: %s.", peer, self.driver.address, why)
