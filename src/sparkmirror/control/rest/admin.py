"""The endpoints below `/admin/loggers`: calls come in, levels are shown or changed."""

from __future__ import annotations

import logging

from starlette.responses import Response

from sparkmirror.control.herding import Herder
from sparkmirror.control.loggers import LoggerLevel, Loggers
from sparkmirror.errors import BadRequest, NotFound

from .answers import answer, empty
from .documents import read_level
from .routes import Call, Route, always

_LOG = logging.getLogger(__name__)
_LOGGER = "/admin/loggers/{logger}"


class Admin:
    """Endpoints of loggers."""

    def __init__(self, herder: Herder, loggers: Loggers) -> None:
        self._herder = herder
        self._loggers = loggers

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/admin/loggers", self.levels, is_local=always),
            Route("GET", _LOGGER, self.get, is_local=always),
            Route("PUT", _LOGGER, self.put, reads_json=True),
        ]

    def levels(self, call: Call) -> Response:
        return answer({name: _document(level) for name, level in self._loggers.all().items()})

    def get(self, call: Call) -> Response:
        level = self._loggers.get(call["logger"])
        if level is None:
            raise NotFound(f"Logger {call['logger']} not found.")
        return answer(_document(level))

    def put(self, call: Call) -> Response:
        name, level = call["logger"], read_level(call.body)
        if level is None:
            raise BadRequest("Desired 'level' parameter was not specified in request.")
        if not self._loggers.is_level(level):
            raise NotFound(f"invalid log level '{level}'.")
        problem = self._loggers.problem(name)
        if problem is not None:
            raise BadRequest(problem)
        scope = call.query.get("scope", "worker").lower()
        if scope == "cluster":
            self._herder.set_cluster_logger(name, level.upper())
            return empty(204)
        if scope != "worker":
            _LOG.warning("Unknown logging scope %r: level of %s set on this worker.", scope, name)
        return answer(self._loggers.set(name, level))


def _document(level: LoggerLevel) -> dict[str, object]:
    return {"level": level.level, "last_modified": level.last_modified}
