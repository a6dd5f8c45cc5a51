"""Connections between the driver and its tasks: who gets through, and how tasks hear that they should end."""

from __future__ import annotations

import logging
import pickle
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from sparkmirror.config.link_ports import LinkPorts
from sparkmirror.dataplane.links.address import (
    GREETING_BYTES,
    Address,
    Driver,
    Purpose,
    greeting,
    purpose_of,
)
from sparkmirror.dataplane.links.connecting import connect
from sparkmirror.dataplane.links.driver_link import DriverLink, DriverLinks
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.dataplane.links.ports import listen
from sparkmirror.dataplane.links.session_tls import NO_TLS, client_context, new_session_key
from sparkmirror.errors import ConfigError, SparkError

_HOST = "127.0.0.1"
_KEY = new_session_key()
_STRANGE = b"GET / HTTP/1.1\r\nHost: localhost:8083\r\n\r\n"


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(params=[NO_TLS, _KEY], ids=["plain", "TLS"])
def listener(request: pytest.FixtureRequest) -> Iterator[DriverListener]:
    made = DriverListener(_HOST, _HOST, session_key=request.param)
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
    purpose: Purpose, named: tuple[str, ...]
) -> None:
    with socket.create_server((_HOST, 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SparkError) as caught:
        connect(Address(_HOST, port, "t" * 32), purpose, NO_TLS)
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - it crosses Spark
    assert f"{_HOST}:{port}" in error.message
    assert all(each in error.message + error.remedy for each in named)


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
    with caplog.at_level(logging.WARNING), socket.create_connection(address[:2]) as stranger:
        if listener.driver.session_key != NO_TLS:
            stranger = client_context(listener.driver.session_key).wrap_socket(stranger)
        stranger.sendall(words)
        assert is_closed(stranger)
        stranger.close()
    assert met == []
    (record,) = [each for each in caplog.records if "Refused a connection" in each.message]
    assert _HOST in record.message
    assert address.token not in record.message


def test_another_session_s_key_does_not_do() -> None:
    listener = DriverListener(_HOST, _HOST, session_key=_KEY)
    met: list[socket.socket] = []
    listener.serve(Purpose.DRIVER_LINK, met.append)
    try:
        with pytest.raises(SparkError, match="cannot connect to the driver"):
            connect(listener.driver.address, Purpose.DRIVER_LINK, new_session_key())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(listener.driver.address[:2])
        stranger = context.wrap_socket(plain)  # without a certificate of its own
        stranger.settimeout(10)
        with stranger, pytest.raises(OSError, match=r"(?i)certificate|reset|pipe|eof"):
            stranger.sendall(greeting(listener.driver.address.token, Purpose.DRIVER_LINK))
            assert stranger.recv(1) == b""
            raise ConnectionResetError("it was reset")
        assert met == []
    finally:
        listener.close()


def test_who_says_nothing_is_dropped_and_does_not_keep_others_out(
    listener: DriverListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkmirror.dataplane.links.driver_listener._GREETING_S", 0.5)
    met: list[socket.socket] = []
    listener.serve(Purpose.DRIVER_LINK, met.append)
    driver = listener.driver
    silent = [socket.create_connection(driver.address[:2]) for _ in range(200)]
    found = connect(driver.address, Purpose.DRIVER_LINK, driver.session_key)
    assert soon(lambda: len(met) == 1)
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
    assert driver.address.token not in f"{driver} {driver.address} {driver!r}"
    assert "PRIVATE" not in repr(driver)


# -- ports --------------------------------------------------------------------------------------


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
