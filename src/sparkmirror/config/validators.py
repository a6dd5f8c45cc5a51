"""What a value must satisfy: a key name and a typed value come in, a complaint or None goes out.

The words are those of Kafka's `ConfigDef`, since Connect's REST answers carry them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MOST_ALIASES = 100
_LONGEST_NAME = 1000


class Validator(Protocol):
    """Says what is wrong with a typed value, or None."""

    def __call__(self, name: str, value: object) -> str | None: ...


def invalid(name: str, value: object, expected: str) -> str:
    """The words of `ConfigException` for a wrong value."""
    return f"Invalid value {java_text(value)} for configuration {name}: {expected}"


def java_text(value: object) -> str:
    """What `toString` gives for a typed value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _java_double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # As few digits as tell the number from its neighbours, as `repr` does too.
    shortest = next(t for d in range(18) if float(t := f"{value:.{d}e}") == value)
    digits, _, exponent = shortest.partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


@dataclass(frozen=True, slots=True)
class Between:
    """A number not below `low` and not above `high`, where given; perhaps none at all."""

    low: float | None = None
    high: float | None = None
    optional: bool = False

    def __call__(self, name: str, value: object) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, int | float):
            return invalid(name, value, "Value must be non-null")
        if self.low is not None and value < self.low:
            return invalid(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            return invalid(name, value, f"Value must be no more than {self.high}")
        return None


@dataclass(frozen=True, slots=True)
class PositiveOr:
    """A whole number that is positive, or -1 where the brokers are to decide."""

    expected: str

    def __call__(self, name: str, value: object) -> str | None:
        if isinstance(value, int) and (value == -1 or value >= 1):
            return None
        return invalid(name, value, self.expected)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]
    ignore_case: bool = False

    def __call__(self, name: str, value: object) -> str | None:
        word = str(value).upper() if self.ignore_case else str(value)
        allowed = [w.upper() if self.ignore_case else w for w in self.words]
        if value is not None and word in allowed:
            return None
        hint = " (case insensitive)" if self.ignore_case else ""
        return invalid(name, value, f"String must be one of{hint}: {', '.join(self.words)}")


@dataclass(frozen=True, slots=True)
class Items:
    """A list in which nothing is empty or twice, of `words` only where given, perhaps not empty."""

    words: tuple[str, ...] = ()
    may_be_empty: bool = True

    def __call__(self, name: str, value: object) -> str | None:
        if not isinstance(value, tuple):
            return f"Configuration '{name}' values must not be null."
        if not value and not self.may_be_empty:
            valid = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            return f"Configuration '{name}' must not be empty. Valid values include: {valid}"
        if len(set(value)) < len(value):
            return f"Configuration '{name}' values must not be duplicated."
        if "" in value:
            return f"Configuration '{name}' values must not be empty."
        wrong = [item for item in value if self.words and item not in self.words]
        return OneOf(self.words)(name, wrong[0]) if wrong else None


@dataclass(frozen=True, slots=True)
class UniqueAliases:
    """A list of aliases, none of them twice: an error here, not a warning, as each names a step."""

    def __call__(self, name: str, value: object) -> str | None:
        if not isinstance(value, tuple):
            return invalid(name, value, "entry must be non null")
        if len(value) > MOST_ALIASES:
            return invalid(name, f"of {len(value)} names", f"There may be at most {MOST_ALIASES}.")
        if len(set(value)) == len(value):
            return None
        return invalid(name, value, "Duplicate alias provided.")


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text that is not empty, and optionally free of control characters."""

    control_characters: bool = True
    empty_message: str = "String must be non-empty"

    def __call__(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        text = str(value)
        if not text:
            return invalid(name, text, self.empty_message)
        found = [str(ord(c)) for c in text if ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F]
        if self.control_characters or not found:
            return None
        codes = ", ".join(found)
        return invalid(
            name,
            text,
            f"String may not contain control sequences but had the following ASCII chars: {codes}",
        )


@dataclass(frozen=True, slots=True)
class ConnectorName(NonEmpty):
    """One that workers can tell each other in a rebalance."""

    def __call__(self, name: str, value: object) -> str | None:
        if len(str(value).encode(errors="surrogatepass")) > _LONGEST_NAME:
            wanted = f"String may have at most {_LONGEST_NAME} bytes"
            return invalid(name, f"{str(value)[:40]}...", wanted)
        return NonEmpty.__call__(self, name, value)
