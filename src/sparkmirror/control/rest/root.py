"""The endpoints `/` and `/health`: who this worker is, and whether it decides."""

from __future__ import annotations

from starlette.responses import Response

from sparkmirror.control.herding import Herder
from sparkmirror.control.states import Health, ServerInfo

from .answers import answer
from .routes import Call, Route

_HEALTH_STATUS = {"healthy": 200, "starting": 503, "unhealthy": 500}


class Root:
    """Endpoints of the worker itself."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._info: ServerInfo | None = None

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/", self.info, is_local=self._is_known, consumes=None),
            Route("GET", "/health", self.health, consumes=None, is_health=True),
        ]

    def info(self, call: Call) -> Response:
        info = self._info or self._herder.server_info()
        if info.cluster_id:
            self._info = info
        return answer(
            {
                "version": info.version,
                "commit": info.commit,
                "kafka_cluster_id": info.cluster_id,
            }
        )

    def _is_known(self, call: Call) -> bool:
        """The id of the cluster never changes, but somebody has to ask the cluster for it first."""
        return self._info is not None

    def health(self, call: Call) -> Response:
        return health_answer(self._herder.health())


def health_answer(health: Health) -> Response:
    document = {"status": health.status, "message": health.message}
    return answer(document, _HEALTH_STATUS.get(health.status, 500))
