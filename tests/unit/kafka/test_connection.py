"""A connection against a peer that a test plays: frames in order, whatever the network cuts them into."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from sparkmirror.errors import ConnectionFailed, KafkaError
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.settings import ClientSettings

Script = Callable[[socket.socket], None]
_KEY = ApiVersionsResponse.ApiVersion


def read_exactly(peer: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = peer.recv(min(1 << 16, size - len(found)))
        assert part, "the client closed"
        found += part
    return found


def read_frame(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(peer, 4))
    return read_exactly(peer, size)


def frame(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def versions(correlation: int, version: int, error: int = 0) -> bytes:
    """The answer to ApiVersions, which every connection asks first."""
    keys = [] if error else [_KEY(api_key=1, min_version=4, max_version=17)]
    answer = ApiVersionsResponse(error_code=error, api_keys=keys)
    answer.API_VERSION = version
    answer.with_header(correlation_id=correlation)
    return bytes(answer.encode(framed=True, header=True))


class Peer:
    """A listening socket that plays a script to the first who connects."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread: threading.Thread | None = None
        self._done = threading.Event()

    def play(self, script: Script, *, greet: bool = True) -> Connection:
        """Start the script; gives a connection to it that is not open yet."""

        def serve() -> None:
            peer, _ = self._listener.accept()
            with peer:
                if greet:
                    head = read_frame(peer)
                    peer.sendall(versions(struct.unpack_from(">i", head, 4)[0], 3))
                script(peer)
                peer.shutdown(socket.SHUT_WR)
                self._done.wait(10)

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        settings = ClientSettings(
            "X", (("127.0.0.1", self.port),), request_timeout=0.3, connect_timeout=0.3
        )
        return Connection("127.0.0.1", self.port, settings)

    def close(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join(10)
        self._listener.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    found = Peer()
    yield found
    found.close()


def send(connection: Connection, *contexts: str) -> list[int]:
    """Submit one small request per context; gives their correlation ids."""
    found = []
    for context in contexts:
        correlation = connection.next_correlation()
        connection.submit([struct.pack(">i", 4), b"ab", b"cd"], correlation, context)
        found.append(correlation)
    return found


def receive_until(
    connection: Connection, done: Callable[[list[tuple[Any, bytes]]], bool]
) -> list[tuple[Any, bytes]]:
    found: list[tuple[Any, bytes]] = []
    deadline = time.monotonic() + 10
    while not done(found):
        assert time.monotonic() < deadline, f"only {found}"
        found += [(context, bytes(view[4:])) for context, view in connection.receive()]
    return found


def answer_all(peer: socket.socket, *bodies: bytes) -> None:
    """Read one request per body, and answer them all in one piece."""
    for _ in bodies:
        read_frame(peer)
    peer.sendall(b"".join(frame(2 + i, body) for i, body in enumerate(bodies)))


def test_answers_meet_their_requests(peer: Peer) -> None:
    connection = peer.play(lambda p: answer_all(p, b"one", b"two"))
    connection.open()
    assert connection.versions == {1: (4, 17)}
    assert send(connection, "first", "second") == [2, 3]
    assert connection.in_flight == 2
    found = receive_until(connection, lambda rows: len(rows) == 2)
    assert found == [("first", b"one"), ("second", b"two")]
    assert connection.in_flight == 0
    assert connection.oldest_sent is None
    connection.close()


def test_frames_may_come_in_any_pieces(peer: Peer) -> None:
    def script(p: socket.socket) -> None:
        read_frame(p)
        read_frame(p)
        for byte in frame(2, b"one") + frame(3, b""):
            p.sendall(bytes([byte]))

    connection = peer.play(script)
    connection.open()
    send(connection, "first", "second")
    found = receive_until(connection, lambda rows: len(rows) == 2)
    assert found == [("first", b"one"), ("second", b"")]
    connection.close()


def test_answers_that_came_before_the_end_are_not_lost(peer: Peer) -> None:
    """A broker that shuts down answers what it has done and closes: both may arrive at once."""
    closed = threading.Event()

    def script(p: socket.socket) -> None:
        for _ in range(3):
            read_frame(p)
        p.sendall(frame(2, b"one") + frame(3, b"two"))
        p.shutdown(socket.SHUT_WR)
        closed.set()
        p.shutdown = lambda how: None  # type: ignore[method-assign,assignment]

    connection = peer.play(lambda p: script(_Once(p)))  # type: ignore[arg-type]
    connection.open()
    send(connection, "first", "second", "third")
    assert closed.wait(10)
    found = receive_until(connection, lambda rows: len(rows) == 2)
    assert found == [("first", b"one"), ("second", b"two")]
    with pytest.raises(ConnectionFailed):
        receive_until(connection, lambda rows: bool(rows))
    assert not connection.is_open
    assert connection.lost_contexts == ["third"]
