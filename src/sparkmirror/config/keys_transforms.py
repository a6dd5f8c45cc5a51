"""The keys of the transformations and predicates that work on records as bytes."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key, required_key
from sparkmirror.config.validators import Items, invalid
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import compile_java_patterns

HIGH, MEDIUM = Importance.HIGH, Importance.MEDIUM


def _check_regex(name: str, value: object) -> str | None:
    """A regular expression of Java's that Python can take with the same meaning."""
    if value is None:
        return invalid(name, value, "Invalid regex: there is none")
    try:
        compile_java_patterns([str(value)], name)
    except ConfigError as error:
        return invalid(name, value, f"Invalid regex: {error}")
    return None


def _check_pattern(name: str, value: object) -> str | None:
    if value == "":
        return invalid(name, value, "String must be non-empty")
    return _check_regex(name, value)


def _not_null(name: str, value: object) -> str | None:
    return invalid(name, value, "entry must be non null") if value is None else None


def _not_empty_text(name: str, value: object) -> str | None:
    return invalid(name, value, "String must be non-empty") if value == "" else None


STAGE_KEYS: tuple[Key, ...] = (
    plain_key(
        "predicate",
        KeyType.STRING,
        None,
        MEDIUM,
        "Alias of the predicate that says which records the transformation is for.",
    ),
    plain_key(
        "negate",
        KeyType.BOOLEAN,
        "false",
        MEDIUM,
        "Whether it is for the records of which the predicate is not true.",
    ),
)
"""What every transformation has besides its own keys."""

REGEX_ROUTER_KEYS: tuple[Key, ...] = (
    required_key(
        "regex",
        KeyType.STRING,
        HIGH,
        "Java regular expression for whole topic names.",
        _check_regex,
    ),
    required_key(
        "replacement",
        KeyType.STRING,
        HIGH,
        "The new topic name; $1 stands for the first group of the expression.",
    ),
)

TIMESTAMP_ROUTER_KEYS: tuple[Key, ...] = (
    plain_key(
        "topic.format",
        KeyType.STRING,
        "${topic}-${timestamp}",
        HIGH,
        "The new topic name, with ${topic} for the old one and ${timestamp} for the record's time.",
    ),
    plain_key(
        "timestamp.format",
        KeyType.STRING,
        "yyyyMMdd",
        HIGH,
        "How the time is written, in the letters of Java's SimpleDateFormat; UTC.",
    ),
)

INSERT_HEADER_KEYS: tuple[Key, ...] = (
    required_key("header", KeyType.STRING, HIGH, "Name of the header to add.", _not_null),
    required_key(
        "value.literal", KeyType.STRING, HIGH, "Value of the header, the same for all.", _not_null
    ),
)

DROP_HEADERS_KEYS: tuple[Key, ...] = (
    required_key(
        "headers", KeyType.LIST, HIGH, "Names of the headers to drop.", Items(may_be_empty=False)
    ),
)

TOPIC_NAME_MATCHES_KEYS: tuple[Key, ...] = (
    required_key(
        "pattern",
        KeyType.STRING,
        MEDIUM,
        "Java regular expression for whole topic names.",
        _check_pattern,
    ),
)

HAS_HEADER_KEY_KEYS: tuple[Key, ...] = (
    required_key("name", KeyType.STRING, MEDIUM, "Name of the header.", _not_empty_text),
)
