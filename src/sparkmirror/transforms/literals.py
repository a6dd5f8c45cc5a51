"""The literal of `InsertHeader`: text in, the bytes that a Java worker writes for it out.

Java reads the literal as a value (`Values.parseString`: a number, a time, a list, a map, or a text) and writes that value as text
again (`SimpleHeaderConverter`). So `007` becomes `7`, `1.0` becomes `1`, and of `5, Main Street` only the 5 is left. Times are
read and written as a worker does whose clock is set to UTC, decimal numbers as Java 19 and newer write them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from sparkmirror.errors import ConfigError

from .dates import DatePattern, milliseconds

_TOKEN = re.compile(r'[:,{}\[\]"]|(?:\\.|\\\Z|[^:,{}\[\]"\\])+', re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE]([+-]?\d++))?", re.ASCII)
_CLOCK = r"(\d+):(\d+):(\d+)\.(\d+)Z"
_DATE = r"(\d+)-(\d+)-(\d+)"
_TEMPORAL = {  # by the length of the text, which Java looks at first
    10: ("date", re.compile(_DATE, re.ASCII)),
    13: ("time", re.compile(_CLOCK, re.ASCII)),
    24: ("timestamp", re.compile(f"{_DATE}T{_CLOCK}", re.ASCII)),
}
_DAY_MS = 86_400_000
_TIME_FORMAT = DatePattern.parse("HH:mm:ss.SSS'Z'", "")
_DATE_FORMAT = DatePattern.parse("yyyy-MM-dd", "")
_TIMESTAMP_FORMAT = DatePattern.parse("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "")
_INTEGERS = (("int8", 1 << 7), ("int16", 1 << 15), ("int32", 1 << 31), ("int64", 1 << 63))
_WIDTHS = ("int8", "int16", "int32", "int64", "float32", "float64")
_MIXED = "mixed"
_EXPONENT_DIGITS = 10


@dataclass(frozen=True, slots=True)
class _Value:
    """A value by what Java takes it for, and its text, bare and as part of a list or map."""

    kind: str
    text: str
    number: float = 0

    @property
    def embedded(self) -> str:
        if self.kind != "string":
            return self.text
        escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


class _NoContainer(Exception):
    """It looks like a list or map, but is none: Java takes it as text then."""


class _Mixed(Exception):
    """A list or map of several kinds, which Java makes into something that nobody would guess."""


def header_bytes(literal: str) -> bytes | None:
    """What is written for a literal; ConfigError where only Java can tell."""
    try:
        value = _parsed(literal)
    except _Mixed:
        raise ConfigError(
            f"value.literal={literal} mixes values of several kinds.",
            "Use values of one kind, or write the literal so that it is a plain text.",
        ) from None
    except RecursionError:
        raise ConfigError(
            "value.literal is nested too deeply.", "Write a literal of fewer lists and maps."
        ) from None
    return None if value is None else value.text.encode()


def _parsed(literal: str) -> _Value | None:
    return _Value("string", literal) if not literal else _Parser(literal).value(embedded=False)


class _Parser:
    """Reads one literal, token by token. Invariant: `_at` is the next token."""

    def __init__(self, literal: str) -> None:
        self._literal = literal
        self._tokens = _TOKEN.findall(literal)
        self._at = 0

    def _has_next(self) -> bool:
        return self._at < len(self._tokens)

    def _take(self, expected: str) -> bool:
        """Pass over this token if it is the next; blanks before it are gone either way."""
        while self._at + 1 < len(self._tokens) and not self._tokens[self._at].strip():
            self._at += 1
        if self._has_next() and self._tokens[self._at].strip() == expected:
            self._at += 1
            return True
        return False

    def value(self, *, embedded: bool) -> _Value | None:
        if not self._has_next():
            return None
        if embedded and self._take('"'):
            return self._quoted()
        for word in ("null", "true", "false"):
            if self._is_word(word, embedded=embedded):
                return None if word == "null" else _Value("bool", word)
        start = self._at
        try:
            if self._take("["):
                return self._list()
            if self._take("{"):
                return self._map()
        except _NoContainer:
            self._at = start
        return self._scalar(embedded=embedded)

    def _is_word(self, word: str, *, embedded: bool) -> bool:
        start = self._at
        if self._take(word) and (embedded or not self._has_next()):
            return True
        self._at = start
        return False

    def _quoted(self) -> _Value:
        content = ""
        while self._has_next() and not self._take('"'):
            content += self._tokens[self._at]
            self._at += 1
        parsed = _parsed(content)
        is_temporal = parsed is not None and parsed.kind in ("date", "time", "timestamp")
        return parsed if parsed is not None and is_temporal else _Value("string", content)

    def _list(self) -> _Value:
        found: list[_Value | None] = []
        while self._has_next():
            if self._take("]"):
                return _Value("list", f"[{','.join(_aligned(found, found))}]")
            if self._take(","):
                raise _NoContainer
            found.append(self.value(embedded=True))
            before = self._at
            if self._take("]"):
                self._at = before
            elif not self._take(","):
                raise _NoContainer
        raise _NoContainer

    def _map(self) -> _Value:
        rows: dict[str, tuple[_Value, _Value | None]] = {}
        seen: list[
            tuple[_Value, _Value | None]
        ] = []  # also what a later one of the same key replaced
        while self._has_next():
            if self._take("}"):
                last = list(rows.values())
                keys = _aligned([key for key, _ in last], [key for key, _ in seen])
                values = _aligned([value for _, value in last], [value for _, value in seen])
                pairs = (f"{key}:{value}" for key, value in zip(keys, values, strict=True))
                return _Value("map", f"{{{','.join(pairs)}}}")
            if self._take(","):
                raise _NoContainer
            key = self.value(embedded=True)
            if key is None or not self._take(":"):
                raise _NoContainer
            rows[key.embedded] = row = (key, self.value(embedded=True))
            seen.append(row)
            self._take(",")
        raise _NoContainer

    def _scalar(self, *, embedded: bool) -> _Value:
        token = self._tokens[self._at]
        self._at += 1
        if not token.strip():
            return _Value("string", token)
        token = token.strip()
        found = self._temporal(token) if token[0].isdigit() else None
        number = _NUMBER.fullmatch(token)
        if found is None and number is not None and token[0] != ".":
            found = _number(token) if _is_exponent(number[1] or "0") else None
        if found is not None:
            return found
        if embedded:
            raise _NoContainer
        return _Value("string", self._literal)

    def _temporal(self, token: str) -> _Value | None:
        """A date or time; colons have cut a time of day into five tokens, unless each has a backslash before it."""
        rest = self._tokens[self._at : self._at + 4]
        if len(rest) == 4:
            found = _temporal(token + "".join(rest))
            if found is not None:
                self._at += 4
                return found
        return _temporal(token)


def _is_exponent(digits: str) -> bool:
    """Whether Java has exponents of that size."""
    size = digits.lstrip("+-").lstrip("0")
    return len(size) <= _EXPONENT_DIGITS and int(size or 0) < 1 << 31


def _temporal(text: str) -> _Value | None:
    text = text.replace("\\:", ":")
    kind, pattern = _TEMPORAL.get(len(text), ("", None))
    match = pattern.match(text) if pattern is not None else None
    if match is None:
        return None
    numbers = [int(group) for group in match.groups()]
    year, month, day = (1970, 1, 1) if kind == "time" else numbers[:3]
    hour, minute, second, milli = (0, 0, 0, 0) if kind == "date" else numbers[-4:]
    time = milliseconds(year, month, day, ((hour * 60 + minute) * 60 + second) * 1000 + milli)
    # Java forgets what it has read, and looks only at the number.
    if time < _DAY_MS:
        return _Value(kind, _TIME_FORMAT.format(time))
    pattern_of = _TIMESTAMP_FORMAT if time % _DAY_MS else _DATE_FORMAT
    return _Value(kind, pattern_of.format(time))


def _number(token: str) -> _Value:
    """The smallest type that holds the number: whole ones by their size, others as float, or double if that is too small."""
    exact = Decimal(token)
    if exact.adjusted() < 20 and exact == exact.to_integral_value():
        whole = int(exact)
        for kind, limit in _INTEGERS:
            if -limit <= whole < limit:
                return _Value(kind, str(whole), whole)
    has_scale = exact.as_tuple().exponent != 0
    if has_scale and (single := _single(float(exact))) is not None:
        return _Value("float32", _java_single(single), single)
    if has_scale and isfinite(float(exact)):
        return _Value("float64", _java_digits(repr(float(exact))), float(exact))
    return _Value("decimal", str(exact))


def _single(value: float) -> float | None:
    """The nearest 32-bit number; None if it is too large for one."""
    try:
        return float(struct.unpack(">f", struct.pack(">f", value))[0]) if isfinite(value) else None
    except OverflowError:
        return None


def _java_single(value: float) -> str:
    """The shortest digits that mean this 32-bit number and no other."""
    for precision in range(9):
        digits = f"{value:.{precision}e}"
        if _single(float(digits)) == value:
            return _java_digits(digits)
    return _java_digits(f"{value:.8e}")


def _java_digits(digits: str) -> str:
    """Digits as Java shows them: plain from 0.001 up to ten million, else with an exponent; always with a decimal point."""
    number = Decimal(digits).normalize()
    if number == 0:
        return "-0.0" if number.is_signed() else "0.0"
    exponent = number.adjusted()
    if -3 <= exponent < 7:
        plain = f"{number:f}"
        return plain if "." in plain else f"{plain}.0"
    mantissa = f"{number.scaleb(-exponent):f}"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{exponent}"


def _aligned(
    values: list[_Value | None] | list[_Value], seen: list[_Value | None] | list[_Value]
) -> list[str]:
    """The texts of the items, numbers widened to the type that holds all that were seen; null fits no type."""
    common = ""
    for value in seen:
        if value is not None:
            common = _common(common, value.kind)
    if common not in ("", _MIXED) and None in values:
        raise _NoContainer
    return ["null" if value is None else _widened(value, common).embedded for value in values]


def _common(one: str, other: str) -> str:
    if one in ("", other):
        return other
    if one in _WIDTHS and other in _WIDTHS:
        return max(one, other, key=_WIDTHS.index)
    has_time = bool({one, other} & {"date", "time", "timestamp"})
    if one == _MIXED or (has_time and "string" not in (one, other)):
        raise _Mixed
    return _MIXED


def _widened(value: _Value, kind: str) -> _Value:
    if value.kind == kind or kind not in ("float32", "float64") or value.kind not in _WIDTHS:
        return value
    if kind == "float32":
        return _Value(kind, _java_single(_single(value.number) or 0.0), value.number)
    return _Value(kind, _java_digits(repr(float(value.number))), value.number)
