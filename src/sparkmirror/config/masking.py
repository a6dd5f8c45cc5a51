"""Secrets in configs: properties come in, the same without passwords go out, for logs and pages.

`GET /connectors/{name}/config` shows what the user wrote, passwords too, as Connect does: those who
do not want that use config providers.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.config.config_values import HIDDEN
from sparkmirror.config.keys import KeyType
from sparkmirror.config.keys_security import SECURITY_KEYS

_PASSWORDS = tuple(key.name for key in SECURITY_KEYS if key.type is KeyType.PASSWORD)
_SUFFIXES = tuple(f".{name}" for name in _PASSWORDS)
# Keys that no table of ours knows, such as those of other people's config providers.
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "apikey"}
)


def is_secret(name: str) -> bool:
    """Whether the value of a key is nobody's business: a password, wherever it is prefixed."""
    return (
        name in _PASSWORDS
        or name.endswith(_SUFFIXES)
        or name.lower().replace("-", ".").rpartition(".")[2] in _SECRET_WORDS
    )


def masked(properties: Mapping[str, str | None]) -> dict[str, str | None]:
    """`properties` with `[hidden]` in the place of secrets."""
    return {name: HIDDEN if is_secret(name) else value for name, value in properties.items()}
