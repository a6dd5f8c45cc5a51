"""What a query sees and gives: the columns of the view `records`, their types in Spark and in Arrow, and a record's number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

VIEW: Final = "records"
NUMBER: Final = "__record"
"""A column that no query sees: who gave the record out, in which slice, and which of its rows it is."""
STATE: Final = "__state"
"""Beside the number, in a result in which each record was looked at by itself: what became of it."""
KEPT, DROPPED, RAISED = 0, 1, 2
ERROR: Final = "__error"
"""And what a function said that raised on it; null if it was none."""
TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
GIVEN: Final = ("topic", "partition", "timestamp", "key", "value", "headers")
"""What a query may give; `offset` is the source's, and stays so."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What Spark is given of every record beside its number: some columns as they are, and fields of those that hold JSON.

    Invariants: a field of the JSON in a column is null for a record whose whole document is in the column `left(column)`. What is
    in `unfit(column)` is not UTF-8. `missing(column)` says whether the record has none.
    """

    columns: frozenset[str] = frozenset(TYPES)
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column, the paths of the fields, as `$.a.b`."""
    edited: frozenset[str] = frozenset()
    """The columns whose texts are edited behind Spark, which is given those that are none."""
    nulls: frozenset[str] = frozenset()
    """The columns of which it is only said whether there is something in them."""

    @property
    def schema(self) -> str:
        types = {NUMBER: "bigint"} | {n: t for n, t in TYPES.items() if n in self.columns}
        for column, paths in self.fields.items():
            types[left(column)] = "binary"
            types |= dict.fromkeys((place(column, path) for path in paths), "string")
        types |= dict.fromkeys(map(unfit, sorted(self.edited)), "binary")
        types |= dict.fromkeys(map(missing, sorted(self.nulls)), "boolean")
        return ", ".join(f"`{name}` {kind}" for name, kind in types.items())

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "columns": sorted(self.columns),
            "fields": self.fields,
            "edited": sorted(self.edited),
            "nulls": sorted(self.nulls),
        }

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Self:
        fields = {column: tuple(paths) for column, paths in plain["fields"].items()}
        edited, nulls = frozenset(plain["edited"]), frozenset(plain["nulls"])
        return cls(frozenset(plain["columns"]), fields, edited, nulls)


def left(column: str) -> str:
    """Where a record has its document if its fields were not read."""
    return f"__{column}"


def place(column: str, path: str) -> str:
    """Where a record has a field."""
    return f"__{column}{path}"


def unfit(column: str) -> str:
    """Where a record has a text that is none."""
    return f"__{column}~"


def missing(column: str) -> str:
    """Where it is said of a record whether it has none."""
    return f"__{column}?"


class Edit(NamedTuple):
    """How a text is made of a record's own: by replacing what matches, several times in turn."""

    column: str
    replacements: tuple[tuple[str, str], ...]
    """Patterns and what takes the place of a match, as RE2 writes them."""


_ROW_BITS = 20
_SLICE_BITS = 27
MOST_ROWS: Final = 1 << _ROW_BITS
_ROW = MOST_ROWS - 1
_SLICE = (1 << _SLICE_BITS) - 1


MOST_DESKS: Final = (1 << (63 - _ROW_BITS - _SLICE_BITS)) - 1


def first_number(desk: int, piece: int) -> int:
    """The number of the first row of a slice; the others follow."""
    return desk << (_ROW_BITS + _SLICE_BITS) | (piece & _SLICE) << _ROW_BITS


def desk_of(number: int) -> int:
    return number >> (_ROW_BITS + _SLICE_BITS)


def slice_of(number: int) -> int:
    return number >> _ROW_BITS & _SLICE


def row_of(number: int) -> int:
    return number & _ROW


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known of a query that was looked at: which columns it needs, and which it gives anew."""

    number: int
    needs: frozenset[str]
    gives: frozenset[str]
    """Of `GIVEN`, those that may differ from the record's own."""
    feed: Feed
    """What it is given of a record; made of what it needs."""
    edits: Mapping[str, Edit] = field(default_factory=dict)
    """Of `gives`, those that are made behind Spark."""
    is_steady: bool = False
    """Whether it surely says the same of what is the same, whenever it is asked."""

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "query": self.number,
            "needs": sorted(self.needs),
            "gives": sorted(self.gives),
            "feed": self.feed.plain,
            "edits": self.edits,
            "steady": self.is_steady,
        }

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Self:
        edits = {
            name: Edit(column, tuple((pattern, text) for pattern, text in replacements))
            for name, (column, replacements) in fields["edits"].items()
        }
        needs, gives = frozenset(fields["needs"]), frozenset(fields["gives"])
        feed = Feed.read(fields["feed"])
        return cls(fields["query"], needs, gives, feed, edits, is_steady=fields["steady"])
