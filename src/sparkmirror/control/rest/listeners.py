"""Sockets to listen on: listeners come in, bound sockets and the address other workers are told go out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sparkmirror.config.listeners import Listener
from sparkmirror.config.rest import RestConfig
from sparkmirror.errors import ConfigError

from .settings import RestSettings

_BACKLOG = 1024
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True)
class Bound:
    """A listener with its socket, which listens already; `is_admin` if only the loggers are served there."""

    listener: Listener
    socket: socket.socket
    is_admin: bool

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])


class BoundListeners:
    """All sockets of a REST server. They are bound before anything serves, since a worker's id is its address.

    Invariant: either every listener is bound, or none is and ConfigError was raised.
    """

    def __init__(self, settings: RestSettings) -> None:
        self._config = settings.config
        self._bound: list[Bound] = []
        wanted = [(listener, False) for listener in self._config.listeners]
        wanted += [(listener, True) for listener in self._config.admin_listeners or ()]
        try:
            for listener, is_admin in wanted:
                self._bound.append(Bound(listener, _bind(listener), is_admin))
        except ConfigError:
            self.close()
            raise

    def __iter__(self) -> Iterator[Bound]:
        return iter(self._bound)

    @property
    def advertised_url(self) -> str:
        """Where other workers and people reach this one, with a slash at the end."""
        config = self._config
        scheme = _advertised_scheme(config)
        first = self._first(scheme)
        host = config.advertised_host or first.listener.host
        if host in _ANY:
            host = local_address()
        return f"{Listener(scheme, host, config.advertised_port or first.port)}/"

    def _first(self, scheme: str) -> Bound:
        """The first listener of that scheme, or the first of all: another port may stand before this worker."""
        matching = [bound for bound in self._bound if bound.listener.protocol == scheme]
        return next((bound for bound in matching if not bound.is_admin), self._bound[0])

    def close(self) -> None:
        for bound in self._bound:
            bound.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _advertised_scheme(config: RestConfig) -> str:
    if config.advertised_listener:
        return config.advertised_listener
    schemes = [listener.protocol for listener in config.listeners]
    return "http" if "http" in schemes else schemes[0]


def local_address() -> str:
    """The address under which this host knows itself."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _bind(listener: Listener) -> socket.socket:
    try:
        if listener.host == "" and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", listener.port),
                family=socket.AF_INET6,
                backlog=_BACKLOG,
                dualstack_ipv6=True,
            )
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        return socket.create_server((listener.host, listener.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {listener}: {error.strerror or error}.",
            "Free the port, or name another host or port in `listeners`.",
        ) from error
