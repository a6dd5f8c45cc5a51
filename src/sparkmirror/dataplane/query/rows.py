"""The records of a slice as a query sees them: what was read in; records, or one column of all of them, out.

Most of what a query works on is never looked at as a record: it goes out by columns, and what comes back is written. So a record
is only made of what was read where somebody asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from sparkmirror.kafka.records import Record
from sparkmirror.transforms.record import ConnectRecord


class Rows(Sequence[ConnectRecord]):
    """Records of one source partition, in their order."""

    __slots__ = ("_offsets", "_partition", "_read", "_topic")

    def __init__(
        self,
        read: Sequence[Record],
        topic: str | None = None,
        partition: int = 0,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Records as they were read, all of one topic, with their offsets; or, without a topic, such as carry it themselves."""
        self._read = read
        self._topic, self._partition = topic, partition
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._read)

    @overload
    def __getitem__(self, place: int) -> ConnectRecord: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ConnectRecord]: ...
    def __getitem__(self, place: int | slice) -> ConnectRecord | Sequence[ConnectRecord]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        read: Any = self._read[place]
        if self._topic is None or self._offsets is None:
            made: ConnectRecord = read
            return made
        return ConnectRecord(
            self._topic,
            self._partition,
            self._offsets[place],
            read.timestamp,
            read.key,
            read.value,
            read.headers,
        )

    def __iter__(self) -> Iterator[ConnectRecord]:
        return (self[place] for place in range(len(self)))

    def column(self, name: str) -> Sequence[Any]:
        """One column of all of them."""
        if self._topic is not None and self._offsets is not None:
            match name:
                case "topic":
                    return [self._topic] * len(self)
                case "partition":
                    return [self._partition] * len(self)
                case "offset":
                    return self._offsets
        match name:  # spelt out for speed
            case "value":
                return [row.value for row in self._read]
            case "key":
                return [row.key for row in self._read]
            case "timestamp":
                return [row.timestamp for row in self._read]
            case "headers":
                return [row.headers for row in self._read]
            case _:
                return [getattr(row, name) for row in self._read]


def column(rows: Sequence[ConnectRecord], name: str) -> Sequence[Any]:
    """One column of any records."""
    return (rows if isinstance(rows, Rows) else Rows(rows)).column(name)
