"""Headers that are added to every answer: rules come in, headers go out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from email.utils import formatdate

from sparkmirror.config.listeners import HeaderRule
from sparkmirror.errors import ConfigError

RawHeaders = list[tuple[bytes, bytes]]

_KEY = "response.http.headers.config"
_DATES = ("setDate", "addDate")
_REPLACING = ("set", "setDate")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_CENTURY_MS = 3_155_760_000_000


def check_rules(rules: Iterable[HeaderRule]) -> None:
    """ConfigError for a rule that makes no header."""
    for rule in rules:
        if not _NAME.fullmatch(rule.name):
            raise ConfigError(f"{_KEY}: {rule.name} is no name of a header.", "Correct the rule.")
        if not _VALUE.fullmatch(rule.value):
            raise ConfigError(
                f"{_KEY}: {rule.value!r} is no value of a header.", "Use printable characters."
            )
        if rule.action in _DATES and not _is_milliseconds(rule.value):
            raise ConfigError(
                f"{_KEY}: {rule.value} is no date for {rule.name}.",
                f"{rule.action} takes a number of milliseconds from now.",
            )


def apply_rules(
    rules: Sequence[HeaderRule], headers: Iterable[tuple[bytes, bytes]], now: float
) -> RawHeaders:
    """An answer's headers with those of the rules. What the answer itself says wins, or it could not be read any more."""
    own = list(headers)
    taken = {name for name, _ in own}
    added: RawHeaders = []
    for rule in rules:
        name = rule.name.lower().encode()
        if name in taken:
            continue
        if rule.action in _REPLACING:
            added = [header for header in added if header[0] != name]
        added.append((name, _value(rule, now)))
    return own + added


def _value(rule: HeaderRule, now: float) -> bytes:
    if rule.action in _DATES:
        return formatdate(now + int(rule.value) / 1000, usegmt=True).encode()
    return rule.value.encode("latin-1")


def _is_milliseconds(value: str) -> bool:
    """Whether it is a number, and not so large that the year would have more than four digits."""
    return bool(re.fullmatch(r"-?[0-9]{1,13}", value)) and abs(int(value)) <= _CENTURY_MS
