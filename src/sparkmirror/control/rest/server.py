"""The REST server of a worker: settings and a herder come in, listeners that serve until they are stopped go out."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from sparkmirror.control.forwarding import WorkerClient
from sparkmirror.control.herding import Herder
from sparkmirror.control.loggers import LOGGERS, Loggers
from sparkmirror.errors import ConnectError

from .admin import Admin
from .application import Application
from .basic_auth import BasicAuth
from .connectors import Connectors
from .cors import Cors
from .internal import Herders, Internal
from .listeners import BoundListeners
from .metrics import Metrics
from .openapi import OpenApi
from .plugins import ConnectorPlugins, Plugins
from .protocol import Door, TlsListener, protocol_behind
from .root import Root
from .routes import Route
from .settings import RestSettings
from .status_page import StatusPage
from .tls import client_context, server_context

_LOG = logging.getLogger(__name__)
_START_S = 30.0
_LAST_WORDS_S = 1.0  # for answers to what was given up
_SWITCH_S = 0.0005


@dataclass(frozen=True, slots=True)
class _Site:
    """One socket and what is served there."""

    application: Application
    socket: socket.socket
    tls: ssl.SSLContext | None


class _Server(uvicorn.Server):
    """A uvicorn server that tells when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.serving.set()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that gives up a handshake of TLS as early as a connection on which nothing comes."""

    def __init__(self, handshake: float) -> None:
        super().__init__()
        self._handshake = handshake

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake
        return await super().create_server(*args, **options)


class _Serving:
    """Sites served by one event loop in a thread of its own.

    Invariant: after `stop` the sockets are closed and no request is under way, whether it was decided or not.
    """

    def __init__(self, sites: Sequence[_Site], door: Door) -> None:
        self._sites = tuple(sites)
        self._idle = door.limits.idle
        self._servers = [_Server(_config(site, door)) for site in self._sites]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def start(self) -> None:
        # A request needs the interpreter several times; by default each time may cost 5 ms while another thread of this
        # process computes, which lets a single such thread stop reads almost altogether.
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))
        self._thread.start()
        deadline = time.monotonic() + _START_S
        for server in self._servers:
            if not server.serving.wait(max(0.0, deadline - time.monotonic())):
                raise ConnectError("The REST server did not start.", "Its log says why.")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: _Loop(self._idle)) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(
                server.serve(sockets=[site.socket])
                for server, site in zip(self._servers, self._sites, strict=True)
            )
        )

    def stop(self, patience: float) -> None:
        if self._loop is None or not self._thread.is_alive():
            return
        for server in self._servers:
            server.config.timeout_graceful_shutdown = math.ceil(patience + _LAST_WORDS_S)
            server.should_exit = True
        self._thread.join(patience)
        if self._thread.is_alive():
            for site in self._sites:
                self._loop.call_soon_threadsafe(site.application.give_up)
            self._thread.join(2 * _LAST_WORDS_S)


class _Listening:
    """What is common to the servers: bound listeners, a client to other workers, start and stop."""

    def __init__(self, settings: RestSettings, bound: BoundListeners | None) -> None:
        self._settings = settings
        self._bound = bound if bound is not None else BoundListeners(settings)
        self._serving: _Serving | None = None
        is_https = any(each.protocol == "https" for each in settings.config.listeners)
        self.client = WorkerClient(
            client_context(settings.config.tls) if is_https else None, settings.request_timeout
        )
        """Calls other workers, with the certificates of this one's listeners."""

    @property
    def advertised_url(self) -> str:
        """Where other workers reach this one, with a slash at the end. Known before the start."""
        return self._bound.advertised_url

    @property
    def worker_id(self) -> str:
        """Host and port of the advertised address."""
        return self.advertised_url.split("/")[2]

    @property
    def ports(self) -> list[int]:
        """Of all listeners in their order, those for the loggers last."""
        return [bound.port for bound in self._bound]

    def stop(self, patience: float = 5.0) -> None:
        """Take no more requests and end those under way; what is not decided after `patience` seconds is given up."""
        if self._serving is not None:
            self._serving.stop(patience)
        self._bound.close()

    def _application(self, routes: Sequence[Route], auth: BasicAuth | None) -> Application:
        settings = self._settings
        return Application(
            routes,
            self.client,
            auth=auth,
            cors=Cors.from_settings(settings.config.allow_origin, settings.config.allow_methods),
            hosts=settings.config.allowed_hosts,
            rules=settings.config.response_headers,
            request_timeout=settings.request_timeout,
            health_timeout=settings.health_timeout,
        )

    def _start(self, main: Application, admin: Application | None) -> None:
        sites = []
        door = Door(self._settings.config.limits)
        for bound in self._bound:
            application = admin if bound.is_admin and admin is not None else main
            config = self._settings.config
            given = config.admin_tls if bound.is_admin else config.tls
            tls = server_context(given) if bound.listener.protocol == "https" else None
            listener = bound.socket if tls is None else TlsListener.of(bound.socket, door)
            sites.append(_Site(application, listener, tls))
        self._serving = _Serving(sites, door)
        self._serving.start()
        _LOG.info("REST server listens on %s.", self.advertised_url)


class RestServer(_Listening):
    """The REST server of a Connect worker.

    Ports are bound when it is made, or before that by `BoundListeners` where a herder must know its address first.
    """

    def __init__(
        self,
        settings: RestSettings,
        herder: Herder,
        plugins: Plugins,
        *,
        has_peers: bool = True,
        bound: BoundListeners | None = None,
        loggers: Loggers = LOGGERS,
    ) -> None:
        """`has_peers`: whether other workers may call this one."""
        self._auth = _authentication(settings)
        super().__init__(settings, bound)
        self._main = [
            *Root(herder).routes(),
            *Connectors(herder).routes(),
            *(Internal(lambda call: herder).routes() if has_peers else ()),
            *ConnectorPlugins(plugins).routes(),
            *OpenApi().routes(),
            *StatusPage(herder, self.worker_id).routes(),
            *Metrics(herder, self.worker_id).routes(),
        ]
        self._admin = Admin(herder, loggers).routes()
        if settings.config.admin_listeners is None:
            self._main += self._admin

    def start(self) -> None:
        """Returns when every listener serves."""
        # As with a Java worker, what applies to the main listeners does not to those for the loggers.
        admin = Application(
            self._admin,
            self.client,
            hosts=self._settings.config.allowed_hosts,
            request_timeout=self._settings.request_timeout,
        )
        self._start(self._application(self._main, self._auth), admin)


class InternalRestServer(_Listening):
    """The REST server of dedicated mode: nothing but what workers ask of each other, for every flow."""

    def __init__(
        self, settings: RestSettings, herders: Herders, *, bound: BoundListeners | None = None
    ) -> None:
        super().__init__(settings, bound)
        self._herders = herders

    def start(self) -> None:
        """Returns when every listener serves."""
        self._start(self._application(Internal.of_flows(self._herders).routes(), None), None)


def _authentication(settings: RestSettings) -> BasicAuth | None:
    if not settings.has_login:
        return None
    return BasicAuth.from_jaas(settings.jaas_file)


def _config(site: _Site, door: Door) -> uvicorn.Config:
    tls = site.tls
    return uvicorn.Config(
        site.application,
        http=protocol_behind(door),
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(door.limits.idle),
        ssl_context_factory=None if tls is None else lambda config, default: tls,
    )
