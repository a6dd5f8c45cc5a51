"""Records of the offset map, `mm2-offset-map.<source alias>.internal` on the target: segments to and from bytes.

A *run* is a stretch of records that follow each other on both sides. A *segment* is a list of runs of one partition that go up on
both sides, with everything between them: what of the source is not on the target, and what of the target is not from the source.
A record of the topic holds one segment; its key names the partition on both sides and the target offset that it begins at.

The runs are pairs of numbers (skip, length): pass over `skip` source offsets that have no copy, then `length` records follow each
other. A length of 0 passes over `skip` target offsets instead. Most segments are one run, which the ends tell: no pairs are
written then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .fields import INT16, INT32, INT64, Fields, string
from .mirror import MalformedRecord

_VERSION = 0
_ID_SIZE = 16
NO_ID = bytes(_ID_SIZE)


def offset_map_topic(source_alias: str) -> str:
    return f"mm2-offset-map.{source_alias}.internal"


class Place(NamedTuple):
    """A partition on both sides."""

    topic: str
    partition: int
    remote: str
    remote_partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} -> {self.remote}-{self.remote_partition}"


class SegmentKey(NamedTuple):
    place: Place
    target_start: int


class Run(NamedTuple):
    """`length` records from these offsets on, which follow each other on both sides."""

    source: int
    target: int
    length: int

    @property
    def source_end(self) -> int:
        return self.source + self.length

    @property
    def target_end(self) -> int:
        return self.target + self.length


class TopicIds(NamedTuple):
    """Which topics the offsets are of; both may be created anew under the same name."""

    source: bytes = NO_ID
    target: bytes = NO_ID

    def agrees(self, other: TopicIds) -> bool:
        """Whether both may be of the same topics. Brokers before 2.8 tell no ids, and after an upgrade they do."""
        return all(NO_ID in ids or ids[0] == ids[1] for ids in zip(self, other, strict=True))

    def or_else(self, other: TopicIds) -> TopicIds:
        """These ids, and those of `other` where they are not known."""
        return TopicIds(
            other.source if self.source == NO_ID else self.source,
            other.target if self.target == NO_ID else self.target,
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """Runs of one partition, going up on both sides; the ends are those of the first and the last run."""

    place: Place
    ids: TopicIds
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    pairs: bytes = b""
    """Empty: one run."""

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.place, self.target_start)

    def runs(self) -> Iterator[Run]:
        source, target = self.source_start, self.target_start
        if not self.pairs:
            yield Run(source, target, self.source_end - source)
            return
        numbers = iter(unpacked(self.pairs))
        for skip, length in zip(numbers, numbers, strict=True):
            if length == 0:
                target += skip
                continue
            source += skip
            yield Run(source, target, length)
            source += length
            target += length


def encode_key(key: SegmentKey) -> bytes:
    place = key.place
    return (
        _string(place.topic)
        + INT32.pack(place.partition)
        + _string(place.remote)
        + INT32.pack(place.remote_partition)
        + INT64.pack(key.target_start)
    )


def encode(segment: Segment) -> tuple[bytes, bytes]:
    """Key and value of a segment."""
    value = (
        INT16.pack(_VERSION)
        + segment.ids.source
        + segment.ids.target
        + INT64.pack(segment.source_start)
        + INT64.pack(segment.source_end)
        + INT64.pack(segment.target_end)
        + segment.pairs
    )
    return encode_key(segment.key), value


def decode_key(key: bytes | None) -> SegmentKey:
    fields = _Fields(key, "offset map key")
    place = Place(fields.string(), fields.int32(), fields.string(), fields.int32())
    return SegmentKey(place, fields.int64())


def decode(key: bytes | None, value: bytes | None) -> Segment:
    """The segment of a record; MalformedRecord if it is none. A version that is not known may say something else: none too."""
    place, target_start = decode_key(key)
    fields = _Fields(value, "offset map value")
    if (version := fields.int16()) != _VERSION:
        raise MalformedRecord(f"A segment of the offset map has version {version}.")
    ids = TopicIds(fields.raw(_ID_SIZE), fields.raw(_ID_SIZE))
    source_start, source_end, target_end = fields.int64(), fields.int64(), fields.int64()
    segment = Segment(place, ids, source_start, source_end, target_start, target_end, fields.rest())
    _check(segment)
    return segment


def _check(segment: Segment) -> None:
    """Whether its runs end where it says."""
    try:
        last = Run(0, 0, 0)
        for last in segment.runs():  # noqa: B007 - the last one is wanted
            pass
    except (ValueError, IndexError):
        raise MalformedRecord("The runs of a segment of the offset map cannot be read.") from None
    if last.length <= 0 or (last.source_end, last.target_end) != (
        segment.source_end,
        segment.target_end,
    ):
        raise MalformedRecord(
            f"The runs of the segment at {segment.target_start} of {segment.place} do not end where it does."
        )


_LARGEST_SHIFT = 63


def packed(numbers: Sequence[int]) -> bytes:
    """Numbers from 0 on, seven bits to a byte, the lowest first."""
    if max(numbers, default=0) < 128:
        return bytes(numbers)
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def unpacked(data: bytes) -> list[int]:
    if data.isascii():  # all below 128: one byte each
        return list(data)
    found: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift > _LARGEST_SHIFT:
                raise ValueError("a number is larger than any offset")
        else:
            found.append(number)
            number = shift = 0
    if shift:
        raise ValueError("the last number does not end")
    return found


class _Fields(Fields):
    malformed = MalformedRecord

    def raw(self, size: int) -> bytes:
        return self._take(size)

    def rest(self) -> bytes:
        return self._take(len(self._data) - self._position)


def _string(text: str) -> bytes:
    return string(text, "the offset map takes", MalformedRecord)
