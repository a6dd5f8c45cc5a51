"""Asking a broker once more, to tell why it and we do not come together: an address in, what its listener is like out.

Nothing is told to the broker that is asked here, and nothing that it says is used for anything but sentences.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from sparkmirror.kafka import messages
from sparkmirror.kafka.access.tls import Tls, client_tls
from sparkmirror.kafka.settings import ClientSettings

_PATIENCE_S = 5.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Where:
    """A broker's address and how it is to be reached."""

    host: str
    port: int
    settings: ClientSettings

    def __str__(self) -> str:
        return f"Broker {self.host}:{self.port} of {self.settings}"


def _plain_socket(where: Where) -> socket.socket:
    patience = min(_PATIENCE_S, where.settings.connect_timeout)
    return socket.create_connection((where.host, where.port), timeout=patience)


def _unverified(tls: Tls | None) -> ssl.SSLContext:
    """Trusts everybody and shows nobody anything: nothing but the handshake is done with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tls is not None:
        context.minimum_version = tls.context.minimum_version
        context.maximum_version = tls.context.maximum_version
    return context


def shown_certificate(where: Where, tls: Tls) -> x509.Certificate | None:
    """The certificate that the broker shows; None if it cannot be had."""
    with (
        contextlib.suppress(OSError, ValueError),
        _plain_socket(where) as plain,
        _unverified(tls).wrap_socket(plain, server_hostname=where.host) as wrapped,
    ):
        der = wrapped.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der) if der else None
    return None


def speaks_tls(where: Where) -> bool:
    """Whether a handshake gets anywhere: an alert is an answer of TLS too."""
    try:
        with (
            _plain_socket(where) as plain,
            _unverified(None).wrap_socket(plain, server_hostname=where.host),
        ):
            return True
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False


def speaks_plaintext(where: Where) -> bool:
    """Whether the listener answers a request that is not encrypted."""
    try:
        with _plain_socket(where) as plain:
            return _asked(plain, messages.ApiVersionsRequest(), 0, where) is not None
    except OSError:
        return False


def offered_mechanisms(where: Where) -> list[str]:
    """With which mechanisms one can log in at the listener; none if there are no logins."""
    security = where.settings.security
    request = messages.SaslHandshakeRequest(mechanism="")
    try:
        with contextlib.ExitStack() as stack:
            asked = stack.enter_context(_plain_socket(where))
            if security.uses_tls:
                context = client_tls(where.settings.alias, security).context
                asked = stack.enter_context(context.wrap_socket(asked, server_hostname=where.host))
            answer = _asked(asked, request, 1, where)
            if answer is None:
                return []
            return sorted(messages.decode(request, answer)[1].mechanisms)
    except (OSError, ValueError):
        return []


def _asked(asked: socket.socket, request: Any, version: int, where: Where) -> bytes | None:
    """The answer to one request, from its correlation id on; None if it is not one of Kafka."""
    number = 1
    asked.sendall(messages.encode(request, version, number, where.settings.client_id))
    head = _exactly(asked, 8)
    if len(head) < 8:
        return None
    size, got = struct.unpack(">ii", head)
    if got != number or not 4 <= size <= _MOST_BYTES:
        return None
    return head[4:] + _exactly(asked, size - 4)


def _exactly(asked: socket.socket, size: int) -> bytes:
    """So many bytes, or what came until the end; TimeoutError if they come too slowly, all together."""
    deadline = time.monotonic() + _PATIENCE_S
    found = b""
    while len(found) < size and (part := asked.recv(size - len(found))):
        found += part
        if time.monotonic() > deadline:
            raise TimeoutError
    return found
