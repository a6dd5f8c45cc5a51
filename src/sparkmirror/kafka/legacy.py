"""Message sets, the formats from before Kafka 0.11 (magic 0 and 1): bytes in, messages with their offsets out.

A message is an offset, a size, a checksum, magic, attributes, in magic 1 a time, key and value. A compressed one has a message
set as its value; the offsets in there are absolute in magic 0, and count up to that of the whole in magic 1. Messages of magic 0
have no time, and their lz4 frames a header checksum that Kafka's clients computed over the wrong bytes (KAFKA-3160).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sparkmirror.errors import CorruptBatch

from .batches import CODEC_MASK, LOG_APPEND_TIME, NO_TIMESTAMP
from .compression import LZ4, decompress, with_header_checksum

_HEAD = struct.Struct(">qiIbb")  # offset, size, checksum, magic, attributes
_TIME = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_PREFIX = 12  # offset and size, which the size does not count
_CHECKED = 16  # the checksum is of everything from the magic on


class Message(NamedTuple):
    """One record of an old format; there are no headers in it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class _Raw(NamedTuple):
    """A message as it stands in the log, which may have others inside."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def messages(view: memoryview) -> list[Message]:
    """All messages of a message set, those inside compressed ones with their own offsets. CorruptBatch: it is damaged."""
    found: list[Message] = []
    try:
        for raw in _each(view):
            if raw.attributes & CODEC_MASK:
                found += _inside(raw)
            else:
                found.append(Message(raw.offset, raw.timestamp, raw.key, raw.value, []))
    except struct.error as error:
        raise CorruptBatch(f"a message set ends too early ({error}).") from error
    return found


def _each(view: memoryview) -> Iterator[_Raw]:
    position = 0
    while position < len(view):
        offset, size, checksum, magic, attributes = _HEAD.unpack_from(view, position)
        end = position + _PREFIX + size
        if end > len(view) or end < position + _HEAD.size:
            raise CorruptBatch(f"the message at offset {offset} says that it has {size} bytes.")
        if zlib.crc32(view[position + _CHECKED : end]) != checksum:
            raise CorruptBatch(
                f"the message at offset {offset} does not have the checksum that it carries."
            )
        at, timestamp = position + _HEAD.size, NO_TIMESTAMP
        if magic:
            (timestamp,) = _TIME.unpack_from(view, at)
            at += _TIME.size
        key, at = _field(view, at, end)
        value, at = _field(view, at, end)
        yield _Raw(offset, magic, attributes, timestamp, key, value)
        position = end


def _field(view: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(view, at)
    at += _SIZE.size
    if size < 0:
        return None, at
    if at + size > end:
        raise CorruptBatch(f"a message says that it has a field of {size} bytes.")
    return bytes(view[at : at + size]), at + size


def _inside(whole: _Raw) -> list[Message]:
    """The messages of a compressed one."""
    if whole.value is None:
        raise CorruptBatch(f"the compressed message at offset {whole.offset} is empty.")
    codec = whole.attributes & CODEC_MASK
    is_broken_lz4 = codec == LZ4 and whole.magic == 0
    body = with_header_checksum(whole.value) if is_broken_lz4 else whole.value
    rows = list(_each(memoryview(decompress(codec, body))))
    if not rows or any(row.magic != whole.magic or row.attributes & CODEC_MASK for row in rows):
        raise CorruptBatch(
            f"the compressed message at offset {whole.offset} does not hold messages of its format."
        )
    base = _base(whole, rows)
    if whole.magic and whole.attributes & LOG_APPEND_TIME:
        # The broker has stamped the whole: that is the time of every message in it.
        return [Message(base + row.offset, whole.timestamp, row.key, row.value, []) for row in rows]
    return [Message(base + row.offset, row.timestamp, row.key, row.value, []) for row in rows]


def _base(whole: _Raw, rows: list[_Raw]) -> int:
    """What to add to the offsets inside."""
    last = rows[-1].offset
    if whole.magic == 0 or whole.offset == 0:  # 0: some versions of librdkafka do not count
        return 0
    if whole.offset < last:
        raise CorruptBatch(
            f"the compressed message at offset {whole.offset} holds one that counts to {last}."
        )
    return whole.offset - last
