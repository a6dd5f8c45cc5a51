"""Requests that workers make of each other: a session key and a body in, a signature out, and the check of one that came.

The leader writes the key to the config topic; whoever can read that topic can sign. Algorithms have Java's names.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from typing import Any

from sparkmirror.errors import BadRequest, ConfigError, Forbidden, Unavailable

from .herding import Signature
from .states import SessionKey

SIGNATURE_HEADER = "X-Connect-Authorization"
ALGORITHM_HEADER = "X-Connect-Request-Signature-Algorithm"

_DIGESTS: dict[str, Callable[..., Any]] = {
    "HmacSHA1": hashlib.sha1,
    "HmacSHA224": hashlib.sha224,
    "HmacSHA256": hashlib.sha256,
    "HmacSHA384": hashlib.sha384,
    "HmacSHA512": hashlib.sha512,
}
# What Java makes when no size is asked for, in bytes: the digest's, but for the oldest of them.
_KEY_BYTES = {
    "HmacSHA1": 64,
    "HmacSHA224": 28,
    "HmacSHA256": 32,
    "HmacSHA384": 48,
    "HmacSHA512": 64,
}
_LEAST_BITS = 40
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")


def new_session_key(algorithm: str, size: int | None, now_ms: int) -> SessionKey:
    """A random key; `size` is in bits, None for the algorithm's own (`inter.worker.key.*`)."""
    return SessionKey(secrets.token_bytes(_key_bytes(algorithm, size)), algorithm, now_ms)


def is_key_due(
    key: SessionKey | None, algorithm: str, size: int | None, ttl_ms: int, now_ms: int
) -> bool:
    """Whether the leader has to write a new key: there is none, it is too old, or the worker file asks for another kind."""
    if key is None or key.created_ms + ttl_ms <= now_ms:
        return True
    return key.algorithm != algorithm or len(key.key) != _key_bytes(algorithm, size)


def sign(key: SessionKey, body: bytes, algorithm: str) -> str:
    """The signature of a body (b"" if there is none) by `inter.worker.signature.algorithm`."""
    return base64.b64encode(_mac(key, body, algorithm)).decode()


def signed_headers(key: SessionKey, body: bytes, algorithm: str) -> dict[str, str]:
    """What a signed request carries."""
    return {SIGNATURE_HEADER: sign(key, body, algorithm), ALGORITHM_HEADER: algorithm}


def verify(request: Signature, key: SessionKey | None, permitted: Collection[str]) -> None:
    """Return if the request was signed with our key by a permitted algorithm; else the error to answer with."""
    if request.signature is None or request.algorithm is None:
        raise BadRequest("Internal request missing required signature")
    if request.algorithm not in _DIGESTS:
        raise BadRequest(f"Algorithm {request.algorithm} not available")
    signature = _decoded(request.signature)
    if request.algorithm not in permitted:
        raise BadRequest(
            f"This worker does not support the '{request.algorithm}' key signing algorithm used by "
            f"other workers. This worker is currently configured to use: [{', '.join(permitted)}]. "
            "Check that all workers' configuration files permit the same set of signature "
            "algorithms, and correct any misconfigured worker and restart it."
        )
    if key is None:
        raise Unavailable(
            "This worker is still starting up and has not been able to read a session key from "
            "the config topic yet"
        )
    if not hmac.compare_digest(_mac(key, request.body, request.algorithm), signature):
        raise Forbidden("Internal request contained invalid signature.")


def check_algorithms(
    generation: str, size: int | None, signature: str, permitted: Collection[str]
) -> None:
    """ConfigError unless keys can be made and what this worker signs with is permitted."""
    _key_bytes(generation, size)
    for key, algorithm in (
        ("inter.worker.signature.algorithm", signature),
        *(("inter.worker.verification.algorithms", algorithm) for algorithm in permitted),
    ):
        if algorithm not in _DIGESTS:
            raise _unknown(key, algorithm)
    if signature not in permitted:
        raise ConfigError(
            f"inter.worker.signature.algorithm={signature} is not among "
            f"inter.worker.verification.algorithms ({', '.join(permitted)}).",
            "Add it there: workers of one group sign and check alike.",
        )


def _mac(key: SessionKey, body: bytes, algorithm: str) -> bytes:
    if algorithm not in _DIGESTS:
        raise _unknown("inter.worker.signature.algorithm", algorithm)
    return hmac.new(key.key, body, _DIGESTS[algorithm]).digest()


def _key_bytes(algorithm: str, size: int | None) -> int:
    if algorithm not in _KEY_BYTES:
        raise _unknown("inter.worker.key.generation.algorithm", algorithm)
    if size is None:
        return _KEY_BYTES[algorithm]
    if size < _LEAST_BITS:
        raise ConfigError(
            f"inter.worker.key.size={size} is too small for a key.",
            f"Use {_LEAST_BITS} bits or more, or leave the key out.",
        )
    return (size + 7) // 8


def _unknown(key: str, algorithm: str) -> ConfigError:
    return ConfigError(f"{key}={algorithm} is not known.", f"Use one of {', '.join(_DIGESTS)}.")


def _decoded(text: str) -> bytes:
    """Base64 as Java reads it: padding may be left out."""
    stranger = _NOT_BASE64.search(text)
    if stranger is not None:
        raise BadRequest(f"Illegal base64 character {ord(stranger.group()):x}")
    bare = text.rstrip("=")
    padding = len(text) - len(bare)
    if padding and len(text) % 4:
        raise BadRequest("Input byte array has wrong 4-byte ending unit")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error as error:
        raise BadRequest("Input byte array is not base64 to its end") from error
