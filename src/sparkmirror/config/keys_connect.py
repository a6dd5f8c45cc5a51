"""The keys that Connect itself gives every connector, and those it adds to source connectors."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType
from sparkmirror.config.validators import (
    Between,
    ConnectorName,
    NonEmpty,
    OneOf,
    UniqueAliases,
    Validator,
)
from sparkmirror.config.versions import check_version

_COMMON = "Common"
_ERRORS = "Error Handling"
_EXACTLY_ONCE = "Exactly Once Support"


def _key(
    name: str,
    key_type: KeyType,
    default: str | None,
    importance: Importance,
    place: tuple[str, int, str],
    display_name: str,
    doc: str,
    validator: Validator | None = None,
) -> Key:
    group, order, width = place
    return Key(
        name=name,
        type=key_type,
        default=default,
        importance=importance,
        group=group,
        order=order,
        width=width,
        display_name=display_name,
        doc=doc,
        validator=validator,
    )


def _converter(part: str, order: int) -> tuple[Key, Key]:
    name = f"{part}.converter"
    return (
        _key(
            name,
            KeyType.CLASS,
            None,
            Importance.LOW,
            (_COMMON, order, "SHORT"),
            f"{part.capitalize()} converter class",
            "Converter instead of the worker's. One that does not copy bytes is refused.",
        ),
        _key(
            f"{name}.plugin.version",
            KeyType.STRING,
            None,
            Importance.LOW,
            (_COMMON, order + 1, "SHORT"),
            f"{part.capitalize()} converter version",
            "Version of that converter.",
            check_version,
        ),
    )


CONNECTOR_KEYS: tuple[Key, ...] = (
    Key(
        name="name",
        type=KeyType.STRING,
        required=True,
        importance=Importance.HIGH,
        group=_COMMON,
        order=1,
        width="MEDIUM",
        display_name="Connector name",
        doc="Name of the connector, unique in the Connect cluster.",
        validator=ConnectorName(control_characters=False, empty_message="String may not be empty"),
    ),
    Key(
        name="connector.class",
        type=KeyType.STRING,
        required=True,
        importance=Importance.HIGH,
        group=_COMMON,
        order=2,
        width="LONG",
        display_name="Connector class",
        doc="Which connector: its full Java name, or its last part, with or without 'Connector'.",
    ),
    _key(
        "connector.plugin.version",
        KeyType.STRING,
        None,
        Importance.MEDIUM,
        (_COMMON, 3, "MEDIUM"),
        "Connector version",
        "Version of the connector.",
        check_version,
    ),
    _key(
        "tasks.max",
        KeyType.INT,
        "1",
        Importance.HIGH,
        (_COMMON, 4, "SHORT"),
        "Tasks max",
        "How many tasks the connector may have at most.",
        Between(1),
    ),
    _key(
        "tasks.max.enforce",
        KeyType.BOOLEAN,
        "true",
        Importance.LOW,
        (_COMMON, 5, "SHORT"),
        "Enforce tasks max",
        "Deprecated. Whether a connector with more tasks than allowed fails.",
    ),
    *_converter("key", 6),
    *_converter("value", 8),
    *_converter("header", 10),
    _key(
        "transforms",
        KeyType.LIST,
        "",
        Importance.LOW,
        ("Transforms", 12, "LONG"),
        "Transforms",
        "Names of the transformations that records pass.",
        UniqueAliases(),
    ),
    _key(
        "predicates",
        KeyType.LIST,
        "",
        Importance.LOW,
        ("Predicates", 13, "LONG"),
        "Predicates",
        "Names of the predicates that transformations use.",
        UniqueAliases(),
    ),
    _key(
        "config.action.reload",
        KeyType.STRING,
        "restart",
        Importance.LOW,
        (_COMMON, 14, "MEDIUM"),
        "Reload Action",
        "What to do when a value from a config provider changes.",
        OneOf(("none", "restart")),
    ),
    _key(
        "errors.retry.timeout",
        KeyType.LONG,
        "0",
        Importance.MEDIUM,
        (_ERRORS, 1, "MEDIUM"),
        "Retry Timeout for Errors",
        "How long a failed operation is tried again, in milliseconds; -1: for ever.",
    ),
    _key(
        "errors.retry.delay.max.ms",
        KeyType.LONG,
        "60000",
        Importance.MEDIUM,
        (_ERRORS, 2, "MEDIUM"),
        "Maximum Delay Between Retries for Errors",
        "Longest wait between two tries.",
    ),
    _key(
        "errors.tolerance",
        KeyType.STRING,
        "none",
        Importance.MEDIUM,
        (_ERRORS, 3, "SHORT"),
        "Error Tolerance",
        "Whether a bad record fails the task (none) or is passed over (all).",
        OneOf(("none", "all")),
    ),
    _key(
        "errors.log.enable",
        KeyType.BOOLEAN,
        "false",
        Importance.MEDIUM,
        (_ERRORS, 4, "SHORT"),
        "Log Errors",
        "Whether each tolerated error is logged.",
    ),
    _key(
        "errors.log.include.messages",
        KeyType.BOOLEAN,
        "false",
        Importance.MEDIUM,
        (_ERRORS, 5, "SHORT"),
        "Log Error Details",
        "Whether the log of an error names the record.",
    ),
)

# Known to the framework only: a top-level one in an mm2.properties file reaches nothing.
SOURCE_CONNECTOR_KEYS: tuple[Key, ...] = (
    _key(
        "topic.creation.groups",
        KeyType.LIST,
        "",
        Importance.LOW,
        ("Topic Creation", 1, "LONG"),
        "Topic Creation Groups",
        "Groups of settings for topics that the framework creates.",
        UniqueAliases(),
    ),
    _key(
        "exactly.once.support",
        KeyType.STRING,
        "requested",
        Importance.MEDIUM,
        (_EXACTLY_ONCE, 2, "SHORT"),
        "Exactly once support",
        "Whether exactly-once delivery is asked for or insisted on.",
        OneOf(("REQUIRED", "REQUESTED"), ignore_case=True),
    ),
    _key(
        "transaction.boundary",
        KeyType.STRING,
        "poll",
        Importance.MEDIUM,
        (_EXACTLY_ONCE, 3, "SHORT"),
        "Transaction Boundary",
        "When a transaction ends. Accepted; copies do not need transactions.",
        OneOf(("INTERVAL", "POLL", "CONNECTOR"), ignore_case=True),
    ),
    _key(
        "transaction.boundary.interval.ms",
        KeyType.LONG,
        None,
        Importance.LOW,
        (_EXACTLY_ONCE, 4, "SHORT"),
        "Transaction boundary interval",
        "How often transactions end if they end by time.",
        Between(0, optional=True),
    ),
    _key(
        "offsets.storage.topic",
        KeyType.STRING,
        None,
        Importance.LOW,
        ("offsets.topic", 1, "LONG"),
        "Offsets topic",
        "Topic for this connector's positions, instead of the worker's.",
        NonEmpty(),
    ),
)
