"""The keys of a worker's REST server: where it listens, what it is called, what it allows."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key
from sparkmirror.config.listeners import check_header_rules, check_listeners
from sparkmirror.config.validators import Between, Items, OneOf

_LOW = Importance.LOW


def _limit(name: str, default: str, doc: str, least: int) -> Key:
    """What a client of REST may cost."""
    return plain_key(name, KeyType.INT, default, _LOW, f"Ours. {doc}", Between(least))


REST_KEYS: tuple[Key, ...] = (
    plain_key(
        "listeners",
        KeyType.LIST,
        "http://:8083",
        _LOW,
        "Where REST listens: http:// or https://, a host (empty: all) and a port (0: any free one).",
        check_listeners,
    ),
    plain_key(
        "rest.advertised.host.name",
        KeyType.STRING,
        None,
        _LOW,
        "Host name by which other workers reach this one.",
    ),
    plain_key(
        "rest.advertised.port",
        KeyType.INT,
        None,
        _LOW,
        "Port by which other workers reach this one.",
    ),
    plain_key(
        "rest.advertised.listener",
        KeyType.STRING,
        None,
        _LOW,
        "Which of the listeners other workers use: http or https.",
    ),
    plain_key(
        "access.control.allow.origin",
        KeyType.STRING,
        "",
        _LOW,
        "Origins from which browsers may call REST; `*` for all, empty for none but its own.",
    ),
    plain_key(
        "access.control.allow.methods",
        KeyType.STRING,
        "",
        _LOW,
        "Methods that browsers may use from there; empty: GET, POST and HEAD.",
    ),
    plain_key(
        "rest.allowed.hosts",
        KeyType.LIST,
        "",
        _LOW,
        "Ours. Names (host, or host:port) by which REST may be called; empty: by any. Against pages that give the worker "
        "a name of their own (DNS rebinding).",
        Items(),
    ),
    _limit("rest.max.header.bytes", "32768", "How long the head of a request may be.", 1024),
    _limit("rest.max.body.bytes", "33554432", "How long the body of a request may be.", 1024),
    _limit(
        "rest.max.bodies.bytes",
        "134217728",
        "How long the bodies of all requests may be together that are not answered yet.",
        1024,
    ),
    _limit(
        "rest.max.connections", "2048", "How many connections there may be at the same time.", 1
    ),
    _limit(
        "rest.max.connections.per.address",
        "512",
        "How many of these may come from one address (a proxy is one).",
        1,
    ),
    _limit(
        "rest.request.receive.timeout.ms",
        "30000",
        "How long a request may take to come, from its first byte to its last.",
        100,
    ),
    _limit(
        "rest.connection.idle.timeout.ms",
        "30000",
        "How long a connection is kept on which nothing comes.",
        100,
    ),
    plain_key(
        "response.http.headers.config",
        KeyType.STRING,
        "",
        _LOW,
        "Headers to put on answers: `set|add|setDate|addDate name:value`, separated by commas; "
        "a rule with a comma in it stands in double quotes.",
        check_header_rules,
    ),
    plain_key(
        "ssl.client.auth",
        KeyType.STRING,
        "none",
        _LOW,
        "Whether https clients must show a certificate.",
        OneOf(("required", "requested", "none")),
    ),
    plain_key(
        "rest.extension.classes",
        KeyType.LIST,
        "",
        _LOW,
        "Extensions of REST. BasicAuthSecurityRestExtension is built in; Java classes are not run.",
        Items(),
    ),
    plain_key(
        "admin.listeners",
        KeyType.LIST,
        None,
        _LOW,
        "Where the admin endpoints listen; unset: with the others, empty: nowhere.",
        check_listeners,
    ),
)
