"""The record codec: batches opened to records, and records closed to a batch that a broker takes.

The only module that imports aiokafka (its codec is C: 0.2 µs a record to read). What `decode` gives are the codec's own objects,
since wrapping each would cost more than reading it. How records are written is in `writing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, cast, overload

import cramjam
from aiokafka.errors import KafkaError as CodecError
from aiokafka.record.default_records import DefaultRecordBatch

from sparkmirror.errors import CorruptBatch

from . import legacy
from .batches import CODEC_MASK, HEADER_SIZE, NO_TIMESTAMP, Batch, magic_of
from .compression import NONE, OpeningLimit, decompress, opening_limit
from .writing import batch_of

Headers = list[tuple[str, bytes | None]]
RECORD_BYTES = 100
"""What a record takes in memory beside its bytes, about."""
HEADER_BYTES = 100
"""What a header takes beside its bytes: a pair, a text and a place in a list."""
_HEADERS = attrgetter("headers")
_SHORT, _LONG = 4 << 10, 256 << 10
_INTERNAL = OpeningLimit(bytes=8 << 20)


class Record(Protocol):
    """One record as it was read; `offset` is its offset in the log it was read from."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class NewRecord(NamedTuple):
    """One record of our own, to be written."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordColumns(Sequence[NewRecord]):
    """Records of our own by their columns; one is made only where somebody asks for it."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        self.offsets = offsets
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.headers = headers

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> NewRecord: ...
    @overload
    def __getitem__(self, place: slice) -> RecordColumns: ...
    def __getitem__(self, place: int | slice) -> NewRecord | RecordColumns:
        columns: tuple[Any, ...] = (
            self.offsets,
            self.timestamps,
            self.keys,
            self.values,
            self.headers,
        )
        kind = RecordColumns if isinstance(place, slice) else NewRecord
        return kind(*(column[place] for column in columns))


def decode(view: memoryview, limit: OpeningLimit | None = None) -> list[Record]:
    """The records of one batch of any magic; LogAppendTime batches give the append time to every record."""
    return decode_sized(view, limit)[0]


def decode_internal(view: memoryview) -> list[Record]:
    """Those of a batch of an internal topic, which is small whoever has written it; CorruptBatch if it is not.

    The same for everybody who reads the topic, whatever the limits of their flows.
    """
    return decode_sized(view, _INTERNAL)[0]


def decode_sized(view: memoryview, limit: OpeningLimit | None = None) -> tuple[list[Record], int]:
    """The same, and what they take in memory, about."""
    try:
        if magic_of(view) >= 2:
            return _records(view, limit or opening_limit())
        found = legacy.messages(view)
        return list(found), held_bytes([row.key for row in found], [row.value for row in found])
    except (
        CodecError,
        cramjam.DecompressionError,
        ValueError,
        IndexError,
        EOFError,
        OSError,
    ) as error:
        # Also a header key that is not UTF-8 (a ValueError): Kafka allows no other, but brokers do not look.
        raise CorruptBatch(f"the records of a batch cannot be read ({error}).") from error


def _records(view: memoryview, limit: OpeningLimit) -> tuple[list[Record], int]:
    if len(view) <= _SHORT and not view[22] & CODEC_MASK:  # it cannot become large
        found = list(cast("Iterable[Record]", DefaultRecordBatch(view)))
        return found, len(view) + RECORD_BYTES * len(found)
    plain = _plain(view, limit)
    count = Batch(view).count
    size = len(plain) + RECORD_BYTES * count
    limit.require(len(view), size)
    batch = cast("Iterable[Record]", DefaultRecordBatch(plain))
    if len(plain) <= _LONG:  # whatever is in it
        found = list(batch)
        size += HEADER_BYTES * sum(map(len, map(_HEADERS, found)))
        limit.require(len(view), size)
        return found, size
    limit.require(len(view), size + HEADER_BYTES * _headers_of_long_ones(plain, count))
    most = limit.of(len(view))
    found = []
    for record in batch:
        found.append(record)
        if headers := record.headers:
            size += HEADER_BYTES * len(headers)
            if size > most:
                raise limit.refusal(len(view))
    return found, size


def _headers_of_long_ones(plain: memoryview | bytearray, count: int) -> int:
    """How many headers the long records of a batch say that they have: two bytes each are enough for one."""
    found, position = 0, HEADER_SIZE
    for _ in range(count):
        size, position = _varint(plain, position)
        if size > _LONG:
            found += _headers_at(plain, position + 1)  # behind the attributes
        position += size
    return found


def _headers_at(plain: memoryview | bytearray, position: int) -> int:
    for _ in range(2):  # time and offset
        _, position = _varint(plain, position)
    for _ in range(2):  # key and value
        size, position = _varint(plain, position)
        position += max(0, size)
    return max(0, _varint(plain, position)[0])


def _varint(plain: memoryview | bytearray, position: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    value = shift = 0
    while True:
        byte = plain[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a number in the records of a batch does not end")


def _plain(view: memoryview, limit: OpeningLimit) -> memoryview | bytearray:
    """A batch as the codec reads it, decompressed: by itself it would do that without a limit, and lz4 slowly."""
    codec = view[22] & CODEC_MASK
    if codec == NONE:
        return view
    batch = bytearray(view[:HEADER_SIZE])
    batch[22] &= ~CODEC_MASK
    batch += decompress(codec, view[HEADER_SIZE:], limit)
    return batch


def encode(
    records: Sequence[Record],
    codec: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    now: int = NO_TIMESTAMP,
) -> bytearray:
    """One gapless batch with base offset 0 and these records in order; those without a time get `now`."""
    producer = producer_id, producer_epoch, sequence
    codec &= CODEC_MASK
    if isinstance(records, RecordColumns):
        timestamps, keys, values = records.timestamps, records.keys, records.values
        return batch_of(_timed(timestamps, now), keys, values, records.headers, codec, producer)
    return batch_of(
        _timed([record.timestamp for record in records], now),
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records],
        codec,
        producer,
    )


def _timed(timestamps: Sequence[int], now: int) -> Sequence[int]:
    if now == NO_TIMESTAMP or NO_TIMESTAMP not in timestamps:
        return timestamps
    return [now if time == NO_TIMESTAMP else time for time in timestamps]


def control_batch(records: Sequence[tuple[bytes, bytes | None]], timestamp: int) -> bytearray:
    """A batch of our own records (positions, syncs, progress): uncompressed, no producer id."""
    return encode([NewRecord(0, timestamp, key, value, []) for key, value in records], 0)


def held_bytes(*columns: Sequence[bytes | None]) -> int:
    """What records with these keys and values take in memory, about."""
    found = sum(sum(map(len, filter(None, column))) for column in columns)
    return found + RECORD_BYTES * len(columns[0])


def same_content(one: Record, other: Record) -> bool:
    """Whether two records carry the same key, value and headers (their offsets and, by topic, times may differ)."""
    return (
        one.key == other.key
        and one.value == other.value
        and list(one.headers) == list(other.headers)
    )
