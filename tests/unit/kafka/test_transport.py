"""A connection over TLS, against a peer that a test plays: nothing stays behind, nothing is sent twice."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from certificates import Authority
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import AccessFailed, ConnectionFailed
from sparkmirror.kafka import cluster as cluster_module
from sparkmirror.kafka.access.transport import _RECORD_BYTES, _units
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.settings import client_settings
from tests.unit.kafka.test_connection import frame, read_frame, versions

Script = Callable[[ssl.SSLSocket], None]


class TlsPeer:
    """A listener that plays a script to each who connects, over TLS."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        store = self.authority.issue("peer").store("PEM")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(store.path)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def play(self, script: Script, **properties: str) -> Connection:
        """Start the script; gives a connection to it that is not open yet."""
        self._thread = threading.Thread(target=self._serve, args=(script,), daemon=True)
        self._thread.start()
        fields = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SSL",
            "request.timeout.ms": "10000",
            **self.authority.truststore("PEM"),
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
        return Connection("127.0.0.1", self.port, client_settings("X", fields))

    def _serve(self, script: Script) -> None:
        try:
            while not self._over.is_set():
                plain, _ = self._listener.accept()
                with (
                    contextlib.suppress(ssl.SSLError, ConnectionError),
                    self.context.wrap_socket(plain, server_side=True) as peer,
                ):
                    try:
                        head = read_frame(peer)
                    except AssertionError:  # it did not like the handshake
                        continue
                    peer.sendall(versions(struct.unpack_from(">i", head, 4)[0], 3))
                    script(peer)
        except OSError:  # the listener was closed
            return
        except AssertionError as error:
            self.failure = error

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._thread is not None:
            self._thread.join(10)
        assert self.failure is None, self.failure


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[TlsPeer]:
    found = TlsPeer(tmp_path)
    yield found
    found.close()


def request(connection: Connection, *bodies: bytes) -> None:
    correlation = connection.next_correlation()
    size = struct.pack(">i", sum(map(len, bodies)) + 4)
    connection.submit([size, struct.pack(">i", correlation), *bodies], correlation, correlation)


def woken(connection: Connection, count: int) -> list[bytes]:
    """So many answers, read only when the socket says that there is something, as a poller does."""
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        poll = select.poll()
        writes = select.POLLOUT if connection.wants_write else 0
        poll.register(connection.fileno(), select.POLLIN | writes)
        left = deadline - time.monotonic()
        assert left > 0 and poll.poll(left * 1000), f"{len(found)} of {count} came"
        if connection.wants_write:
            connection.flush()
        found += [bytes(view[4:]) for _, view in connection.receive()]
    return found


def answering(*sizes: int, pieces: int = 1 << 20) -> Script:
    """Answers requests in their order with bodies of these sizes, written in pieces of this many bytes."""

    def script(peer: ssl.SSLSocket) -> None:
        for size in sizes:
            (correlation,) = struct.unpack_from(">i", read_frame(peer))
            data = frame(correlation, bytes([size % 251]) * size)
            for start in range(0, len(data), pieces):
                peer.sendall(data[start : start + pieces])
        peer.recv(1)

    return script


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("pieces", [700, 16 << 10, 1 << 20])
def test_answers_of_all_sizes(peer: TlsPeer, pieces: int, version: str) -> None:
    sizes = [0, 1, 5000, 8188, 16 << 10, 100_000, 3 << 20, 7, 1 << 20]
    connection = peer.play(answering(*sizes, pieces=pieces), ssl_enabled_protocols=version)
    connection.open()
    for _ in sizes:
        request(connection, b"x")
    assert woken(connection, len(sizes)) == [bytes([size % 251]) * size for size in sizes]
    connection.close()


def test_large_requests_to_a_peer_that_reads_late(peer: TlsPeer) -> None:
    """The socket is full in the middle of a record, and more is queued behind it meanwhile."""
    may_read = threading.Event()
    bodies = [bytes([i]) * size for i, size in enumerate([3 << 20, 10, 40_000, 1, 5 << 20, 100])]

    def script(peer: ssl.SSLSocket) -> None:
        assert may_read.wait(10)
        for body in bodies:
            found = read_frame(peer)
            assert found[4:] == body
            peer.sendall(frame(struct.unpack_from(">i", found)[0], b"ok"))
        peer.recv(1)

    connection = peer.play(script, send_buffer_bytes="65536")
    connection.open()
    for body in bodies[:3]:
        request(connection, body)
    is_full = connection.wants_write
    assert is_full
    connection.flush()
    for body in bodies[3:]:
        request(connection, *(body[i : i + 9000] for i in range(0, len(body), 9000)))
    may_read.set()
    assert woken(connection, len(bodies)) == [b"ok"] * len(bodies)
    assert not connection.wants_write
    connection.close()


def test_both_directions_at_once(peer: TlsPeer) -> None:
    size, count = 1 << 20, 8

    def script(peer: ssl.SSLSocket) -> None:
        for _ in range(count):
            found = read_frame(peer)
            peer.sendall(frame(struct.unpack_from(">i", found)[0], found[4:]))
        peer.recv(1)

    connection = peer.play(script)
    connection.open()
    bodies = [bytes([i]) * size for i in range(count)]
    for body in bodies:
        request(connection, body)
    assert woken(connection, count) == bodies
    connection.close()


def test_what_came_before_the_end_is_given_first(peer: TlsPeer) -> None:
    def script(peer: ssl.SSLSocket) -> None:
        (correlation,) = struct.unpack_from(">i", read_frame(peer))
        peer.sendall(frame(correlation, b"last"))

    connection = peer.play(script)
    connection.open()
    request(connection, b"x")
    assert woken(connection, 1) == [b"last"]
    with pytest.raises(ConnectionFailed, match=r"closed it|reset|Broken pipe"):
        request(connection, b"x")
        woken(connection, 1)
    assert not connection.is_open


def test_a_peer_that_goes_away_during_the_handshake_is_not_refusing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def hang_up() -> None:
            for _ in range(2):  # once more to see whether it speaks without TLS
                accepted, _ = listener.accept()
                accepted.recv(1)
                accepted.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        fields = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL"}
        settings = client_settings("X", fields | authority.truststore("PEM"))
        with pytest.raises(ConnectionFailed, match="during the TLS handshake") as caught:
            Connection("127.0.0.1", port, settings).open()
        assert caught.value.retriable
        thread.join(10)


def test_something_that_answers_in_the_clear(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def greet() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                accepted.recv(1)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        fields = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL"}
        settings = client_settings("X", fields | authority.truststore("PEM"))
        with pytest.raises(AccessFailed, match="speaks no TLS on this listener"):
            Connection("127.0.0.1", port, settings).open()
        thread.join(10)


def test_a_suite_of_tls_13_that_is_not_listed(peer: TlsPeer) -> None:
    """Whether Python can offer one suite alone depends on its version; what is not listed is never used."""
    connection = peer.play(
        answering(), ssl_cipher_suites="TLS_AES_128_GCM_SHA256", ssl_enabled_protocols="TLSv1.3"
    )
    if hasattr(ssl.SSLContext, "set_ciphersuites"):
        connection.open()
        connection.close()
    else:
        with pytest.raises(AccessFailed, match=r"TLS_AES_256_GCM_SHA384.*ssl\.cipher\.suites"):
            connection.open()


def test_a_store_that_is_not_there_can_be_mended(peer: TlsPeer, tmp_path: Path) -> None:
    """Files of executors may come later than the executor: that is no wrong setting that ends the program."""
    missing = tmp_path / "later.pem"
    connection = peer.play(answering(), ssl_truststore_location=str(missing))
    with pytest.raises(AccessFailed, match=r"later\.pem cannot be read"):
        connection.open()
    missing.write_text(peer.authority.pem())
    connection.open()
    connection.close()


# -- what goes into one record --------------------------------------------------------------------


chunk_sizes = st.lists(
    st.one_of(st.integers(1, 300), st.integers(_RECORD_BYTES - 50, _RECORD_BYTES * 3)), max_size=30
)


@given(chunk_sizes)
def test_small_chunks_share_records(sizes: list[int]) -> None:
    chunks = [bytes([i]) * size for i, size in enumerate(sizes)]
    units = [bytes(unit) for unit in _units(chunks)]
    assert b"".join(units) == b"".join(chunks)
    for unit, after in pairwise(units):
        assert len(unit) >= _RECORD_BYTES or len(after) >= _RECORD_BYTES


@given(chunk_sizes, chunk_sizes, st.integers(0, 40))
def test_what_was_not_taken_comes_again_in_front(
    sizes: list[int], later: list[int], taken: int
) -> None:
    """OpenSSL wants to see a unit that it has begun again, from its beginning, and no shorter."""
    chunks = [bytes([i]) * size for i, size in enumerate(sizes)]
    units = [bytes(unit) for unit in _units(chunks)]
    done = sum(len(unit) for unit in units[:taken])
    rest: list[bytes] = []
    for chunk in chunks:
        if done < len(chunk):
            rest.append(chunk[done:])
        done = max(0, done - len(chunk))
    rest += [b"\xff" * size for size in later]
    if units[taken:]:
        again = bytes(next(iter(_units(rest))))
        assert again.startswith(units[taken])


# -- a cluster that does not let us in ----------------------------------------------------------


def test_a_broker_that_refuses_is_not_asked_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    refuses = True

    def refusing(connection: Connection) -> None:
        asked.append(time.monotonic())
        if refuses:
            raise AccessFailed("no", "yes")

    monkeypatch.setattr(Connection, "open", refusing)
    monkeypatch.setattr(cluster_module, "_REFUSED_WAITS_S", (0.1, 0.3))
    cluster = Cluster(client_settings("X", {"bootstrap.servers": "a:1"}))
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        with pytest.raises(AccessFailed, match="no yes"):
            cluster.any_connection()
        time.sleep(0.001)
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(gaps) >= 2
    assert all(gap >= wait for gap, wait in zip(gaps, (0.1, 0.2, 0.3, 0.3), strict=False)), gaps
    refuses = False
    wait_until = time.monotonic() + 10
    while time.monotonic() < wait_until:
        with contextlib.suppress(AccessFailed):
            cluster.any_connection()
            break
        time.sleep(0.01)
    else:
        pytest.fail("it was never asked again")
