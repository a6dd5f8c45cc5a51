"""How many partitions a remote topic has: the value of `target.partitions` comes in, a number for each topic goes out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from sparkmirror.config.validators import invalid
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import compile_java_patterns
from sparkmirror.policy.java_pattern import JavaPattern

TARGET_PARTITIONS = "target.partitions"
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_FORM = "Write pattern:number for each, or one number for all topics, as in orders.*:12,6"


@dataclass(frozen=True, slots=True)
class TargetPartitions:
    """Rules in the order in which they are tried: a pattern for whole topic names, and a number."""

    rules: tuple[tuple[str, int], ...] = ()
    _compiled: tuple[tuple[JavaPattern, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = tuple(
            (compile_java_patterns([pattern], TARGET_PARTITIONS), count)
            for pattern, count in self.rules
        )
        object.__setattr__(self, "_compiled", compiled)

    @classmethod
    def parse(cls, items: Iterable[str]) -> Self:
        """The rules of a list; ConfigError that says which element is wrong."""
        return cls(tuple(_rule(item) for item in items))

    def count(self, topic: str) -> int | None:
        """The number of partitions that the first matching rule gives a topic's copy; None: as many as the topic has."""
        return next((count for pattern, count in self._compiled if pattern.matches(topic)), None)


def _rule(item: str) -> tuple[str, int]:
    # Patterns may hold colons, numbers do not: the last one separates.
    pattern, colon, number = item.rpartition(":")
    if not colon:
        pattern = ".*"
    if not pattern or not _NUMBER.fullmatch(number) or int(number) == 0:
        raise ConfigError(f"{TARGET_PARTITIONS} has the element {item!r}.", f"{_FORM}.")
    return pattern, int(number)


def target_partitions_problem(name: str, value: object) -> str | None:
    """What is wrong with the list, in the words of a validator; None if nothing is."""
    if not isinstance(value, tuple):
        return None
    try:
        TargetPartitions.parse(value)
    except ConfigError as error:
        return invalid(name, ",".join(value), f"{error.message} {error.remedy}".strip())
    return None
