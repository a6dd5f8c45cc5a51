"""What was made to become far larger when it is opened is not opened."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Iterator

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.errors import OpensTooLarge
from sparkmirror.kafka import records
from sparkmirror.kafka.batches import HEADER_SIZE, Batch
from sparkmirror.kafka.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    OpeningLimit,
    compress,
    decompress,
    limit_opening,
)
from sparkmirror.kafka.gaps import close_gaps
from sparkmirror.kafka.records import NewRecord, encode
from tests.unit.making import batch, sealed

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
MIB = 1 << 20
ZEROS = bytes(40 * MIB)
SMALL = OpeningLimit(bytes=20 * MIB)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    limit_opening(SMALL)
    yield
    limit_opening(OpeningLimit())


def stream_of_others(codec: int, data: bytes) -> bytes:
    """As other clients frame it, where Java has a framing of its own."""
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    made = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=True)
    made.compress(data)
    return bytes(made.finish())


def peak(call: object) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(OpensTooLarge):
            call()  # type: ignore[operator]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_with_its_size_and_the_keys(codec: int) -> None:
    bomb = bytes(compress(codec, ZEROS))
    with pytest.raises(OpensTooLarge) as refused:
        decompress(codec, bomb)
    assert f"a batch of {len(bomb)} bytes becomes larger than " in refused.value.message
    assert "mirror.decompressed.batch.max.bytes (20971520)" in refused.value.remedy
    assert "mirror.decompressed.batch.max.ratio (1000)" in refused.value.remedy


@pytest.mark.parametrize("codec", [SNAPPY, LZ4])
def test_a_bomb_of_another_client_is_refused(codec: int) -> None:
    with pytest.raises(OpensTooLarge):
        decompress(codec, stream_of_others(codec, ZEROS))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_memory_than_is_allowed(codec: int) -> None:
    bomb = bytes(compress(codec, ZEROS))
    assert peak(lambda: decompress(codec, bomb)) < 22 * MIB


@pytest.mark.parametrize("codec", CODECS)
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_what_is_just_allowed_is_opened_whatever_room_it_takes(
    codec: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(0, 3 * MIB))
    most = data.draw(st.integers(max(1, size - 2), size + 2))
    limit_opening(OpeningLimit(bytes=most))
    closed = bytes(compress(codec, ZEROS[:size]))
    if size <= most:
        assert len(decompress(codec, closed)) == size
    else:
        with pytest.raises(OpensTooLarge):
            decompress(codec, closed)


def test_small_batches_may_become_sixteen_mebibytes() -> None:
    limit = OpeningLimit(bytes=100 * MIB, ratio=10)
    assert limit.of(100) == 16 * MIB
    assert limit.of(3 * MIB) == 30 * MIB
    assert limit.of(50 * MIB) == 100 * MIB


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_a_batch_of_far_too_many_records_is_refused(codec: int) -> None:
    """Each takes some seven bytes, and a hundred when it is an object."""
    limit_opening(OpeningLimit(bytes=MIB))
    many = encode([NewRecord(0, 1, None, None, [])] * 20_000, codec)
    with pytest.raises(OpensTooLarge):
        records.decode(memoryview(many))
    limit_opening(OpeningLimit())
    assert len(records.decode(memoryview(many))) == 20_000


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_with_gaps_is_refused(codec: int) -> None:
    limit_opening(OpeningLimit(bytes=MIB))
    rows = [NewRecord(offset, 1, b"k", ZEROS[:MIB], []) for offset in (0, 2)]
    gaps = batch(rows, base=0, last=2)
    body = compress(codec, gaps[HEADER_SIZE:])
    whole = bytearray(gaps[:HEADER_SIZE]) + bytes(body)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">h", whole, 21, codec)
    with pytest.raises(OpensTooLarge):
        close_gaps(Batch(sealed(whole)))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_is_refused(magic: int) -> None:
    time = struct.pack(">q", 1) if magic else b""
    value = bytes(cramjam.gzip.compress(ZEROS))
    body = struct.pack(">bb", magic, GZIP) + time + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    with pytest.raises(OpensTooLarge):
        records.decode(memoryview(struct.pack(">qi", 7, len(message)) + message))


def headers_bomb(count: int, codec: int) -> memoryview:
    """One record with so many headers of two bytes each, beside an ordinary one."""
    rows = [NewRecord(0, 1, b"k", b"v", [("", None)] * count), NewRecord(1, 1, b"k", b"v", [])]
    return memoryview(encode(rows, codec))


@pytest.mark.parametrize("codec", CODECS)
def test_headers_take_room_too(codec: int) -> None:
    """Two bytes of the batch become seventy."""
    bomb = headers_bomb(400_000, codec)
    assert len(bomb) < 40_000
    assert peak(lambda: records.decode(bomb)) < 8 * MIB
    few = headers_bomb(1000, codec)
    found, held = records.decode_sized(few)
    assert len(found[0].headers) == 1000
    assert held > 1000 * records.HEADER_BYTES


def test_headers_of_many_records_are_counted_together() -> None:
    limit_opening(OpeningLimit(bytes=MIB))
    rows = [NewRecord(n, 1, None, None, [("", None)] * 100) for n in range(200)]
    with pytest.raises(OpensTooLarge):
        records.decode(memoryview(encode(rows, 0)))


def test_internal_topics_have_a_limit_of_their_own() -> None:
    """The same for everybody who reads them, so that all find the same."""
    limit_opening(OpeningLimit(bytes=1))
    small = memoryview(encode([NewRecord(0, 1, b"k", b"v", [])], ZSTD))
    assert len(records.decode_internal(small)) == 1
    limit_opening(OpeningLimit(bytes=1 << 40))
    large = memoryview(encode([NewRecord(0, 1, b"k", bytes(9 * MIB), [])], ZSTD))
    with pytest.raises(OpensTooLarge):
        records.decode_internal(large)
