"""What holds for every endpoint: paths, methods, media types, blocked calls. Recorded from a Java worker 4.3.1."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkmirror.errors import KafkaError
from tests.unit.control.rest_serving import Served, serving

JSON = "application/json"
NOT_FOUND = {"error_code": 404, "message": "HTTP 404 Not Found"}
NOT_ALLOWED = {"error_code": 405, "message": "HTTP 405 Method Not Allowed"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/CONNECTORS",
        "/%63onnectors",
        "/connectors/x/nope",
        "/connectors/x/tasks/0",
        "/admin",
    ],
)
def test_unknown_paths(served: Served, path: str) -> None:
    answer = served.call("GET", path, headers={"Accept": "text/html"})
    assert (answer.status, answer.json) == (404, NOT_FOUND)
    assert "content-type" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/"),
        ("DELETE", "/connectors"),
        ("PATCH", "/connectors/x"),
        ("GET", "/connectors/x/pause"),
    ],
)
def test_wrong_methods(served: Served, method: str, path: str) -> None:
    answer = served.call(method, path)
    assert (answer.status, answer.json) == (405, NOT_ALLOWED)
    assert "content-type" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["//connectors", "/connectors//", "/connectors//status", "/connectors/%zz/status",
     "/connectors/%/status", "/connectors/%ff/status", "/connectors/%00/status",
     "/connectors/%0a/status"],
)  # fmt: skip
def test_bad_paths(served: Served, path: str) -> None:
    answer = served.call("GET", path)
    assert (answer.status, answer.json["error_code"]) == (400, 400)


def test_slash_at_the_end_and_matrix_parameters(served: Served) -> None:
    for path in ("/connectors/", "/connectors;a=b", "/connectors?x=y"):
        assert (served.call("GET", path).status, path) == (200, path)
    missing = served.call("GET", "/connectors/a;b=c/status")
    assert missing.message == "No status found for connector a"
    assert served.call("GET", "/connectors/a%3Bb/status").message.endswith("connector a;b")


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/", "HEAD,GET,OPTIONS"),
        ("/connectors", "HEAD,POST,GET,OPTIONS"),
        ("/connectors/x", "HEAD,DELETE,GET,OPTIONS"),
        ("/connectors/x/config", "HEAD,GET,OPTIONS,PUT,PATCH"),
        ("/connectors/x/offsets", "HEAD,DELETE,GET,OPTIONS,PATCH"),
        ("/connectors/x/pause", "OPTIONS,PUT"),
        ("/connectors/x/restart", "POST,OPTIONS"),
        ("/connectors/x/tasks", "HEAD,POST,GET,OPTIONS"),
    ],
)
def test_options(served: Served, path: str, allow: str) -> None:
    answer = served.call("OPTIONS", path)
    assert answer.status == 200
    assert answer.headers["allow"] == allow
    assert answer.headers["content-type"] == "text/plain"
    assert answer.body.decode() == allow.replace(",", ", ")
    for accept, content_type in (
        (JSON, JSON),
        ("application/xml;q=0.5, text/html", "text/html"),
        ("application/json; charset=utf-8", "application/json;charset=utf-8"),
    ):
        typed = served.call("OPTIONS", path, headers={"Accept": accept})
        assert (typed.body, typed.headers["content-type"]) == (b"", content_type)


def test_head(served: Served) -> None:
    got, head = served.call("GET", "/"), served.call("HEAD", "/")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    assert served.call("HEAD", "/connectors/nope").status == 404


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        ("text/html, */*;q=0.1", JSON),
        ("", JSON),
        ("APPLICATION/JSON", JSON),
        ("application/json;q=0", JSON),
        ("application/json; charset=utf-8", f"{JSON};charset=utf-8"),
        ("application/json;q=0.1;charset=utf-8, */*;q=0.9", JSON),
        ("text/html", None),
        ("garbage", None),
        ("application/vnd.api+json", None),
    ],
)
def test_accept(served: Served, accept: str, content_type: str | None) -> None:
    answer = served.call("GET", "/connectors", headers={"Accept": accept})
    if content_type is None:
        assert (answer.status, answer.message) == (406, "HTTP 406 Not Acceptable")
        assert "content-type" not in answer.headers
    else:
        assert (answer.status, answer.headers["content-type"]) == (200, content_type)


@pytest.mark.parametrize(
    ("content_type", "without_body", "with_body"),
    [
        ("application/json", 404, 404),
        ("application/json; charset=utf-8", 404, 404),
        ("APPLICATION/JSON", 404, 404),
        ("application/*", 404, 404),
        ("text/plain", 415, 415),
        ("application/x-www-form-urlencoded", 415, 415),
        ("application/octet-stream", 415, 415),
        ("garbage", 400, 400),
    ],
)
def test_content_type(served: Served, content_type: str, without_body: int, with_body: int) -> None:
    """A wrong type is refused even where there is nothing to read, which some clients run into."""
    headers = {"Content-Type": content_type}
    path = "/connectors/nope/pause"
    assert served.call("PUT", path, headers=headers).status == without_body
    assert served.call("PUT", path, b"{}", headers).status == with_body


def test_content_type_of_a_body_that_is_read(served: Served) -> None:
    body = b'{"name":"typed","config":{}}'
    refused = served.call("POST", "/connectors", body, {"Content-Type": "text/plain"})
    assert refused.status == 415
    assert "content-type" not in refused.headers
    answer = served.call("POST", "/connectors", body, {"Content-Type": "*/*"})
    assert (answer.status, answer.headers["content-type"]) == (415, JSON)
    assert served.call("POST", "/connectors", body, {"Content-Type": ""}).status == 400
    typed = {"Content-Type": "application/json;charset=UTF-8"}
    assert served.call("POST", "/connectors", body, typed).status == 201
    assert served.call("GET", "/connectors", headers={"Content-Type": "text/plain"}).status == 415
    assert served.call("GET", "/", headers={"Content-Type": "text/plain"}).status == 200


def _exchange(port: int, *requests: bytes) -> list[bytes]:
    """Requests on one connection; the answers."""
    answers = []
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        stream = connection.makefile("rb")
        for request in requests:
            connection.sendall(request)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = stream.readline()
                assert line, head
                head += line
            length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            answers.append(head + stream.read(int(length)))
    return answers


def test_an_offer_of_http2_is_declined_and_the_body_kept(served: Served) -> None:
    """Java's HTTP client offers it with its first request, whatever the method."""
    body = b'{"name":"offered","config":{}}'
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
    )
    created, listed = _exchange(
        served.call.port,
        b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        + offer
        + b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
        b"GET /connectors HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    assert created.startswith(b"HTTP/1.1 201 ")
    assert b'"offered"' in listed


def test_bodies_in_chunks_and_http_1_0(served: Served) -> None:
    (chunked,) = _exchange(
        served.call.port,
        b"PUT /connectors/chunked/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n",
    )
    assert chunked.startswith(b"HTTP/1.1 201 ")
    (old,) = _exchange(
        served.call.port,
        b"PUT /connectors/old/config HTTP/1.0\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}",
    )
    assert f"location: http://127.0.0.1:{served.call.port}/connectors/old".encode() in old


def test_errors_of_a_herder_that_are_not_connects_own(served: Served) -> None:
    def fail() -> None:
        raise KafkaError("No broker of B could be reached.", "Check the address.")

    def break_down() -> None:
        raise ZeroDivisionError("by zero")

    served.herder.before = fail
    try:
        answer = served.call("GET", "/connectors/x")
        assert (answer.status, answer.message) == (
            500,
            "No broker of B could be reached. Check the address.",
        )
        served.herder.before = break_down
        answer = served.call("GET", "/connectors/x")
        assert (answer.status, answer.message) == (500, "ZeroDivisionError: by zero")
    finally:
        served.herder.before = None


def test_a_blocked_herder_does_not_stop_reads() -> None:
    with serving(request_timeout=1.0, health_timeout=0.1) as served:
        assert served.call("GET", "/").status == 200
        served.herder.put_connector("c", {}, None, may_replace=True)
        served.herder.unblocked.clear()
        with ThreadPoolExecutor(80) as pool:
            blocked = [pool.submit(served.call, "GET", "/connectors/c") for _ in range(80)]
            _await(lambda: len(served.herder.calls) > 60)
            assert served.call("GET", "/connectors/c/status").status == 200
            assert served.call("GET", "/").status == 200
            health = served.call("GET", "/health")
            assert (health.status, health.json["status"]) == (500, "unhealthy")
            answers = [each.result() for each in blocked]
        assert {(each.status, each.message) for each in answers} == {(500, "Request timed out")}
        served.herder.unblocked.set()
        _await(lambda: served.call("GET", "/connectors/c").status == 200)


def test_stopping_answers_what_nobody_has_decided() -> None:
    with serving() as served, ThreadPoolExecutor(1) as pool:
        served.herder.unblocked.clear()
        waiting = pool.submit(served.call, "GET", "/connectors/c")
        _await(lambda: bool(served.herder.calls))
        served.server.stop(patience=0.2)
        assert waiting.result().status == 503
        with pytest.raises(ConnectionRefusedError):
            served.call("GET", "/")


def test_stopping_waits_for_what_is_decided() -> None:
    with serving() as served, ThreadPoolExecutor(1) as pool:
        served.herder.unblocked.clear()
        waiting = pool.submit(served.call, "GET", "/connectors/c")
        _await(lambda: bool(served.herder.calls))
        stopper = threading.Thread(target=served.server.stop, args=(10.0,))
        stopper.start()
        _await(lambda: _refuses(served.call.port))
        served.herder.unblocked.set()
        assert waiting.result().status == 404
        stopper.join()


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return True
    return False


def _await(condition: object, patience_s: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
