"""Media types: what a client sends and takes comes in, what it is answered with goes out.

The rules are those of a Java worker: a wrong Content-Type is refused even where nothing is sent, and `q=0` refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from functools import lru_cache

_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)/([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*")
_QUALITY = re.compile(r"\s*q\s*=\s*([0-9.]+)\s*", re.IGNORECASE)
# The order in which a Java worker names methods.
_METHODS = ("HEAD", "POST", "DELETE", "GET", "OPTIONS", "PUT", "PATCH")


class Sent(Enum):
    """What a Content-Type means to an endpoint."""

    READABLE = auto()
    UNSAID = auto()
    """None was given, or one with a wildcard: fine unless there is a body that has to be read."""
    OTHER = auto()
    MALFORMED = auto()


@lru_cache(maxsize=256)
def sent(content_type: str | None, consumed: str) -> Sent:
    """What a Content-Type means to an endpoint that reads `consumed`. Parameters, such as a charset, are of no account."""
    if content_type is None:
        return Sent.UNSAID
    match = _TYPE.fullmatch(content_type.partition(";")[0])
    if match is None:
        return Sent.MALFORMED
    if f"{match[1]}/{match[2]}".lower() == consumed:
        return Sent.READABLE
    return Sent.UNSAID if _covers(match[1], match[2], consumed) else Sent.OTHER


@lru_cache(maxsize=256)
def accepted(accept: str, produced: str) -> str | None:
    """The content type of an answer, with the parameters the client asked for; None if the client does not take it."""
    if not accept.strip():
        return produced
    best: tuple[float, str] | None = None
    for item in accept.split(","):
        kind, *parameters = item.split(";")
        match = _TYPE.fullmatch(kind)
        if match is None or not _covers(match[1], match[2], produced):
            continue
        quality, kept = _parameters(parameters)
        is_exact = "*" not in (match[1], match[2])
        answered = ";".join([produced, *kept]) if is_exact else produced
        if best is None or quality > best[0]:
            best = quality, answered
    return best[1] if best else None


def preferred(accept: str) -> str:
    """The media type that a client likes best, as it wrote it but for the quality."""
    best: tuple[float, str] | None = None
    for item in accept.split(","):
        kind, *parameters = item.split(";")
        quality, kept = _parameters(parameters)
        if best is None or quality > best[0]:
            best = quality, ";".join([kind.strip(), *kept])
    return best[1] if best else ""


def allow(methods: Iterable[str]) -> list[str]:
    """The methods of a resource as OPTIONS names them."""
    known = {*methods, "OPTIONS"}
    if "GET" in known:
        known.add("HEAD")
    return [method for method in _METHODS if method in known]


def _covers(kind: str, subtype: str, media_type: str) -> bool:
    wanted, _, wanted_subtype = media_type.partition("/")
    return kind.lower() in ("*", wanted) and subtype.lower() in ("*", wanted_subtype)


def _parameters(parameters: Iterable[str]) -> tuple[float, list[str]]:
    """The quality, and the other parameters."""
    quality, kept = 1.0, []
    for parameter in parameters:
        match = _QUALITY.fullmatch(parameter)
        if match is None:
            kept.append(parameter.strip())
            continue
        try:
            quality = float(match[1])
        except ValueError:
            quality = 1.0
    return quality, kept
