"""A connection against a peer that a test plays: frames in order, whatever the network cuts them into."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse

from sparkmirror.errors import ConnectionFailed, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.connection import LONGEST_FETCH, Connection
from sparkmirror.kafka.settings import ClientSettings

Script = Callable[[socket.socket], None]
_KEY = ApiVersionsResponse.ApiVersion


def read_exactly(peer: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = peer.recv(min(1 << 20, size - len(found)))
        assert part, "the client closed"
        found += part
    return bytes(found)


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
        self.ended = threading.Event()
        """The script is over and the client has been told that no more will come."""

    def play(self, script: Script, *, greet: bool = True, stay: bool = False) -> Connection:
        """Start the script; gives a connection to it that is not open yet. `stay`: do not close when it is over."""

        def serve() -> None:
            peer, _ = self._listener.accept()
            with peer:
                if greet:
                    head = read_frame(peer)
                    peer.sendall(versions(struct.unpack_from(">i", head, 4)[0], 3))
                script(peer)
                if stay:
                    self._done.wait(10)
                with contextlib.suppress(OSError):  # the client may have gone first
                    peer.shutdown(socket.SHUT_WR)
                self.ended.set()
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

    def script(p: socket.socket) -> None:
        for _ in range(3):
            read_frame(p)
        p.sendall(frame(2, b"one") + frame(3, b"two"))

    connection = peer.play(script)
    connection.open()
    send(connection, "first", "second", "third")
    assert peer.ended.wait(10)
    found = receive_until(connection, lambda rows: len(rows) == 2)
    assert found == [("first", b"one"), ("second", b"two")]
    with pytest.raises(ConnectionFailed):
        receive_until(connection, lambda rows: bool(rows))
    assert not connection.is_open
    assert connection.lost_contexts == ["third"]


def test_a_partial_frame_at_the_end_is_an_error(peer: Peer) -> None:
    def script(p: socket.socket) -> None:
        read_frame(p)
        p.sendall(frame(2, b"half of it")[:-3])

    connection = peer.play(script)
    connection.open()
    send(connection, "first")
    with pytest.raises(ConnectionFailed, match="the broker closed it"):
        receive_until(connection, lambda rows: bool(rows))
    assert connection.lost_contexts == ["first"]


def test_an_answer_to_another_request_breaks_the_connection(peer: Peer) -> None:
    def script(p: socket.socket) -> None:
        read_frame(p)
        p.sendall(frame(99, b""))

    connection = peer.play(script)
    connection.open()
    send(connection, "first")
    with pytest.raises(ConnectionFailed, match="answer 99 came where 2 was expected"):
        receive_until(connection, lambda rows: bool(rows))
    assert connection.lost_contexts == ["first"]


def test_an_answer_that_nobody_asked_for_breaks_the_connection(peer: Peer) -> None:
    asked = threading.Event()

    def script(p: socket.socket) -> None:
        asked.wait(10)
        p.sendall(frame(2, b""))

    connection = peer.play(script)
    connection.open()
    asked.set()
    with pytest.raises(ConnectionFailed, match="nobody asked for"):
        receive_until(connection, lambda rows: bool(rows))


def test_a_broker_that_greets_and_closes_is_found_out_at_the_next_look() -> None:
    """Both may arrive at once: the socket's two ends are held here, so that they do."""
    near, far = socket.socketpair()
    near.setblocking(False)
    connection = Connection("host", 9092, ClientSettings("X", (("host", 9092),)))
    far.sendall(versions(1, 3))
    far.shutdown(socket.SHUT_WR)
    with far, pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", lambda *_, **__: near)
        patch.setattr(socket.socket, "setsockopt", lambda *_: None)
        connection.open()
        with pytest.raises(ConnectionFailed, match="the broker closed it"):
            connection.receive()
    assert not connection.is_open


def test_a_request_larger_than_the_socket_takes_goes_out_in_parts(peer: Peer) -> None:
    size = 16 << 20
    got: list[bytes] = []
    submitted = threading.Event()

    def script(p: socket.socket) -> None:
        submitted.wait(10)  # nobody reads before: the socket cannot take it all at once
        got.append(read_frame(p))
        p.sendall(frame(2, b"thanks"))

    connection = peer.play(script)
    connection.open()
    parts = [bytes([i]) * (size // 8) for i in range(8)]
    connection.submit([struct.pack(">i", size), *parts], connection.next_correlation(), "big")
    submitted.set()
    deadline, turns = time.monotonic() + 10, 0
    while connection.wants_write:
        assert time.monotonic() < deadline
        connection.flush()
        time.sleep(0.001)
        turns += 1
    assert turns > 0, "the socket took it all at once"
    assert receive_until(connection, bool) == [("big", b"thanks")]
    assert got == [b"".join(parts)]
    connection.close()


def test_many_small_chunks_keep_their_order(peer: Peer) -> None:
    got: list[bytes] = []
    connection = peer.play(lambda p: got.append(read_frame(p)))
    connection.open()
    chunks = [struct.pack(">i", i) for i in range(3000)]
    connection.submit([struct.pack(">i", 12000), *chunks], connection.next_correlation(), None)
    connection.flush()
    assert peer.ended.wait(10)
    assert got == [b"".join(chunks)]
    connection.close()


def test_a_peer_that_does_not_answer_is_given_up(peer: Peer) -> None:
    release = threading.Event()

    def script(p: socket.socket) -> None:
        release.wait(10)

    connection = peer.play(script, greet=False)
    with pytest.raises(ConnectionFailed, match="no answer within"):
        connection.open()
    assert not connection.is_open
    release.set()


def test_a_broker_that_does_not_know_our_version_of_the_greeting_is_asked_again(peer: Peer) -> None:
    def script(p: socket.socket) -> None:
        read_frame(p)
        p.sendall(versions(1, 0, error=35))
        read_frame(p)
        p.sendall(versions(2, 0))

    connection = peer.play(script, greet=False, stay=True)
    connection.open()
    assert connection.versions == {1: (4, 17)}
    connection.close()


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(1, b""), frame(1, b"\0\0\x05\0\0")]
)
def test_a_peer_that_is_no_kafka_broker_is_one_line(peer: Peer, greeting: bytes) -> None:
    def script(p: socket.socket) -> None:
        read_frame(p)
        p.sendall(greeting)

    connection = peer.play(script, greet=False)
    with pytest.raises(KafkaError) as caught:
        connection.open()
    assert "\n" not in str(caught.value)
    assert f"127.0.0.1:{peer.port} of cluster X" in str(caught.value)
    assert not connection.is_open


def test_a_refused_connection_is_one_line_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = ClientSettings("X", (("127.0.0.1", port),))
    with pytest.raises(ConnectionFailed) as caught:
        Connection("127.0.0.1", port, settings).open()
    assert "Connection refused" in caught.value.message
    assert "bootstrap.servers" in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_host_without_an_address_is_one_line() -> None:
    settings = ClientSettings("X", (("no-such-host.invalid", 9092),))
    with pytest.raises(ConnectionFailed, match=r"no-such-host\.invalid:9092 of cluster X"):
        Connection("no-such-host.invalid", 9092, settings).open()


def test_a_closed_connection_takes_nothing(peer: Peer) -> None:
    connection = peer.play(lambda p: None, stay=True)
    connection.open()
    connection.close()
    with pytest.raises(ConnectionFailed, match="is not connected"):
        send(connection, "x")
    with pytest.raises(ConnectionFailed, match="is not connected"):
        connection.receive()
    connection.flush_quietly()


MIB = 1 << 20


@pytest.mark.parametrize(("longest", "size"), [(None, 64 * MIB), (LONGEST_FETCH, LONGEST_FETCH)])
def test_an_answer_longer_than_it_may_be_is_refused(
    peer: Peer, longest: int | None, size: int
) -> None:
    def script(served: socket.socket) -> None:
        head = read_frame(served)
        served.sendall(struct.pack(">i", size + 1) + head[:4])

    connection = peer.play(script)
    connection.open()
    more = () if longest is None else (longest,)
    with pytest.raises(ConnectionFailed, match=f"a frame of {size + 1} bytes was announced"):
        _submit(connection, *more)
        receive_until(connection, bool)


def _submit(connection: Connection, *longest: int) -> None:
    correlation = connection.next_correlation()
    frame = struct.pack(">ii", 4, correlation)
    connection.submit([frame], correlation, None, *longest)


def test_to_announce_a_long_answer_takes_no_memory(peer: Peer) -> None:
    def script(served: socket.socket) -> None:
        head = read_frame(served)
        served.sendall(struct.pack(">i", LONGEST_FETCH) + head[:4] + bytes(MIB))

    connection = peer.play(script)
    connection.open()
    tracemalloc.start()
    try:
        _submit(connection, LONGEST_FETCH)
        with pytest.raises(ConnectionFailed, match="closed it"):
            receive_until(connection, bool)
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB
    finally:
        tracemalloc.stop()


def test_a_long_answer_arrives_whole(peer: Peer) -> None:
    """A frame that grows as its bytes come, and a short one right behind it."""
    body = random.Random(7).randbytes(MIB) * 50 + b"end"

    def script(served: socket.socket) -> None:
        first, second = read_frame(served)[:4], read_frame(served)[:4]
        served.sendall(struct.pack(">i", len(body) + 4) + first + body)
        served.sendall(struct.pack(">i", 7) + second + b"two")

    connection = peer.play(script)
    connection.open()
    _submit(connection)
    _submit(connection)
    answers = [found for _, found in receive_until(connection, lambda done: len(done) == 2)]
    assert answers[1] == b"two"
    assert answers[0] == body
    connection.close()


@pytest.mark.parametrize("size", [(1 << 20) + 1, -1, 3])
def test_before_the_login_answers_are_short(peer: Peer, size: int) -> None:
    def script(served: socket.socket) -> None:
        head = read_frame(served)
        served.sendall(struct.pack(">i", size) + head[4:8])

    connection = peer.play(script, greet=False)
    with pytest.raises(KafkaError) as refused:
        connection.open()
    assert isinstance(refused.value.__cause__, ConnectionFailed)
    assert f"a frame of {size} bytes was announced" in str(refused.value.__cause__)


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_a_frame_has_room_for_its_number(peer: Peer, size: int) -> None:
    def script(served: socket.socket) -> None:
        head = read_frame(served)
        served.sendall(struct.pack(">i", size) + head[:4])

    connection = peer.play(script)
    connection.open()
    with pytest.raises(ConnectionFailed, match=f"a frame of {size} bytes was announced"):
        _submit(connection)
        receive_until(connection, bool)


def test_a_broker_may_ask_to_wait_for_so_long_and_no_longer(peer: Peer) -> None:
    def script(served: socket.socket) -> None:
        head = read_frame(served)
        (correlation,) = struct.unpack_from(">i", head, 4)
        answer = ListOffsetsResponse(throttle_time_ms=1_000_000_000, topics=[])
        answer.API_VERSION = 2
        answer.with_header(correlation_id=correlation)
        served.sendall(bytes(answer.encode(framed=True, header=True)))

    connection = peer.play(script)
    connection.open()
    connection.versions[2] = (2, 2)
    began = time.monotonic()
    connection.call(messages.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]))
    assert time.monotonic() - began < 5
    connection.close()
