"""What a query gave of a slice: Arrow in; the rows that it kept, and its columns, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from .columns import NUMBER, row_of

_HEADERS_AS_BYTES = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_MS = 1000


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
