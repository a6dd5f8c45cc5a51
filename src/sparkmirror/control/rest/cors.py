"""Requests of pages from elsewhere (CORS): allowed origins and methods come in, headers for the browser go out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from starlette.datastructures import Headers
from starlette.responses import Response

from sparkmirror.errors import ConfigError

_ANY = "*"
_DEFAULT_METHODS = "GET,POST,HEAD"
_MAX_AGE_S = "60"
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Cors:
    """Origins are regular expressions, in any case; None stands for all of them."""

    origins: tuple[re.Pattern[str], ...] | None
    methods: str

    @classmethod
    def from_settings(cls, allow_origin: str, allow_methods: str) -> Self | None:
        """None if no origin is named: then nothing is said about any."""
        items = [item for item in map(str.strip, allow_origin.split(",")) if item]
        if not items:
            return None
        methods = ",".join(item.strip() for item in allow_methods.split(",") if item.strip())
        origins = None if _ANY in items else tuple(map(_pattern, items))
        return cls(origins, methods or _DEFAULT_METHODS)

    def apply(self, method: str, headers: Headers, response: Response) -> None:
        response.raw_headers.append((b"vary", b"Origin"))
        origin = headers.get("origin")
        if not origin or not self.allows(origin):
            return
        _add(response, "access-control-allow-origin", origin)
        if method == "OPTIONS" and "access-control-request-method" in headers:
            _add(response, "access-control-allow-methods", self.methods)
            _add(response, "access-control-allow-headers", "Content-Type")
            _add(response, "access-control-max-age", _MAX_AGE_S)

    def allows(self, origin: str) -> bool:
        """A browser may name several, separated by blanks: one that is allowed is enough."""
        if self.origins is None:
            return True
        if len(origin) > _LONGEST:  # anybody may send one, and it is held against patterns
            return False
        return any(pattern.fullmatch(each) for each in origin.split() for pattern in self.origins)


def _add(response: Response, name: str, value: str) -> None:
    response.raw_headers.append((name.encode(), value.encode("latin-1")))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(
            f"access.control.allow.origin: {text} is no regular expression: {error}.",
            "Write origins such as http://host:port, or * for all.",
        ) from error
