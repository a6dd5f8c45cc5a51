"""Batches whose records do not count up (compaction took some out): a batch in, one without gaps out, as a broker demands.

Only the offset of each record is written anew, into the bytes it has: the count goes up no faster than the offsets did, so it
always fits, and a number may be written with more bytes than it needs. Keys, values, headers and times are not looked at, which
makes this several times cheaper than opening the records and closing them again.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sparkmirror.errors import CorruptBatch

from .batches import CODEC_MASK, DELETE_HORIZON, HEADER_SIZE, Batch, repack
from .compression import compress, decompress, opening_limit

_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_GAP_BYTES = 100  # a record that does not follow the one before takes so much here
_LONGEST = 10  # bytes of a number


class Gapless(NamedTuple):
    """A batch without gaps, and where its records stood."""

    batch: bytearray
    first_offset: int
    last_offset: int
    stretches: list[tuple[int, int]]
    """Where records that follow each other began: the number of the first one in the batch, and its offset."""


def close_gaps(batch: Batch) -> Gapless | None:
    """The batch with its records counted from 0; None if it has none left."""
    if batch.count <= 0:
        return None
    codec = batch.attributes & CODEC_MASK
    body = decompress(codec, batch.view[HEADER_SIZE:])
    opening_limit().require(len(batch.view), len(body) + _GAP_BYTES * batch.count)
    try:
        last, stretches = _count_anew(body, batch.count)
    except IndexError:
        raise CorruptBatch("the records of a batch end too early.") from None
    header = bytearray(batch.view[:HEADER_SIZE])
    _I64.pack_into(header, 0, 0)
    _I32.pack_into(header, 23, batch.count - 1)
    gapless = repack(header, compress(codec, body), batch.attributes & ~DELETE_HORIZON)
    base = batch.base_offset
    found = [(number, base + offset) for number, offset in stretches]
    return Gapless(gapless, found[0][1], base + last, found)


def _count_anew(body: bytearray, count: int) -> tuple[int, list[tuple[int, int]]]:
    """Write 0, 1, 2, … as the records' offsets; gives the last as it was, and which of them did not follow the one before.

    Numbers are zigzag varints. Those of one and two bytes are read here, since this runs for every record.
    """
    position = last = 0
    ahead = -1  # how far the offsets have run ahead of the count
    stretches: list[tuple[int, int]] = []
    for value in range(0, 2 * count, 2):
        size = body[position]
        position += 1
        if size > 127:
            size += (body[position] - 1) << 7
            position += 1
            if size > 16383:
                size, position = _rest_of(body, position - 1, size)
        end = position + (size >> 1)
        position += 1  # attributes
        while body[position] > 127:  # time
            position += 1
        position += 1
        last = body[position]
        if last <= 127:
            body[position] = value & 127
        else:
            last, offset_end = _rest_of(body, position + 1, last)
            _write(body, position, offset_end, value)
        if last - value != ahead:
            if last - value < ahead or value > last or last & 1:
                raise CorruptBatch("the offsets of a batch do not go up.")
            ahead = last - value
            stretches.append((value >> 1, last >> 1))
        position = end
    if position != len(body):
        raise CorruptBatch("the records of a batch do not end where it does.")
    return last >> 1, stretches


def _rest_of(body: bytearray, position: int, value: int) -> tuple[int, int]:
    """The number whose first byte was read, and where it ends."""
    value &= 127
    for shift in range(7, 7 * _LONGEST, 7):
        byte = body[position]
        position += 1
        value |= (byte & 127) << shift
        if byte <= 127:
            return value, position
    raise CorruptBatch("a number in the records of a batch does not end.")


def _write(body: bytearray, position: int, end: int, value: int) -> None:
    """Write a number into exactly these bytes."""
    for place in range(position, end - 1):
        body[place] = (value & 127) | 128
        value >>= 7
    body[end - 1] = value & 127
