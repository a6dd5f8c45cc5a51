"""Which partition of the target a record goes to: records in, what Kafka's default partitioner says of their keys out.

A place is a function of the source partition and of the record alone, so that whoever copies the partition places a record alike.
Kafka spreads records without a key as it likes, batch by batch; here a *stretch* of offsets goes to one partition and the next
stretch to the next one. So they are spread as evenly, and anybody who copies them again finds the same places.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka.records import Record

STRETCH: Final = 128
"""How many source offsets in a row are one: enough to leave most batches whole, few enough to spread a slow topic."""
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_LANE = 8
_WORD = b"\xff\xff\xff\xff\0\0\0\0"
_FEW = 8
"""Fewer keys of one length than this are hashed one by one."""
_MOST_KNOWN = 4096


class Placing:
    """Places the records of one source partition on `count` partitions.

    Invariant: `_known` holds places of keys that were seen lately, as they always are.
    """

    __slots__ = ("_count", "_known", "_partition")

    def __init__(self, partition: int, count: int) -> None:
        self._partition = partition
        self._count = count
        self._known: dict[bytes, int] = {}

    def of(self, rows: Sequence[Record]) -> list[int]:
        """The place of each record."""
        keys = [row.key for row in rows]
        known = self._known
        news = {key for key in keys if key is not None and key not in known}
        if news:
            if len(known) + len(news) > _MOST_KNOWN:
                known = _places({key for key in keys if key is not None}, self._count)
                self._known = known if len(known) <= _MOST_KNOWN else {}
            else:
                known.update(_places(news, self._count))
        if None not in keys:
            return [known[key] for key in keys]  # type: ignore[index]
        return [
            self._without_key(row.offset) if key is None else known[key]
            for row, key in zip(rows, keys, strict=True)
        ]

    def _without_key(self, offset: int) -> int:
        return (self._partition + offset // STRETCH) % self._count


def _places(keys: Iterable[bytes], count: int) -> dict[bytes, int]:
    """The place of each key: those of one length are looked at together."""
    lengths: dict[int, list[bytes]] = {}
    for key in keys:
        lengths.setdefault(len(key), []).append(key)
    found: dict[bytes, int] = {}
    for same in lengths.values():
        if len(same) < _FEW:
            found.update([(key, default_partition(key, count)) for key in same])
        else:
            numbers = [number % count for number in hashes(same)]
            found.update(zip(same, numbers, strict=True))
    return found


def hashes(keys: Collection[bytes]) -> list[int]:
    """Kafka's hash (murmur2, without its sign) of keys that are all of one length.

    All at once, as one large number with 64 bits for each key, the upper half of which is zero between two steps: a product of
    two 32-bit numbers fits into that. Key by key, in Python, it takes several times as long.
    """
    joined, count = b"".join(keys), len(keys)
    length = len(joined) // count
    word = int.from_bytes(_WORD * count, "little")
    one = word // 0xFFFFFFFF
    state = one * ((_SEED ^ length) & 0xFFFFFFFF)
    whole = length & ~3
    for start in range(0, whole, 4):
        k = _column(joined, length, start, 4, count) * _M & word
        k = (k ^ k >> 24 & one * 0xFF) * _M & word
        state = (state * _M & word) ^ k
    if whole < length:
        state = (state ^ _column(joined, length, whole, length - whole, count)) * _M & word
    state = (state ^ state >> 13 & one * 0x7FFFF) * _M & word
    state = (state ^ state >> 15 & one * 0x1FFFF) & one * 0x7FFFFFFF
    return list(struct.unpack(f"<{count}Q", state.to_bytes(_LANE * count, "little")))


def _column(joined: bytes, length: int, start: int, width: int, count: int) -> int:
    """The bytes from `start` on of every key, each in a lane of its own."""
    lanes = bytearray(_LANE * count)
    for index in range(width):
        lanes[index::_LANE] = joined[start + index :: length]
    return int.from_bytes(lanes, "little")
