"""Which names are in and which are out: lists of patterns come in, yes or no goes out."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkmirror.errors import ConfigError
from sparkmirror.policy.java_pattern import LONGEST, JavaPattern, PatternTooSlow
from sparkmirror.policy.java_regex import UnsupportedPattern
from sparkmirror.policy.naming import ReplicationPolicy, is_cycle

log = logging.getLogger(__name__)
_NOTHING = "(?!)"
_SHOWN = 100


def compile_java_patterns(items: Sequence[str], key: str) -> JavaPattern:
    """One pattern for all `items`. No items match nothing.

    Java joins the items with `|` before it compiles them, so an item may rely on its neighbours
    (`(a` and `b)` are one group, a leading `(?i)` counts for all): the same is done here.
    """
    try:
        return _compile("|".join(items) if items else _NOTHING, key)
    except UnsupportedPattern as error:
        item = _culprit(items, key)
        raise ConfigError(
            f"{key} has the pattern {item!r}, which cannot be used: {error.what}.", error.remedy
        ) from error


def _compile(expression: str, key: str) -> JavaPattern:
    try:
        return JavaPattern(expression, key)
    except re.error as error:
        raise UnsupportedPattern(*_explain(error)) from error


def _explain(error: re.error) -> tuple[str, str]:
    if "look-behind" in error.msg:
        return (
            "a lookbehind whose length varies is not supported",
            "Give the text in (?<=...) or (?<!...) a fixed length.",
        )
    if "nothing to repeat" in error.msg:
        return "there is nothing before *, + or ? to repeat", "For any name write .* instead of *."
    return (
        error.msg,
        "Correct the regular expression; note that a comma in the list ends a pattern.",
    )


def _culprit(items: Sequence[str], key: str) -> str:
    if sum(map(len, items)) > LONGEST:
        return ",".join(items)  # each may be right, and would take its time
    for item in items:
        try:
            _compile(item, key)
        except UnsupportedPattern:
            return item
    return ",".join(items)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names that match one of `include` and none of `exclude`, whole names only."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    include_key: str
    exclude_key: str
    _include: JavaPattern = field(init=False, repr=False, compare=False)
    _exclude: JavaPattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "_include", compile_java_patterns(self.include, self.include_key))
        set_field(self, "_exclude", compile_java_patterns(self.exclude, self.exclude_key))

    def matches(self, name: str) -> bool:
        """Whether `name` is in."""
        try:
            return self._include.matches(name) and not self._exclude.matches(name)
        except PatternTooSlow as error:  # anybody may choose a name so that it takes long
            log.warning("%s %s is left out. %s", error.message, name[:_SHOWN], error.remedy)
            return False


class TopicFilter(NameFilter):
    """`topics` and `topics.exclude`."""

    __slots__ = ()

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        super().__init__(tuple(include), tuple(exclude), "topics", "topics.exclude")


class GroupFilter(NameFilter):
    """`groups` and `groups.exclude`."""

    __slots__ = ()

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        super().__init__(tuple(include), tuple(exclude), "groups", "groups.exclude")


class ConfigPropertyFilter(NameFilter):
    """Topic properties to copy: all but `config.properties.exclude`."""

    __slots__ = ()

    def __init__(self, exclude: Sequence[str]) -> None:
        super().__init__((".*",), tuple(exclude), "", "config.properties.exclude")


def should_replicate_topic(
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    heartbeats: bool,
    target_alias: str,
    topic: str,
) -> bool:
    """Whether a flow into `target_alias` copies `topic`.

    `heartbeats` is `heartbeats.replication.enabled`: heartbeats topics pass whatever the filter
    says. Internal topics and topics that come from the target never pass.
    """
    wanted = topic_filter.matches(topic) or (heartbeats and policy.is_heartbeats_topic(topic))
    return (
        wanted and not policy.is_internal_topic(topic) and not is_cycle(policy, topic, target_alias)
    )
