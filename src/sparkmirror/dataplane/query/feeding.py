"""What Spark is given of records: rows of a slice in; Arrow with what a query looks at out.

Fields of JSON are read here, so that the documents need not go to Spark.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sparkmirror.transforms.record import ConnectRecord

from .columns import NUMBER, TYPES, Feed, Prepared, left, missing, place, unfit
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


class Fed:
    """What a query is given of some rows: each column beside the number, None for one in which there is nothing."""

    __slots__ = ("_columns", "_count", "_feed")

    def __init__(self, feed: Feed, columns: Sequence[Sequence[Any] | None], count: int) -> None:
        self._feed, self._columns, self._count = feed, columns, count

    def arrow(self, first: int) -> memoryview:
        """With the rows numbered from `first` on."""
        schema = schema_of(self._feed)
        numbers = _whole(range(first, first + self._count), pa.int64())
        columns = [
            pa.nulls(self._count, kind.type) if values is None else _column(kind, values)
            for kind, values in zip(list(schema)[1:], self._columns, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays([numbers, *columns], schema=schema)
        return memoryview(batch.serialize())

    @property
    def keys(self) -> Sequence[Any]:
        """Of each row all that it is given, as one; None if it is given a whole document or text."""
        whole = {left(name) for name in self._feed.fields} | set(map(unfit, self._feed.edited))
        named = list(zip(schema_of(self._feed).names[1:], self._columns, strict=True))
        nothing: Sequence[None] = [None] * self._count
        said = [values or nothing for name, values in named if name not in whole]
        keys: Sequence[Any] = list(zip(*said, strict=True)) if said else [()] * self._count
        for name, values in named:
            if name in whole and values is not None:
                keys = [
                    None if value is not None else key
                    for key, value in zip(keys, values, strict=True)
                ]
        return keys


class Feeder:
    """Feeds one query."""

    def __init__(self, prepared: Prepared) -> None:
        self._whole, self._feed = Feed(prepared.needs), prepared.feed
        # Each column has a reader of its own, since what one of them cannot read others may.
        self._readers = {name: FieldReader(paths) for name, paths in self._feed.fields.items()}

    def fed(
        self, rows: Sequence[ConnectRecord], *, is_careful: bool = False, is_rest: bool = False
    ) -> Fed:
        """What the query is given of these rows. The careful plan gets what it needs as it is. `is_rest`: some of a slice."""
        feed = self._whole if is_careful else self._feed
        columns: list[Sequence[Any] | None] = [
            column(rows, name) for name in TYPES if name in feed.columns
        ]
        for name in feed.fields:
            unread, texts = self._readers[name].read(column(rows, name), is_rest=is_rest)
            columns += [unread, *texts]
        columns += [_unfit(column(rows, name)) for name in sorted(feed.edited)]
        columns += [[v is None for v in column(rows, name)] for name in sorted(feed.nulls)]
        return Fed(feed, columns, len(rows))


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
    fields += [(missing(name), pa.bool_()) for name in sorted(feed.nulls)]
    return pa.schema(fields)


def _whole(numbers: Any, kind: pa.DataType) -> pa.Array:
    buffer = pa.py_buffer(array("q", numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, buffer])


def _column(kind: pa.Field, values: Sequence[Any]) -> pa.Array:
    match kind.name:
        case "offset":
            return _whole(values, kind.type)
        case "timestamp":
            # A time beyond what Spark can hold is the last that it can; the record keeps its own.
            times = [max(-_MOST_MS, min(time, _MOST_MS)) * _MS for time in values]
            return _whole(times, kind.type)
        case "headers":
            headers = [[{"key": k, "value": v} for k, v in row] for row in values]
            return pa.array(headers, kind.type)
        case _:
            return pa.array(values, kind.type)


def _unfit(values: Sequence[bytes | None]) -> Sequence[bytes | None] | None:
    """The texts that are none; None if all are."""
    if all(map(bytes.isascii, filter(None, values))):  # nearly always, and told fast
        return None
    unfit_ones = [None if value is None or is_text(value) else value for value in values]
    return unfit_ones if any(value is not None for value in unfit_ones) else None
