"""JSON exactly as Connect's schemaless JSON converter writes and reads it: plain values in, bytes out, and back.

Keys of records are compared as bytes, so two things matter that JSON leaves open: which characters are escaped, and the order of
an object's fields. A Java worker passes what it is given through a hash map: `hash_ordered` gives that order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

# Jackson escapes quotes, backslashes and control characters, nothing else.
_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_FIRST_BUCKETS = 16
_LOAD = 0.75


def encode(value: Any) -> bytes:
    """The bytes of a document made of None, booleans, numbers, text, sequences and mappings; fields keep their order.

    Half of a surrogate pair, which has no UTF-8, becomes a question mark, as it does in Java.
    """
    return _text(value).encode(errors="replace")


def decode(document: bytes | str) -> Any:
    """The value of a document; ValueError if it is none, or nested deeper than anybody needs."""
    try:
        return json.loads(document if isinstance(document, str) else document.decode())
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def hash_ordered(value: Any) -> Any:
    """The same document, with the fields of every object in the order in which Java's HashMap gives them."""
    if isinstance(value, Mapping):
        return {key: hash_ordered(value[key]) for key in hash_order(value)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [hash_ordered(item) for item in value]
    return value


def hash_order(keys: Iterable[str]) -> list[str]:
    """The order in which a Java HashMap gives these keys, put in one after the other."""
    found = list(keys)
    buckets = _FIRST_BUCKETS
    while len(found) > buckets * _LOAD:
        buckets *= 2
    return sorted(found, key=lambda key: _spread(string_hash(key)) & (buckets - 1))


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for place in range(0, len(units), 2):
        h = (h * 31 + (units[place] << 8 | units[place + 1])) & 0xFFFFFFFF
    return h


def fields_of(value: bytes) -> dict[str, Any]:
    """The fields of a record's value; ValueError, in words for a log line, if it is no object."""
    try:
        document = decode(value)
    except ValueError as error:
        raise ValueError(f"its value is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise ValueError("its value is not an object")
    return document


def string(fields: Mapping[str, Any], name: str) -> str:
    """A field that must be a text."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its field '{name}' is not a text")
    return value


def integer(fields: Mapping[str, Any], name: str) -> int:
    """A field that must be a whole number."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"its field '{name}' is not a whole number")
    return value


def _spread(h: int) -> int:
    return h ^ h >> 16


def _text(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, Mapping):
        fields = (f"{_text(str(name))}:{_text(item)}" for name, item in value.items())
        return f"{{{','.join(fields)}}}"
    if isinstance(value, Sequence):
        return f"[{','.join(map(_text, value))}]"
    return double_text(value) if isinstance(value, float) else json.dumps(value)


def double_text(number: float) -> str:
    """A floating point number as Java prints it: `1.5`, `1.0E10`, `1.0E-4`."""
    if number == 0 or not math.isfinite(number) or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, _, exponent = f"{Decimal(repr(number)):e}".partition("e")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
