"""Waits for sockets: connections and who handles them in, ready handlers out."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from typing import Protocol

from sparkmirror.errors import KafkaError

_TELL_AGAIN_S = 10.0


def tell_once(log: logging.Logger, told_at: float, error: KafkaError) -> float:
    """Warn of a broker that is gone, but not at every try to reach it again; gives when it was told last."""
    now = time.monotonic()
    if now - told_at < _TELL_AGAIN_S:
        log.debug("%s", error)
        return told_at
    log.warning("%s", error)
    return now


class Watched(Protocol):
    """A connection, as the poller sees it."""

    @property
    def is_open(self) -> bool: ...
    @property
    def wants_write(self) -> bool: ...
    def fileno(self) -> int: ...
    def flush_quietly(self) -> None: ...


class Poller:
    """epoll over connections.

    Invariant: a descriptor is registered exactly while its connection is watched and open; write interest follows
    `Connection.wants_write` at every wait.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Watched, Callable[[], None]]] = {}
        self._writing: set[int] = set()

    def fileno(self) -> int:
        """To be watched itself."""
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()

    def watch(self, connection: Watched, ready: Callable[[], None]) -> None:
        fd = connection.fileno()
        if fd in self._watched:  # a closed connection's number, given out again by the system
            self._watched.pop(fd)
            self._writing.discard(fd)
        self._watched[fd] = (connection, ready)
        self._epoll.register(fd, select.EPOLLIN)

    def wait(self, timeout: float) -> None:
        """Wait until something is ready, at most `timeout` seconds, and call the handlers."""
        self._follow_interest()
        for fd, events in self._epoll.poll(timeout):
            watched = self._watched.get(fd)
            if watched is None:
                continue
            connection, ready = watched
            if events & select.EPOLLOUT and connection.is_open and connection.fileno() == fd:
                connection.flush_quietly()
            if events & ~select.EPOLLOUT:
                ready()

    def _follow_interest(self) -> None:
        for fd, (connection, _) in list(self._watched.items()):
            if connection.fileno() != fd:  # closed: the system has forgotten it already
                del self._watched[fd]
                self._writing.discard(fd)
            elif connection.wants_write != (fd in self._writing):
                if connection.wants_write:
                    self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
                    self._writing.add(fd)
                else:
                    self._epoll.modify(fd, select.EPOLLIN)
                    self._writing.discard(fd)
