"""What a query has said already: what Spark was given of records, and its answers, in; answers to the same, without Spark, out.

A query that works record by record says the same of two records of which it is given the same. Where that is only a few short
texts (the country, the tenant, the kind of an event), there are few that differ, and Spark need not be asked twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .columns import Feed, Prepared
from .slices import Given

Keys = Sequence[Hashable | None]
"""Of each row what the query was given of it; None if that is not to be kept."""

_FEW_COLUMNS = frozenset({"topic", "partition"})
_MOST = 8192
_LONGEST = 1024
_ENOUGH = 1024
"""Rows by which it is judged whether asking is worth it."""
_PASS = 32
"""How many times as many rows go by after it was not."""


class Answers:
    """The answers of one query.

    Invariants: each is one that Spark gave, in a job that is done, to exactly this. While `_passing` rows are left, nobody asks:
    most records differ in what the query looks at. That is judged by slices as they come, never by what was left of one.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.may_be_kept = prepared.is_steady and are_few(prepared.feed)
        self._names = sorted(prepared.gives - prepared.edits.keys())
        self._edited = sorted(prepared.edits)
        self._known: dict[Hashable | None, tuple[Any, ...] | None] = {}
        """None for what it drops; for what it keeps, that it does, and what it gives."""
        self._recent: set[Hashable | None] = set()
        """What was asked last, which is the last to be forgotten."""
        self._asked = self._missed = 0
        self._passing = 0

    @property
    def are_of_use(self) -> bool:
        """Whether it is worth asking."""
        return bool(self._known) and self._passing <= 0

    def of(self, keys: Keys) -> tuple[Given, list[int]]:
        """What the query says of the rows of a slice that are known; and which ones are not."""
        known = self._known
        found = [known.get(key, False) for key in keys]
        unknown = [at for at, answer in enumerate(found) if answer is False]
        self._recent = set(keys)
        self._judge(len(keys), len(unknown))
        rows = [at for at, answer in enumerate(found) if answer]
        kept: list[Any] = [found[at] for at in rows] if self._names else []
        columns: dict[str, list[Any]] = {
            name: [answer[at] for answer in kept] for at, name in enumerate(self._names, 1)
        }
        columns |= {name: [None] * len(rows) for name in self._edited}
        return Given(rows, columns if rows else {}), unknown

    def _judge(self, asked: int, missed: int) -> None:
        self._asked += asked
        self._missed += missed
        if self._asked >= _ENOUGH:
            if 2 * self._missed > self._asked:
                self._passing = _PASS * self._asked
            self._asked = self._missed = 0

    def pass_by(self, count: int) -> None:
        """A slice goes to Spark of which nobody has asked here."""
        self._passing = max(0, self._passing - count)

    def learn(self, keys: Keys, given: Given, *, is_rest: bool) -> None:
        """What it said of some rows, before anything was made behind Spark. `is_rest`: of those that were not known."""
        if self._passing and not is_rest:
            return
        last = dict(zip(keys, range(len(keys)), strict=True))
        if not is_rest and len(keys) >= _ENOUGH and 2 * len(last) > len(keys):
            self._passing = _PASS * len(keys)
            return
        new = {key: at for key, at in last.items() if key is not None and key not in self._known}
        if not new:
            return
        places = dict(zip(given.rows, range(len(given.rows)), strict=True))
        columns = [given.columns[name] for name in self._names] if given.rows else []
        if len(self._known) + len(new) > _MOST:
            self._known = {key: said for key, said in self._known.items() if key in self._recent}
        for key, at in new.items():
            place = places.get(at)
            answer = None if place is None else (True, *(values[place] for values in columns))
            if len(self._known) < _MOST and _size(key) + _size(answer) <= _LONGEST:
                self._known[key] = answer


def are_few(feed: Feed) -> bool:
    """Whether a query is given so little of a record that it may well be the same of many."""
    return feed.columns <= _FEW_COLUMNS


def _size(what: Any) -> int:
    """How much it holds, more or less."""
    if isinstance(what, str | bytes):
        return len(what)
    if isinstance(what, tuple | list):
        return 8 + sum(map(_size, what))
    return 8
