"""The delaying proxy: how late bytes arrive, that none is lost, that a delay is no throttle."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.proxy import serve

ONE_WAY = 0.05
PAYLOAD = 64 << 20


def echo(listener: socket.socket) -> None:
    """Sends back what comes, connection by connection, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_echo_one, args=(connection,), daemon=True).start()


def _echo_one(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1 << 20):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


@pytest.fixture
def far_away() -> Iterator[tuple[str, int]]:
    """The address of an echo server that is two times ONE_WAY away."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.1", 0)) as door,
    ):
        target = ("127.0.0.1", server.getsockname()[1])
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        threading.Thread(target=serve, args=(door, target, ONE_WAY), daemon=True).start()
        yield "127.0.0.1", door.getsockname()[1]
        for listener in (server, door):
            listener.shutdown(socket.SHUT_RDWR)


def test_each_round_trip_takes_both_delays(far_away: tuple[str, int]) -> None:
    with socket.create_connection(far_away, timeout=10) as connection:
        for _ in range(3):
            begin = time.monotonic()
            connection.sendall(b"ping")
            assert connection.recv(16) == b"ping"
            assert time.monotonic() - begin >= 2 * ONE_WAY


def test_much_data_passes_whole_and_in_order_at_the_price_of_one_delay(
    far_away: tuple[str, int],
) -> None:
    sent = bytes(range(256)) * (PAYLOAD // 256)
    with socket.create_connection(far_away, timeout=30) as connection:
        writer = threading.Thread(target=connection.sendall, args=(sent,), daemon=True)
        begin = time.monotonic()
        writer.start()
        received = bytearray()
        while len(received) < len(sent):
            part = connection.recv(1 << 20)
            assert part
            received += part
        seconds = time.monotonic() - begin
    assert received == sent
    # A throttle of one chunk per delay would take over three seconds in each direction.
    assert seconds < 3


def test_the_end_of_the_stream_passes(far_away: tuple[str, int]) -> None:
    with socket.create_connection(far_away, timeout=10) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(16):
            received += part
    assert received == b"last words"


def test_a_dead_target_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=serve, args=(door, ("127.0.0.1", port), 0), daemon=True).start()
        with socket.create_connection(door.getsockname(), timeout=10) as connection:
            assert connection.recv(16) == b""
        door.shutdown(socket.SHUT_RDWR)
