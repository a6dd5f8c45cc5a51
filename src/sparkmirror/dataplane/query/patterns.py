"""Patterns of `regexp_replace` as RE2 writes them: those of Java in; the same for RE2, where they surely match the same, out.

Both look for the leftmost match and prefer the same one there. What differs is how things are written, what a dot or a space is,
what a match of nothing does, and that Java may run out of stack where a group is repeated. So a pattern must match something, and
only single characters may be repeated.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

_PLAIN = frozenset(string.ascii_letters + string.digits + " \"!#%&',-/:;<=>@_`~")
"""Characters that are themselves, outside of a class."""
_PLAIN_IN_CLASS = (_PLAIN - set("&-")) | set(".$*+?{}()|")
_PUNCTUATION = frozenset(string.punctuation)
_ESCAPES = {
    **{name: f"\\{name}" for name in "dwntr"},
    "s": "\\t\\n\\x0b\\f\\r ",
}
_SETS = frozenset("dws")
_ANY = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_COUNT = re.compile(r"\{([0-9]{1,3})(?:(,)([0-9]{1,3})?)?\}")
_MOST_TIMES = 64
"""By how much a whole pattern may grow when its counts are written out: RE2 looks at all ways to match at once."""
_MOST_CHARACTERS = 2000
_REFERENCE = re.compile(r"\$([0-9])")


class Pattern(NamedTuple):
    """A pattern of RE2."""

    text: str
    groups: int


class _UnsureError(Exception):
    """Whether both would match the same is not sure."""


def translated(pattern: str) -> Pattern | None:
    """None if it is not sure that both match the same."""
    if len(pattern) > _MOST_CHARACTERS:
        return None
    reading = _Reading(pattern)
    try:
        text, is_something = reading.alternatives()
        reading.end()
    except (_UnsureError, RecursionError):
        return None
    return Pattern(text, reading.groups) if is_something else None


def rewritten(replacement: str, groups: int) -> str | None:
    """What takes the place of a match, for RE2; None if Java may see something else in it."""
    parts = _REFERENCE.split(replacement)
    for text, number in zip(parts[0::2], [*parts[1::2], ""], strict=True):
        if "$" in text or "\\" in text or (number and int(number) > groups):
            return None
    if any(text[:1].isdigit() for text in parts[2::2]):  # perhaps a group with a longer number
        return None
    return _REFERENCE.sub(r"\\\1", replacement)


class _Reading:
    """Reads a pattern from left to right, and gives what it has read as RE2 writes it, and whether that is never nothing."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._times = 0
        self.groups = 0

    def end(self) -> None:
        if self._at < len(self._pattern):
            raise _UnsureError

    def alternatives(self) -> tuple[str, bool]:
        found = [self._sequence()]
        while self._takes("|"):
            found.append(self._sequence())
        return "|".join(text for text, _ in found), all(is_something for _, is_something in found)

    def _sequence(self) -> tuple[str, bool]:
        texts, is_any = [], False
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            text, is_something = self._group() if self._takes("(") else self._repeated()
            texts.append(text)
            is_any |= is_something
        return "".join(texts), is_any

    def _group(self) -> tuple[str, bool]:
        begin = "(?:"
        if not self._takes("?:"):
            if self._takes("?"):
                raise _UnsureError
            self.groups += 1
            begin = "("
        text, is_something = self.alternatives()
        if not self._takes(")") or self._pattern[self._at : self._at + 1] in tuple("*+?{"):
            raise _UnsureError
        return f"{begin}{text})", is_something

    def _repeated(self) -> tuple[str, bool]:
        text = self._one()
        times, least = "", 1
        for sign, count in (("*", 0), ("+", 1), ("?", 0)):
            if self._takes(sign):
                times, least = sign, count
                break
        else:
            times, least = self._counted()
        if times and self._takes("?"):
            times += "?"
        return text + times, least > 0

    def _counted(self) -> tuple[str, int]:
        found = _COUNT.match(self._pattern, self._at)
        if found is None:
            return "", 1
        least, most = int(found[1]), int(found[3] or found[1])
        self._times += most
        if least > most or self._times > _MOST_TIMES:
            raise _UnsureError
        self._at = found.end()
        return found[0], least

    def _one(self) -> str:
        """What matches one character."""
        if self._takes("["):
            return self._class()
        if self._takes("."):
            return _ANY
        if self._takes("\\"):
            escaped = self._escaped()
            return f"[{escaped}]" if len(escaped) > len("\\x") else escaped
        return _literal(self._next(_PLAIN))

    def _class(self) -> str:
        made = "[^" if self._takes("^") else "["
        made += self._member()
        while not self._takes("]"):
            if self._takes("-]"):
                return made + "\\-]"
            made += self._member()
        return made + "]"

    def _member(self) -> str:
        return self._escaped() if self._takes("\\") else self._range()

    def _range(self) -> str:
        first = self._next(_PLAIN_IN_CLASS)
        if self._pattern[self._at : self._at + 2] == "-]" or not self._takes("-"):
            return _literal(first)
        last = self._next(_PLAIN_IN_CLASS)
        if not (first.isalnum() and last.isalnum() and first <= last):
            raise _UnsureError
        return f"{first}-{last}"

    def _escaped(self) -> str:
        sign = self._next(_PUNCTUATION | _ESCAPES.keys())
        if sign in _SETS and self._pattern[self._at : self._at + 1] == "-":
            raise _UnsureError  # not a range
        return _ESCAPES.get(sign) or _literal(sign)

    def _next(self, known: frozenset[str]) -> str:
        sign = self._pattern[self._at : self._at + 1]
        if not sign or sign not in known:
            raise _UnsureError
        self._at += 1
        return sign

    def _takes(self, text: str) -> bool:
        is_next = self._pattern.startswith(text, self._at)
        self._at += len(text) if is_next else 0
        return is_next


def _literal(sign: str) -> str:
    return f"\\{sign}" if sign in _PUNCTUATION else sign
