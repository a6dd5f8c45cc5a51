"""Requests that another worker has to decide: two and three servers that point at each other."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkmirror.control.forwarding import Passed, WorkerClient
from sparkmirror.control.herding import Signature
from sparkmirror.control.rest.server import InternalRestServer
from sparkmirror.control.rest.settings import rest_settings
from sparkmirror.errors import (
    BadRequest,
    Conflict,
    ConnectError,
    Forbidden,
    NotFound,
    NotHere,
    Unavailable,
)
from tests.unit.control.rest_herder import MemoryHerder
from tests.unit.control.rest_serving import LOCAL, Served, serving

SIGNED = {
    "X-Connect-Authorization": "Z29vZA==",
    "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
}


def _follower(leader_url: str | None) -> MemoryHerder:
    herder = MemoryHerder()
    herder.is_leader = False
    herder.leader = leader_url
    return herder


@pytest.fixture(scope="module")
def leader() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def follower(leader: Served) -> Iterator[Served]:
    with serving(herder=_follower(leader.server.advertised_url)) as served:
        yield served


def test_a_follower_answers_as_its_leader_does(leader: Served, follower: Served) -> None:
    body = {"name": "a/b", "config": {"x": 1}}
    created = follower.call("POST", "/connectors", body)
    assert created.status == 201
    # The new connector is where it was asked for.
    assert created.headers["location"] == f"http://127.0.0.1:{follower.call.port}/connectors/a%2Fb"
    assert created.headers["content-type"] == "application/json"
    assert leader.herder.configs["a/b"] == {"x": "1", "name": "a/b"}
    assert follower.herder.configs == {}
    assert follower.call("PUT", "/connectors/a%2Fb/pause").status == 202
    restarted = follower.call("POST", "/connectors/a%2Fb/restart?includeTasks=true&onlyFailed=true")
    assert restarted.status == 202
    assert restarted.json["connector"]["state"] == "RESTARTING"
    assert leader.herder.calls[-1] == "restart(only_failed=True, include_tasks=True)"
    again = follower.call("POST", "/connectors", body)
    assert (again.status, again.message) == (409, "Connector a/b already exists")
    assert follower.call("DELETE", "/connectors/a%2Fb").status == 204
    missing = follower.call("DELETE", "/connectors/a%2Fb")
    assert (missing.status, missing.message) == (404, "Connector a/b not found")


def test_signed_requests_stay_signed(leader: Served, follower: Served) -> None:
    assert follower.call("POST", "/connectors/c/tasks", [{"a": "b"}], SIGNED).status == 204
    assert leader.herder.task_sets["c"] == [{"a": "b"}]
    assert leader.herder.signed[-1].body == b'[{"a": "b"}]'


def test_a_request_is_passed_on_twice_at_most(leader: Served) -> None:
    with (
        serving(herder=_follower(leader.server.advertised_url)) as last,
        serving(herder=_follower(last.server.advertised_url)) as middle,
        serving(herder=_follower(middle.server.advertised_url)) as first,
    ):
        # middle -> last -> leader: two hops.
        assert middle.call("PUT", "/connectors/two/config", {}).status == 201
        # first -> middle -> last: the third worker may not pass it on.
        answer = first.call("PUT", "/connectors/three/config", {})
        assert answer.status == 409
        assert "conflicting operation" in answer.message
        assert "three" not in leader.herder.configs
        assert first.call("PUT", "/connectors/x/config?forward=true", {}).status == 409
        assert last.call("PUT", "/connectors/x/config?forward=false", {}).status == 409
        assert last.call("PUT", "/connectors/x/config?forward=true", {}).status == 201
        assert last.call("PUT", "/connectors/y/config?forward=", {}).status == 201


def test_without_a_leader() -> None:
    with serving(herder=_follower(None)) as served:
        answer = served.call("GET", "/connectors/x")
        assert answer.status == 409
        assert "no known leader URL" in answer.message


def test_a_leader_that_cannot_be_reached() -> None:
    with serving() as gone:
        url = gone.server.advertised_url
    with serving(herder=_follower(url)) as served:
        answer = served.call("GET", "/connectors/x")
        assert answer.status == 500
        assert answer.message.startswith(f"IO Error trying to forward REST request: {url}")


def test_a_leader_with_an_address_that_is_none() -> None:
    with serving(herder=_follower("http://127.0.0.1:99999/")) as served:
        answer = served.call("GET", "/connectors/x")
        assert answer.status == 500
        assert answer.message.startswith("IO Error trying to forward REST request: http://")


def test_an_answer_without_end_is_not_kept() -> None:
    """Who claims to be the leader may be anybody in the group."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(1000):
                peer.sendall(bytes(1 << 20))

    with listener:
        endless = threading.Thread(target=answer)
        endless.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(ConnectError, match="has more than 67,108,864 bytes"):
            WorkerClient().send(url, Passed("GET", "/connectors"))
        endless.join(10)


class _Recorder(http.server.BaseHTTPRequestHandler):
    """Keeps what it was asked, and answers what a test wants."""

    asked: list[tuple[str, str, dict[str, str]]]
    status = 200
    body = b"{}"

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append((self.command, self.path, headers))
        self.send_response(self.status)
        self.send_header("Location", "http://nowhere.invalid/")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_PUT = do_POST = _answer

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def _recording() -> Iterator[tuple[type[_Recorder], str]]:
    kind = type("Recorder", (_Recorder,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield kind, f"http://127.0.0.1:{server.server_port}/base/"
        finally:
            server.shutdown()
            thread.join()


def test_what_is_passed_on() -> None:
    with _recording() as (recorder, url), serving(herder=_follower(url)) as served:
        headers = {"Authorization": "Basic YTpi", "X-Private": "1", "Cookie": "c=d"}
        served.call("GET", "/connectors/a%2Fb/config?x=%26&forward=true", headers=headers)
        served.call("PUT", "/connectors/a/config", {"a": "b"}, SIGNED)
        (first, second) = recorder.asked
        assert first[:2] == ("GET", "/base/connectors/a%2Fb/config?x=%26&forward=false")
        assert first[2]["authorization"] == "Basic YTpi"
        assert first[2]["user-agent"] == "kafka-connect"
        assert not {"x-private", "cookie", "content-type"} & set(first[2])
        assert second[:2] == ("PUT", "/base/connectors/a/config?forward=true")
        assert second[2]["content-type"] == "application/json"
        assert "x-connect-authorization" not in second[2]
        recorder.status = 302
        redirected = served.call("GET", "/connectors/x")
        assert redirected.status == 500
        assert redirected.message.endswith("forwarded request: 302")


def test_task_configs_and_fencing_of_a_client(leader: Served) -> None:
    client, url = WorkerClient(), leader.server.advertised_url

    def sign(body: bytes) -> Signature:
        return Signature("Z29vZA==", "HmacSHA256", body)

    client.post_task_configs(url, "odd/ü", [{"k": "ä"}, {}], sign)
    assert leader.herder.task_sets["odd/ü"] == [{"k": "ä"}, {}]
    assert leader.herder.signed[-1].body == '[{"k":"ä"},{}]'.encode()
    client.put_fence(url, "odd/ü", sign)
    assert leader.herder.calls[-1] == "fence_zombies"
    with pytest.raises(Forbidden, match="invalid signature"):
        client.post_task_configs(url, "c", [], lambda body: Signature("bad", "HmacSHA256", body))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadRequest), (404, NotFound), (409, Conflict), (503, Unavailable), (500, ConnectError)],
)
def test_errors_of_a_leader(status: int, kind: type[ConnectError]) -> None:
    with _recording() as (recorder, url):
        recorder.status = status
        for body, message in ((b'{"message":"So it is."}', "So it is."), (b"odd", "odd")):
            recorder.body = body
            with pytest.raises(ConnectError) as raised:
                WorkerClient().put_fence(url, "c", lambda body: Signature("a", "b", body))
            assert type(raised.value) is kind
            assert raised.value.message == message


def test_the_rule_of_hops() -> None:
    client = WorkerClient()
    request = Passed("GET", "/connectors")
    with pytest.raises(Conflict, match="conflicting operation"):
        client.forward(request, NotHere("x", url="http://127.0.0.1:1/"), False)
    with pytest.raises(Conflict, match="no known leader"):
        client.forward(request, NotHere("x", url=None), None)


def test_dedicated_mode_serves_flows_and_nothing_else() -> None:
    herders = {("A", "B"): MemoryHerder(), ("B x", "A"): MemoryHerder()}
    server = InternalRestServer(rest_settings({"listeners": LOCAL}, {}), herders)
    server.start()
    try:
        client = server.client

        def sign(body: bytes) -> Signature:
            return Signature("Z29vZA==", "HmacSHA256", body)

        client.post_task_configs(
            f"{server.advertised_url}B%20x/A", "MirrorSourceConnector", [{"a": "b"}], sign
        )
        assert herders["B x", "A"].task_sets == {"MirrorSourceConnector": [{"a": "b"}]}
        assert herders["A", "B"].task_sets == {}
        with pytest.raises(NotFound, match="No replication flow from B to A"):
            client.put_fence(f"{server.advertised_url}B/A", "c", sign)
        for path in ("/", "/connectors", "/health", "/admin/loggers", "/A/B", "/openapi.json"):
            answer = client.send(server.advertised_url, Passed("GET", path))
            assert (answer.status, path) == (404, path)
    finally:
        server.stop()


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff"])
def test_a_call_without_a_signature_is_refused_unread(leader: Served, body: bytes) -> None:
    answer = leader.call("POST", "/connectors/c/tasks", body)
    assert answer.status == 400
    assert "signature" in answer.message


def test_of_a_signed_call_it_does_not_matter_what_it_accepts(leader: Served) -> None:
    headers = {**SIGNED, "Accept": "image/png"}
    assert leader.call("POST", "/connectors/c/tasks", [], headers).status == 204
