"""A REST server on a free port, and a plain HTTP client to talk to it: requests come in, answers go out."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from sparkmirror.control.loggers import Loggers
from sparkmirror.control.rest.server import RestServer
from sparkmirror.control.rest.settings import rest_settings
from tests.unit.control.rest_herder import MemoryHerder, MemoryPlugins

LOCAL = "http://127.0.0.1:0"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> Any:
        return self.json["message"]


class Client:
    """Calls one listener; every request has a connection of its own."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._tls = tls

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Bytes are sent as they are, anything else but None as JSON."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {} if sent is None else {"Content-Type": "application/json"}
        if self._tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        else:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=30, context=self._tls
            )
        try:
            connection.request(method, path, sent, {**kind, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()


class Served(NamedTuple):
    call: Client
    herder: MemoryHerder
    server: RestServer


@contextmanager
def serving(
    properties: Mapping[str, str] | None = None,
    *,
    herder: MemoryHerder | None = None,
    environment: Mapping[str, str] | None = None,
    request_timeout: float = 90.0,
    health_timeout: float = 10.0,
    loggers: Loggers | None = None,
) -> Iterator[Served]:
    """A server with a herder in memory; `call` talks to its first listener."""
    settings = replace(
        rest_settings({"listeners": LOCAL, **(properties or {})}, environment or {}),
        request_timeout=request_timeout,
        health_timeout=health_timeout,
    )
    herder = herder or MemoryHerder()
    server = RestServer(settings, herder, MemoryPlugins(), loggers=loggers or Loggers())
    try:
        server.start()
        yield Served(Client(server.ports[0]), herder, server)
    finally:
        herder.unblocked.set()
        server.stop()
