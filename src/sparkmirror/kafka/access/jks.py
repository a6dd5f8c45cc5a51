"""The JKS format of Java: bytes of a store and its password in, entries out.

A store is `FEEDFEED`, a version, entries, and a SHA-1 over the password, a constant and all of that. A private key in it is
hidden by a stream of SHA-1 hashes of its own password (the JDK's "key protector"), which is all that this format offers.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

from sparkmirror.errors import ConfigError

MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_PROTECTOR = bytes.fromhex(
    "060a2b060104012a02110101"
)  # the object identifier 1.3.6.1.4.1.42.2.17.1.1
_SHA1_BYTES = 20


@dataclass(frozen=True, slots=True)
class Trusted:
    """A certificate that is trusted."""

    alias: str
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Hidden:
    """A private key, hidden, with its certificates; the first is its own."""

    alias: str
    locked: bytes = field(repr=False)
    chain: tuple[bytes, ...]


class _Cursor:
    """Reads big-endian fields one after the other; ValueError where there is nothing left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def text(self) -> str:
        (length,) = struct.unpack(">H", self.take(2))
        return self.take(length).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self.take(self.number())


def entries(data: bytes, password: str | None, where: str, key: str) -> list[Trusted | Hidden]:
    """All entries. Without a password the store is read unchecked, as Java does; `key` names the password's property."""
    body, seal = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    if password is not None:
        # SHA-1 is what the format has; it finds damage and wrong passwords.
        made = hashlib.sha1(_wide(password) + _WHITENER + body).digest()  # noqa: S324
        if not hmac.compare_digest(made, seal):
            raise ConfigError(
                f"The store {where} cannot be opened: {key} is wrong, or the file is damaged.",
                f"Correct {key}; `keytool -list -keystore {where}` tells whether a password fits.",
            )
    try:
        return _entries(_Cursor(body))
    except ValueError as error:
        raise ConfigError(
            f"The store {where} is damaged: {error}.", "Copy it anew, or make it again."
        ) from error


def _entries(cursor: _Cursor) -> list[Trusted | Hidden]:
    cursor.take(len(MAGIC))
    version = cursor.number()
    if version not in (1, 2):
        raise ValueError(f"version {version} of the format is not known")
    found: list[Trusted | Hidden] = []
    for _ in range(cursor.number()):
        tag, alias = cursor.number(), cursor.text()
        cursor.take(8)  # when it was made
        if tag == _CERTIFICATE_ENTRY:
            found.append(Trusted(alias, _certificate(cursor, version)))
        elif tag == _KEY_ENTRY:
            locked = cursor.block()
            chain = tuple(_certificate(cursor, version) for _ in range(cursor.number()))
            found.append(Hidden(alias, locked, chain))
        else:
            raise ValueError(f"entry {alias} is of the unknown kind {tag}")
    return found


def _certificate(cursor: _Cursor, version: int) -> bytes:
    if version == 2:
        cursor.text()  # the type, X.509
    return cursor.block()


def unlock(entry: Hidden, password: str, where: str) -> bytes:
    """The private key as PKCS#8 DER."""
    try:
        hidden = _hidden_bytes(entry.locked)
    except (ValueError, IndexError) as error:
        raise ConfigError(
            f"The key {entry.alias} in {where} cannot be read: {error}.",
            "Make the store again with keytool, as JKS or PKCS12.",
        ) from error
    salt, middle, seal = (
        hidden[:_SHA1_BYTES],
        hidden[_SHA1_BYTES:-_SHA1_BYTES],
        hidden[-_SHA1_BYTES:],
    )
    secret = _wide(password)
    stream = bytearray()
    link = salt
    while len(stream) < len(middle):
        link = hashlib.sha1(secret + link).digest()  # noqa: S324 - the format's
        stream += link
    plain = bytes(a ^ b for a, b in zip(middle, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), seal):  # noqa: S324
        raise ConfigError(
            f"The key {entry.alias} in {where} cannot be opened: ssl.key.password is wrong.",
            "Correct ssl.key.password (if it is not set, that of the store is tried).",
        )
    return plain


def _hidden_bytes(locked: bytes) -> bytes:
    """What is in the octets of an EncryptedPrivateKeyInfo: SEQUENCE { SEQUENCE { OID … }, OCTET STRING }."""
    outer = _value(locked, 0x30)[0]
    algorithm, rest = _value(outer, 0x30)
    if not algorithm.startswith(_PROTECTOR):
        raise ValueError("it is protected in a way that the JDK's JKS does not know")
    hidden = _value(rest, 0x04)[0]
    if len(hidden) < 2 * _SHA1_BYTES:
        raise ValueError("it is too short")
    return hidden


def _value(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """The value of the first DER element, which must have this tag, and what comes after it."""
    if der[0] != tag:
        raise ValueError(f"tag {der[0]:#x} stands where {tag:#x} should")
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    end = start + length
    if end > len(der):
        raise ValueError("it ends too early")
    return der[start:end], der[end:]


def _wide(password: str) -> bytes:
    return password.encode("utf-16-be")
