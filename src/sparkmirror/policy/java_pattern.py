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
from sparkmirror.policy.java_regex import translate

LONGEST_S: Final = 1.0
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A pattern that was compiled; `key` is the one that it comes from. ConfigError where matching takes longer than a second."""

    pattern: str
    key: str
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """UnsupportedPattern, re.error, OverflowError or RecursionError if it cannot be used."""
        translated = translate(self.pattern)
        re.compile(translated, re.ASCII)  # what this one refuses is refused, in its words
        # ASCII: \w, \d, \s and case mean ASCII in Java unless asked otherwise.
        object.__setattr__(self, "_compiled", regex.compile(translated, regex.ASCII))

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

    def _too_slow(self, text: str) -> ConfigError:
        return ConfigError(
            f"{self.key} has the pattern {self.pattern[:_SHOWN]!r}, which takes longer than {LONGEST_S:.0f} s to match "
            f"{text[:_SHOWN]!r}.",
            "Write it so that no text can be matched in several ways: a+x instead of (a+)+x.",
        )
