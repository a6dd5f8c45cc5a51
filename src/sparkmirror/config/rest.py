"""The settings of a worker's REST server: worker properties come in, typed settings go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sparkmirror.config.clients import with_prefix
from sparkmirror.config.keys import Problem, Values, java_trim, split_list
from sparkmirror.config.listeners import (
    HeaderRule,
    Listener,
    parse_header_rules,
    parse_listener,
)
from sparkmirror.config.validators import invalid

BASIC_AUTH = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
_EXTENSIONS = "rest.extension.classes"
_ADVERTISED = "rest.advertised.listener"
_TLS_PREFIX = "ssl."


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What one client may cost, and all together; times in seconds."""

    header_bytes: int
    body_bytes: int
    bodies_bytes: int
    """Of all requests that are not answered yet, together."""
    connections: int
    connections_per_address: int
    request: float
    """For a request to come, from its first byte to its last."""
    idle: float
    """For a connection on which nothing has come yet."""

    @classmethod
    def build(cls, values: Values) -> Self:
        return cls(
            header_bytes=values.integer("rest.max.header.bytes"),
            body_bytes=values.integer("rest.max.body.bytes"),
            bodies_bytes=values.integer("rest.max.bodies.bytes"),
            connections=values.integer("rest.max.connections"),
            connections_per_address=values.integer("rest.max.connections.per.address"),
            request=values.integer("rest.request.receive.timeout.ms") / 1000,
            idle=values.integer("rest.connection.idle.timeout.ms") / 1000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """Settings of the REST server.

    `admin_listeners` is None where the admin endpoints are served with the others, and empty where
    they are not served at all. `tls` and `admin_tls` hold `ssl.*` keys for https listeners.
    """

    listeners: tuple[Listener, ...]
    admin_listeners: tuple[Listener, ...] | None
    advertised_host: str | None
    advertised_port: int | None
    advertised_listener: str | None
    """http or https."""
    allow_origin: str
    allow_methods: str
    allowed_hosts: frozenset[str]
    """Names by which the server may be called; empty: any."""
    limits: HttpLimits
    response_headers: tuple[HeaderRule, ...]
    extension_classes: tuple[str, ...]
    tls: Mapping[str, str]
    admin_tls: Mapping[str, str]

    @classmethod
    def build(cls, values: Values, properties: Mapping[str, str]) -> Self:
        """Settings from values that have been checked."""
        admin = values["admin.listeners"]
        port = values["rest.advertised.port"]
        return cls(
            listeners=tuple(map(parse_listener, values.items_of("listeners"))),
            admin_listeners=tuple(map(parse_listener, admin)) if isinstance(admin, tuple) else None,
            advertised_host=_text(values["rest.advertised.host.name"]),
            advertised_port=port if isinstance(port, int) else None,
            advertised_listener=_text(values[_ADVERTISED], lower=True),
            allow_origin=values.text("access.control.allow.origin"),
            allow_methods=values.text("access.control.allow.methods"),
            allowed_hosts=frozenset(map(str.lower, values.items_of("rest.allowed.hosts"))),
            limits=HttpLimits.build(values),
            response_headers=parse_header_rules(values.text("response.http.headers.config")),
            extension_classes=tuple(
                BASIC_AUTH if _is_basic_auth(name) else name
                for name in values.items_of(_EXTENSIONS)
            ),
            tls=_tls(properties, "listeners.https."),
            admin_tls=_tls(properties, "admin.listeners.https."),
        )


def rest_problems(properties: Mapping[str, str]) -> list[Problem]:
    """What the key table cannot say about the REST server."""
    problems = []
    listener = java_trim(properties.get(_ADVERTISED, ""))
    if listener.lower() not in ("", "http", "https"):
        problems.append(Problem(_ADVERTISED, invalid(_ADVERTISED, listener, "Use http or https")))
    # An extension that is left out in silence may be the one that keeps strangers out.
    problems += [
        Problem(
            _EXTENSIONS,
            f"{_EXTENSIONS} names {name}, a Java class, which cannot be loaded. Remove it; "
            f"{BASIC_AUTH} is built in.",
        )
        for name in split_list(properties.get(_EXTENSIONS, ""))
        if not _is_basic_auth(name)
    ]
    return problems


def _is_basic_auth(name: str) -> bool:
    return name in (BASIC_AUTH, BASIC_AUTH.rpartition(".")[2])


def _tls(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The `ssl.*` keys under `prefix` or, if there is none at all, the worker's own."""
    own = with_prefix(properties, prefix)
    return {
        name: value for name, value in (own or properties).items() if name.startswith(_TLS_PREFIX)
    }


def _text(value: object, *, lower: bool = False) -> str | None:
    text = value if isinstance(value, str) else ""
    return (text.lower() if lower else text) or None
