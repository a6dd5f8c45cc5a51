"""The codecs of record batches: bytes in, bytes out, in the framing and at the level that Kafka's own clients use by default.

Levels matter: lz4's high compression, which other libraries take for Kafka's default, costs ten times as much as its fast one,
which is what Java's clients and brokers use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import cramjam

from sparkmirror.errors import CorruptBatch, OpensTooLarge

from .batches import Data

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_GZIP_LEVEL, _ZSTD_LEVEL = 6, 3
# As Java frames it: blocks of 64 KiB, which do not refer to one another, without checksums but that of this head.
_LZ4_HEAD, _LZ4_END = bytes.fromhex("04224d18604082"), bytes(4)
_LZ4_PLAIN = _LZ4_HEAD[:6]
"""The same but for that checksum."""
_LZ4_BLOCK, _LZ4_AS_IT_IS = 64 * 1024, 1 << 31
_LZ4_SIZE = struct.Struct("<I")
_LZ4_FLAGS = 4
"""Where the flags of a frame are; its header checksum is of them and what follows them, up to itself."""
_LZ4_HAS_SIZE, _LZ4_HAS_DICTIONARY = 0x08, 0x01
_XXH32_1, _XXH32_2, _XXH32_3 = 2654435761, 2246822519, 3266489917
_XXH32_4, _XXH32_5 = 668265263, 374761393
_U32 = 0xFFFFFFFF
_SNAPPY_BLOCK = 32 * 1024
_SNAPPY_HEAD = b"\x82SNAPPY\x00" + struct.pack(
    ">ii", 1, 1
)  # Java's framing: magic, version, oldest reader
_SNAPPY_MAGIC = _SNAPPY_HEAD[:8]
_SIZE = struct.Struct(">i")
LIMIT_KEY, RATIO_KEY = "mirror.decompressed.batch.max.bytes", "mirror.decompressed.batch.max.ratio"
_ALWAYS = 16 << 20
_FIRST_ROOM, _LIKELY_RATIO, _GROWTH = 64 << 10, 8, 4
_NO_ROOM = "failed to write whole buffer"
"""What cramjam says where the result does not fit."""


def compress(codec: int, data: Data) -> Data:
    """The records of a batch as they stand behind its header."""
    if codec == NONE:
        return data
    if codec == LZ4:
        return _lz4_frame(memoryview(data))
    if codec == ZSTD:
        return memoryview(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    if codec == SNAPPY:
        return _snappy_blocks(memoryview(data))
    if codec == GZIP:
        return memoryview(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
    raise _unknown(codec)


@dataclass(frozen=True, slots=True)
class OpeningLimit:
    """How large a batch may become when it is opened: a few bytes of zeros may become gigabytes."""

    bytes: int = 256 << 20
    ratio: int = 1000
    """How many bytes for each one of the batch."""

    def of(self, size: int) -> int:
        """The most that a batch of this size may become. Small ones may become 16 MiB, whatever the ratio."""
        return min(self.bytes, max(_ALWAYS, self.ratio * size))

    def require(self, size: int, opened: int) -> None:
        """OpensTooLarge if so many bytes are more than a batch of this size may become."""
        if opened > self.of(size):
            raise self.refusal(size)

    def refusal(self, size: int) -> OpensTooLarge:
        return OpensTooLarge(
            f"a batch of {size} bytes becomes larger than {self.of(size)} bytes when it is opened.",
            f"If it is to be copied, raise {LIMIT_KEY} ({self.bytes}) or {RATIO_KEY} ({self.ratio}).",
        )


class _Process:
    """What counts in this process: the limit of the one task that it runs, or the default."""

    limit = OpeningLimit()


def limit_opening(limit: OpeningLimit) -> None:
    """From now on batches that this process opens become no larger."""
    _Process.limit = limit


def opening_limit() -> OpeningLimit:
    return _Process.limit


def decompress(codec: int, data: Data, limit: OpeningLimit | None = None) -> bytearray:
    """The records as they are read, in a buffer of their own; OpensTooLarge where they are more than the limit allows.

    Without one, `opening_limit` counts.
    """
    view = memoryview(data)
    limit, size = limit or _Process.limit, len(view)
    try:
        if codec == NONE:
            return bytearray(view)
        if codec == LZ4:
            return _lz4_whole(view, limit)
        if codec == ZSTD:
            return _into(cramjam.zstd.decompress_into, view, limit)
        if codec == SNAPPY:
            return _snappy_whole(view, limit)
        if codec == GZIP:
            return _into(cramjam.gzip.decompress_into, view, limit)
    except (cramjam.DecompressionError, struct.error, ValueError) as error:
        if _NO_ROOM in str(error):
            raise limit.refusal(size) from error
        raise CorruptBatch(f"the records of a batch cannot be read ({error}).") from error
    raise _unknown(codec)


def _into(
    read: Callable[[Data, bytearray], int], data: memoryview, limit: OpeningLimit
) -> bytearray:
    """Decompress into a buffer that grows, since these formats do not say beforehand how much it will be."""
    most = limit.of(len(data))
    room = min(most, max(_FIRST_ROOM, _LIKELY_RATIO * len(data)))
    while True:
        whole = bytearray(room)
        try:
            filled = read(data, whole)
        except cramjam.DecompressionError:
            if room == most:
                raise
            del whole  # before there is room for the next
            room = min(most, _GROWTH * room)
            continue
        del whole[filled:]
        return whole


def _lz4_frame(data: memoryview) -> bytes:
    parts: list[Data] = [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK):
        block = data[start : start + _LZ4_BLOCK]
        small = memoryview(cramjam.lz4.compress_block(block, store_size=False))
        if len(small) < len(block):
            parts += _LZ4_SIZE.pack(len(small)), small
        else:
            parts += _LZ4_SIZE.pack(len(block) | _LZ4_AS_IT_IS), block
    return b"".join([*parts, _LZ4_END])


def _lz4_whole(data: memoryview, limit: OpeningLimit) -> bytearray:
    """Java's frames block by block, several times as fast as by a reader of streams; all others by that.

    Also those whose blocks are so many and small that what they may hold is more than a batch of that size may become.
    """
    if data[:6] != _LZ4_PLAIN:
        return _into(cramjam.lz4.decompress_into, data, limit)
    blocks: list[tuple[int, memoryview]] = []
    position = len(_LZ4_HEAD)
    while (size := _LZ4_SIZE.unpack_from(data, position)[0]) != 0:
        position += _LZ4_SIZE.size
        length = size & ~_LZ4_AS_IT_IS
        blocks.append((size, data[position : position + length]))
        position += length
        if len(blocks) * _LZ4_BLOCK > limit.of(len(data)):
            break
    is_all = position + len(_LZ4_END) == len(data)
    if not is_all or len(blocks) * _LZ4_BLOCK > limit.of(len(data)):
        return _into(cramjam.lz4.decompress_into, data, limit)
    whole = bytearray(len(blocks) * _LZ4_BLOCK)
    room, end = memoryview(whole), 0
    for size, block in blocks:
        if size & _LZ4_AS_IT_IS:
            room[end : end + len(block)] = block
            end += len(block)
        else:
            into = cramjam.lz4.decompress_block_into
            end += into(block, room[end : end + _LZ4_BLOCK], output_len=_LZ4_BLOCK)
    room.release()
    del whole[end:]
    return whole


def with_header_checksum(data: Data) -> bytearray:
    """An lz4 frame with the header checksum that it should have: clients before Kafka 0.10 wrote another."""
    frame = bytearray(data)
    if len(frame) <= _LZ4_FLAGS:
        raise CorruptBatch("an lz4 frame ends in its header.")
    flags = frame[_LZ4_FLAGS]
    size = 2 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    end = _LZ4_FLAGS + size
    if len(frame) <= end:
        raise CorruptBatch("an lz4 frame ends in its header.")
    frame[end] = _xxh32(bytes(frame[_LZ4_FLAGS:end])) >> 8 & 0xFF
    return frame


def _xxh32(data: bytes) -> int:
    """The hash xxHash-32 of fewer than 16 bytes."""
    known = _XXH32_5 + len(data)
    words = len(data) // 4
    for (word,) in _LZ4_SIZE.iter_unpack(data[: words * 4]):
        known = _rotated(known + word * _XXH32_3, 17) * _XXH32_4
    for byte in data[words * 4 :]:
        known = _rotated(known + byte * _XXH32_5, 11) * _XXH32_1
    known &= _U32
    known = (known ^ known >> 15) * _XXH32_2 & _U32
    known = (known ^ known >> 13) * _XXH32_3 & _U32
    return known ^ known >> 16


def _rotated(number: int, bits: int) -> int:
    number &= _U32
    return (number << bits | number >> 32 - bits) & _U32


def _snappy_blocks(data: memoryview) -> bytearray:
    out = bytearray(_SNAPPY_HEAD)
    for start in range(0, len(data), _SNAPPY_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK]))
        out += _SIZE.pack(len(block))
        out += block
    return out


def _snappy_whole(data: memoryview, limit: OpeningLimit) -> bytearray:
    """Java frames snappy in blocks; other clients send it bare. Each block says how large it becomes."""
    if data[:8] != _SNAPPY_MAGIC:
        limit.require(len(data), cramjam.snappy.decompress_raw_len(data))
        return bytearray(cramjam.snappy.decompress_raw(data))
    out = bytearray()
    position = len(_SNAPPY_HEAD)
    while position < len(data):
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        block = data[position : position + size]
        limit.require(len(data), len(out) + cramjam.snappy.decompress_raw_len(block))
        out += memoryview(cramjam.snappy.decompress_raw(block))
        position += size
    return out


def _unknown(codec: int) -> CorruptBatch:
    return CorruptBatch(f"a batch is compressed with codec {codec}, which Kafka does not know.")
