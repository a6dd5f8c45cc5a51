"""Which endpoint a path means: a raw path comes in, the resource and the decoded parts of the path go out.

Paths are matched as they were sent and decoded part by part, so that a name may hold an encoded slash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response

from sparkmirror.errors import BadRequest

_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way to an endpoint."""

    method: str
    raw_path: str
    parameters: Mapping[str, str]
    query: QueryParams
    raw_query: str
    headers: Headers
    base_url: str
    """Scheme and authority as the client wrote them; without a slash at the end."""
    body: bytes = b""

    def __getitem__(self, parameter: str) -> str:
        return self.parameters[parameter]

    @property
    def is_read(self) -> bool:
        return self.method in ("GET", "HEAD")


Handler = Callable[[Call], Response]


def never(call: Call) -> bool:
    return False


def always(call: Call) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, such as `/connectors/{connector}/status`.

    `is_local` tells whether this worker answers from what it knows, at once: such calls do not leave the event loop.
    """

    method: str
    path: str
    handler: Handler
    is_local: Callable[[Call], bool] = never
    reads_json: bool = False
    produces: str = "application/json"
    consumes: str | None = "application/json"
    """What a Content-Type must be if there is one; None for endpoints that do not look at it."""
    is_signed: bool = False
    """Asked by another worker, which signs instead of logging in."""
    is_health: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """A path and what can be asked of it."""

    pattern: tuple[str, ...]
    routes: Mapping[str, Route]

    def route(self, method: str) -> Route | None:
        found = self.routes.get(method)
        return self.routes.get("GET") if found is None and method == "HEAD" else found

    def parameters(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """The variable parts, decoded; None if the segments are another path."""
        found = {}
        for wanted, segment in zip(self.pattern, segments, strict=True):
            if wanted.startswith("{"):
                found[wanted[1:-1]] = decoded(segment)
            elif wanted != segment:
                return None
        return found


class RouteTable:
    """All endpoints of a listener. Fixed parts win over variable ones."""

    def __init__(self, routes: Iterable[Route]) -> None:
        methods: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            methods.setdefault(segments_of(route.path), {})[route.method] = route
        self._by_length: dict[int, list[Resource]] = {}
        for pattern, table in methods.items():
            self._by_length.setdefault(len(pattern), []).append(Resource(pattern, table))
        for resources in self._by_length.values():
            resources.sort(key=lambda resource: [part.startswith("{") for part in resource.pattern])

    def find(self, raw_path: str) -> tuple[Resource, dict[str, str]] | None:
        segments = segments_of(raw_path)
        for resource in self._by_length.get(len(segments), ()):
            parameters = resource.parameters(segments)
            if parameters is not None:
                return resource, parameters
        return None


def segments_of(raw_path: str) -> tuple[str, ...]:
    """The parts of a path, still encoded. A slash at the end is of no account, nor is what follows a semicolon."""
    parts = raw_path.removeprefix("/").split("/")
    if parts[-1] == "":
        parts.pop()
    if ";" in raw_path:
        parts = [part.partition(";")[0] for part in parts]
    if "" in parts:
        raise BadRequest("Ambiguous URI empty segment")
    return tuple(parts)


def decoded(segment: str) -> str:
    """A part of a path without its encoding; BadRequest for one that no name can have."""
    if "%" not in segment:
        return segment
    if _NOT_ENCODED.search(segment):
        raise BadRequest("Bad URI: a percent sign is not followed by two hexadecimal digits")
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("Bad URI: an encoded character is not UTF-8") from error
    if _CONTROL.search(text):
        raise BadRequest("Bad URI: it holds an encoded control character")
    return text
