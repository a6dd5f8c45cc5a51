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

_BLOCK = re.compile(r"-{5}BEGIN ([A-Z0-9 ]+)-{5}(.*?)-{5}END \1-{5}", re.DOTALL)
_HEADER = re.compile(r"^[A-Za-z0-9-]+:.*$", re.MULTILINE)
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_LINE = 64


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
    for label, content in _BLOCK.findall(text):
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
    secret = password.encode() if password and is_locked else None
    try:
        return load_pem_private_key(key.lines().encode("ascii"), secret)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        guess = "ssl.key.password does not fit it, or it" if is_locked else "It"
        raise ConfigError(
            f"The private key in {where} cannot be read. {guess} is damaged.",
            "Check ssl.key.password and that the key is PKCS#8 PEM.",
        ) from error
