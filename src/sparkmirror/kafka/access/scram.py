"""SCRAM (RFC 5802, RFC 7677): a user and a password come in, the client's half of the conversation goes out.

User names and passwords go as UTF-8, not prepared by SASLprep: Kafka stores what its tools were given, unprepared, and a client
that prepared it would be refused. The server is known by its signature: who cannot make it has not got the password's key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping

from sparkmirror.kafka.access.login import LoginBroken

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000


def scram(
    mechanism: str,
    user: str,
    password: str,
    extensions: Mapping[str, str] | None = None,
    nonce: str | None = None,
) -> Generator[bytes, bytes, None]:
    """Yields what to send, takes what the server answered, and returns when the server has proved itself."""
    digest = HASHES[mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    added = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
    client_first = f"n={_escaped(user)},r={nonce}{added}"
    server_first = _text((yield f"n,,{client_first}".encode()))
    salt, iterations, whole_nonce = _challenge(server_first, nonce)

    client_final = f"c={_base64(b'n,,')},r={whole_nonce}"
    signed = f"{client_first},{server_first},{client_final}".encode()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = _hmac(digest, salted, b"Client Key")
    stored_key = hashlib.new(digest, client_key).digest()
    signature = _hmac(digest, stored_key, signed)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server_final = _text((yield f"{client_final},p={_base64(proof)}".encode()))

    expected = _hmac(digest, _hmac(digest, salted, b"Server Key"), signed)
    _check_signature(server_final, expected)


def _challenge(server_first: str, nonce: str) -> tuple[bytes, int, str]:
    """Salt, iterations and the nonce of both sides."""
    fields = _fields(server_first)
    try:
        whole_nonce, iterations = fields["r"], int(fields["i"])
        salt = base64.b64decode(fields["s"], validate=True)
    except (KeyError, ValueError):
        raise LoginBroken("its first answer is not one of SCRAM") from None
    if not whole_nonce.startswith(nonce) or whole_nonce == nonce:
        raise LoginBroken("its answer does not belong to this login")
    if iterations < MIN_ITERATIONS:
        raise LoginBroken(
            f"it asks for {iterations} iterations, which is below the least of {MIN_ITERATIONS}"
        )
    if iterations > _MOST_ITERATIONS:  # it would keep us busy for minutes
        raise LoginBroken(
            f"it asks for {iterations} iterations, which is above the most of {_MOST_ITERATIONS}"
        )
    return salt, iterations, whole_nonce


def _check_signature(server_final: str, expected: bytes) -> None:
    fields = _fields(server_final)
    if "e" in fields:
        raise LoginBroken("it refused the proof of the password")
    try:
        given = base64.b64decode(fields["v"], validate=True)
    except (KeyError, ValueError):
        raise LoginBroken("its last answer is not one of SCRAM") from None
    if not hmac.compare_digest(given, expected):
        raise LoginBroken("its signature is wrong: it does not hold this user's password")


def _fields(message: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in message.split(","))
    return {name: value for name, equals, value in pairs if equals}


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    return message.decode("utf-8", errors="replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _hmac(digest: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, digest)
