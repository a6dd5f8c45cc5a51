"""JAAS, the language in which Java names a login module and its options: text comes in, the module and its options go out.

What a token is follows Java's StreamTokenizer to the letter, since passwords are written in it: quotes of both kinds, escapes
with a backslash, octal ones too, comments, and words that end at the first character which is not of a word. No message shows a
part of the text: it could be a secret that ended up in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from sparkmirror.errors import ConfigError

_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_TOKEN = re.compile(
    r"""
      [\x00-\x20]+
    | /\*.*?(?:\*/|\Z)
    | /(?:.[^\r\n]*)?                                      # Java takes one slash for a comment, too
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)
    | (?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*))
    | (?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?P<end>(?P=quote))?
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FORM = 'Write LOGIN_MODULE required option="value" option="value";'


class Kind(Enum):
    """Whether a token can be a name or a value, or only separates them."""

    TEXT = "a word, or anything in quotes"
    SIGN = "a character of its own, or a number, which Java takes for neither name nor value"


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str = field(repr=False)

    def is_sign(self, character: str) -> bool:
        return self.kind is Kind.SIGN and self.text == character


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module. Its options may hold secrets, so they are not shown."""

    module: str
    flag: str
    options: dict[str, str] = field(repr=False)


def tokens(text: str) -> Iterator[Token]:
    """The tokens that Java finds in the text, without white space and comments."""
    for match in _TOKEN.finditer(text):
        if match["quote"] is not None:
            yield Token(Kind.TEXT, _ESCAPE.sub(_unescaped, match["quoted"]))
        elif match["word"] is not None:
            yield Token(Kind.TEXT, match["word"])
        elif (sign := match["number"] or match["sign"]) is not None:
            yield Token(Kind.SIGN, sign)


def _unescaped(match: re.Match[str]) -> str:
    octal, character = match.groups()
    return chr(int(octal, 8)) if octal is not None else _CONTROL.get(character, character)


def parse_jaas(text: str, where: str) -> JaasEntry:
    """The one login module that `sasl.jaas.config` holds; `where` names the key in messages."""
    found = list(tokens(text))
    if not found:
        raise ConfigError(f"{where} names no login module.", _FORM)
    entry, rest = _entry(found, where)
    if rest:
        raise ConfigError(
            f"{where} goes on after the ';' that ends the login module; it can hold one only.",
            "Put values in double quotes, and a backslash before each double quote in a value.",
        )
    return entry


def _entry(found: list[Token], where: str) -> tuple[JaasEntry, list[Token]]:
    """The first login module, and the tokens behind it."""
    if len(found) < 2 or found[1].is_sign(";"):
        raise ConfigError(f"{where} has no control flag after the login module.", _FORM)
    module, flag = found[0], found[1]
    if module.kind is not Kind.TEXT:
        raise ConfigError(f"{where} does not begin with the class of a login module.", _FORM)
    if flag.kind is not Kind.TEXT or flag.text.upper() not in _FLAGS:
        raise ConfigError(
            f"{where} has something else than a control flag after the login module.",
            "Write required after the class of the login module.",
        )
    options: dict[str, str] = {}
    at = 2
    while at < len(found) and not found[at].is_sign(";"):
        name, value = _option(found[at : at + 3], where, len(options) + 1)
        options[name] = value
        at += 3
    if at >= len(found):
        raise ConfigError(
            f"{where} does not end with ';'.",
            "Put ';' at the end, and see that each quote that opens a value is closed in the same line.",
        )
    return JaasEntry(module.text, flag.text.upper(), options), found[at + 1 :]


def _option(three: list[Token], where: str, number: int) -> tuple[str, str]:
    match three:
        case [Token(Kind.TEXT, name), Token(Kind.SIGN, "="), Token(Kind.TEXT, value)]:
            return name, value
    raise ConfigError(
        f"{where}: its option number {number} is not of the form name=value.",
        "Put each value in double quotes, a backslash before each double quote and backslash in it, and ';' at the end only.",
    )
