"""Records to Arrow and back: rows of a slice in, what a query needs of them out; what it gave in, records out.

The only module of the copy task that imports pyarrow, and only when there is a query.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sparkmirror.transforms.record import ConnectRecord

from .columns import NUMBER, TYPES, row_of
from .rows import column

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
_MS = 1000
_MOST_MS = ((1 << 63) - 1) // _MS


def schema_of(needs: Collection[str]) -> pa.Schema:
    """What a query is given that needs these columns of a record: its number, and them."""
    return pa.schema([(NUMBER, pa.int64()), *((n, _ARROW[n]) for n in TYPES if n in needs)])


def to_arrow(rows: Sequence[ConnectRecord], first: int, needs: Collection[str]) -> memoryview:
    """What a query needs of the rows, numbered from `first` on."""
    schema = schema_of(needs)
    columns = [_whole(range(first, first + len(rows)), pa.int64())]
    columns += [_column(name, column(rows, name)) for name in schema.names[1:]]
    return memoryview(pa.RecordBatch.from_arrays(columns, schema=schema).serialize())


def _whole(numbers: Any, kind: pa.DataType) -> pa.Array:
    buffer = pa.py_buffer(array("q", numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, buffer])


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    match name:
        case "offset":
            return _whole(values, _ARROW[name])
        case "timestamp":
            # A time beyond what Spark can hold is the last that it can; the record keeps its own.
            times = [max(-_MOST_MS, min(time, _MOST_MS)) * _MS for time in values]
            return _whole(times, _ARROW[name])
        case "headers":
            headers = [[{"key": k, "value": v} for k, v in row] for row in values]
            return pa.array(headers, _ARROW[name])
        case _:
            return pa.array(values, _ARROW[name])


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
        for name, found in zip(batch.schema.names, batch.columns, strict=True):
            if name == NUMBER:
                rows += [row_of(number) for number in found.to_pylist()]
            else:
                columns.setdefault(name, []).extend(_values(name, found))
    return Given(rows, columns)


def _bytes(column: pa.Array) -> list[bytes | None]:
    """Texts as they are: what a query takes for text need not be UTF-8."""
    return list(column.cast(pa.binary()).to_pylist())


def _text(value: bytes | None) -> str | None:
    """A text, with a mark in place of what is none: no topic has such a name, nor does a header that was read."""
    return None if value is None else value.decode(errors="replace")


def _header(given: dict[str, Any] | None) -> tuple[str | None, bytes | None]:
    """One header; without a name, which no record can have, where there is none."""
    return (None, None) if given is None else (_text(given["key"]), given["value"])


def _values(name: str, column: pa.Array) -> list[Any]:
    match name:
        case "timestamp":
            times = column.cast(pa.int64()).to_pylist()
            return [None if time is None else time // _MS for time in times]
        case "topic":
            return [None if text is None else _text(text) for text in _bytes(column)]
        case "headers":
            return [
                None if row is None else [_header(each) for each in row]
                for row in column.cast(_HEADERS_AS_BYTES).to_pylist()
            ]
        case _:
            return list(column.to_pylist())
