"""What a client costs that nobody has let in: as little as the limits say, whatever it sends, and however slowly."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from sparkmirror.control.rest.protocol import Door
from sparkmirror.control.rest.settings import rest_settings
from tests.unit.control.rest_serving import Served, serving

MANY = 1000


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.call.port), timeout=20)


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of what comes, up to the end of the connection."""
    found = http.client.HTTPResponse(connection)
    found.begin()
    return found.status, found.read()


def is_closed(connection: socket.socket) -> bool:
    """Without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@contextmanager
def idle(served: Served, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(served)) for _ in range(count)]


def test_a_head_without_end_is_refused() -> None:
    with serving({"rest.max.header.bytes": "4096"}) as served, connect(served) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with pytest.raises(OSError):
            for number in range(16_000):
                client.sendall(b"X-%d: %s\r\n" % (number, b"y" * 1000))
        assert served.call("GET", "/").status == 200


@pytest.mark.parametrize(
    "behind",
    [
        b"1\r\na\r\n0\r\n" + b"ab:cd\r\n" * 200_000,
        b"1\r\na\r\n0\r\nab: " + b"y" * 1_000_000,
        b"1;" + b"y" * 1_000_000,
    ],
)
@pytest.mark.parametrize("path", [b"/connectors", b"/nowhere"])
def test_what_stands_beside_a_body_is_part_of_the_head(behind: bytes, path: bytes) -> None:
    """Fields behind it, and what may be said of its chunks."""
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % path
    with serving({"rest.max.header.bytes": "4096"}) as served, connect(served) as client:
        client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):  # as soon as it is too much
            client.sendall(behind)
        client.settimeout(10)
        answer = b""
        with contextlib.suppress(ConnectionError):  # it may be reset before its answer is read
            while part := client.recv(1 << 16):
                answer += part
        assert not answer or path == b"/nowhere" or b" 431 " in answer.splitlines()[0]
        assert served.herder.calls == []
        assert served.call("GET", "/").status == 200


@pytest.mark.parametrize("size", [5_000, 60_000, 200_000])
def test_a_long_head_that_comes_at_once_is_refused(size: int) -> None:
    with serving({"rest.max.header.bytes": "4096"}) as served:
        for head in (
            b"GET / HTTP/1.1\r\nX: %s" % (b"y" * size),
            b"GET /%s HTTP/1.1" % (b"y" * size),
        ):
            with connect(served) as client:
                client.sendall(head + b"\r\nHost: x\r\n\r\n")
                assert answer(client)[0] == 431
        assert served.call("GET", "/").status == 200


def test_the_refusal_names_the_key() -> None:
    with serving({"rest.max.header.bytes": "4096"}) as served, connect(served) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 5000)
        status, body = answer(client)
        assert status == 431
        assert b"rest.max.header.bytes" in body


@pytest.mark.parametrize("is_told", [True, False])
def test_a_body_that_is_too_long_is_refused(is_told: bool) -> None:
    with serving({"rest.max.body.bytes": "2000"}) as served, connect(served) as client:
        head = b"PUT /connectors/c/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        if is_told:
            client.sendall(head + b"Content-Length: 2001\r\n\r\n")
        else:
            client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            client.sendall(b"7d1\r\n" + b" " * 2001 + b"\r\n")
        status, body = answer(client)
        assert status == 413
        assert b"rest.max.body.bytes" in body
        assert served.herder.calls == []
        assert served.call("PUT", "/connectors/c/config", {"a": "b" * 1900}).status == 201


def test_a_request_that_comes_slowly_is_given_up() -> None:
    with serving({"rest.request.receive.timeout.ms": "300"}) as served, connect(served) as client:
        begin = time.monotonic()
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        status, body = answer(client)
        assert status == 408
        assert b"rest.request.receive.timeout.ms" in body
        assert time.monotonic() - begin > 0.25


def test_the_time_of_a_request_runs_from_its_first_byte() -> None:
    """One byte now and then does not make it longer."""
    with serving({"rest.request.receive.timeout.ms": "500"}) as served, connect(served) as client:
        begin = time.monotonic()
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        with contextlib.suppress(OSError):
            while time.monotonic() - begin < 5:
                client.sendall(b"y")
                time.sleep(0.1)
                client.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    assert b" 408 " in client.recv(1 << 16)
                    break
        assert time.monotonic() - begin < 4


def test_a_connection_that_was_used_is_closed_when_nothing_more_comes() -> None:
    with serving({"rest.connection.idle.timeout.ms": "300"}) as served, connect(served) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        found = http.client.HTTPResponse(client)
        found.begin()
        assert found.status == 200
        found.read()
        client.settimeout(10)
        assert is_closed(client)


def test_bodies_are_released_with_their_answers() -> None:
    with serving({"rest.max.bodies.bytes": "2000000"}) as served:
        client = http.client.HTTPConnection("127.0.0.1", served.call.port, timeout=30)
        body = json.dumps({"a": "b" * 900_000})
        for _ in range(5):
            client.request(
                "PUT", "/connectors/c/config", body, {"Content-Type": "application/json"}
            )
            found = client.getresponse()
            found.read()
            assert found.status < 300
        client.close()


def test_one_address_has_half_of_the_room_for_bodies() -> None:
    keys = {"rest.max.bodies.bytes": "10000", "rest.max.body.bytes": "2000"}
    door = Door(rest_settings({"listeners": "http://127.0.0.1:0", **keys}, {}).config.limits)
    assert door.hold("a", 5000)
    assert not door.hold("a", 1)
    assert door.hold("b", 5000)
    assert not door.hold("c", 1)
    door.release("a", 5000)
    assert door.hold("c", 5000)


def test_fields_behind_a_body_are_no_headers() -> None:
    """Else somebody could sign, or say who he is, behind what others have looked at."""
    with serving() as served, connect(served) as client:
        client.sendall(
            b"POST /connectors/c/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n[]\r\n0\r\nX-Connect-Authorization: Z29vZA==\r\n"
            b"X-Connect-Request-Signature-Algorithm: HmacSHA256\r\n\r\n"
        )
        client.settimeout(10)
        assert b" 400 " in client.recv(1 << 16).splitlines()[0]
        assert served.herder.signed == []


def test_a_body_that_comes_slowly_is_given_up() -> None:
    with serving({"rest.request.receive.timeout.ms": "300"}) as served, connect(served) as client:
        client.sendall(
            b"PUT /connectors/c/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert answer(client)[0] == 408
        assert served.herder.calls == []


def test_a_connection_on_which_nothing_comes_is_closed() -> None:
    with serving({"rest.connection.idle.timeout.ms": "300"}) as served, connect(served) as client:
        assert is_closed(client)
        assert served.call("GET", "/").status == 200


def test_an_answer_may_take_longer_than_a_request() -> None:
    limits = {"rest.request.receive.timeout.ms": "200", "rest.connection.idle.timeout.ms": "200"}
    with serving(limits) as served:
        before = served.herder.connector_config

        def slowly(name: str) -> object:
            time.sleep(0.6)
            return before(name)

        assert served.call("PUT", "/connectors/c/config", {}).status == 201
        served.herder.connector_config = slowly  # type: ignore[assignment,method-assign]
        assert served.call("GET", "/connectors/c/config").status == 200


def test_connections_in_all_and_of_one_address_are_limited() -> None:
    with serving({"rest.max.connections.per.address": "3"}) as served:
        with idle(served, 3), connect(served) as fourth:
            status, body = answer(fourth)
            assert status == 503
            assert b"from 127.0.0.1" in body
        deadline = time.monotonic() + 10
        while served.call("GET", "/").status != 200:
            assert time.monotonic() < deadline, "those who have left count for ever"
    with (
        serving({"rest.max.connections": "2"}) as served,
        idle(served, 2),
        connect(served) as third,
    ):
        assert b"rest.max.connections" in answer(third)[1]


def test_bodies_of_all_requests_are_limited_together() -> None:
    """Also of those whose sender is looked at only when all is there: calls of other workers."""
    head = b"POST /connectors/c/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
    with serving({"rest.max.bodies.bytes": "2000000"}) as served:
        with idle(served, 3) as clients:
            for client in clients[:2]:
                client.sendall(head + b" " * 899_999)
            clients[2].sendall(head + b" " * 899_999)
            status, body = answer(clients[2])
            assert status == 503
            assert b"rest.max.bodies.bytes" in body
        for _ in range(
            5
        ):  # each is released with its answer, and those of the others with their connections
            wait_until(lambda: served.call("PUT", "/connectors/c/config", LARGE).status < 300)


def test_a_body_behind_its_answer_is_neither_kept_nor_awaited_for_ever() -> None:
    """A path that is not there is answered before the body has come; so is a login that is wrong."""
    limits = {
        "rest.max.bodies.bytes": "2000000",
        "rest.request.receive.timeout.ms": "1000",
        "rest.connection.idle.timeout.ms": "1000",
    }
    head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1900000\r\n\r\n"
    with serving(limits) as served, idle(served, 4) as clients:
        for client in clients:
            client.sendall(head)
            assert answer(client)[0] == 404
            client.sendall(b" " * 1_500_000)
        assert served.call("PUT", "/connectors/c/config", LARGE).status == 201
        clients[0].sendall(
            b" " * 400_000
        )  # the whole body: the connection may be used again, or is closed
        for client in clients:
            client.settimeout(10)
            assert is_closed(client)


LARGE = {"a": "b" * 1_500_000}


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_many_idle_and_slow_connections_and_long_heads_disturb_nobody() -> None:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    with serving({"rest.max.connections.per.address": str(MANY + 100)}) as served:
        before = psutil.Process().memory_info().rss
        with idle(served, MANY) as clients:
            for client in clients[::2]:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            for client in clients[:16]:
                client.settimeout(0.2)
                try:
                    client.sendall(b"y" * (1 << 20))
                except OSError:
                    continue
            times = []
            for _ in range(200):
                begin = time.perf_counter()
                assert served.call("GET", "/connectors").status == 200
                times.append(time.perf_counter() - begin)
            assert sorted(times)[197] < 0.1
            assert psutil.Process().memory_info().rss - before < 50 << 20


def test_a_process_has_as_many_files_as_it_may() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096));"
        "from sparkmirror.processes import raise_file_limit; raise_file_limit();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "(4096, 4096)"
