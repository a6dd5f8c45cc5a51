"""Frames between a copy task, the driver and the steps of a query: whole whatever the network does to them."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.links.address import (
    GREETING_BYTES,
    Address,
    Purpose,
    SessionSecret,
    purpose_of,
)
from sparkmirror.dataplane.query.frames import Call, Inbox, Kind, Line, frame, said
from sparkmirror.errors import SparkError

_MESSAGES = st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=40)), max_size=6)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        with one, other:
            yield one, other


@given(_MESSAGES, st.data())
def test_messages_come_out_as_they_went_in_wherever_the_bytes_are_cut(
    messages: list[tuple[Kind, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in messages)
    inbox, found, at = Inbox(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        found += [(m.kind, bytes(m.payload)) for m in inbox.feed(stream[at : at + size])]
        at += size
    assert found == messages


def test_what_is_said_has_fields() -> None:
    (message,) = Inbox().feed(said(Kind.DONE, query=3, job=7))
    assert (message.kind, message.fields) == (Kind.DONE, {"query": 3, "job": 7})


@pytest.mark.parametrize(
    ("kind", "most"), [(Kind.RESULT, 1 << 30), (Kind.SLICE, 1 << 30), (Kind.TAKE, 16 << 20)]
)
def test_a_message_that_is_too_long_for_its_kind_is_refused(kind: Kind, most: int) -> None:
    with pytest.raises(SparkError, match="too long for its kind"):
        list(Inbox().feed(struct.pack(">IB", most + 1, kind)))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="99"):
        list(Inbox().feed(struct.pack(">IB", 0, 99)))


def test_a_call_greets_first_and_hears_that_the_other_end_is_gone() -> None:
    token = "t" * 32
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        call = Call.to(Address(host, port), SessionSecret(token))
        other, _ = server.accept()
    with other:
        assert purpose_of(other.recv(GREETING_BYTES), token) is Purpose.SLICES
    with pytest.raises(SparkError, match=r"gone|broke"):
        call.receive()
    with pytest.raises(SparkError, match="broke"):
        for _ in range(1000):
            call.send(frame(Kind.RESULT, bytes(1 << 16)))
    call.close()


def test_a_call_that_was_cut_in_the_midst_of_a_message_breaks(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    call = Call(pair[0])
    pair[1].sendall(frame(Kind.SLICE, b"x" * 100)[:50])
    pair[1].close()
    with pytest.raises(SparkError, match="gone"):
        call.receive()


def test_a_line_never_waits_and_loses_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    line, other = Line.of(pair[0]), Call(pair[1])
    payload = bytes(range(256)) * 4096
    for _ in range(32):  # far more than the system takes at once
        line.send(frame(Kind.RESULT, payload))
    has_more = line.wants_write
    assert has_more
    found: list[bytes] = []
    reader = threading.Thread(
        target=lambda: found.extend(bytes(other.receive().payload) for _ in range(32))
    )
    reader.start()
    deadline = time.monotonic() + 20
    while line.wants_write:
        assert time.monotonic() < deadline
        line.flush_quietly()
    reader.join(20)
    assert found == [payload] * 32
    assert line.receive() == []


@pytest.mark.parametrize("nonsense", [b"GET / HTTP/1.1\r\n", struct.pack(">IB", 1, 99) + b"x"])
def test_a_line_that_hears_nonsense_is_closed(
    pair: tuple[socket.socket, socket.socket], nonsense: bytes
) -> None:
    line = Line.of(pair[0])
    pair[1].sendall(nonsense)
    deadline = time.monotonic() + 10
    while line.is_open:
        assert time.monotonic() < deadline
        assert line.receive() == []


def test_a_line_whose_other_end_is_gone_is_closed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    line = Line.of(pair[0])
    pair[1].close()
    deadline = time.monotonic() + 10
    while line.is_open:
        assert time.monotonic() < deadline
        line.receive()
    line.send(b"x")  # to nobody, and nobody minds
    assert not line.is_open
