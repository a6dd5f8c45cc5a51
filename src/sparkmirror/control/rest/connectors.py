"""The endpoints below `/connectors`: calls come in, a herder is asked, answers go out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from starlette.responses import Response

from sparkmirror.control.herding import Herder
from sparkmirror.control.states import ConnectorInfo, RestartRequest, TaskId
from sparkmirror.errors import BadRequest, NotFound

from . import documents
from .answers import answer, empty
from .routes import Call, Route, always

_PATH = "/connectors/{connector}"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_SAFE = "-._~!$&'()*+,=:@"  # what a part of a path may hold as it is; a semicolon would cut the name off


class Connectors:
    """Endpoints of connectors, their tasks, topics and offsets."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/connectors", self.names, is_local=_needs_no_info),
            Route("POST", "/connectors", self.create, reads_json=True),
            Route("GET", _PATH, self.info),
            Route("DELETE", _PATH, self.delete),
            Route("GET", f"{_PATH}/config", self.config),
            Route("PUT", f"{_PATH}/config", self.put_config, reads_json=True),
            Route("PATCH", f"{_PATH}/config", self.patch_config, reads_json=True),
            Route("GET", f"{_PATH}/status", self.status, is_local=always),
            Route("POST", f"{_PATH}/restart", self.restart),
            Route("PUT", f"{_PATH}/pause", self.pause),
            Route("PUT", f"{_PATH}/resume", self.resume),
            Route("PUT", f"{_PATH}/stop", self.stop),
            Route("GET", f"{_PATH}/tasks", self.tasks),
            Route("GET", f"{_PATH}/tasks/{{task}}/status", self.task_status, is_local=always),
            Route("POST", f"{_PATH}/tasks/{{task}}/restart", self.restart_task),
            Route("GET", f"{_PATH}/topics", self.topics, is_local=always),
            Route("PUT", f"{_PATH}/topics/reset", self.reset_topics),
            Route("GET", f"{_PATH}/offsets", self.offsets),
            Route("PATCH", f"{_PATH}/offsets", self.alter_offsets, reads_json=True),
            Route("DELETE", f"{_PATH}/offsets", self.reset_offsets),
        ]

    # -- connectors ----------------------------------------------------------------------------------
    def names(self, call: Call) -> Response:
        expansions = call.query.getlist("expand")
        if not expansions:
            return answer(self._herder.connectors())
        expanded = {}
        for name in self._herder.connectors():
            try:
                expanded[name] = self._expanded(name, expansions)
            except NotFound:
                continue  # it has gone meanwhile
        return answer(expanded)

    def _expanded(self, name: str, expansions: list[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        for expansion in dict.fromkeys(expansions):
            if expansion == "status":
                found["status"] = documents.status_document(self._herder.connector_status(name))
            elif expansion == "info":
                found["info"] = documents.info_document(self._herder.connector_info(name))
        return found

    def create(self, call: Call) -> Response:
        request = documents.read_create_request(call.body)
        config = _named(request.name, request.config)
        created = self._herder.put_connector(
            request.name, config, request.initial_state, may_replace=False
        )
        return _created(call, created.info)

    def info(self, call: Call) -> Response:
        return answer(documents.info_document(self._herder.connector_info(call["connector"])))

    def delete(self, call: Call) -> Response:
        self._herder.delete_connector(call["connector"])
        return empty(204)

    def config(self, call: Call) -> Response:
        return answer(dict(self._herder.connector_config(call["connector"])))

    def put_config(self, call: Call) -> Response:
        name = call["connector"]
        config = _named(name, documents.read_config(call.body))
        created = self._herder.put_connector(name, config, None, may_replace=True)
        if created.is_new:
            return _created(call, created.info)
        return answer(documents.info_document(created.info))

    def patch_config(self, call: Call) -> Response:
        patch = documents.read_config(call.body)
        patched = self._herder.patch_connector(call["connector"], patch)
        return answer(documents.info_document(patched))

    def status(self, call: Call) -> Response:
        return answer(documents.status_document(self._herder.connector_status(call["connector"])))

    # -- states --------------------------------------------------------------------------------------
    def restart(self, call: Call) -> Response:
        name = call["connector"]
        include_tasks, only_failed = flag(call, "includeTasks"), flag(call, "onlyFailed")
        if not include_tasks and not only_failed:
            self._herder.restart_connector(name)
            return empty(204)
        plan = self._herder.restart(RestartRequest(name, only_failed, include_tasks))
        return answer(documents.status_document(plan), 202)

    def pause(self, call: Call) -> Response:
        self._herder.pause(call["connector"])
        return empty(202)

    def resume(self, call: Call) -> Response:
        self._herder.resume(call["connector"])
        return empty(202)

    def stop(self, call: Call) -> Response:
        self._herder.stop_connector(call["connector"])
        return empty(204)

    # -- tasks ---------------------------------------------------------------------------------------
    def tasks(self, call: Call) -> Response:
        return answer(documents.tasks_document(self._herder.task_configs(call["connector"])))

    def task_status(self, call: Call) -> Response:
        status = self._herder.task_status(_task_id(call))
        return answer(documents.task_status_document(status))

    def restart_task(self, call: Call) -> Response:
        self._herder.restart_task(_task_id(call))
        return empty(204)

    # -- topics and offsets --------------------------------------------------------------------------
    def topics(self, call: Call) -> Response:
        name = call["connector"]
        return answer({name: {"topics": self._herder.active_topics(name)}})

    def reset_topics(self, call: Call) -> Response:
        self._herder.reset_active_topics(call["connector"])
        return empty(202)

    def offsets(self, call: Call) -> Response:
        return answer(documents.offsets_document(self._herder.offsets(call["connector"])))

    def alter_offsets(self, call: Call) -> Response:
        offsets = documents.read_offsets(call.body)
        if not offsets:
            raise BadRequest(
                "Partitions / offsets need to be provided for an alter offsets request"
            )
        return answer({"message": self._herder.alter_offsets(call["connector"], offsets)})

    def reset_offsets(self, call: Call) -> Response:
        return answer({"message": self._herder.reset_offsets(call["connector"])})


def _needs_no_info(call: Call) -> bool:
    return "info" not in call.query.getlist("expand")


def _named(name: str, config: Mapping[str, str | None]) -> dict[str, str | None]:
    """A config with the connector's name in it; BadRequest if it says another."""
    included = config.get("name")
    if included is not None and included != name:
        raise BadRequest(
            f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}


def _created(call: Call, info: ConnectorInfo) -> Response:
    response = answer(documents.info_document(info), 201)
    response.headers["Location"] = f"{call.base_url}/connectors/{quote(info.name, safe=_SAFE)}"
    return response


def _task_id(call: Call) -> TaskId:
    text = call["task"]
    if not _WHOLE.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise NotFound("HTTP 404 Not Found")
    return TaskId(call["connector"], int(text))


def flag(call: Call, name: str) -> bool:
    return call.query.get(name, "").lower() == "true"
