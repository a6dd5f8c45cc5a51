"""Batches of our own: columns of records in, one gapless batch with base offset 0 out.

By columns, since most of what is written was never looked at as a record; and here rather than by a library, since that makes a
checksum of what is going to be compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fastcrc.crc32 import iscsi as crc32c

from .batches import HEADER_SIZE
from .compression import compress

Headers = Sequence[tuple[str, bytes | None]]

_HEADER = struct.Struct(">qiibIhiqqqhii")  # see `batches`
_CRC = struct.Struct(">I")
_MAGIC = 2
_NO_EPOCH = -1
_ATTRIBUTES = b"\x00"
_NULL = b"\x01"  # a length of -1
_NO_HEADERS = b"\x00"
_HALF = 1 << 63


def varint(number: int) -> bytes:
    """A number as it stands in a record: zigzag, seven bits a byte. One that has no room in 64 bits wraps around, as in Java."""
    number = (number + _HALF) % (2 * _HALF) - _HALF
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    found.append(left)
    return bytes(found)


_SMALL = 1 << 14
_VARINTS = tuple(map(varint, range(_SMALL)))
"""Those that are needed all the time."""


def batch_of(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
    codec: int,
    producer: tuple[int, int, int],
) -> bytearray:
    """One batch of these records, in their order; `producer`: id, epoch and first sequence number."""
    body = compress(codec, _records(timestamps, keys, values, headers))
    count = len(values)
    batch = bytearray(HEADER_SIZE + len(body))
    _HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - 12,
        _NO_EPOCH,
        _MAGIC,
        0,
        codec,
        count - 1,
        timestamps[0],
        max(timestamps),
        *producer,
        count,
    )
    batch[HEADER_SIZE:] = body
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def _records(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers],
) -> bytes:
    """What stands behind the header of a batch. Spelt out, since this runs for every record."""
    first, known = timestamps[0], _VARINTS
    parts: list[bytes] = []
    rows = zip(timestamps, keys, values, headers, strict=True)
    for number, (time, key, value, some) in enumerate(rows):
        since = time - first
        head = (
            _ATTRIBUTES
            + (known[since] if 0 <= since < _SMALL else varint(since))
            + (known[number] if number < _SMALL else varint(number))
        )
        if key is None:
            head += _NULL
        else:
            head += _length(len(key)) + key
        tail = _written(some) if some else _NO_HEADERS
        if value is None:
            parts += (_length(len(head) + 1 + len(tail)), head, _NULL, tail)
        else:
            head += _length(len(value))
            parts += (_length(len(head) + len(value) + len(tail)), head, value, tail)
    return b"".join(parts)


def _length(size: int) -> bytes:
    return _VARINTS[size] if size < _SMALL else varint(size)


def _written(headers: Headers) -> bytes:
    parts = [_length(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (_length(len(name)), name)
        parts += (_NULL,) if value is None else (_length(len(value)), value)
    return b"".join(parts)
