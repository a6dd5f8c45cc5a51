"""Records to Arrow and back: rows of a slice in, what a query needs of them out; what it gave in, records out.

The only module of the copy task that imports pyarrow, and only when there is a query.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sparkmirror.transforms.record import ConnectRecord

from .columns import NUMBER, TYPES, row_of

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS_AS_BYTES = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_ARROW = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(_HEADER),
}
SCHEMA = pa.schema([(NUMBER, pa.int64()), *((name, _ARROW[name]) for name in TYPES)])
_MS = 1000
_MOST_MS = ((1 << 63) - 1) // _MS


def to_arrow(rows: Sequence[ConnectRecord], first: int, needs: frozenset[str]) -> bytes:
    """What a query needs of the rows, numbered from `first` on; all else is null."""
    count = len(rows)
    columns = [_whole(range(first, first + count), pa.int64())]
    for name, kind in _ARROW.items():
        columns.append(_column(name, rows) if name in needs else pa.nulls(count, kind))
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return bytes(memoryview(batch.serialize()))


def _whole(numbers: Any, kind: pa.DataType) -> pa.Array:
    buffer = pa.py_buffer(array("q", numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, buffer])


def _column(name: str, rows: Sequence[ConnectRecord]) -> pa.Array:
    match name:
        case "topic":
            return pa.array([row.topic for row in rows], pa.string())
        case "partition":
            return pa.array([row.partition for row in rows], pa.int32())
        case "offset":
            return _whole([row.offset for row in rows], pa.int64())
        case "timestamp":
            # A time beyond what Spark can hold is the last that it can; the record keeps its own.
            times = [max(-_MOST_MS, min(row.timestamp, _MOST_MS)) * _MS for row in rows]
            return _whole(times, _ARROW["timestamp"])
        case "key":
            return pa.array([row.key for row in rows], pa.binary())
        case "value":
            return pa.array([row.value for row in rows], pa.binary())
        case _:
            headers = [[{"key": k, "value": v} for k, v in row.headers] for row in rows]
            return pa.array(headers, _ARROW["headers"])


class Given(NamedTuple):
    """What a query gave: the rows that it kept, by their place in the slice, and its columns."""

    rows: list[int]
    columns: dict[str, list[Any]]

    def __bool__(self) -> bool:
        return bool(self.rows)


NOTHING_GIVEN = Given([], {})


def from_arrow(batches: Sequence[pa.RecordBatch]) -> Given:
    """The rows of one slice, in the order in which they came."""
    if not batches:
        return NOTHING_GIVEN
    rows: list[int] = []
    columns: dict[str, list[Any]] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name == NUMBER:
                rows += [row_of(number) for number in column.to_pylist()]
            else:
                columns.setdefault(name, []).extend(_values(name, column))
    return Given(rows, columns)


def _bytes(column: pa.Array) -> list[bytes | None]:
    """Texts as they are: what a query takes for text need not be UTF-8."""
    return list(column.cast(pa.binary()).to_pylist())


def _text(value: bytes | None) -> str | None:
    """A text, with a mark in place of what is none: no topic has such a name, nor does a header that was read."""
    return None if value is None else value.decode(errors="replace")


def _values(name: str, column: pa.Array) -> list[Any]:
    match name:
        case "timestamp":
            times = column.cast(pa.int64()).to_pylist()
            return [None if time is None else time // _MS for time in times]
        case "topic":
            return [None if text is None else _text(text) for text in _bytes(column)]
        case "headers":
            return [
                None if row is None else [(_text(h["key"]), h["value"]) for h in row]
                for row in column.cast(_HEADERS_AS_BYTES).to_pylist()
            ]
        case _:
            return list(column.to_pylist())
