"""The endpoints of connectors over real HTTP: statuses, bodies and headers are those of a Java worker 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkmirror.control.herding import Signature
from sparkmirror.control.states import Health, State, TargetState, TaskState
from tests.unit.control.rest_serving import Served, serving

JSON = "application/json"


@pytest.fixture(scope="module")
def _server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def served(_server: Served) -> Served:
    """One server for all, with a fresh connector `c`."""
    herder = _server.herder
    herder.forget()
    herder.put_connector("c", {"name": "c", "topics": "a"}, None, may_replace=True)
    herder.calls.clear()
    return _server


def test_root_and_health(served: Served) -> None:
    answer = served.call("GET", "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == JSON
    assert answer.body == (
        b'{"version":"4.3.1","commit":"26b251a451ce941d","kafka_cluster_id":"ec8-APn3QeGCppyXitUjGg"}'
    )
    for state, status in {"healthy": 200, "starting": 503, "unhealthy": 500}.items():
        served.herder.current_health = Health(state, "So it is.")
        answer = served.call("GET", "/health")
        assert (answer.status, answer.json) == (status, {"status": state, "message": "So it is."})


def test_create(served: Served) -> None:
    answer = served.call(
        "POST",
        "/connectors",
        b'{"name":" new\\n","config":{"tasks.max":2,"a":true,"b":1.50,"c":1e5,"d":"x"}}',
        {"Host": "elsewhere.example:99"},
    )
    assert answer.status == 201
    assert answer.headers["location"] == "http://elsewhere.example:99/connectors/new"
    assert answer.headers["content-type"] == JSON
    config = {"tasks.max": "2", "a": "true", "b": "1.50", "c": "1e5", "d": "x", "name": "new"}
    assert answer.json == {
        "name": "new",
        "config": config,
        "tasks": [{"connector": "new", "task": 0}],
        "type": "source",
    }
    assert served.herder.configs["new"] == config
    again = served.call("POST", "/connectors", {"name": "new", "config": {}})
    assert (again.status, again.json) == (
        409,
        {"error_code": 409, "message": "Connector new already exists"},
    )


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("stopped", TargetState.STOPPED),
        ("PAUSED", TargetState.PAUSED),
        ("Running", TargetState.STARTED),
    ],
)
def test_create_in_another_state(served: Served, text: str, state: TargetState) -> None:
    body = {"name": "s", "config": {}, "initial_state": text}
    assert served.call("POST", "/connectors", body).status == 201
    assert served.herder.targets["s"] is state


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"name":"x","config":{"name":"y"}}', 400, "(y) doesn't match connector name in the URL"),
        (b'{"config":{}}', 400, "contains 1 error"),
        (b'{"name":"x","config":{"a":null}}', 400, "contains 1 error"),
        (b"", 500, "JSON"),
        (b"null", 500, "JSON"),
        (b"{", 500, "JSON"),
        (b"[]", 500, "must be an object"),
        (b'"x"', 500, "must be an object"),
        (b'{"name":"x"}', 500, 'no "config"'),
        (b'{"name":"x","config":[]}', 500, "config must be an object"),
        (b'{"name":"x","config":{"a":{}}}', 500, 'config["a"]'),
        (b'{"name":"x","config":{"a":[1]}}', 500, 'config["a"]'),
        (b'{"name":"x","config":{"a":NaN}}', 500, "NaN"),
        (b'{"name":"x","config":{}} {}', 500, "JSON"),
        (b'{"name":"x","config":{},"foo":1}', 500, 'Unrecognized field "foo"'),
        (b'{"name":"x","config":{},"initial_state":"odd"}', 500, "odd"),
        (b"[" * 100_000, 500, "JSON"),
        (b'{"name":"\xff","config":{}}', 500, "JSON"),
    ],
)
def test_create_refused(served: Served, body: bytes, status: int, message: str) -> None:
    answer = served.call("POST", "/connectors", body)
    assert answer.status == status
    assert answer.headers["content-type"] == JSON
    assert answer.json["error_code"] == status
    assert message in answer.message
    assert list(served.herder.configs) == ["c"]


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "ü", "a?b#c", "a%b", "{x}", "a;b", "..", "a+b", 'a"<>|\\', "日本 /%2F"]
)
def test_odd_names(served: Served, name: str) -> None:
    created = served.call("POST", "/connectors", {"name": name, "config": {}})
    assert created.status == 201
    path = "/" + created.headers["location"].split("/", 3)[3]
    assert served.call("GET", path).json["name"] == name
    assert served.call("GET", f"{path}/status/").json["name"] == name
    assert served.call("DELETE", path).status == 204
    assert name not in served.herder.configs


def test_info_config_and_tasks(served: Served) -> None:
    config = {"name": "c", "topics": "a"}
    tasks = [{"connector": "c", "task": 0}]
    info = {"name": "c", "config": config, "tasks": tasks, "type": "source"}
    assert served.call("GET", "/connectors/c").json == info
    assert served.call("GET", "/connectors/c/config").json == config
    assert served.call("GET", "/connectors/c/tasks").json == [
        {"id": {"connector": "c", "task": 0}, "config": {**config, "task.index": "0"}}
    ]


def test_put_and_patch_config(served: Served) -> None:
    created = served.call("PUT", "/connectors/new/config", {"a": 1})
    assert created.status == 201
    assert created.headers["location"] == f"http://127.0.0.1:{served.call.port}/connectors/new"
    replaced = served.call("PUT", "/connectors/new/config", {"name": "new", "b": False})
    assert (replaced.status, replaced.json["config"]) == (200, {"name": "new", "b": "false"})
    assert "location" not in replaced.headers
    patched = served.call("PATCH", "/connectors/new/config", {"b": None, "c": "d"})
    assert (patched.status, patched.json["config"]) == (200, {"name": "new", "c": "d"})
    other = served.call("PUT", "/connectors/new/config", {"name": "old"})
    assert other.status == 400
    assert served.call("PATCH", "/connectors/no/config", {}).status == 404


def test_expanded_lists(served: Served) -> None:
    assert served.call("GET", "/connectors").json == ["c"]
    assert served.call("GET", "/connectors?expand=odd").json == {"c": {}}
    status = served.call("GET", "/connectors/c/status").json
    info = served.call("GET", "/connectors/c").json
    assert served.call("GET", "/connectors?expand=status").json == {"c": {"status": status}}
    both = served.call("GET", "/connectors?expand=status&expand=info")
    assert both.json == {"c": {"status": status, "info": info}}


def test_a_connector_that_goes_meanwhile_is_left_out(served: Served) -> None:
    served.herder.put_connector("d", {}, None, may_replace=True)

    def delete() -> None:
        served.herder.configs.pop("d", None)

    served.herder.before = delete
    assert list(served.call("GET", "/connectors?expand=info").json) == ["c"]


def test_status(served: Served) -> None:
    worker = "127.0.0.1:8083"
    running = {"state": "RUNNING", "worker_id": worker, "version": "4.3.1"}
    answer = served.call("GET", "/connectors/c/status")
    tasks = [{"id": 0, **running}]
    assert answer.json == {"name": "c", "connector": running, "tasks": tasks, "type": "source"}
    assert served.call("GET", "/connectors/c/tasks/0/status").json == tasks[0]
    served.herder.traces["c"] = "Traceback…"
    failed = served.call("GET", "/connectors/c/status").json["connector"]
    assert failed == {**running, "state": "FAILED", "trace": "Traceback…"}


def test_a_note_is_shown_where_there_is_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TaskState(0, State.RUNNING, "w", version="4.3.1", note="From t-0 offset 7 on.")
    monkeypatch.setattr(served.herder, "task_status", lambda _: task)
    answer = served.call("GET", "/connectors/c/tasks/0/status")
    assert answer.json["note"] == "From t-0 offset 7 on."


def test_versions_that_are_not_known(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, shown in ((None, {"version": None}), ("undefined", {})):
        task = TaskState(0, State.UNASSIGNED, "w", version=version)
        monkeypatch.setattr(served.herder, "task_status", lambda _, task=task: task)
        answer = served.call("GET", "/connectors/c/tasks/0/status")
        assert answer.json == {"id": 0, "state": "UNASSIGNED", "worker_id": "w", **shown}


@pytest.mark.parametrize(
    ("query", "status", "call"),
    [
        ("", 204, "restart_connector(c)"),
        ("?includeTasks=odd&onlyFailed=", 204, "restart_connector(c)"),
        ("?includeTasks=true", 202, "restart(only_failed=False, include_tasks=True)"),
        ("?onlyFailed=TRUE", 202, "restart(only_failed=True, include_tasks=False)"),
        (
            "?onlyFailed=true&includeTasks=true",
            202,
            "restart(only_failed=True, include_tasks=True)",
        ),
    ],
)
def test_restart(served: Served, query: str, status: int, call: str) -> None:
    answer = served.call("POST", f"/connectors/c/restart{query}")
    assert answer.status == status
    assert served.herder.calls == [call]
    if status == 202:
        assert answer.json["connector"]["state"] == "RESTARTING"
    else:
        assert answer.body == b""


def test_states(served: Served) -> None:
    for verb, status, target in (
        ("pause", 202, TargetState.PAUSED),
        ("resume", 202, TargetState.STARTED),
        ("stop", 204, TargetState.STOPPED),
    ):
        answer = served.call("PUT", f"/connectors/c/{verb}")
        assert (answer.status, answer.body) == (status, b"")
        assert "content-type" not in answer.headers
        assert served.herder.targets["c"] is target
    assert served.call("POST", "/connectors/c/tasks/0/restart").status == 204
    assert served.call("DELETE", "/connectors/c").status == 204
    assert served.herder.configs == {}


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "", "Connector x not found"),
        ("GET", "/config", "Connector x not found"),
        ("GET", "/tasks", "Connector x not found"),
        ("GET", "/offsets", "Connector x not found"),
        ("DELETE", "", "Connector x not found"),
        ("GET", "/status", "No status found for connector x"),
        ("GET", "/tasks/7/status", "No status found for task x-7"),
        ("GET", "/tasks/+7/status", "No status found for task x-7"),
        ("GET", "/tasks/-1/status", "No status found for task x--1"),
        ("GET", "/tasks/abc/status", "HTTP 404 Not Found"),
        ("GET", "/tasks/2147483648/status", "HTTP 404 Not Found"),
        ("PUT", "/pause", "Unknown connector x"),
        ("PUT", "/resume", "Unknown connector x"),
        ("PUT", "/stop", "Unknown connector x"),
        ("POST", "/restart", "Unknown connector: x"),
        ("POST", "/tasks/0/restart", "Unknown connector: x"),
    ],
)
def test_not_found(served: Served, method: str, path: str, message: str) -> None:
    answer = served.call(method, f"/connectors/x{path}")
    assert answer.status == 404
    assert answer.headers["content-type"] == JSON
    assert answer.json == {"error_code": 404, "message": message}


def test_topics(served: Served) -> None:
    assert served.call("GET", "/connectors/c/topics").json == {"c": {"topics": ["A.orders"]}}
    assert served.call("GET", "/connectors/x/topics").json == {"x": {"topics": []}}
    assert served.call("PUT", "/connectors/c/topics/reset").status == 202
    served.herder.tracks_topics = False
    refused = served.call("GET", "/connectors/c/topics")
    assert (refused.status, refused.message) == (403, "Topic tracking is disabled.")


def test_offsets(served: Served) -> None:
    path = "/connectors/c/offsets"
    assert served.call("GET", path).json == {"offsets": []}
    partition = {"cluster": "A", "partition": 0, "topic": "orders"}
    body = {"offsets": [{"partition": partition, "offset": {"offset": 125}}]}
    assert served.call("PATCH", path, body).status == 400
    served.herder.targets["c"] = TargetState.STOPPED
    altered = served.call("PATCH", path, body)
    assert altered.json == {
        "message": "The offsets for this connector have been altered successfully"
    }
    assert served.call("GET", path).json == body
    removed = {"offsets": [{"partition": partition, "offset": None}]}
    assert served.call("PATCH", path, removed).status == 200
    assert served.call("GET", path).json == {"offsets": []}
    assert "reset" in served.call("DELETE", path).message


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{}", 400),
        (b'{"offsets":[]}', 400),
        (b'{"offsets":null}', 400),
        (b"", 500),
        (b"[]", 500),
        (b'{"offsets":{}}', 500),
        (b'{"offsets":[null]}', 500),
        (b'{"offsets":[{"partition":5}]}', 500),
        (b'{"offsets":[{"partition":{},"offset":1}]}', 500),
        (b'{"offsets":[{"partition":{},"foo":1}]}', 500),
        (b'{"offsets":[],"foo":1}', 500),
    ],
)
def test_offsets_refused(served: Served, body: bytes, status: int) -> None:
    answer = served.call("PATCH", "/connectors/c/offsets", body)
    assert (answer.status, answer.json["error_code"]) == (status, status)
    assert "alter_offsets" not in served.herder.calls


def test_plugins(served: Served) -> None:
    listed = served.call("GET", "/connector-plugins").json
    assert [plugin["type"] for plugin in listed] == ["source"]
    assert len(served.call("GET", "/connector-plugins?connectorsOnly=").json) == 1
    assert len(served.call("GET", "/connector-plugins?connectorsOnly=false").json) == 2
    keys = served.call("GET", "/connector-plugins/MirrorSourceConnector/config?version=4.3.1").json
    assert keys[0]["default_value"] == "4.3.1"
    unknown = served.call("GET", "/connector-plugins/nope/config")
    assert (unknown.status, unknown.message) == (404, "Unknown plugin nope.")
    path = "/connector-plugins/MirrorSourceConnector/config/validate"
    answer = served.call("PUT", path, {"tasks.max": 2, "a": None})
    assert answer.json["configs"] == [{"tasks.max": "2", "a": None}]


def test_what_workers_ask_of_each_other(served: Served) -> None:
    signed = {
        "X-Connect-Authorization": "Z29vZA==",
        "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
    }
    body = b'[{"a": "b"}]'
    assert served.call("POST", "/connectors/c/tasks", body, signed).status == 204
    assert served.herder.task_sets == {"c": [{"a": "b"}]}
    assert served.herder.signed == [Signature("Z29vZA==", "HmacSHA256", body)]
    assert served.call("PUT", "/connectors/c/fence", headers=signed).status == 204
    assert served.herder.signed[-1].body == b""
    unsigned = served.call("PUT", "/connectors/c/fence")
    assert (unsigned.status, unsigned.message) == (
        400,
        "Internal request missing required signature",
    )
    forged = {**signed, "X-Connect-Authorization": "YmFk"}
    assert served.call("POST", "/connectors/c/tasks", body, forged).status == 403
    assert served.call("POST", "/connectors/c/tasks", b"{}", signed).status == 500


def test_openapi_and_docs(served: Served) -> None:
    document = served.call("GET", "/openapi.json")
    assert document.headers["content-type"] == JSON
    assert document.json["openapi"].startswith("3.1")
    page = served.call("GET", "/docs", headers={"Accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    assert "/connectors/{connector}/status" in text
    assert "http://" not in text
    assert "https://" not in text
