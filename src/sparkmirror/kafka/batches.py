"""Record batches as bytes: headers read, batches cut out of a fetch, and re-addressed in place for the target.

A batch (magic 2) is 61 bytes of header and the records behind it. Only the header is touched here; `records` opens the rest.
What a broker demands of a batch that is sent to it again:
base offset 0, one batch per partition and request, no gaps, no control bit, no transactional bit, CRC32C over byte 21 on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fastcrc.crc32 import iscsi as crc32c

HEADER_SIZE = 61
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
NO_TIMESTAMP = -1

# baseOffset, length, leaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp, producerId,
# producerEpoch, baseSequence, count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qiib")
_PRODUCER = struct.Struct(">qhi")
_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_I16 = struct.Struct(">h")
_U32 = struct.Struct(">I")
_NO_OFFSET = bytes(8)
Data = bytes | bytearray | memoryview
_SPECIAL = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON


class Batch:
    """The header of one batch, with the view of all its bytes. Plain and mutable for speed; treat it as data."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "view",
    )

    def __init__(self, view: memoryview) -> None:
        self.view = view
        (
            self.base_offset,
            _,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEADER.unpack_from(view)

    @property
    def last_offset(self) -> int:
        return int(self.base_offset + self.last_offset_delta)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> int:
        return int(self.attributes & CODEC_MASK)

    @property
    def is_plain(self) -> bool:
        """Verbatim, of no transaction and with times: the normal case, in one look."""
        return (
            not self.attributes & _SPECIAL
            and self.count == self.last_offset_delta + 1
            and self.magic == 2
            and self.base_timestamp != NO_TIMESTAMP
            and self.max_timestamp != NO_TIMESTAMP
        )

    @property
    def is_timeless(self) -> bool:
        """Whether its records have no times: all of them, as clients and brokers write it, or the first."""
        return NO_TIMESTAMP in (self.base_timestamp, self.max_timestamp)

    @property
    def is_verbatim(self) -> bool:
        """Whether a broker takes the batch as it is, with its header patched (no rebuild through the codec)."""
        return (
            self.count == self.last_offset_delta + 1
            and not self.attributes & (LOG_APPEND_TIME | DELETE_HORIZON)
            and self.magic == 2
        )


def whole_batches(records: memoryview) -> Iterator[memoryview]:
    """The batches of a fetch answer, without the partial one that may stand at its end."""
    position, end = 0, len(records)
    while position + 17 <= end:
        _, length, _, magic = _PREFIX.unpack_from(records, position)
        size = 12 + length
        if length < 14 or position + size > end:
            return
        if magic >= 2 and size < HEADER_SIZE:
            return
        yield records[position : position + size]
        position += size


def magic_of(view: memoryview) -> int:
    return view[16]


def leader_epoch_of(view: memoryview) -> int:
    """The epoch of the leader that took the batch; -1 where message sets of old brokers do not tell."""
    return int(_I32.unpack_from(view, 12)[0]) if view[16] >= 2 else -1


def base_offset_of(view: memoryview) -> int:
    """The offset that stands in front: of a batch its first, of a message set of an old broker its last record's."""
    return int(_I64.unpack_from(view)[0])


def crc_of(view: memoryview) -> int:
    """The checksum that a batch, or a message of an old broker, carries."""
    return int(_U32.unpack_from(view, 17 if view[16] >= 2 else 12)[0])


def is_control(view: memoryview) -> bool:
    """Whether a batch of any magic holds a marker of a transaction, and no records."""
    return magic_of(view) >= 2 and Batch(view).is_control


def has_gaps(view: memoryview) -> bool:
    """Whether records between the first and the last of a batch are missing; not told of magic < 2."""
    if magic_of(view) < 2:
        return False
    batch = Batch(view)
    return bool(batch.count != batch.last_offset_delta + 1)


def end_offset(view: memoryview) -> int:
    """The offset after the last record of a batch (magic < 2: a message set's own offset is its last record's)."""
    (base,) = _I64.unpack_from(view)
    if view[16] < 2:
        return int(base) + 1
    (delta,) = _I32.unpack_from(view, 23)
    return int(base) + int(delta) + 1


def readdress(batch: Batch, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Make a verbatim batch one of ours, in place: address, sequence, CRC. The records are not touched."""
    view = batch.view
    view[0:8] = _NO_OFFSET
    if batch.attributes & TRANSACTIONAL:
        _I16.pack_into(view, 21, batch.attributes & ~TRANSACTIONAL)
    _PRODUCER.pack_into(view, 43, producer_id, producer_epoch, sequence)
    _U32.pack_into(view, 17, crc32c(view[21:]))


def repack(batch: bytearray | memoryview, body: Data, attributes: int) -> bytearray:
    """A batch with this header and these bytes behind it, its size and checksum made anew."""
    whole = bytearray(HEADER_SIZE + len(body))
    whole[:HEADER_SIZE] = batch[:HEADER_SIZE]
    whole[HEADER_SIZE:] = body
    _I32.pack_into(whole, 8, len(whole) - 12)
    _I16.pack_into(whole, 21, attributes)
    _U32.pack_into(whole, 17, crc32c(memoryview(whole)[21:]))
    return whole


def crc_matches(view: memoryview) -> bool:
    (crc,) = _U32.unpack_from(view, 17)
    return bool(crc == crc32c(view[21:]))
