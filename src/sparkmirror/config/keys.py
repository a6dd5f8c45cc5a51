"""Keys as data: a table of `Key`s and the user's strings come in, typed values or problems go out.

The rules are those of Kafka's `ConfigDef`, and so are the words of a problem, since Connect's REST
answers carry them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sparkmirror.config.validators import Items, Validator, invalid
from sparkmirror.errors import ConfigError
from sparkmirror.secret_names import HIDDEN, is_secret

JAVA_BLANKS = "".join(map(chr, range(0x21)))  # what java.lang.String.trim removes
_LIST_BLANKS = " \t\n\x0b\f\r"
_INTEGER = re.compile(r"[+-]?\d++")
_DECIMAL = re.compile(r"([+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?)[dDfF]?", re.ASCII)


class KeyType(StrEnum):
    """The types of `ConfigDef`."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type


_INTEGER_BITS = {KeyType.SHORT: 16, KeyType.INT: 32, KeyType.LONG: 64}


class Importance(StrEnum):
    """How much a key matters to most users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its name, its type, what it is when nobody sets it, and what it means.

    `default` is written as a user would write it; None means "no value". `mm2_default` is set only
    where our default differs from MirrorMaker 2's on purpose. `aliases` are former names, read when
    the name itself is absent. A `hidden` key is read but not listed by Connect's validation, which
    offers the `recommended` values to user interfaces.
    """

    name: str
    type: KeyType
    default: str | None = None
    required: bool = False
    importance: Importance = Importance.LOW
    doc: str = ""
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    aliases: tuple[str, ...] = ()
    mm2_default: str | None = None
    hidden: bool = False
    recommended: tuple[str, ...] = ()


def plain_key(
    name: str,
    key_type: KeyType,
    default: str | None,
    importance: Importance,
    doc: str,
    validator: Validator | None = None,
) -> Key:
    """A key that belongs to no group and is displayed by its name."""
    return Key(
        name=name,
        type=key_type,
        default=default,
        importance=importance,
        doc=doc,
        validator=validator,
        display_name=name,
    )


def required_key(
    name: str,
    key_type: KeyType,
    importance: Importance,
    doc: str,
    validator: Validator | None = None,
) -> Key:
    """A plain key that has no default: the user has to set it."""
    return replace(plain_key(name, key_type, None, importance, doc, validator), required=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong setting: which key, and what is wrong with its value."""

    key: str
    message: str


class Values(Mapping[str, object]):
    """Typed values by key name.

    `given` are the names that the user set, `warnings` what was understood but should be rewritten.
    """

    __slots__ = ("_typed", "given", "warnings")

    def __init__(
        self, typed: Mapping[str, object], given: Iterable[str], warnings: Iterable[str]
    ) -> None:
        self._typed = dict(typed)
        self.given = frozenset(given)
        self.warnings = tuple(warnings)

    def __getitem__(self, name: str) -> object:
        return self._typed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._typed)

    def __len__(self) -> int:
        return len(self._typed)

    def boolean(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        value = self._typed[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a boolean key")
        return value

    def integer(self, name: str) -> int:
        """The value of a SHORT, INT or LONG key."""
        value = self._typed[name]
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} is not an integer key, or has no value")
        return value

    def text(self, name: str) -> str:
        """The value of a STRING, CLASS or PASSWORD key."""
        value = self._typed[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a text key, or has no value")
        return value

    def items_of(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key."""
        value = self._typed[name]
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is not a list key, or has no value")
        return value


def java_trim(text: str) -> str:
    """`text` as java.lang.String.trim leaves it."""
    return text.strip(JAVA_BLANKS)


def split_list(text: str) -> tuple[str, ...]:
    """The elements of a LIST value; "a,,b" keeps its empty element for a validator to refuse."""
    trimmed = java_trim(text)
    return tuple(item.strip(_LIST_BLANKS) for item in trimmed.split(",")) if trimmed else ()


def parse_boolean(text: str) -> bool | None:
    """True, False, or None for anything that `ConfigDef` refuses."""
    return {"true": True, "false": False}.get(java_trim(text).lower())


def convert(key_type: KeyType, text: str) -> object:
    """The typed value of `text`; ValueError says what was expected."""
    trimmed = java_trim(text)
    if key_type is KeyType.BOOLEAN:
        value = parse_boolean(trimmed)
        if value is None:
            raise ValueError("Expected value to be either true or false")
        return value
    if key_type in _INTEGER_BITS:
        return _integer(key_type, trimmed)
    if key_type is KeyType.DOUBLE:
        decimal = _DECIMAL.fullmatch(trimmed)
        if decimal is None:
            raise ValueError("Not a number of type DOUBLE")
        return float(decimal[1])
    if key_type is KeyType.LIST:
        return split_list(trimmed)
    if key_type is KeyType.CLASS and not trimmed:
        raise ValueError(class_not_found(text))
    return trimmed


def class_not_found(text: str) -> str:
    """The words of `ConfigDef` for a class that does not exist."""
    return f"Class {text} could not be found."


def _integer(key_type: KeyType, trimmed: str) -> int:
    limit = 1 << (_INTEGER_BITS[key_type] - 1)
    if not _INTEGER.fullmatch(trimmed) or not -limit <= int(trimmed) < limit:
        raise ValueError(f"Not a number of type {key_type}")
    return int(trimmed)


def lookup(key: Key, values: Mapping[str, str]) -> str | None:
    """What the user wrote for `key` under its name or, failing that, a former name."""
    return next((values[name] for name in (key.name, *key.aliases) if name in values), None)


def read(key: Key, values: Mapping[str, str]) -> tuple[object, Problem | None]:
    """The typed value of one key, or what is wrong with it."""
    text = lookup(key, values)
    if text is None:
        if key.required:
            message = f'Missing required configuration "{key.name}" which has no default value.'
            return None, Problem(key.name, message)
        return (None if key.default is None else convert(key.type, key.default)), None
    shown = HIDDEN if key.type is KeyType.PASSWORD or is_secret(key.name) else text
    try:
        value = convert(key.type, text)
    except ValueError as error:
        return None, Problem(key.name, invalid(key.name, shown, str(error)))
    if isinstance(value, tuple) and isinstance(key.validator, Items):
        value = tuple(dict.fromkeys(value))
    message_or_none = key.validator(key.name, value) if key.validator else None
    return value, None if message_or_none is None else Problem(key.name, message_or_none)


def check(keys: Iterable[Key], values: Mapping[str, str]) -> list[Problem]:
    """Everything that is wrong with `values`, in the order of the key table."""
    return [problem for key in keys if (problem := read(key, values)[1]) is not None]


def parse(keys: Sequence[Key], values: Mapping[str, str]) -> Values:
    """Typed values of all `keys`; one ConfigError that names every wrong value."""
    require(check(keys, values))
    typed = {key.name: read(key, values)[0] for key in keys}
    given = [key.name for key in keys if lookup(key, values) is not None]
    return Values(typed, given, _warnings(keys, values))


def require(problems: Sequence[Problem], where: str = "") -> None:
    """Raise one ConfigError for all `problems`, if there are any."""
    if not problems:
        return
    prefix = f"{where}: " if where else ""
    if len(problems) == 1:
        raise ConfigError(f"{prefix}{problems[0].message}", "Correct the value and start again.")
    lines = "".join(f"\n  - {problem.message}" for problem in problems)
    raise ConfigError(
        f"{prefix}{len(problems)} settings are wrong:{lines}\n", "Correct them and start again."
    )


def _warnings(keys: Iterable[Key], values: Mapping[str, str]) -> Iterator[str]:
    for key in keys:
        text = lookup(key, values)
        if text is None:
            continue
        if key.name not in values:
            yield f"{next(n for n in key.aliases if n in values)} is a former name of {key.name}."
        if key.type is KeyType.LIST:
            items = split_list(text)
            if len(set(items)) != len(items):
                yield f"{key.name} has duplicate entries; each counts once."
