"""The record codec: batches opened to records, and records closed to a batch that a broker takes.

The only module that imports aiokafka (its codec is C: 0.3 µs a record to read, 0.4 to write). What `decode` gives are the
codec's own objects, since wrapping each would cost more than reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import cramjam
from aiokafka.errors import KafkaError as CodecError
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatch

from sparkmirror.errors import CorruptBatch

from .batches import CODEC_MASK, HEADER_SIZE, magic_of, repack, shift_timestamps
from .compression import NONE, compress

Headers = list[tuple[str, bytes | None]]

# Room for a batch of any size a broker would take: splitting is decided elsewhere, never by the builder.
_UNBOUNDED = 1 << 30
_NO_TIMESTAMP = -1


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


def decode(view: memoryview) -> list[Record]:
    """The records of one batch of any magic; LogAppendTime batches give the append time to every record."""
    try:
        if magic_of(view) >= 2:
            return cast("list[Record]", list(DefaultRecordBatch(view)))
        return [
            NewRecord(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, [])
            for r in LegacyRecordBatch(bytes(view), magic_of(view))
        ]
    except (CodecError, cramjam.DecompressionError, ValueError, EOFError, OSError) as error:
        # Also a header key that is not UTF-8 (a ValueError): Kafka allows no other, but brokers do not look.
        raise CorruptBatch(f"the records of a batch cannot be read ({error}).") from error


def encode(
    records: Sequence[Record],
    codec: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytearray:
    """One gapless batch with base offset 0 and these records in order."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=NONE,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        batch_size=_UNBOUNDED,
    )
    append = builder.append
    # The builder takes a first time of -1 as "none yet" and would count from a later one.
    shift = 1 if records and records[0].timestamp == _NO_TIMESTAMP else 0
    for delta, record in enumerate(records):
        append(delta, record.timestamp + shift, record.key, record.value, record.headers)
    batch = cast("bytearray", builder.build())
    if shift:
        shift_timestamps(batch, -shift)
    codec &= CODEC_MASK
    return (
        repack(batch, compress(codec, memoryview(batch)[HEADER_SIZE:]), codec) if codec else batch
    )


def control_batch(records: Sequence[tuple[bytes, bytes | None]], timestamp: int) -> bytearray:
    """A batch of our own records (positions, syncs, progress): uncompressed, no producer id."""
    return encode([NewRecord(0, timestamp, key, value, []) for key, value in records], 0)


def same_content(one: Record, other: Record) -> bool:
    """Whether two records carry the same key, value and headers (their offsets and, by topic, times may differ)."""
    return (
        one.key == other.key
        and one.value == other.value
        and list(one.headers) == list(other.headers)
    )
