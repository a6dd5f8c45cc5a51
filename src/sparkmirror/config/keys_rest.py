"""The keys of a worker's REST server: where it listens, what it is called, what it allows."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key
from sparkmirror.config.listeners import check_header_rules, check_listeners
from sparkmirror.config.validators import Items, OneOf

_LOW = Importance.LOW

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
