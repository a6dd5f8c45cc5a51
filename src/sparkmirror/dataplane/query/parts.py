"""Records on their way through a query: rows of a partition in; what the query gave of them, once all is known, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from sparkmirror.errors import QueryFailed
from sparkmirror.transforms.record import ConnectRecord

from .columns import MOST_ROWS
from .slices import Given


class Slice:
    """Rows of one partition on their way through a query.

    Invariants: `given` and `bad` hold what came of the rows so far, by their place in `rows`; it is whole when that is so of all.
    """

    __slots__ = ("_left", "_parts", "bad", "rows", "taker")

    def __init__(self, rows: Sequence[ConnectRecord], taker: Taker) -> None:
        self.rows = rows
        self.taker = taker
        self.bad: dict[int, str] = {}
        """The rows on which the query raised, and what it said."""
        self._parts: list[tuple[Sequence[int], Given]] = []
        self._left = len(rows)

    def passed(self, start: int, count: int, given: Given) -> bool:
        """What came of `count` rows from one on; whether that was the last of it."""
        return self.taken(range(start, len(self.rows)), count, given)

    def taken(self, places: Sequence[int], count: int, given: Given) -> bool:
        """What came of `count` rows, which `given` has by their number among these places."""
        self._parts.append((places, given))
        self._left -= count
        return not self._left

    def refused(self, row: int, message: str) -> bool:
        self.bad[row] = message
        self._left -= 1
        return not self._left

    @property
    def given(self) -> Given:
        """What the query gave, in the order of the rows."""
        if len(self._parts) == 1 and len(self._parts[0][0]) == len(self.rows):
            return self._parts[0][1]
        rows: list[int] = []
        columns: dict[str, list[Any]] = {}
        for places, part in self._parts:
            rows += [places[row] for row in part.rows]
            for name, values in part.columns.items():
                columns.setdefault(name, []).extend(values)
        order = sorted(range(len(rows)), key=rows.__getitem__)
        return chosen(Given(rows, columns), order)


def chosen(given: Given, order: Sequence[int]) -> Given:
    rows, columns = given
    return Given(
        [rows[index] for index in order],
        {name: [values[index] for index in order] for name, values in columns.items()},
    )


class Taker(Protocol):
    """Who has records for a query, and wants to hear what came of them. Called from the loop of the copy task."""

    def next_slice(self) -> Slice | None:
        """The next records, if there are any."""

    def answered(self, piece: Slice) -> None:
        """All is known of it."""

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        """Nothing will be known of it."""

    @property
    def is_wanting(self) -> bool:
        """Whether it has records that were not given out."""


class Part(NamedTuple):
    """Rows of a slice as they are given out."""

    piece: Slice
    places: Sequence[int]
    alike: tuple[int, ...] = ()
    """Of one row that is tried alone: others that the query raised on with it."""
    crashes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its slice."""
        return len(self.places) == len(self.piece.rows)

    @property
    def rows(self) -> Sequence[ConnectRecord]:
        rows = self.piece.rows
        return rows if self.is_whole else [rows[place] for place in self.places]

    def halves(self) -> tuple[Part, Part]:
        middle = len(self.places) // 2
        return Part(self.piece, self.places[:middle]), Part(self.piece, self.places[middle:])


def parts_of(piece: Slice, places: Sequence[int]) -> list[Part]:
    """Rows of a slice in parts whose rows can be numbered: one, but for the largest of batches."""
    return [
        Part(piece, places[start : start + MOST_ROWS]) for start in range(0, len(places), MOST_ROWS)
    ]
