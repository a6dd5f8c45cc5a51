"""The endpoints below `/connector-plugins`: calls come in, the known plugins and their keys go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from starlette.responses import Response

from .answers import answer
from .documents import read_config
from .routes import Call, Route


class Plugins(Protocol):
    """What a worker can run, and how it is configured. Errors are those below `ConnectError`."""

    def list_plugins(self, connectors_only: bool) -> Sequence[Mapping[str, Any]]: ...
    def plugin_definitions(self, name: str, version: str | None) -> Sequence[Mapping[str, Any]]: ...
    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]: ...


class ConnectorPlugins:
    """Endpoints of plugins."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/connector-plugins", self.plugins),
            Route("GET", "/connector-plugins/{plugin}/config", self.definitions),
            Route(
                "PUT", "/connector-plugins/{plugin}/config/validate", self.validate, reads_json=True
            ),
        ]

    def plugins(self, call: Call) -> Response:
        connectors_only = (call.query.get("connectorsOnly") or "true").lower() == "true"
        return answer(self._plugins.list_plugins(connectors_only))

    def definitions(self, call: Call) -> Response:
        version = call.query.get("version")
        return answer(self._plugins.plugin_definitions(call["plugin"], version))

    def validate(self, call: Call) -> Response:
        return answer(self._plugins.validate(call["plugin"], read_config(call.body)))
