"""Which properties are secret: names and properties come in; whether a value may be shown, and what in it may not, go out."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "[hidden]"
_NAMES = (
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
)
_PUBLIC = _NAMES[2:]  # Kafka types them as passwords, but everybody who connects is shown them
_SUFFIXES = tuple(f".{name}" for name in _NAMES)
# In the last part of a key that no table of ours knows, such as those of other people's config providers.
SECRET_WORDS = ("password", "passwd", "passphrase", "secret", "credential", "apikey")
_ENDINGS = ("api.key", "access.key", "secret.key", "private.key")
_OPTION = re.compile(
    r"(?<![\w.\-])([\w.\-]++)\s*+=\s*+(\"(?:\\.|[^\"\\])*+\"|'(?:\\.|[^'\\])*+'|[^\s;]++)",
    re.DOTALL,
)
_SHORTEST = 8
_PEM_LINE = 24  # shorter ones are the last line of a key, or none of it


def is_secret(name: str) -> bool:
    """Whether the value of a key is nobody's business: a password, wherever it is prefixed."""
    plain = name.lower().replace("-", ".").replace("_", ".")
    last = plain.rpartition(".")[2]
    return (
        name in _NAMES
        or name.endswith(_SUFFIXES)
        or any(word in last for word in SECRET_WORDS)
        or last.endswith("token")
        or ".account.key." in plain
        or any(plain == ending or plain.endswith(f".{ending}") for ending in _ENDINGS)
    )


def secrets_in(properties: Mapping[str, str]) -> set[str]:
    """The texts among the values that must not be shown: passwords, secret options of login modules, lines of private keys."""
    found: set[str] = set()
    for name, value in properties.items():
        if not is_secret(name) or name.endswith(_PUBLIC):
            continue
        if name.endswith("sasl.jaas.config"):
            found |= _of_jaas(value)
        elif "PRIVATE KEY" in value:
            found |= {line for line in value.split() if len(line) >= _PEM_LINE}
        else:
            found.add(value.strip())
    return {secret for secret in found if len(secret) >= _SHORTEST}


def _of_jaas(text: str) -> set[str]:
    found: set[str] = set()
    for name, value in _OPTION.findall(text):
        if is_secret(name):
            written = value[1:-1] if value[:1] in ("'", '"') else value
            found |= {written, re.sub(r"\\(.)", r"\1", written, flags=re.DOTALL)}
    return found
