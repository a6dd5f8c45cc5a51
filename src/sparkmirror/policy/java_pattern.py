"""A Java pattern of a user, matched in bounded time: names come in, matches go out.

Patterns come from configs that anybody may send, and names from whoever may create a topic. A pattern such as `(a+)+x` needs
twice the time for each further letter. Python's own engine would hold the interpreter meanwhile, and with it the whole worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import regex

from sparkmirror.errors import ConfigError
from sparkmirror.policy.java_regex import UnsupportedPattern, translate

LONGEST_S: Final = 1.0
_SHOWN = 100
LONGEST: Final = 256 << 10
"""How many characters a pattern may have."""
_MOST_REPEATED = 10_000
_CLASS = re.compile(r"\\.|\[(?:\\(?:.|\Z)|[^\]\\])*+(?:\]|\Z)", re.DOTALL)
_RANGE = re.compile(r"(\\.|[^\\\]])-(\\.|[^\\\]])", re.DOTALL)
_TOKEN = re.compile(
    r"\\.|\[(?:\\(?:.|\Z)|[^\]\\])*+(?:\]|\Z)|\{(?P<least>\d++)[^{}]*+\}|.", re.DOTALL
)


_TOO_LARGE = "it is too large", "Use a simpler pattern."


class PatternTooSlow(ConfigError):
    """A pattern takes too long on a name."""


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A pattern that was compiled; `key` is the one that it comes from. PatternTooSlow where matching takes over a second."""

    pattern: str
    key: str
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """UnsupportedPattern or re.error if it cannot be used."""
        try:
            compiled = _compiled(self.pattern)
        except (OverflowError, RecursionError, ValueError, MemoryError) as error:
            raise UnsupportedPattern(*_TOO_LARGE) from error
        object.__setattr__(self, "_compiled", compiled)

    @property
    def groups(self) -> int:
        return int(self._compiled.groups)

    @property
    def groupindex(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._compiled.groupindex
        return found

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text."""
        try:
            # While it matches, other threads run.
            found = self._compiled.fullmatch(text, timeout=LONGEST_S, concurrent=True)
        except TimeoutError:
            raise self._too_slow(text) from None
        return found is not None

    def replace_first(self, text: str, replacement: Callable[[re.Match[str]], str]) -> str:
        """The text with the first place where it matches replaced."""
        try:
            return str(self._compiled.sub(replacement, text, 1, timeout=LONGEST_S, concurrent=True))
        except TimeoutError:
            raise self._too_slow(text) from None

    def _too_slow(self, text: str) -> PatternTooSlow:
        return PatternTooSlow(
            f"{self.key} has the pattern {self.pattern[:_SHOWN]!r}, which takes longer than {LONGEST_S:.0f} s to match "
            f"{text[:_SHOWN]!r}.",
            "Write it so that no text can be matched in several ways: a+x instead of (a+)+x.",
        )


def _compiled(pattern: str) -> regex.Pattern[str]:
    if len(pattern) > LONGEST:
        raise UnsupportedPattern(*_TOO_LARGE)
    translated = translate(pattern)
    if _repeated(translated) > _MOST_REPEATED:
        raise UnsupportedPattern(
            f"it repeats something more than {_MOST_REPEATED} times",
            "Write * or + instead of a large count.",
        )
    # What this one refuses is refused, in its words. It would walk through every character of each range.
    re.compile(_CLASS.sub(_small_class, translated), re.ASCII)
    try:
        # ASCII: \w, \d, \s and case mean ASCII in Java unless asked otherwise.
        return regex.compile(translated, regex.ASCII, cache_pattern=False)
    except regex.error as error:
        raise re.error(str(error)) from error


def _small_class(found: re.Match[str]) -> str:
    return "[" + _RANGE.sub(_small_range, found[0][1:]) if found[0].startswith("[") else found[0]


def _small_range(found: re.Match[str]) -> str:
    """One that is right, as a small one; one that is wrong, or none, as it is."""
    is_class = any(text[0] == "\\" and text[-1].isalnum() for text in found.groups())
    return found[0] if is_class or found[1][-1] > found[2][-1] else "a-b"


def _repeated(pattern: str) -> int:
    """How much longer a pattern becomes where counts are written out, as the engine does with the least of each."""
    sizes, last, added = [0], 0, 0
    for token in _TOKEN.finditer(pattern):
        match token[0]:
            case "(":
                sizes.append(0)
            case ")" if len(sizes) > 1:
                last = sizes.pop()
                sizes[-1] += last
            case _ if token["least"] is not None:
                more = last * (max(1, int(token["least"])) - 1)
                sizes[-1] += more
                last += more
                added = max(added, more)
            case _:
                last = 1
                sizes[-1] += 1
    return max(added, sum(sizes) - len(pattern))
