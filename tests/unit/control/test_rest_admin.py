"""The endpoints of loggers, with the others, on listeners of their own, and switched off."""

from __future__ import annotations

import logging

import pytest

from sparkmirror.control.loggers import Loggers
from tests.unit.control.rest_serving import Client, Served, serving

_NAME = "sparkmirror.test.rest.admin"


def test_levels_are_shown_and_set() -> None:
    logging.getLogger(_NAME).setLevel(logging.NOTSET)
    with serving(loggers=Loggers(lambda: 1234)) as served:
        path = f"/admin/loggers/{_NAME}"
        changed = served.call("PUT", path, {"level": "debug"})
        assert (changed.status, changed.json) == (200, [_NAME])
        assert served.call("GET", path).json == {"level": "DEBUG", "last_modified": 1234}
        assert served.call("PUT", path, {"level": "DEBUG", "odd": 1}).json == []
        levels = served.call("GET", "/admin/loggers").json
        assert levels[_NAME] == {"level": "DEBUG", "last_modified": 1234}
        assert levels["root"]["last_modified"] is None
        assert list(levels) == sorted(levels)
        unknown = served.call("PUT", f"{path}?scope=odd", {"level": "INFO"})
        assert (unknown.status, unknown.json) == (200, [_NAME])
    logging.getLogger(_NAME).setLevel(logging.NOTSET)


def test_levels_of_the_cluster() -> None:
    with serving() as served:
        for scope in ("cluster", "CLUSTER"):
            answer = served.call("PUT", f"/admin/loggers/a.b?scope={scope}", {"level": "warn"})
            assert (answer.status, answer.body) == (204, b"")
        assert served.herder.cluster_loggers == [("a.b", "WARN")] * 2


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{}", 400, "Desired 'level' parameter was not specified in request."),
        (b'{"level":null}', 400, "Desired 'level' parameter was not specified in request."),
        (b'{"level":"loud"}', 404, "invalid log level 'loud'."),
        (b'{"level":5}', 404, "invalid log level '5'."),
        (b"[]", 500, "JSON"),
        (b"", 500, "no body"),
    ],
)
def test_levels_refused(body: bytes, status: int, message: str) -> None:
    with serving() as served:
        answer = served.call("PUT", "/admin/loggers/a.b", body)
        assert answer.status == status
        assert message in answer.message


def test_unknown_logger() -> None:
    with serving() as served:
        answer = served.call("GET", "/admin/loggers/nobody.logs.this")
        assert (answer.status, answer.message) == (404, "Logger nobody.logs.this not found.")


def _admin(served: Served) -> Client:
    return Client(served.server.ports[1])


def test_listeners_of_their_own() -> None:
    properties = {
        "admin.listeners": "http://127.0.0.1:0",
        "response.http.headers.config": "set X-A: 1",
        "access.control.allow.origin": "*",
    }
    with serving(properties) as served:
        assert served.call("GET", "/admin/loggers").status == 404
        assert served.call("GET", "/").headers["x-a"] == "1"
        answer = _admin(served)("GET", "/admin/loggers/root")
        assert answer.status == 200
        assert not {"x-a", "vary"} & set(answer.headers)
        for path in ("/", "/connectors", "/health"):
            assert _admin(served)("GET", path).status == 404
        assert served.server.advertised_url == f"http://127.0.0.1:{served.call.port}/"


def test_switched_off() -> None:
    with serving({"admin.listeners": ""}) as served:
        assert served.call("GET", "/admin/loggers").status == 404
        assert served.call("GET", "/connectors").status == 200
