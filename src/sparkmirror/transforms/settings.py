"""The settings of one transform or predicate: a connector's config and an alias in, values or a ConfigError out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkmirror.errors import ConfigError
from sparkmirror.policy.java_pattern import JavaPattern
from sparkmirror.policy.java_regex import UnsupportedPattern


@dataclass(frozen=True, slots=True)
class Settings:
    """What stands under one prefix, such as `transforms.rename.`; keys in errors are given in full."""

    props: Mapping[str, str]
    prefix: str

    def text(self, name: str, default: str | None = None) -> str:
        """A text that must not be empty; without a default it must be there."""
        value = self.props.get(self.prefix + name, default)
        if value is None:
            raise ConfigError(f"{self.prefix}{name} is missing.", f"Set {self.prefix}{name}.")
        if not value:
            raise ConfigError(
                f"{self.prefix}{name} is empty.", f"Give {self.prefix}{name} a value."
            )
        return value

    def may_be_empty(self, name: str) -> str:
        value = self.props.get(self.prefix + name)
        if value is None:
            raise ConfigError(f"{self.prefix}{name} is missing.", f"Set {self.prefix}{name}.")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names, as Java reads lists; at least one."""
        found = listed(self.text(name))
        if not found:
            raise ConfigError(
                f"{self.prefix}{name} is empty.", "Give one name or more, with commas between."
            )
        return found

    def flag(self, name: str) -> bool:
        value = self.props.get(self.prefix + name, "false").strip().lower()
        if value not in ("true", "false"):
            raise ConfigError(
                f"{self.prefix}{name}={value} is neither true nor false.",
                f"Correct {self.prefix}{name}.",
            )
        return value == "true"

    def pattern(self, name: str) -> JavaPattern:
        """A Java regular expression."""
        value = self.text(name)
        try:
            return JavaPattern(value, f"{self.prefix}{name}")
        except UnsupportedPattern as error:
            raise ConfigError(f"{self.prefix}{name}={value}: {error.what}.", error.remedy) from None
        except re.error as error:
            raise ConfigError(
                f"{self.prefix}{name}={value} is no regular expression: {error}.",
                f"Correct {self.prefix}{name}.",
            ) from None


def listed(value: str) -> tuple[str, ...]:
    """The items of a list, as Java's configs have them."""
    return tuple(item.strip() for item in value.split(",")) if value.strip() else ()
