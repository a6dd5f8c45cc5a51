"""Records sent to another topic: `RegexRouter` (by the topic's name) and `TimestampRouter` (by the record's time)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkmirror.errors import ConfigError
from sparkmirror.policy.java_pattern import JavaPattern

from .dates import DatePattern
from .record import ConnectRecord
from .settings import Settings

_GROUP_NAME = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


def _moved(record: ConnectRecord, topic: str) -> ConnectRecord:
    return ConnectRecord(topic, *record[1:])


@dataclass(frozen=True, slots=True)
class RegexRouter:
    """Renames a topic whose whole name matches.

    What is replaced then is the first place where the expression matches, which in Java need not be the whole name: `a|ab`
    turns `ab` into the replacement and `b`.
    """

    regex: JavaPattern
    replacement: tuple[str | int, ...]
    """Texts, and numbers of groups."""

    @classmethod
    def parse(cls, settings: Settings) -> RegexRouter:
        regex = settings.pattern("regex")
        key = f"{settings.prefix}replacement"
        return cls(regex, java_replacement(settings.may_be_empty("replacement"), regex, key))

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        topic = self.route(record.topic)
        return record if topic == record.topic else _moved(record, topic)

    def route(self, topic: str) -> str:
        return self.regex.replace_first(topic, self._expand) if self.regex.matches(topic) else topic

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(
            part if isinstance(part, str) else match[part] or "" for part in self.replacement
        )


def java_replacement(text: str, regex: JavaPattern, key: str) -> tuple[str | int, ...]:
    r"""A replacement as Java writes it: `$1`, `${name}`, and a backslash before what is meant as it is."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "$":
            group, position = _group(text, position, regex, key)
            parts.append(group)
            continue
        if char == "\\":
            if position == len(text):
                raise _wrong(key, text, "it ends in a single backslash")
            char = text[position]
            position += 1
        parts.append(char)
    return tuple(parts)


def _group(text: str, position: int, regex: JavaPattern, key: str) -> tuple[int, int]:
    """The group whose name or number stands after a dollar sign, and where that ends."""
    named = _GROUP_NAME.match(text, position)
    if named is not None:
        if named[1] not in regex.groupindex:
            raise _wrong(key, text, f"there is no group {named[1]}")
        return regex.groupindex[named[1]], named.end()
    digit = text[position : position + 1]
    if not digit.isascii() or not digit.isdigit():
        raise _wrong(key, text, "$ stands for a group and needs its number or {name}")
    group = int(digit)
    position += 1
    if group > regex.groups:
        raise _wrong(key, text, f"there is no group {group}")
    # Java takes more digits as long as there is such a group: with three groups $12 is group 1 and a 2.
    while (digit := text[position : position + 1]).isascii() and digit.isdigit():
        if group * 10 + int(digit) > regex.groups:
            break
        group = group * 10 + int(digit)
        position += 1
    return group, position


def _wrong(key: str, text: str, what: str) -> ConfigError:
    return ConfigError(
        f"{key}={text}: {what}.", rf"Correct {key}; \$ is the dollar sign itself, \\ the backslash."
    )


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    """Puts the record's time (UTC) into the name of its topic."""

    topic_format: str
    timestamp_format: DatePattern

    @classmethod
    def parse(cls, settings: Settings) -> TimestampRouter:
        pattern = settings.text("timestamp.format", "yyyyMMdd")
        key = f"{settings.prefix}timestamp.format"
        return cls(
            settings.text("topic.format", "${topic}-${timestamp}"), DatePattern.parse(pattern, key)
        )

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        text = self.timestamp_format.format(record.timestamp)
        named = self.topic_format.replace("${topic}", record.topic)
        return _moved(record, named.replace("${timestamp}", text))

    def route(self, topic: str) -> str | None:
        # Java puts the topic in first, so a topic that is called ${timestamp} is replaced as well.
        named = self.topic_format.replace("${topic}", topic)
        return None if "${timestamp}" in named else named
