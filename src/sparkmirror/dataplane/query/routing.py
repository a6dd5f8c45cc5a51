"""Where the records of a partition with a query go: slices of it in, with what the query gave; a piece for each target out.

As with transforms alone, what goes out is a function of what comes in and of the shape: a sequence number stands for a record.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from sparkmirror.dataplane.placing import Placing
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.routing import Parts, Routing, opened
from sparkmirror.dataplane.shape import Shape
from sparkmirror.dataplane.stream import Piece
from sparkmirror.errors import QueryRefused
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.transforms.record import ConnectRecord

from .columns import Prepared
from .desk import Desk, Slice
from .slices import Given

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MOST_PARTITIONS = 1 << 20
_MOST_KNOWN = 256


def _span(piece: Piece) -> tuple[int, int]:
    return piece.first_offset, piece.last_offset


class BadRecord(NamedTuple):
    """A record on which the query raised, or for which it gave what cannot be written."""

    record: ConnectRecord
    message: str


class Outcome(NamedTuple):
    """What becomes of a slice."""

    parts: Parts
    bad: list[BadRecord]


class Portion(NamedTuple):
    """Pieces that follow each other, opened."""

    pieces: list[tuple[Piece, int]]
    """Each with the number of its records that are left by the transforms."""
    rows: list[ConnectRecord]


class QueryRouting(Routing):
    """What is done with the records of one source partition that has a query."""

    __slots__ = ("_desk", "_known", "_plan", "_settings", "_spread", "prepared")

    def __init__(
        self, plan: PartitionPlan, shape: Shape, settings: CopySettings, desk: Desk
    ) -> None:
        super().__init__(plan, shape)
        assert shape.query is not None  # noqa: S101 - others are routed without one
        self._plan, self._settings, self._desk = plan, settings, desk
        try:
            self.prepared: Prepared = desk.prepare(shape.query)
        except QueryRefused as error:
            raise QueryRefused(f"{plan}: {error.message}", error.remedy) from error
        self._known: dict[tuple[int, int], Parts] = {}
        """What became of pieces that were asked for one by one, by their offsets."""
        gives = self.prepared.gives
        self._spread = Placing(plan.partition, shape.places or max(1, shape.width))
        if "topic" in gives:
            self.topic = None
        if "topic" in gives or "partition" in gives:
            self.target = None

    # -- before the query -----------------------------------------------------------------------

    def open(self, pieces: Sequence[Piece]) -> Portion:
        """The records of some pieces as the query sees them."""
        found: list[ConnectRecord] = []
        counts: list[tuple[Piece, int]] = []
        for piece in pieces:
            rows = self.rows(piece)
            counts.append((piece, len(rows)))
            found += rows
        return Portion(counts, found)

    def rows(self, piece: Piece) -> list[ConnectRecord]:
        """The records of a piece: behind the transforms, under the name of their source."""
        plan = self._plan
        if self._chain is None:
            topic, partition = plan.topic, plan.partition
            return [
                ConnectRecord(topic, partition, offset, r.timestamp, r.key, r.value, r.headers)
                for offset, r in piece.records_with_offsets()
            ]
        kept, _ = self._transformed(piece, self._chain)
        return [row._replace(topic=plan.topic) if row.topic == plan.remote else row for row in kept]

    def split(self, piece: Piece) -> Parts:
        return next(self.splits([piece]), [])

    def splits(self, pieces: Sequence[Piece]) -> Iterator[Parts]:
        """Of pieces that follow each other: all at once, waited for. What is known already is not asked again.

        Each target of a partition is aligned by itself, with the same pieces.
        """
        known = self._known
        asked = [piece for piece in pieces if _span(piece) not in known]
        portion = self.open(asked)
        if portion.rows:
            answer = self._desk.ask(self.prepared, portion.rows)
            parts = self._parts(portion, answer.given, [])
            found = {_span(piece): parts[number] for number, piece in enumerate(asked)}
        else:
            found = {_span(piece): [] for piece in asked}
        both = known | found  # some of these are forgotten next
        wanted = {_span(piece): both[_span(piece)] for piece in pieces}
        while known and len(known) + len(wanted) > _MOST_KNOWN:
            known.pop(next(iter(known)))
        known |= dict(list(wanted.items())[-_MOST_KNOWN:])
        yield from wanted.values()

    # -- behind the query -----------------------------------------------------------------------

    def outcome(self, portion: Portion, answer: Slice) -> Outcome:
        """The records that go on, by target; and those that cannot."""
        rows = portion.rows
        bad = [BadRecord(rows[row], message) for row, message in answer.bad.items()]
        parts = [one for of_piece in self._parts(portion, answer.given, bad) for one in of_piece]
        bad.sort(key=lambda each: each.record.offset)
        return Outcome(parts, bad)

    def _parts(self, portion: Portion, given: Given, bad: list[BadRecord]) -> list[Parts]:
        """The records that go on, by target, of each piece."""
        may_be_whole = not given.columns and self.target is not None and self._chain is None
        written = self._written(portion.rows, given, bad)
        found: list[Parts] = []
        start = at = 0
        for piece, count in portion.pieces:
            end = bisect.bisect_left(given.rows, start + count, at)
            if may_be_whole and end - at == piece.count and self.target is not None:
                found.append([(self.target, piece)])  # it need not be written anew
            else:
                found.append(_by_target(piece, filter(None, written[at:end])))
            start, at = start + count, end
        return found

    def _written(
        self, rows: Sequence[ConnectRecord], given: Given, bad: list[BadRecord]
    ) -> list[ConnectRecord | None]:
        """The records that the query kept as they are to be written, each under the name of the topic that it goes to."""
        columns = given.columns
        chosen = [rows[row] for row in given.rows]
        keys: Any = columns.get("key") or [row.key for row in chosen]
        values: Any = columns.get("value") or [row.value for row in chosen]
        if columns.keys() <= {"key", "value"} and not self.places and self._chain is None:
            topic, partition = self._plan.remote, self._partition
            return [
                ConnectRecord(topic, partition, row.offset, row.timestamp, key, value, row.headers)
                for row, key, value in zip(chosen, keys, values, strict=True)
            ]
        topics: Any = columns.get("topic") or [row.topic for row in chosen]
        times: Any = columns.get("timestamp") or [row.timestamp for row in chosen]
        headers: Any = columns.get("headers") or [row.headers for row in chosen]
        own = None if self.places else self._partition
        places: Any = columns.get("partition") or repeat(own, len(chosen))
        found: list[ConnectRecord | None] = []
        for row, topic, place, *rest in zip(
            chosen, topics, places, times, keys, values, headers, strict=True
        ):
            problem = _problem(topic, place, rest[0], rest[3])
            if problem:
                bad.append(BadRecord(row, problem))
                found.append(None)
                continue
            rest[3] = rest[3] or []
            made = ConnectRecord(self._named(row.topic, topic), place or 0, row.offset, *rest)
            if place is None:
                made = made._replace(partition=self._spread.of([made])[0])
            found.append(made)
        return found

    def _named(self, before: str, topic: str) -> str:
        """A topic that the query leaves alone is called as without it; one that it names goes through the policy."""
        remote_name = self._settings.remote_name
        if topic != before:
            return topic if remote_name is None else remote_name(topic)
        return self._plan.remote if topic == self._plan.topic else topic


def _problem(topic: str | None, partition: int | None, timestamp: int | None, headers: Any) -> str:
    """Why a record cannot be written; empty if it can."""
    if topic is None or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return f"The query gives {topic!r} as topic, which is no name for one."
    if partition is not None and not 0 <= partition < _MOST_PARTITIONS:
        return f"The query gives {partition} as partition."
    if timestamp is None:
        return "The query gives no timestamp."
    if headers and any(name is None for name, _ in headers):
        return "The query gives a header without a key."
    return ""


def _by_target(piece: Piece, records: Iterable[ConnectRecord]) -> Parts:
    found: dict[TopicPartition, list[ConnectRecord]] = {}
    for record in records:
        target = record.topic, record.partition
        part = found.get(target)
        if part is None:
            found[target] = [record]
        else:
            part.append(record)
    return [(target, opened(piece, part)) for target, part in found.items()]
