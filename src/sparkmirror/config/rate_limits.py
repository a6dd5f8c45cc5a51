"""Caps on what a flow reads: the keys `mirror.rate.limit.*` come in, bytes per second for the flow and each topic go out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from sparkmirror.config.keys import Importance, Key, KeyType, Problem, parse
from sparkmirror.config.validators import Between, invalid
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import compile_java_patterns
from sparkmirror.policy.java_pattern import JavaPattern

FLOW_LIMIT, TOPIC_LIMIT = "mirror.rate.limit.bytes", "mirror.rate.limit.topic.bytes"
RATE_LIMITS = "mirror.rate.limit"
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_FORM = "Write pattern:bytes for each, or one number for every topic, as in orders.*:1000000,250000"


@dataclass(frozen=True, slots=True)
class RateLimitConfig:
    """Bytes per second; 0: no cap. Rules for topics are tried in order: a pattern for whole names, and a number."""

    flow: int = 0
    topics: tuple[tuple[str, int], ...] = ()
    _compiled: tuple[tuple[JavaPattern, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = tuple(
            (compile_java_patterns([pattern], TOPIC_LIMIT), limit) for pattern, limit in self.topics
        )
        object.__setattr__(self, "_compiled", compiled)

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        """ConfigError that names the key and the element that is wrong."""
        values = parse(RATE_LIMIT_KEYS, props)
        return cls(values.integer(FLOW_LIMIT), _rules(values.items_of(TOPIC_LIMIT)))

    def topic(self, name: str) -> int:
        """The cap of the first rule that matches a source topic; 0 if none does."""
        return next((limit for pattern, limit in self._compiled if pattern.matches(name)), 0)


def _rules(items: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(_rule(item) for item in items)


def _rule(item: str) -> tuple[str, int]:
    # Patterns may hold colons, numbers do not: the last one separates.
    pattern, colon, number = item.rpartition(":")
    if not colon:
        pattern = ".*"
    if not pattern or not _NUMBER.fullmatch(number):
        raise ConfigError(f"{TOPIC_LIMIT} has the element {item!r}.", f"{_FORM}.")
    return pattern, int(number)


def _topic_limit_problem(name: str, value: object) -> str | None:
    """What is wrong with the list, in the words of a validator; None if nothing is."""
    if not isinstance(value, tuple):
        return None
    try:
        RateLimitConfig(topics=_rules(value))
    except ConfigError as error:
        return invalid(name, ",".join(value), f"{error.message} {error.remedy}".strip())
    return None


RATE_LIMIT_KEYS: tuple[Key, ...] = (
    Key(
        name=FLOW_LIMIT,
        type=KeyType.LONG,
        default="0",
        importance=Importance.MEDIUM,
        doc="Ours. The most bytes per second that all tasks of the flow read together from the source, in record batches as "
        "they are there (compressed); 0: no cap.",
        display_name=FLOW_LIMIT,
        validator=Between(low=0),
        hidden=True,  # MirrorMaker 2 does not have it
    ),
    Key(
        name=TOPIC_LIMIT,
        type=KeyType.LIST,
        default="",
        importance=Importance.MEDIUM,
        doc="Ours. The same for single source topics: pattern:bytes, the first that matches counts, or one number for every "
        "topic. Each topic has the cap by itself; 0: no cap.",
        display_name=TOPIC_LIMIT,
        validator=_topic_limit_problem,
        hidden=True,
    ),
)
_NAMES = frozenset(key.name for key in RATE_LIMIT_KEYS)


def rate_limit_problems(props: Mapping[str, str]) -> list[Problem]:
    """Keys of the family that do not exist: a cap that is misspelled would not be one."""
    return [
        Problem(name, f"{name} is not known. Use {FLOW_LIMIT} or {TOPIC_LIMIT}.")
        for name in props
        if name.startswith(RATE_LIMITS) and name not in _NAMES
    ]
