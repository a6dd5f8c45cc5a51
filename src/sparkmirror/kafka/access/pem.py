"""PEM as Kafka's Java clients read it: text in, blocks of DER out.

Line ends do not count, since properties files often hold a certificate on one line. A file that ends in the middle of a block
is an error, so that one that is just being written is not taken for whole.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sparkmirror.errors import ConfigError

_BEGIN = re.compile(r"-{5}BEGIN ([A-Z0-9 ]++)-{5}")
_HEADER = re.compile(r"^[A-Za-z0-9-]++:.*$", re.MULTILINE)
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_LINE = 64
_LONGEST_KEY = 32 << 10  # an RSA key of 16384 bits has 13 KiB
_DERIVATIONS = re.compile(
    rb"\x06("
    rb"\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05."  # PBES1 and PBKDF2
    rb"|\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01."  # those of PKCS12
    rb"|(?P<scrypt>\x09\x2b\x06\x01\x04\x01\xda\x47\x04\x0b)"
    rb")",
    re.DOTALL,
)
_MOST_ITERATIONS = 1_000_000
_MOST_SCRYPT = 64 << 20
_SEQUENCE, _OCTETS, _INTEGER = 0x30, 0x04, 0x02


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between a BEGIN and its END."""

    label: str
    headers: tuple[str, ...]
    body: str

    def lines(self) -> str:
        """The block as files have it, whatever line ends it came with."""
        body = "\n".join(self.body[i : i + _LINE] for i in range(0, len(self.body), _LINE))
        head = "".join(f"{header}\n" for header in self.headers)
        head += "\n" if head else ""
        return f"-----BEGIN {self.label}-----\n{head}{body}\n-----END {self.label}-----\n"


def blocks(text: str, where: str) -> list[Block]:
    """All blocks of a text; `where` names the text in errors."""
    text = text.replace("\\n", "\n")  # as environment variables and JSON in YAML hold line ends
    found = []
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        label = begin[1]
        end = text.find(mark := f"-----END {label}-----", begin.end())
        if end < 0:
            break
        content, at = text[begin.end() : end], end + len(mark)
        headers = tuple(header.strip() for header in _HEADER.findall(content))
        body = "".join(_HEADER.sub("", content).split())
        found.append(Block(label, headers, body))
    if text.count("-----BEGIN ") != len(found):
        raise ConfigError(
            f"The PEM in {where} is cut off: a block begins and does not end.",
            "Write the whole of it, from -----BEGIN …----- to -----END …-----.",
        )
    return found


def certificates(text: str, where: str) -> tuple[bytes, ...]:
    """All certificates as DER, in their order; an error if there are none."""
    found = []
    for block in blocks(text, where):
        if block.label not in _CERTIFICATES:
            continue
        try:
            found.append(base64.b64decode(block.body, validate=True))
        except ValueError as error:  # also of text that is not ASCII
            raise ConfigError(
                f"A certificate in {where} is not base64: {error}.", "Write it anew as PEM."
            ) from error
    if not found:
        raise ConfigError(
            f"There is no certificate in {where}.",
            "It must hold PEM: -----BEGIN CERTIFICATE----- … -----END CERTIFICATE-----.",
        )
    return tuple(found)


def private_key(text: str, where: str, password: str | None) -> PrivateKeyTypes:
    """The one private key of a text; `password` is that of `ssl.key.password`."""
    keys = [block for block in blocks(text, where) if block.label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        many = "no private key" if not keys else f"{len(keys)} private keys"
        raise ConfigError(
            f"There is {many} in {where}." if not keys else f"There are {many} in {where}.",
            "It must hold one, as PKCS#8 PEM: -----BEGIN PRIVATE KEY----- … or "
            "-----BEGIN ENCRYPTED PRIVATE KEY----- … with ssl.key.password.",
        )
    (key,) = keys
    is_locked = key.label.startswith("ENCRYPTED") or any("ENCRYPTED" in h for h in key.headers)
    if is_locked and not password:
        raise ConfigError(
            f"The private key in {where} is encrypted, and there is no ssl.key.password.",
            "Set ssl.key.password.",
        )
    _require_cheap(key, where)
    secret = password.encode() if password and is_locked else None
    try:
        # To check its primes would take seconds, or for ever, of all threads; TLS finds out whether it fits the certificate.
        return load_pem_private_key(
            key.lines().encode("ascii"), secret, unsafe_skip_rsa_key_validation=True
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        guess = "ssl.key.password does not fit it, or it" if is_locked else "It"
        raise ConfigError(
            f"The private key in {where} cannot be read. {guess} is damaged.",
            "Check ssl.key.password and that the key is PKCS#8 PEM.",
        ) from error


def _require_cheap(key: Block, where: str) -> None:
    """ConfigError for a key whose password would take minutes or gigabytes to try: anybody may send one in a config."""
    if len(key.body) > _LONGEST_KEY:
        raise ConfigError(f"The private key in {where} is larger than any.", "Check what it holds.")
    try:
        der = base64.b64decode(key.body, validate=True)
    except ValueError:
        return  # damaged: told when it is read
    if any(_is_dear(der, found) for found in _DERIVATIONS.finditer(der)):
        raise ConfigError(
            f"Trying the password of the private key in {where} would take too long.",
            f"Encrypt the key with at most {_MOST_ITERATIONS} iterations.",
        )


def _is_dear(der: bytes, name: re.Match[bytes]) -> bool:
    """Whether the parameters behind the name of a derivation ask for more than they may."""
    try:
        numbers = _integers(der, name.end())
    except IndexError:
        return False  # damaged
    if name["scrypt"] is not None and len(numbers) > 1:
        return 128 * numbers[0] * numbers[1] > _MOST_SCRYPT
    return bool(numbers) and numbers[0] > _MOST_ITERATIONS


def _integers(der: bytes, at: int) -> list[int]:
    """The integers of a sequence, up to an element of another kind but the salt."""
    tag, start, end = _element(der, at)
    found: list[int] = []
    while tag == _SEQUENCE and start < end:
        kind, first, start = _element(der, start)
        if kind == _INTEGER:
            found.append(int.from_bytes(der[first:start]))
        elif kind != _OCTETS:
            break
    return found


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of what an element holds."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length > 127:
        size = length & 127
        length, start = int.from_bytes(der[start : start + size]), start + size
    return tag, start, start + length
