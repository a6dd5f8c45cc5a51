"""Java regular expressions for Python: a Java pattern comes in, an equivalent Python one goes out.

What both languages write alike is passed on, what they write differently is translated, and what
Python cannot say, or would take to mean something else, is refused by name. The result is meant for
`re.ASCII` and `fullmatch`, which is what `java.util.regex` does by default in `matches()`.
"""

from __future__ import annotations

import re

_LINE_TERMINATORS = "\\n\\r\\x85\\u2028\\u2029"
_ANY = f"[^{_LINE_TERMINATORS}]"
_BEFORE_LAST_TERMINATOR = f"(?=(?:\\r\\n|[{_LINE_TERMINATORS}])?\\Z)"

_SAME_ESCAPES = frozenset("dDsSwWtnrfa")
_SAME_OUTSIDE_CLASSES = frozenset("bBA")
_CLASS_ESCAPES = frozenset(rf"\{letter}" for letter in "dDsSwW")
_REFUSED_ESCAPES = {
    "p": ("the character property", "Write the characters out, as in [A-Za-z] for letters."),
    "P": ("the character property", "Write the characters out, as in [^A-Za-z]."),
    "h": ("the class of horizontal blanks", r"Write [ \t]."),
    "H": ("the class of horizontal blanks", r"Write [^ \t]."),
    "v": ("the class of vertical blanks", r"Write [\n\r\f]."),
    "V": ("the class of vertical blanks", r"Write [^\n\r\f]."),
    "R": ("the linebreak matcher", r"Write (?:\r\n|[\n\r])."),
    "X": ("the grapheme matcher", "Write the characters out."),
    "G": ("the end of the previous match", "Leave it out: names are matched from their start."),
    "N": ("the named character", r"Write the character itself, or its code as \uhhhh."),
    "c": ("the control character", r"Write its code as \xhh."),
    "e": ("the escape character", r"Write \x1b."),
    "0": ("the octal code", r"Write the code in hexadecimal, as \xhh."),
}
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)|(\\.)", re.DOTALL)
_COUNT = re.compile(r"\{\d+(?:,\d*)?\}", re.ASCII)
_GROUP = re.compile(
    r"\((?:(?P<plain>\?(?::|=|!|>|<=|<!|-?i:))|\?<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|\?(?P<bad>.?)|)",
    re.DOTALL,
)
_HEX = re.compile(
    r"\\(?:x(?P<two>[0-9a-fA-F]{2})|u(?P<four>[0-9a-fA-F]{4})|x\{(?P<any>[0-9a-fA-F]+)\})"
)
_BACK_REFERENCE = re.compile(
    r"\\(?:(?P<number>[1-9]\d*)|k<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>)", re.ASCII
)


class UnsupportedPattern(Exception):
    """The pattern is wrong, or uses what Python has no equal for."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy


def translate(pattern: str) -> str:
    """The Python expression that matches what the Java `pattern` matches."""
    return _Translator(_unquote(pattern)).run()


def _unquote(pattern: str) -> str:
    r"""`pattern` with \Q...\E written out as escaped characters, as Java does first of all."""
    return _QUOTED.sub(lambda m: m[2] if m[2] is not None else re.escape(m[1]), pattern)


class _Translator:
    """One pass over a pattern. Invariant: `out` translates everything before `position`."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.out: list[str] = []

    def run(self) -> str:
        if self.pattern.startswith("(?i)"):
            self.out.append("(?i)")
            self.position = 4
        while self.position < len(self.pattern):
            self._step(self.pattern[self.position])
        return "".join(self.out)

    def _step(self, char: str) -> None:
        match char:
            case "\\":
                self.out.append(self._escape())
            case "[":
                self._class()
            case "(":
                self._group()
            case "{":
                self._count()
            case ".":
                self._take(1, _ANY)
            case "$":
                self._take(1, _BEFORE_LAST_TERMINATOR)
            case _:
                self._take(1, char)

    def _take(self, length: int, translated: str) -> None:
        self.position += length
        self.out.append(translated)

    def _escape(self) -> str:
        """Outside classes: a code, a back reference, a boundary, or what `_shared_escape` knows."""
        char = self.pattern[self.position + 1 : self.position + 2]
        if (reference := _BACK_REFERENCE.match(self.pattern, self.position)) is not None:
            return self._back_reference(reference)
        if char == "b" and self.pattern.startswith("{", self.position + 2):
            raise _refused(r"\b{...}", "the grapheme boundary", "Leave it out.")
        if char == "z":
            self.position += 2
            return r"\Z"
        if char == "Z":
            self.position += 2
            return _BEFORE_LAST_TERMINATOR
        if char in _SAME_OUTSIDE_CLASSES and char:
            self.position += 2
            return f"\\{char}"
        return self._shared_escape()

    def _back_reference(self, reference: re.Match[str]) -> str:
        if reference["number"] and len(reference["number"]) > 1:
            raise _refused(reference[0], "the back reference", "Use named groups: \\k<name>.")
        self.position = reference.end()
        return f"(?P={reference['name']})" if reference["name"] else reference[0]

    def _shared_escape(self) -> str:
        """An escape that means the same inside and outside a class."""
        if (code := _HEX.match(self.pattern, self.position)) is not None:
            return self._code(code)
        char = self.pattern[self.position + 1 : self.position + 2]
        if not char:
            raise UnsupportedPattern(
                "it ends in a single backslash", r"Write \\ for a backslash in a pattern."
            )
        if char in _REFUSED_ESCAPES:
            raise _refused(self._construct(char), *_REFUSED_ESCAPES[char])
        if char.isascii() and char.isalnum() and char not in _SAME_ESCAPES:
            raise UnsupportedPattern(f"\\{char} means nothing", "Remove the backslash.")
        self.position += 2
        return f"\\{char}"

    def _construct(self, char: str) -> str:
        braces = re.compile(r"\{[^}]*\}?").match(self.pattern, self.position + 2)
        following = braces[0] if braces and char in "pPN" else ""
        return f"\\{char}{following}"

    def _code(self, code: re.Match[str]) -> str:
        number = int(code["two"] or code["four"] or code["any"], 16)
        if number > 0x10FFFF:
            raise UnsupportedPattern(f"{code[0]} is no character", r"Use a code up to 10FFFF.")
        self.position = code.end()
        return re.escape(chr(number))

    def _group(self) -> None:
        opening = _GROUP.match(self.pattern, self.position)
        if opening is None:  # cannot be: the pattern matches every opening bracket
            raise UnsupportedPattern("a group is malformed", "Correct it.")
        if opening["bad"] is not None:
            raise self._bad_group()
        self._take(
            opening.end() - opening.start(),
            f"(?P<{opening['name']}>" if opening["name"] else opening[0],
        )

    def _bad_group(self) -> UnsupportedPattern:
        found = re.compile(r"\(\?[a-zA-Z-]*[:)]?").match(self.pattern, self.position)
        text = found[0] if found else "(?"
        if re.fullmatch(r"\(\?[a-zA-Z-]+[:)]", text):
            return _refused(
                text,
                "the inline flag",
                "Only (?i) at the very start of the list and (?i:...) anywhere are supported.",
            )
        return UnsupportedPattern(f"{text} does not open a group", "Correct the group.")

    def _count(self) -> None:
        count = _COUNT.match(self.pattern, self.position)
        if count is None:
            raise UnsupportedPattern(
                "{ is not followed by a count and }",
                r"Write \{ for the character itself. A comma ends a pattern of a list, so {m,n} "
                "cannot stand there: write aa? for a{1,2}.",
            )
        self._take(len(count[0]), count[0])

    def _class(self) -> None:
        """A character class, rebuilt with everything escaped that could mean more to Python."""
        self.position += 1
        out = ["["]
        if self.pattern.startswith("^", self.position):
            self.position += 1
            out.append("^")
        first = True
        while first or not self.pattern.startswith("]", self.position):
            out.append(self._class_item())
            first = False
        self.position += 1
        self.out.append("".join([*out, "]"]))

    def _class_item(self) -> str:
        start = self._class_character()
        if start in _CLASS_ESCAPES or not self.pattern.startswith("-", self.position):
            return start
        if self.pattern[self.position + 1 : self.position + 2] in ("]", "[", ""):
            return start
        self.position += 1
        return f"{start}-{self._class_character()}"

    def _class_character(self) -> str:
        rest = self.pattern[self.position : self.position + 2]
        if not rest:
            raise UnsupportedPattern("a character class is not closed", "Add the missing ].")
        if rest[0] == "\\":
            return self._shared_escape()
        if rest[0] == "[":
            raise _refused(
                "[...[", "the class within a class", r"Write one class; \[ is a bracket."
            )
        if rest == "&&":
            raise _refused("&&", "the intersection of classes", "Write the characters out.")
        self.position += 1
        return re.escape(rest[0])


def _refused(construct: str, what: str, remedy: str) -> UnsupportedPattern:
    return UnsupportedPattern(f"{what} {construct} is not supported", remedy)
