"""What Spark is given of records: rows of a slice in; Arrow with what a query looks at out.

Fields of JSON are read here, so that the documents need not go to Spark.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sparkmirror.transforms.record import ConnectRecord

from .columns import NUMBER, TYPES, Feed, Prepared, left, place, unfit
from .edits import is_text
from .fields import FieldReader
from .rows import column

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_ARROW = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(_HEADER),
}
_LEAST_BYTES = 32
_MS = 1000
_MOST_MS = ((1 << 63) - 1) // _MS


class Feeder:
    """Feeds one query."""

    def __init__(self, prepared: Prepared) -> None:
        self._whole, self._feed = Feed(prepared.needs), prepared.feed
        # Each column has a reader of its own, since what one of them cannot read others may.
        self._readers = {name: FieldReader(paths) for name, paths in self._feed.fields.items()}

    def arrow(self, rows: Sequence[ConnectRecord], first: int, *, is_careful: bool) -> memoryview:
        """What the query is given of the rows, numbered from `first` on. The careful plan gets what it needs as it is."""
        feed = self._whole if is_careful else self._feed
        columns = [_whole(range(first, first + len(rows)), pa.int64())]
        columns += [_column(name, column(rows, name)) for name in TYPES if name in feed.columns]
        for name in feed.fields:
            columns += self._readers[name].columns(column(rows, name))
        for name in sorted(feed.edited):
            columns.append(_unfit(column(rows, name)))
        batch = pa.RecordBatch.from_arrays(columns, schema=schema_of(feed))
        return memoryview(batch.serialize())


def weight(rows: Sequence[ConnectRecord]) -> int:
    """How many bytes records are, whatever Spark is given of them: so much of them is held until a job is done."""
    return sum(
        _LEAST_BYTES * len(rows) + sum(map(len, filter(None, column(rows, name))))
        for name in ("key", "value")
    )


def schema_of(feed: Feed) -> pa.Schema:
    """How it is given that."""
    fields = [(NUMBER, pa.int64()), *((n, _ARROW[n]) for n in TYPES if n in feed.columns)]
    for name, paths in feed.fields.items():
        fields.append((left(name), pa.binary()))
        fields += [(place(name, path), pa.string()) for path in paths]
    fields += [(unfit(name), pa.binary()) for name in sorted(feed.edited)]
    return pa.schema(fields)


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


def _unfit(values: Sequence[bytes | None]) -> pa.Array:
    if all(map(bytes.isascii, filter(None, values))):  # nearly always, and told fast
        return pa.nulls(len(values), pa.binary())
    fit = [None if value is None or is_text(value) else value for value in values]
    return pa.array(fit, pa.binary())
