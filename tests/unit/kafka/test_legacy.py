"""Message sets of magic 0 and 1: every message with its own offset and time, and no damage passes for data."""

from __future__ import annotations

import contextlib
import struct
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import CorruptBatch
from sparkmirror.kafka.compression import LZ4, compress, decompress, with_header_checksum
from sparkmirror.kafka.records import Record, decode
from tests.unit.making import message_set, record

ROWS = [record(10), record(11), record(12)]
JAVA_HEAD = bytes.fromhex("04224d186040")
OLD_CHECKSUM, RIGHT_CHECKSUM = 0x1A, 0x82
ATTRIBUTES, TIME_V1, VALUE_V0, VALUE_V1 = 17, 18, 26, 34


def sealed(message: bytearray) -> memoryview:
    """With the size and checksum that its bytes have now."""
    struct.pack_into(">i", message, 8, len(message) - 12)
    struct.pack_into(">I", message, 12, zlib.crc32(memoryview(message)[16:]))
    return memoryview(message)


def wrapper(
    inner: bytes, *, magic: int, codec: int, offset: int, attributes: int = 0
) -> memoryview:
    """A compressed message around these bytes, which are compressed already."""
    time = struct.pack(">q", 1234) if magic else b""
    head = struct.pack(">qiIbb", offset, 0, 0, magic, codec | attributes)
    return sealed(bytearray(head + time + struct.pack(">ii", -1, len(inner)) + inner))


def java_lz4(data: bytes, checksum: int) -> bytes:
    """A frame as Kafka's own code writes it, with this header checksum."""
    frame = bytearray(compress(LZ4, memoryview(data)))
    assert frame[:7] == JAVA_HEAD + bytes([RIGHT_CHECKSUM])
    frame[6] = checksum
    return bytes(frame)


def plain(rows: list[tuple[int, bytes]], magic: int) -> bytes:
    """Messages with these offsets and values, uncompressed."""
    sets = [record(offset)._replace(value=value) for offset, value in rows]
    return b"".join(bytes(message_set([row], magic)) for row in sets)


def offsets(found: list[Record]) -> list[int]:
    return [row.offset for row in found]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_are_read(magic: int, codec: int) -> None:
    """With lz4: in frames of another client, whose header checksums are right."""
    found = decode(message_set(ROWS, magic, codec))
    assert offsets(found) == [10, 11, 12]
    times = [row.timestamp for row in ROWS] if magic else [-1] * len(ROWS)
    assert [row.timestamp for row in found] == times
    assert [(row.key, row.value) for row in found] == [(row.key, row.value) for row in ROWS]
    assert all(row.headers == [] for row in found)


@pytest.mark.parametrize("checksum", [OLD_CHECKSUM, RIGHT_CHECKSUM])
def test_lz4_of_magic_0_is_read_with_the_old_wrong_header_checksum_and_with_the_right_one(
    checksum: int,
) -> None:
    inner = plain([(40, b"a"), (41, b"x" * 100_000), (42, b"c")], 0)
    frame = java_lz4(inner, checksum)
    found = decode(wrapper(frame, magic=0, codec=LZ4, offset=42))
    assert offsets(found) == [40, 41, 42]
    assert [row.value for row in found] == [b"a", b"x" * 100_000, b"c"]


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("is_checked", [False, True])
def test_lz4_frames_of_other_clients_are_read_with_any_header_checksum(
    size: int, *, is_checked: bool
) -> None:
    inner = plain([(7, b"v" * size)], 0)
    made = cramjam.lz4.Compressor(level=1, content_checksum=is_checked, block_linked=False)
    made.compress(inner)
    frame = bytearray(bytes(made.finish()))
    assert frame[:6] != JAVA_HEAD
    assert with_header_checksum(frame) == frame, "it is right already"
    frame[6] ^= 0xFF
    with pytest.raises(CorruptBatch):
        decompress(LZ4, frame)
    (found,) = decode(wrapper(bytes(frame), magic=0, codec=LZ4, offset=7))
    assert (found.offset, found.value) == (7, b"v" * size)


def test_the_header_checksum_is_found_behind_a_content_size() -> None:
    head = bytes.fromhex("04224d18 6c40") + struct.pack("<Q", 3)
    block = struct.pack("<I", 3 | 1 << 31) + b"abc" + bytes(4)
    content_checksum = struct.pack("<I", 0x32D153FF)  # xxHash-32 of "abc"
    broken = head + b"\0" + block + content_checksum
    assert bytes(cramjam.lz4.decompress(bytes(with_header_checksum(broken)))) == b"abc"


@pytest.mark.parametrize("length", range(7))
def test_an_lz4_frame_that_ends_in_its_header_is_corrupt(length: int) -> None:
    frame = java_lz4(b"abc", OLD_CHECKSUM)[:length]
    with pytest.raises(CorruptBatch):
        decode(wrapper(frame, magic=0, codec=LZ4, offset=7))


def test_offsets_in_magic_1_count_up_to_that_of_the_whole_also_with_gaps() -> None:
    inner = bytes(compress(LZ4, plain([(0, b"a"), (3, b"b"), (5, b"c")], 1)))
    assert offsets(decode(wrapper(inner, magic=1, codec=LZ4, offset=105))) == [100, 103, 105]
    assert offsets(decode(wrapper(inner, magic=1, codec=LZ4, offset=0))) == [0, 3, 5]
    with pytest.raises(CorruptBatch):
        decode(wrapper(inner, magic=1, codec=LZ4, offset=4))


def test_a_time_that_the_broker_gave_is_that_of_every_message() -> None:
    inner = bytes(compress(LZ4, plain([(0, b"a"), (1, b"b")], 1)))
    found = decode(wrapper(inner, magic=1, codec=LZ4, offset=6, attributes=0x08))
    assert [row.timestamp for row in found] == [1234, 1234]


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 3)])
def test_a_message_that_does_not_have_its_checksum_is_corrupt(magic: int, codec: int) -> None:
    rows = ROWS if codec else ROWS[:1]
    damaged = bytearray(message_set(rows, magic, codec))
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode(memoryview(damaged))


@pytest.mark.parametrize("checksum", [OLD_CHECKSUM, RIGHT_CHECKSUM])
def test_a_damaged_lz4_frame_is_corrupt_though_its_header_checksum_does_not_count(
    checksum: int,
) -> None:
    frame = bytearray(java_lz4(plain([(40, b"a" * 500)], 0), checksum))
    frame[11:21] = bytes(10)
    with pytest.raises(CorruptBatch):
        decode(wrapper(bytes(frame), magic=0, codec=LZ4, offset=40))


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        plain([(0, b"a")], 1),  # of another format
        bytes(message_set(ROWS, 0, 1)),  # compressed itself
        plain([(0, b"a")], 0)[:-1],
    ],
)
def test_what_is_no_message_set_inside_is_corrupt(inner: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode(wrapper(bytes(cramjam.gzip.compress(inner)), magic=0, codec=1, offset=7))


def test_a_compressed_message_without_a_value_is_corrupt() -> None:
    head = struct.pack(">qiIbb", 7, 0, 0, 0, 1)
    with pytest.raises(CorruptBatch):
        decode(sealed(bytearray(head + struct.pack(">ii", -1, -1))))


@given(st.data())
def test_damage_is_corrupt_and_never_a_crash(data: st.DataObject) -> None:
    """Also where the checksum was made of the damaged bytes."""
    magic, codec = data.draw(st.sampled_from([0, 1])), data.draw(st.sampled_from([0, 1, 2, 3]))
    message = bytearray(message_set(ROWS if codec else ROWS[:1], magic, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(17, len(message) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        decode(sealed(message))
