"""Batches and fetch answers for the unit tests, built with kafka-python's codec: independent of the one under test."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence

import cramjam
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from sparkmirror.kafka.batches import HEADER_SIZE
from sparkmirror.kafka.fetch import Fetched
from sparkmirror.kafka.records import Headers, NewRecord, Record

ABORT, COMMIT = 0, 1
_HEADER = struct.Struct(">qiibIhiqqqhii")

# kafka-python finds no codec but gzip without further packages, so bodies are compressed here.
_COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda body: bytes(cramjam.gzip.compress(body)),
    2: lambda body: bytes(cramjam.snappy.compress_raw(body)),
    3: lambda body: bytes(cramjam.lz4.compress(body)),
    4: lambda body: bytes(cramjam.zstd.compress(body)),
}
_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda body: bytes(cramjam.gzip.decompress(body)),
    2: lambda body: _unframed_snappy(body),
    3: lambda body: bytes(cramjam.lz4.decompress(body)),
    4: lambda body: bytes(cramjam.zstd.decompress(body)),
}

Content = tuple[int, bytes | None, bytes | None, Headers]


def content(record: Record) -> Content:
    """What of a record must arrive: time, key, value, headers."""
    return (record.timestamp, record.key, record.value, list(record.headers))


def record(number: int, size: int = 0) -> NewRecord:
    """A record that tells which one it is."""
    value = b"%d" % number + b"." * size
    return NewRecord(number, 1_700_000_000_000 + number, b"k%d" % number, value, [])


def sealed(batch: bytearray) -> memoryview:
    """The batch with the checksum that its bytes have now."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return memoryview(batch)


def batch(
    records: Sequence[NewRecord],
    *,
    base: int = 0,
    last: int | None = None,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    leader_epoch: int = 0,
) -> memoryview:
    """A batch as a broker keeps it: records at their own offsets, from `base` up to `last`."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 30,
    )
    for row in records:
        delta = row.offset - base
        assert builder.append(delta, row.timestamp, row.key, row.value, row.headers) is not None
    plain = builder.build()
    built = bytearray(plain[:HEADER_SIZE] + _COMPRESS[codec](bytes(plain[HEADER_SIZE:])))
    struct.pack_into(">i", built, 8, len(built) - 12)
    final = (records[-1].offset if records else base) if last is None else last
    struct.pack_into(">q", built, 0, base)
    struct.pack_into(">i", built, 12, leader_epoch)
    struct.pack_into(">h", built, 21, codec | attributes)
    struct.pack_into(">i", built, 23, final - base)
    return sealed(built)


def independent(view: memoryview | bytearray) -> DefaultRecordBatch:
    """The batch as kafka-python reads it, after its checksum was found right."""
    assert DefaultRecordBatch(bytes(view)).validate_crc()
    codec = view[22] & 7
    plain = bytearray(bytes(view[:HEADER_SIZE]) + _DECOMPRESS[codec](bytes(view[HEADER_SIZE:])))
    struct.pack_into(">i", plain, 8, len(plain) - 12)
    plain[22] &= 0xF8
    return DefaultRecordBatch(bytes(sealed(plain)))


def _unframed_snappy(body: bytes) -> bytes:
    """Java's snappy stream: a head of 16 bytes, then blocks with their lengths before them."""
    if not body.startswith(b"\x82SNAPPY\0"):
        return bytes(cramjam.snappy.decompress_raw(body))
    out, position = b"", 16
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        out += bytes(cramjam.snappy.decompress_raw(body[position + 4 : position + 4 + size]))
        position += 4 + size
    return out


def marker(
    offset: int, producer_id: int, kind: int, *, leader_epoch: int = 0, attributes: int = 0x30
) -> memoryview:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, kind)
    value = struct.pack(">hi", 0, 0)
    return batch(
        [NewRecord(offset, 0, key, value, [])],
        base=offset,
        producer=(producer_id, 0, -1),
        attributes=attributes,
        leader_epoch=leader_epoch,
    )


def message_set(records: Sequence[NewRecord], magic: int, codec: int = 0) -> memoryview:
    """Records as brokers before 0.11 kept them; a compressed set is one message around the others."""
    inner = b""
    for index, row in enumerate(records):
        builder = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
        builder.append(index if codec and magic else row.offset, row.timestamp, row.key, row.value)
        inner += bytes(builder.build())
    if not codec:
        return memoryview(bytearray(inner))
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
    builder.append(records[-1].offset, records[-1].timestamp, None, _COMPRESS[codec](inner))
    built = bytearray(builder.build())
    built[17] |= codec
    struct.pack_into(">I", built, 12, zlib.crc32(memoryview(built)[16:]))
    return memoryview(built)


def fetched(
    batches: Iterable[memoryview | bytes],
    *,
    aborted: list[tuple[int, int]] | None = None,
    high_watermark: int = 1 << 40,
) -> Fetched:
    """What a fetch gives for these batches."""
    joined = memoryview(bytearray(b"".join(batches)))
    return Fetched("t", 0, 0, high_watermark, high_watermark, 0, aborted or [], -1, joined, None)


def header_fields(view: memoryview) -> tuple[int, ...]:
    return _HEADER.unpack_from(view)


headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=4)
timestamps = st.one_of(
    st.just(-1), st.integers(0, 10), st.integers(1_600_000_000_000, 1_800_000_000_000)
)
new_records = st.builds(
    NewRecord,
    st.just(0),
    timestamps,
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=60),
    headers,
)
