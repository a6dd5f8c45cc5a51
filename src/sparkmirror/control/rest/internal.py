"""The endpoints that other workers call: signed calls come in, the herder they mean checks and decides them.

In dedicated mode one listener serves every flow, and the aliases of its clusters come first in the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import Response

from sparkmirror.control.herding import Herder, Signature
from sparkmirror.control.signing import ALGORITHM_HEADER, SIGNATURE_HEADER
from sparkmirror.errors import NotFound

from .answers import empty
from .documents import read_task_configs
from .routes import Call, Route

Herders = Mapping[tuple[str, str], Herder]
"""By aliases of source and target."""


class Internal:
    """Endpoints for task configs and fencing, below `prefix`."""

    def __init__(self, herder_of: Callable[[Call], Herder], prefix: str = "") -> None:
        self._herder_of = herder_of
        self._prefix = prefix

    @classmethod
    def of_flows(cls, herders: Herders) -> Internal:
        """The endpoints of dedicated mode, in which every flow has a herder of its own."""

        def herder_of(call: Call) -> Herder:
            source, target = call["source"], call["target"]
            herder = herders.get((source, target))
            if herder is None:
                raise NotFound(f"No replication flow from {source} to {target} runs here.")
            return herder

        return cls(herder_of, "/{source}/{target}")

    def routes(self) -> list[Route]:
        path = f"{self._prefix}/connectors/{{connector}}"
        return [
            Route("POST", f"{path}/tasks", self.put_tasks, consumes=None, is_signed=True),
            Route("PUT", f"{path}/fence", self.fence, consumes=None, is_signed=True),
        ]

    def put_tasks(self, call: Call) -> Response:
        herder, signature = self._herder_of(call), _signature(call)
        herder.require_signed(signature)  # before anything of the body is looked at
        herder.put_task_configs(call["connector"], read_task_configs(call.body), signature)
        return empty(204)

    def fence(self, call: Call) -> Response:
        self._herder_of(call).fence_zombies(call["connector"], _signature(call))
        return empty(204)


def _signature(call: Call) -> Signature:
    return Signature(
        call.headers.get(SIGNATURE_HEADER), call.headers.get(ALGORITHM_HEADER), call.body
    )
