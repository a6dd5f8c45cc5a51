"""Columns of a table: their names and types in; Spark's schema, and batches of rows in that schema, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

Type = Literal["STRING", "INT", "BIGINT", "BOOLEAN", "TIMESTAMP"]
Columns = tuple[tuple[str, Type], ...]
Row = tuple[Any, ...]
"""A value for each column; a time is in milliseconds since 1970."""

_ARROW: dict[Type, Any] = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_ROWS = 10_000
"""Of a batch, which is all that a task has of its rows at a time."""


def ddl(columns: Columns) -> str:
    """The schema as Spark takes it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns)


def batches(columns: Columns, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows as they come, as many at a time as a batch takes."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in columns])
    left = iter(rows)
    while found := list(islice(left, _ROWS)):
        values = zip(columns, zip(*found, strict=True), strict=True)
        arrays = [_array(kind, column) for (_, kind), column in values]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: Type, values: Sequence[Any]) -> pa.Array:
    if kind == "TIMESTAMP":
        values = [None if value is None else value * 1000 for value in values]
    return pa.array(values, _ARROW[kind])
