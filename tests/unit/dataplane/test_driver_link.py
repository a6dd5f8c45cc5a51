"""Connections between the driver and its tasks: who gets through, and how tasks hear that they should end."""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.config.link_ports import LinkPorts
from sparkmirror.dataplane.links.address import (
    GREETING_BYTES,
    NO_TLS,
    Address,
    Driver,
    Purpose,
    SessionSecret,
    greeting,
    purpose_of,
)
from sparkmirror.dataplane.links.connecting import connect
from sparkmirror.dataplane.links.driver_link import DriverLink, DriverLinks
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.dataplane.links.ports import listen
from sparkmirror.dataplane.links.session_tls import client_context, new_secret
from sparkmirror.dataplane.plan import FLOW, RateLimit
from sparkmirror.dataplane.rate_shares import RateShares
from sparkmirror.errors import ConfigError, SparkError

_HOST = "127.0.0.1"
_STRANGE = b"GET / HTTP/1.1\r\nHost: localhost:8083\r\n\r\n"


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def listener(request: pytest.FixtureRequest) -> Iterator[DriverListener]:
    made = DriverListener(_HOST, _HOST, new_secret(tls=request.param))
    yield made
    made.close()


@pytest.fixture
def links(listener: DriverListener) -> Iterator[DriverLinks]:
    made = DriverLinks(listener)
    yield made
    made.close()


@pytest.fixture
def driver(listener: DriverListener) -> Driver:
    return listener.driver


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


# -- links --------------------------------------------------------------------------------------


def test_a_task_sees_that_its_job_is_cut_and_no_other(links: DriverLinks, driver: Driver) -> None:
    jobs = [uuid.uuid4(), uuid.uuid4()]
    for job in jobs:
        links.expect(job)
    found = [DriverLink(driver, job, plan=3) for job in jobs]
    assert soon(lambda: all(links.begun(job) == {3} for job in jobs))
    assert not any(link.is_cut for link in found)
    assert [link.host for link in found] == [_HOST, _HOST]
    links.cut(jobs[0])
    assert soon(lambda: found[0].is_cut)
    assert not found[1].is_cut
    for link in found:
        link.close()
    assert found[0].is_cut, "it stays cut"


def test_a_task_that_comes_too_late_is_cut_at_once(links: DriverLinks, driver: Driver) -> None:
    job = uuid.uuid4()
    links.expect(job)
    links.cut(job)
    link = DriverLink(driver, job)
    assert soon(lambda: link.is_cut)
    link.close()


def test_all_are_cut_when_the_process_goes(links: DriverLinks, driver: Driver) -> None:
    job = uuid.uuid4()
    links.expect(job)
    link = DriverLink(driver, job)
    assert soon(lambda: bool(links.begun(job)))
    assert not link.is_cut
    links.close()
    assert soon(lambda: link.is_cut)
    link.close()


def test_a_task_without_a_driver_is_never_cut() -> None:
    assert not DriverLink(None, uuid.uuid4()).is_cut


@pytest.mark.parametrize(
    ("purpose", "named"),
    [
        (Purpose.DRIVER_LINK, ("the driver", "mirror.driver.port", "spark.driver.host")),
        (Purpose.SLICES, ("the copy task", "mirror.task.ports")),
    ],
)
def test_an_unreachable_listener_is_named_with_the_keys_that_set_it(
    monkeypatch: pytest.MonkeyPatch, purpose: Purpose, named: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sparkmirror.dataplane.links.connecting._PATIENCE_S", 0.2)
    with socket.create_server((_HOST, 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SparkError) as caught:
        connect(Address(_HOST, port), purpose, SessionSecret("t" * 32))
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - it crosses Spark
    assert f"{_HOST}:{port}" in error.message
    assert all(each in error.message + error.remedy for each in named)


# -- rate limits --------------------------------------------------------------------------------


class Asking:
    """A copy task that tells what it has read."""

    def __init__(self, driver: Driver, job: uuid.UUID, plan: int) -> None:
        self.link = DriverLink(driver, job, plan)

    def ask(self, usage: dict[str, tuple[float, bool]]) -> dict[str, float]:
        self.link.send(json.dumps(usage).encode())
        found: list[bytes] = []

        def has_come() -> bool:
            assert not self.link.is_cut
            found.extend(self.link.received())
            return bool(found)

        assert soon(has_come)
        (answer,) = found
        shares: dict[str, float] = json.loads(answer)
        return shares


def shared(*topics: str) -> RateShares:
    """Limits of 1000 bytes that two tasks share."""
    limits = tuple(RateLimit(topic, 1000, 2) for topic in topics)
    plans = [SimpleNamespace(index=index, limits=limits) for index in range(2)]
    found = RateShares.of(cast(Any, plans))
    assert found is not None
    return found


def test_shares_go_where_they_are_asked_for(links: DriverLinks, driver: Driver) -> None:
    job = uuid.uuid4()
    links.expect(job, shared(FLOW, "t"))
    busy, idle = (Asking(driver, job, plan) for plan in range(2))
    assert busy.ask({}) == idle.ask({}) == {FLOW: 500, "t": 500}
    assert busy.ask({FLOW: (100.0, False)}) == {}, "nobody wants more"
    assert busy.ask({FLOW: (500.0, True)}) == {FLOW: 500}, "the other one has the rest"
    assert idle.ask({}) == {FLOW: 50}
    assert busy.ask({FLOW: (500.0, True)}) == {FLOW: 500}, "and may be using it"
    assert idle.ask({}) == {FLOW: 50}
    assert busy.ask({FLOW: (500.0, True)}) == {FLOW: 950}
    again = Asking(driver, job, 1)
    assert again.ask({FLOW: (500.0, True)}) == {FLOW: 50, "t": 500}, "as the attempt before it"
    for each in (busy, idle, again):
        each.link.close()


def test_a_task_that_asks_for_shares_sees_that_its_job_is_cut(
    links: DriverLinks, driver: Driver
) -> None:
    job = uuid.uuid4()
    links.expect(job, shared(FLOW))
    tasks = [Asking(driver, job, plan) for plan in range(2)]
    tasks[0].ask({})
    before = threading.active_count()
    links.cut(job)
    assert soon(lambda: all(task.link.is_cut for task in tasks))
    assert soon(lambda: threading.active_count() <= before - 2), "nobody serves them any more"
    tasks[0].link.send(b"{}")
    assert tasks[0].link.received() == []
    for task in tasks:
        task.link.close()


def test_long_messages_come_in_parts(links: DriverLinks, driver: Driver) -> None:
    job, topics = uuid.uuid4(), [f"topic-{number:0200}" for number in range(2000)]
    links.expect(job, shared(*topics))
    task = Asking(driver, job, 0)
    assert set(task.ask({})) == set(topics)
    assert set(task.ask(dict.fromkeys(topics, (1.0, True)))) == set(topics)
    task.link.close()


def test_a_message_that_is_too_long_ends_the_link(links: DriverLinks, driver: Driver) -> None:
    job = uuid.uuid4()
    links.expect(job, shared(FLOW))
    link = DriverLink(driver, job)
    link.send(bytes(5 << 20))
    assert soon(lambda: link.received() == [] and link.is_cut)
    link.close()


def talking(listener: DriverListener, message: bytes) -> DriverLink:
    """A link whose driver sends this."""

    def take(connection: socket.socket) -> None:
        with contextlib.closing(connection), contextlib.suppress(OSError):  # the task may hang up
            connection.recv(20)
            connection.sendall(b"+")
            connection.sendall(message)

    listener.serve(Purpose.DRIVER_LINK, take)
    return DriverLink(listener.driver, uuid.uuid4())


def test_a_task_does_not_wait_for_a_message_that_is_too_long(listener: DriverListener) -> None:
    link = talking(listener, struct.pack(">I", (4 << 20) + 1) + b"{}")
    with pytest.raises(SparkError, match=r"driver .*4194305 bytes"):
        soon(lambda: link.is_cut or bool(link.received()))
    link.close()


def test_a_task_that_is_flooded_takes_its_link_for_cut(listener: DriverListener) -> None:
    link = talking(listener, bytes(32 << 20))
    assert soon(lambda: link.is_cut)
    assert len(link._received) < 5 << 20
    assert link.is_cut, "it stays cut"
    link.close()


@pytest.mark.parametrize("limits", [(), (FLOW,)], ids=["silent", "with rate limits"])
def test_a_task_that_is_gone_has_not_begun_until_it_comes_again(
    links: DriverLinks, driver: Driver, limits: tuple[str, ...]
) -> None:
    job = uuid.uuid4()
    links.expect(job, shared(*limits) if limits else None)
    first, other = (DriverLink(driver, job, plan) for plan in range(2))
    assert soon(lambda: links.begun(job) == {0, 1})
    first.close()
    assert soon(lambda: links.begun(job) == {1})
    again = DriverLink(driver, job, 0)
    assert soon(lambda: links.begun(job) == {0, 1})
    assert not other.is_cut
    for each in (again, other):
        each.close()


# -- who gets through ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        greeting("0" * 32, Purpose.DRIVER_LINK),
        greeting("0" * 32, Purpose.QUERIES),
        _STRANGE,
        b"\xff" * 4096,
    ],
)
def test_nobody_gets_through_without_the_token(
    listener: DriverListener, caplog: pytest.LogCaptureFixture, words: bytes
) -> None:
    met: list[socket.socket] = []
    for purpose in Purpose:
        listener.serve(purpose, met.append)
    address = listener.driver.address
    with caplog.at_level(logging.WARNING), socket.create_connection(address) as stranger:
        if listener.driver.secret.key != NO_TLS:
            stranger = client_context(listener.driver.secret.key).wrap_socket(stranger)
        stranger.sendall(words)
        assert is_closed(stranger)
        stranger.close()
    assert met == []
    (record,) = [each for each in caplog.records if "Refused a connection" in each.message]
    assert _HOST in record.message
    assert listener.driver.secret.token not in record.message


def test_another_session_s_key_does_not_do() -> None:
    listener = DriverListener(_HOST, _HOST, new_secret(tls=True))
    met: list[socket.socket] = []
    listener.serve(Purpose.DRIVER_LINK, met.append)
    try:
        other = replace(new_secret(tls=True), token=listener.driver.secret.token)
        with pytest.raises(SparkError, match="cannot connect to the driver"):
            connect(listener.driver.address, Purpose.DRIVER_LINK, other)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(listener.driver.address)
        stranger = context.wrap_socket(plain)  # without a certificate of its own
        stranger.settimeout(10)
        with stranger, pytest.raises(OSError, match=r"(?i)certificate|reset|pipe|eof"):
            stranger.sendall(greeting(listener.driver.secret.token, Purpose.DRIVER_LINK))
            assert stranger.recv(1) == b""
            raise ConnectionResetError("it was reset")
        assert met == []
    finally:
        listener.close()


def test_who_says_nothing_is_dropped_and_does_not_keep_others_out(
    listener: DriverListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkmirror.dataplane.links.driver_listener._GREETING_S", 5.0)
    met: list[socket.socket] = []
    listener.serve(Purpose.DRIVER_LINK, met.append)
    driver = listener.driver
    silent = [socket.create_connection(driver.address) for _ in range(200)]
    began = time.monotonic()
    found = connect(driver.address, Purpose.DRIVER_LINK, driver.secret)
    assert soon(lambda: len(met) == 1)
    assert time.monotonic() - began < 4, "they were not waited for"
    assert all(is_closed(each) for each in silent)
    for each in (*silent, *met, found):
        each.close()


def test_a_greeting_has_one_size_and_one_meaning() -> None:
    token = "t" * 32
    for purpose in Purpose:
        data = greeting(token, purpose)
        assert len(data) == GREETING_BYTES
        assert purpose_of(data, token) is purpose
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 0x80
            assert purpose_of(changed, token) is None


def test_secrets_are_not_in_texts(driver: Driver) -> None:
    shown = f"{driver} {driver!r} {driver.secret} {driver.secret!r}"
    assert driver.secret.token not in shown
    assert "PRIVATE" not in shown


def test_a_driver_without_threads_left_serves_again_when_it_has_some(
    listener: DriverListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, job = DriverLinks(listener), uuid.uuid4()
    links.expect(job)
    start = threading.Thread.start
    failures = iter([True, True])

    def fails(self: threading.Thread) -> None:
        if next(failures, False):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fails)
    for _ in range(2):
        with pytest.raises(SparkError):
            DriverLink(listener.driver, job)
    link = DriverLink(listener.driver, job)
    assert not link.is_cut
    link.close()
    links.close()


def test_a_link_that_the_driver_drops_is_an_error_and_no_end_of_the_job(
    listener: DriverListener,
) -> None:
    """A task that ended in order would not be run again, and its partitions not be copied."""
    listener.serve(Purpose.DRIVER_LINK, lambda connection: connection.close())
    with pytest.raises(SparkError, match="cannot connect to the driver"):
        DriverLink(listener.driver, uuid.uuid4())


def test_a_listener_that_comes_late_is_waited_for() -> None:
    with listen(_HOST, [0]) as chosen:
        port = chosen.getsockname()[1]
    made: list[Any] = []

    def start() -> None:
        time.sleep(0.5)
        made.append(DriverListener(_HOST, _HOST, SessionSecret("t" * 32), port))

    threading.Thread(target=start).start()
    connect(Address(_HOST, port), Purpose.DRIVER_LINK, SessionSecret("t" * 32)).close()
    made[0].close()


# -- ports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_addresses_of_ipv6(host: str) -> None:
    with listen(host, [0]) as found:
        assert found.family == socket.AF_INET6
        if host == "::":
            socket.create_connection((_HOST, found.getsockname()[1]), 5).close()
    assert str(Address("::1", 5)) == "[::1]:5"


def test_the_first_free_port_is_taken() -> None:
    with listen(_HOST, [0]) as taken, listen(_HOST, [0]) as free:
        used, other = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        with listen(_HOST, [used, other]) as found:
            assert found.getsockname()[1] == other
        with pytest.raises(OSError, match=r"(?i)in use"):
            listen(_HOST, [used])


@pytest.mark.parametrize(
    ("keys", "ports"),
    [
        ({}, LinkPorts(0, (0,))),
        ({"mirror.driver.port": "7077"}, LinkPorts(7077, (0,))),
        ({"mirror.task.ports": "20000-20003"}, LinkPorts(0, (20000, 20001, 20002, 20003))),
        ({"mirror.task.ports": " 20000 "}, LinkPorts(0, (20000,))),
    ],
)
def test_ports_are_read(keys: dict[str, str], ports: LinkPorts) -> None:
    assert LinkPorts.parse(keys) == ports


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mirror.driver.port", "http"),
        ("mirror.driver.port", "65536"),
        ("mirror.driver.port", "-1"),
        ("mirror.task.ports", "20003-20000"),
        ("mirror.task.ports", "0-10"),
        ("mirror.task.ports", "a-b"),
        ("mirror.task.ports", "70000"),
    ],
)
def test_what_is_not_a_port_is_refused_with_its_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LinkPorts.parse({key: value})
    assert key in caught.value.message
    assert caught.value.remedy


def test_of_those_who_say_nothing_only_the_last_are_kept(
    listener: DriverListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkmirror.dataplane.links.driver_listener._GREETING_S", 60.0)
    silent = [socket.create_connection(listener.driver.address) for _ in range(200)]
    assert soon(lambda: sum(is_closed_by_now(each) for each in silent) >= 200 - 64)
    assert len(listener._greeting) <= 64
    for each in silent:
        each.close()


def is_closed_by_now(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_an_older_tls_does_not_do() -> None:
    secret = new_secret(tls=True)
    listener = DriverListener(_HOST, _HOST, secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        plain = socket.create_connection(listener.driver.address, timeout=10)
        with plain, pytest.raises(OSError, match=r"(?i)version|protocol|alert|reset|eof"):
            context.wrap_socket(plain)
    finally:
        listener.close()
