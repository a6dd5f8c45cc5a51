"""What is compressed comes back as it was, in the framing that Kafka's own clients write."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import CorruptBatch
from sparkmirror.kafka.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress

BLOCK = 64 * 1024
NOISE = random.Random(7).randbytes(3 * BLOCK)
TEXT = b'{"id":1,"text":"a word and a word and another"}' * 8000
SIZES = (0, 1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("size", SIZES)
def test_what_is_compressed_comes_back(codec: int, size: int) -> None:
    for data in (NOISE[:size], TEXT[:size], NOISE[: size // 2] + TEXT[: size // 2]):
        assert bytes(decompress(codec, compress(codec, memoryview(data)))) == data


def test_lz4_is_framed_as_java_does_it() -> None:
    """Blocks of 64 KiB that stand for themselves, no checksums; what does not get smaller goes as it is."""
    framed = bytes(compress(LZ4, memoryview(TEXT[:BLOCK] + NOISE[:BLOCK])))
    head, first = framed[:7], int.from_bytes(framed[7:11], "little")
    assert head == bytes.fromhex("04224d18604082")
    block = framed[11 : 11 + first]
    assert bytes(cramjam.lz4.decompress_block(block, output_len=BLOCK)) == TEXT[:BLOCK]
    rest = framed[11 + first :]
    assert int.from_bytes(rest[:4], "little") == BLOCK | 1 << 31
    assert rest[4:] == NOISE[:BLOCK] + bytes(4)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_lz4_of_others_is_read(size: int, linked: bool) -> None:
    """In frames with blocks of other sizes, that refer to one another, and with checksums."""
    data = (NOISE[: size // 2] + TEXT)[:size]
    made = cramjam.lz4.Compressor(level=1, content_checksum=linked, block_linked=linked)
    made.compress(data)
    assert bytes(decompress(LZ4, bytes(made.finish()))) == data


@given(st.data())
def test_damaged_lz4_is_corrupt_or_other_bytes_but_never_a_crash(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 3 * BLOCK))
    framed = bytearray(compress(LZ4, memoryview((TEXT[: size // 2] + NOISE)[:size])))
    for _ in range(data.draw(st.integers(1, 4))):
        framed[data.draw(st.integers(0, len(framed) - 1))] = data.draw(st.integers(0, 255))
    del framed[data.draw(st.integers(len(framed) // 2, len(framed))) :]
    with contextlib.suppress(CorruptBatch):
        decompress(LZ4, framed)


def test_lz4_takes_no_more_memory_than_what_is_in_it() -> None:
    """Blocks of one byte each, as anybody may send them."""
    block = (1 | 1 << 31).to_bytes(4, "little") + b"x"
    framed = bytes.fromhex("04224d18604082") + block * 100_000 + bytes(4)
    tracemalloc.start()
    try:
        assert bytes(decompress(LZ4, framed)) == b"x" * 100_000
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_lz4_in_several_frames_is_read_whole() -> None:
    framed = bytes(compress(LZ4, memoryview(TEXT)))
    assert bytes(decompress(LZ4, framed + framed)) == TEXT + TEXT
    with pytest.raises(CorruptBatch):
        decompress(LZ4, framed + b"more")
