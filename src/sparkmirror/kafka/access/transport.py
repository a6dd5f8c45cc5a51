"""What carries the bytes of a connection: an address in; a plain socket, or one with TLS on it that is used the same way, out."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Protocol

from sparkmirror.errors import ConnectionFailed
from sparkmirror.kafka.access import refusals
from sparkmirror.kafka.access.tls import Tls, client_tls
from sparkmirror.kafka.inquiry import Where
from sparkmirror.kafka.settings import ClientSettings

Chunk = bytes | bytearray | memoryview

_RECORD_BYTES = 16 << 10  # the most that one record of TLS holds


class Transport(Protocol):
    """Non-blocking. A plain socket is one as it is, so that nothing stands between it and the connection."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """As that of sockets; less than fits means that nothing is left to read for now."""

    def sendmsg(self, buffers: Sequence[Chunk], /) -> int:
        """As that of sockets. What was not taken comes first in the next call, whatever else comes behind it."""


class TlsSocket:
    """TLS over a socket, with the habits of a plain one.

    Invariants: where the socket would have to wait, BlockingIOError is raised, whether it is for reading or for writing. A read
    ends only when the buffer is full or OpenSSL, which reads one record at a time from the socket, has found no whole record: so
    nothing that was decrypted is left inside while a poller watches the socket. A read that has to write first (an update of
    keys) leaves what follows in the socket, so the poller calls again. What ended the stream is told after what came before it.
    """

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._wrapped = wrapped
        self._over: OSError | None = None
        self._is_at_end = False

    def fileno(self) -> int:
        return self._wrapped.fileno()

    def close(self) -> None:
        self._wrapped.close()

    def recv_into(self, buffer: memoryview, /) -> int:
        if self._over is not None:
            raise self._over
        got, room = 0, len(buffer)
        read = self._wrapped.recv_into
        while got < room and not self._is_at_end:
            try:
                count = read(buffer[got:] if got else buffer)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not got:
                    raise BlockingIOError(errno.EAGAIN, "nothing to read yet") from None
                break
            except OSError as error:
                if not got:
                    raise
                self._over = error
                break
            got += count
            self._is_at_end = count == 0
        return got

    def sendmsg(self, buffers: Sequence[Chunk], /) -> int:
        sent = 0
        for unit in _units(buffers):
            try:
                count = self._wrapped.send(unit)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                # OpenSSL has encrypted the beginning of this unit: it must come again with the same bytes, or more behind them.
                if not sent:
                    raise BlockingIOError(errno.EAGAIN, "no room to write") from None
                return sent
            except OSError as error:
                raise self._cause(error) from error
            sent += count
            if count < len(unit):
                return sent
        return sent

    def _cause(self, error: OSError) -> OSError:
        """A broker that sends us away says why and closes: of the two, the reason counts."""
        try:
            self._wrapped.recv(1)
        except OSError as said:
            if isinstance(said, ssl.SSLError) and "ALERT" in str(said.reason):
                return said
        return error


def _units(buffers: Sequence[Chunk]) -> Iterator[Chunk]:
    """What to hand to OpenSSL at a time: large chunks as they are, small ones together, so that few records are nearly empty.

    The first unit of the rest, after some units, is again the unit that came next, or begins with it.
    """
    gathered = bytearray()
    for chunk in buffers:
        size = len(chunk)
        if gathered:
            taken = min(size, _RECORD_BYTES - len(gathered))
            gathered += memoryview(chunk)[:taken]
            if len(gathered) < _RECORD_BYTES:
                continue
            yield gathered
            gathered = bytearray()
            chunk, size = memoryview(chunk)[taken:], size - taken
        if size >= _RECORD_BYTES:
            yield chunk
        else:
            gathered += chunk
    if gathered:
        yield gathered


def connect(host: str, port: int, settings: ClientSettings) -> socket.socket | TlsSocket:
    """Reach a broker, and agree on TLS if the settings want it. AccessFailed if it is not who it should be."""
    where = Where(host, port, settings)
    tls = client_tls(settings.alias, settings.security) if settings.security.uses_tls else None
    plain = _reached(where)
    if tls is None:
        plain.setblocking(False)
        return plain
    wrapped = _wrapped(plain, where, tls)
    wrapped.setblocking(False)
    return TlsSocket(wrapped)


def _reached(where: Where) -> socket.socket:
    """A plain socket that is connected."""
    settings = where.settings
    try:
        plain = socket.create_connection((where.host, where.port), timeout=settings.connect_timeout)
    except OSError as error:
        raise ConnectionFailed(
            f"{where} cannot be reached: {error.strerror or error}.",
            "Check bootstrap.servers, the broker's advertised.listeners and the network.",
        ) from error
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.send_buffer > 0:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer)
    if settings.receive_buffer > 0:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)
    return plain


def _wrapped(plain: socket.socket, where: Where, tls: Tls) -> ssl.SSLSocket:
    try:
        wrapped = tls.context.wrap_socket(plain, server_hostname=where.host)
    except OSError as error:  # the socket is closed by now
        raise refusals.of_handshake(where, tls, error) from error
    except ValueError as error:  # a host name that cannot be one
        plain.close()
        raise ConnectionFailed(f"{where}: {error}.", "Correct the host name.") from error
    agreed = wrapped.cipher()
    if agreed is not None and agreed[1] == "TLSv1.3" and not tls.allows(agreed[0]):
        wrapped.close()
        raise refusals.of_suite(where, agreed[0])
    return wrapped
