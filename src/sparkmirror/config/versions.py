"""Versions of plugins: a version or a range of them comes in, whether ours is among them goes out.

Ranges are written as Maven writes them: `[1.0,2.0)`, `[4,)`, several separated by commas; a version
alone means just that one, `latest` the newest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

VERSION = "4.3.1"
"""The version of Kafka's plugins that this program stands in for."""

_PART = re.compile(r"\d+|[^\d.\-]+", re.ASCII)
_RANGE = re.compile(r"([\[(])([^\[\]()]*)([\])])")


@dataclass(frozen=True, slots=True)
class _Bounds:
    """From `low` to `high`; an empty one is open."""

    low: str
    low_included: bool
    high: str
    high_included: bool

    def contain(self, version: str) -> bool:
        above = _compare(version, self.low) if self.low else 1
        below = _compare(self.high, version) if self.high else 1
        return (above > 0 or (above == 0 and self.low_included)) and (
            below > 0 or (below == 0 and self.high_included)
        )


def version_problem(class_name: str, wanted: str | None) -> str | None:
    """What is wrong with asking for that version of a plugin; ValueError if it is none at all."""
    text = (wanted or "").strip()
    if wanted is None or text.lower() == "latest":
        return None
    if not text.startswith(("[", "(")):
        if any(bracket in text for bracket in "[]()"):
            raise ValueError(f"Only fully-qualified sets allowed: {text}")
        found = [_Bounds(text, True, text, True)] if text and "," not in text else []
        shown = f"[{text}]" if "," in text else f"[{text},{text}]"
    else:
        found, shown = _ranges(text), text
    if any(bounds.contain(VERSION) for bounds in found):
        return None
    return (
        f"Plugin {class_name} not found that matches the version range {shown}, "
        f"available versions: [{VERSION}]"
    )


def check_version(name: str, value: object) -> str | None:
    """The validator of keys with a version: whether it is one, not whether there is such a one."""
    try:
        version_problem("", None if value is None else str(value))
    except ValueError as error:
        return str(error)
    return None


def _ranges(text: str) -> list[_Bounds]:
    found = []
    rest = text
    while rest:
        match = _RANGE.match(rest)
        if match is None:
            raise ValueError(f"Unbounded range: {text}")
        found.append(_bounds(match[1], match[2], match[3], text))
        rest = rest[match.end() :].strip()
        if rest:
            if not rest.startswith(","):
                raise ValueError(f"Unbounded range: {text}")
            rest = rest[1:].strip()
    return found


def _bounds(opening: str, inner: str, closing: str, text: str) -> _Bounds:
    low, comma, high = (part.strip() for part in inner.partition(","))
    if not comma:
        if (opening, closing) != ("[", "]"):
            raise ValueError(f"Single version must be surrounded by []: {text}")
        high = low
    elif low and high and _compare(low, high) >= 0:
        raise ValueError(f"Range defies version ordering: {text}")
    return _Bounds(low, opening == "[", high, closing == "]")


def _compare(one: str, other: str) -> int:
    """Above zero if `one` is newer. Numbers count as such; a word is older than its absence."""
    pairs = zip_longest(_PART.findall(one), _PART.findall(other), fillvalue="0")
    for left, right in pairs:
        if (difference := _rank(left)) != (against := _rank(right)):
            return 1 if difference > against else -1
    return 0


def _rank(part: str) -> tuple[int, int, str]:
    return (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
