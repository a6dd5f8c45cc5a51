"""The keys of Connect's converters. Only one of them is run, and it needs none; see `converters`."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, required_key
from sparkmirror.config.validators import OneOf, Validator

HIGH, LOW = Importance.HIGH, Importance.LOW


def _key(
    name: str,
    key_type: KeyType,
    default: str | None,
    importance: Importance,
    place: tuple[str | None, int],
    display_name: str,
    doc: str,
    validator: Validator | None = None,
) -> Key:
    return Key(
        name=name,
        type=key_type,
        default=default,
        importance=importance,
        group=place[0],
        order=place[1],
        width="MEDIUM",
        display_name=display_name,
        doc=doc,
        validator=validator,
    )


CONVERTER_KEYS: tuple[Key, ...] = (
    required_key(
        "converter.type",
        KeyType.STRING,
        LOW,
        "Of what the converter is: key, value or header. Connect sets it itself.",
        OneOf(("key", "value", "header")),
    ),
)

STRING_CONVERTER_KEYS: tuple[Key, ...] = (
    *CONVERTER_KEYS,
    _key(
        "converter.encoding",
        KeyType.STRING,
        "UTF-8",
        HIGH,
        (None, -1),
        "Encoding",
        "Java character set of the texts.",
    ),
)

JSON_CONVERTER_KEYS: tuple[Key, ...] = (
    *CONVERTER_KEYS,
    _key(
        "schemas.enable",
        KeyType.BOOLEAN,
        "true",
        HIGH,
        ("Schemas", 0),
        "Enable Schemas",
        "Whether each document carries its schema.",
    ),
    _key(
        "schemas.cache.size",
        KeyType.INT,
        "1000",
        HIGH,
        ("Schemas", 1),
        "Schema Cache Size",
        "How many schemas are kept.",
    ),
    _key(
        "schema.content",
        KeyType.STRING,
        None,
        HIGH,
        ("Schemas", 2),
        "Schema Content",
        "One schema for all documents.",
    ),
    _key(
        "decimal.format",
        KeyType.STRING,
        "BASE64",
        LOW,
        ("Serialization", 0),
        "Decimal Format",
        "How decimals are written: BASE64 or NUMERIC.",
        OneOf(("NUMERIC", "BASE64"), ignore_case=True),
    ),
    _key(
        "replace.null.with.default",
        KeyType.BOOLEAN,
        "true",
        LOW,
        ("Serialization", 1),
        "Replace null with default",
        "Whether fields without a value get their default.",
    ),
)
