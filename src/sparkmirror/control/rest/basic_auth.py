"""Basic authentication as Connect's own REST extension does it: a JAAS file comes in, users are known by their passwords.

The section `KafkaConnect` of the JAAS file names the property file with one `user=password` a line.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkmirror.config.properties import load_properties
from sparkmirror.config.rest import BASIC_AUTH
from sparkmirror.errors import ConfigError
from sparkmirror.java_options import VARIABLES, system_property
from sparkmirror.kafka.access.jaas import tokens as jaas_tokens

_LOG = logging.getLogger(__name__)

LOGIN_MODULE = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
JAAS_KEY = "mirror.rest.jaas.file"
_SECTION = "KafkaConnect"
_OPTION = "java.security.auth.login.config"
_REMEDY = (
    f'It must hold {_SECTION} {{ {LOGIN_MODULE} required file="/path/to/users.properties"; }};'
)


def jaas_path(properties: Mapping[str, str], environment: Mapping[str, str]) -> Path | None:
    """Where the JAAS file is: the worker's own key, else the Java option that a Java worker would be given."""
    named = properties.get(JAAS_KEY)
    if named:
        return Path(named)
    given = system_property(environment, _OPTION)
    return Path(given) if given else None


class BasicAuth:
    """Who may call. Invariant: an empty property file lets everybody in, as it does with a Java worker."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)

    @classmethod
    def from_jaas(cls, path: Path | None) -> BasicAuth:
        if path is None:
            raise ConfigError(
                f"rest.extension.classes names {BASIC_AUTH}, but no JAAS file is known.",
                f"Set {JAAS_KEY}, or -D{_OPTION}=FILE in {VARIABLES[0]}. {_REMEDY}",
            )
        file = Path(_module_options(path).get("file", ""))
        if not file.name:
            raise ConfigError(f"{path} names no property file for {_SECTION}.", _REMEDY)
        users = load_properties(file)
        if not users:
            _LOG.warning("%s is empty: every user may call the REST server.", file)
        return cls(users)

    def admits(self, authorization: str | None) -> bool:
        """Whether an Authorization header is that of a user."""
        if not self._users:
            return True
        user, password = _credentials(authorization)
        expected = self._users.get(user) if user is not None else None
        if expected is None or password is None:
            return False
        return hmac.compare_digest(expected.encode(), password.encode())


def _credentials(authorization: str | None) -> tuple[str | None, str | None]:
    method, _, encoded = (authorization or "").partition(" ")
    if method.lower() != "basic":
        return None, None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError):
        return None, None
    user, separator, password = text.partition(":")
    return (user, password) if separator else (None, None)


def _module_options(path: Path) -> dict[str, str]:
    """The options of the login module in the section of the REST server."""
    try:
        tokens = [token.text for token in jaas_tokens(path.read_text(encoding="utf-8"))]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The JAAS file {path} cannot be read: {error}.", _REMEDY) from error
    try:
        start = tokens.index(_SECTION)
        end = tokens.index("}", start)
    except ValueError as error:
        raise ConfigError(f"The JAAS file {path} has no section {_SECTION}.", _REMEDY) from error
    if tokens[start + 1 : start + 2] != ["{"]:
        raise ConfigError(f"The JAAS file {path} has no section {_SECTION}.", _REMEDY)
    module, *rest = tokens[start + 2 : end] or [""]
    if module != LOGIN_MODULE:
        raise ConfigError(
            f"{path} names the login module {module!r} for {_SECTION}, which is not known here.",
            _REMEDY,
        )
    return _assignments(rest)


def _assignments(tokens: Sequence[str]) -> dict[str, str]:
    return {tokens[i - 1]: tokens[i + 1] for i in range(1, len(tokens) - 1) if tokens[i] == "="}
