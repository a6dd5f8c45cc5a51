"""The order in which Java walks through a `HashMap` with text keys: keys come in, ordered they go out.

Some of Connect's answers list keys in that order. It depends on nothing but the keys and the order
in which they were put, so it can be had without Java.
"""

from __future__ import annotations

from collections.abc import Iterable

_LEAST_BUCKETS = 16


def hash_order(keys: Iterable[str]) -> list[str]:
    """`keys`, given in the order in which they are put into a new map, as the map lists them."""
    put = list(dict.fromkeys(keys))
    buckets = _LEAST_BUCKETS
    while len(put) > buckets * 3 // 4:
        buckets *= 2
    # Keys of one bucket stay in the order in which they came; `sorted` keeps it too.
    return sorted(put, key=lambda key: _spread(java_hash(key)) & (buckets - 1))


def java_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned number of 32 bits."""
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
    return result


def _spread(code: int) -> int:
    return code ^ (code >> 16)
