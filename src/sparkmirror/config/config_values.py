"""Keys with a user's values, as Connect's REST shows them: keys and strings come in, JSON goes out.

Unlike `keys.check`, which stops at the first problem of a key, this does exactly what validation in
Connect does: a value that cannot be read has none, and its validator is asked about that too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkmirror.config.keys import Key, KeyType, convert
from sparkmirror.config.validators import invalid, java_text
from sparkmirror.secret_names import HIDDEN, is_secret

Properties = Mapping[str, str | None]
"""A connector config as JSON gives it: a value may be null."""

FindClass = Callable[[str, str], str]
"""The full name of the class that a key names; ValueError if there is no such class."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """What one key is set to, and what is wrong with that."""

    name: str
    value: str | None = None
    errors: tuple[str, ...] = ()
    recommended: tuple[str, ...] = ()
    visible: bool = True

    def with_errors(self, *messages: str) -> ConfigValue:
        return replace(self, errors=(*self.errors, *messages))


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of the answer: a value, and the key that defines it, if one does."""

    key: Key | None
    value: ConfigValue
    prefix: str = ""
    """What stands before the key's name, and the value's, in this config."""

    def json(self) -> dict[str, Any]:
        value = replace(self.value, name=self.prefix + self.value.name)
        return {
            "definition": None if self.key is None else definition_json(self.key, self.prefix),
            "value": value_json(value),
        }


def any_class(name: str, text: str) -> str:
    """Takes every class name as it is."""
    return text


def evaluate(
    keys: Iterable[Key], props: Properties, find_class: FindClass = any_class
) -> dict[str, ConfigValue]:
    """The value of every key that validation lists, in the order of the key table."""
    return {key.name: config_value(key, props, find_class) for key in keys if not key.hidden}


def config_value(key: Key, props: Properties, find_class: FindClass = any_class) -> ConfigValue:
    """The value of one key."""
    value, errors = _typed(key, props, find_class)
    problem = key.validator(key.name, value) if key.validator else None
    if problem is not None:
        errors = (*errors, problem)
    return ConfigValue(key.name, to_text(value, key.type), errors, key.recommended)


def to_text(value: object, key_type: KeyType | None) -> str | None:
    """A typed value as REST shows it."""
    if value is None:
        return None
    if key_type is KeyType.PASSWORD:
        return HIDDEN
    if key_type is KeyType.LIST and isinstance(value, tuple):
        return ",".join(value)
    return java_text(value)


def definition_json(key: Key, prefix: str = "") -> dict[str, Any]:
    """What REST says of a key."""
    default = None if key.default is None else convert(key.type, key.default)
    return {
        "name": prefix + key.name,
        "type": str(key.type),
        "required": key.required,
        "default_value": to_text(default, key.type),
        "importance": str(key.importance),
        "documentation": key.doc,
        "group": key.group,
        "order_in_group": key.order,
        "width": key.width,
        "display_name": key.display_name,
        "dependents": [],
    }


def value_json(value: ConfigValue) -> dict[str, Any]:
    """What REST says of a value."""
    return {
        "name": value.name,
        "value": value.value,
        "recommended_values": list(value.recommended),
        "errors": list(value.errors),
        "visible": value.visible,
    }


def _typed(key: Key, props: Properties, find_class: FindClass) -> tuple[object, tuple[str, ...]]:
    names = [name for name in (key.name, *key.aliases) if name in props]
    if not names:
        if key.required:
            missing = f'Missing required configuration "{key.name}" which has no default value.'
            return None, (missing,)
        return (None if key.default is None else convert(key.type, key.default)), ()
    text = props[names[0]]
    if text is None:
        return None, ()
    try:
        value = convert(key.type, text)
        if key.type is KeyType.CLASS:
            value = find_class(key.name, str(value))
    except ValueError as error:
        shown = HIDDEN if key.type is KeyType.PASSWORD or is_secret(key.name) else text
        return None, (invalid(key.name, shown, str(error)),)
    return value, ()
