"""Where the records of a partition with a query go: slices of it in, with what the query gave; a piece for each target out.

As with transforms alone, what goes out is a function of what comes in and of the shape: a sequence number stands for a record.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from sparkmirror.dataplane.placing import Placing
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.routing import Parts, Routing, opened
from sparkmirror.dataplane.shape import Shape
from sparkmirror.dataplane.stream import OPENED_AT_ONCE, Piece
from sparkmirror.errors import QueryRefused
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.records import RecordColumns
from sparkmirror.transforms.chain import TopicChain
from sparkmirror.transforms.record import ConnectRecord

from .columns import Prepared
from .desk import Desk
from .parts import Slice
from .rows import Rows
from .slices import NOTHING_GIVEN, Given

_LONGEST = 249
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{_LONGEST}}}")
_MOST_KNOWN = 256
_PORTION_BYTES = 1 << 20
_PORTION_ROWS = 1 << 16


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
    rows: Rows


class QueryRouting(Routing):
    """What is done with the records of one source partition that has a query."""

    __slots__ = ("_desk", "_known", "_plan", "_settings", "_spread", "_width", "prepared")

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
        # How many partitions there are to choose from. Not those of the target: they may be others when a record is put through
        # the query again, and what becomes of it must be the same.
        self._width = shape.places or max(shape.width, plan.partition + 1)
        if "topic" in gives:
            self.topic = None
        if "topic" in gives or "partition" in gives:
            self.target = None

    # -- before the query -----------------------------------------------------------------------

    def open(self, pieces: Sequence[Piece]) -> Portion:
        """The records of some pieces as the query sees them: of the first ones, if all would be too much at once."""
        chain, plan = self._chain, self._plan
        read: list[Any] = []
        offsets: list[int] = []
        counts: list[tuple[Piece, int]] = []
        held = 0
        for piece in pieces:
            if chain is None:
                rows: Any = piece.records()
                offsets += piece.offsets(rows)
            else:
                rows = self._renamed(piece, chain)
            counts.append((piece, len(rows)))
            read += rows
            held += piece.held
            if held > OPENED_AT_ONCE:
                break
        if chain is None:
            return Portion(counts, Rows(read, plan.topic, plan.partition, offsets))
        return Portion(counts, Rows(read))

    def _renamed(self, piece: Piece, chain: TopicChain) -> list[ConnectRecord]:
        """The records of a piece behind the transforms; those that these leave in their topic, under its name at the source."""
        topic, remote = self._plan.topic, self._plan.remote
        kept, _ = self._transformed(piece, chain)
        return [row._replace(topic=topic) if row.topic == remote else row for row in kept]

    def split(self, piece: Piece) -> Parts:
        return next(self.splits([piece]), [])

    def splits(self, pieces: Sequence[Piece]) -> Iterator[Parts]:
        """Of pieces that follow each other: all at once, waited for. What is known already is not asked again.

        Each target of a partition is aligned by itself, with the same pieces.
        """
        known = self._known
        asked = [piece for piece in pieces if _span(piece) not in known]
        both = dict(known)  # some of these are forgotten next
        opened_up = list(self._portions(asked))
        answers = iter(
            self._desk.ask_all(self.prepared, [each.rows for each in opened_up if each.rows])
        )
        for portion in opened_up:
            given = next(answers).given if portion.rows else NOTHING_GIVEN
            for (piece, _), parts in zip(
                portion.pieces, self._parts(portion, given, []), strict=True
            ):
                both[_span(piece)] = parts
        wanted = {_span(piece): both[_span(piece)] for piece in pieces}
        while known and len(known) + len(wanted) > _MOST_KNOWN:
            known.pop(next(iter(known)))
        known |= dict(list(wanted.items())[-_MOST_KNOWN:])
        yield from wanted.values()

    def _portions(self, pieces: Sequence[Piece]) -> Iterator[Portion]:
        for some in portions(pieces):
            left = some
            while left:
                portion = self.open(left)
                left = left[len(portion.pieces) :]
                yield portion

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
        is_own = self.target is not None and self._chain is None
        may_be_whole = is_own and not given.columns
        if may_be_whole and len(given.rows) == len(portion.rows):  # none need be written anew
            return [[(self.target, piece)] if self.target else [] for piece, _ in portion.pieces]
        written = self._written(portion.rows, given, bad)
        found: list[Parts] = []
        start = at = 0
        for piece, count in portion.pieces:
            end = bisect.bisect_left(given.rows, start + count, at)
            if may_be_whole and end - at == piece.count and self.target is not None:
                found.append([(self.target, piece)])  # it need not be written anew
            elif is_own and self.target is not None:
                rows = _fine(written[at:end])
                found.append([(self.target, opened(piece, rows))] if rows else [])
            else:
                found.append(_by_target(piece, _fine(written[at:end])))
            start, at = start + count, end
        return found

    def _written(
        self, rows: Rows, given: Given, bad: list[BadRecord]
    ) -> RecordColumns | Sequence[ConnectRecord | None]:
        """The records that the query kept as they are to be written: by columns where all go to one partition that is known, else
        each under the name of the topic that it goes to."""
        count = len(given.rows)
        own, columns = _own_columns(rows, given), given.columns
        content = [
            columns.get(name) or own(name) for name in ("timestamp", "key", "value", "headers")
        ]
        if columns.keys() <= {"key", "value"} and self.target is not None and self._chain is None:
            return RecordColumns(own("offset"), *content)
        before = own("topic")
        topics: Any = columns.get("topic") or before
        places: Any = columns.get("partition") or repeat(
            None if self.places else self._partition, count
        )
        found: list[ConnectRecord | None] = []
        for number, old, topic, place, offset, *rest in zip(
            given.rows, before, topics, places, own("offset"), *content, strict=True
        ):
            name = topic and self._named(old, topic)
            problem = self._problem(topic, name, place, rest[0], rest[3])
            if problem:
                bad.append(BadRecord(rows[number], problem))
                found.append(None)
                continue
            rest[3] = rest[3] or []
            made = ConnectRecord(name, place or 0, offset, *rest)
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

    def _problem(
        self,
        topic: str | None,
        name: str,
        partition: int | None,
        timestamp: int | None,
        headers: Any,
    ) -> str:
        """Why a record cannot be written to a topic, which has this name there; empty if it can."""
        if topic is None or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            return f"The query gives {topic!r} as topic, which is no name for one."
        if len(name) > _LONGEST:
            return f"The query gives {topic!r} as topic, which as {name!r} is longer than {_LONGEST} characters."
        if partition is not None and not 0 <= partition < self._width:
            own, last = self._plan.topic, self._width - 1
            what, more = own, "set target.partitions, or add partitions to it"
            if self.places:
                what, more = f"the copy of {own}", "raise target.partitions"
            return (
                f"The query gives {partition} as partition; {what} has {self._width} (0 to {last}). Give one of these, or null; "
                f"to have more of them, {more}."
            )
        if timestamp is None:
            return "The query gives no timestamp."
        if headers and any(key is None for key, _ in headers):
            return "The query gives a header without a key."
        return ""


def portions(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces that follow each other, as many at once as are worth it."""
    found: list[Piece] = []
    size = count = 0
    for piece in pieces:
        size += len(piece.view)
        count += piece.count
        if found and (size > _PORTION_BYTES or count > _PORTION_ROWS):
            yield found
            found, size, count = [], len(piece.view), piece.count
        found.append(piece)
    if found:
        yield found


def _own_columns(rows: Rows, given: Given) -> Callable[[str], Sequence[Any]]:
    """The columns of the records that were kept, as they were."""
    chosen = given.rows
    if len(chosen) == len(rows):
        return rows.column

    def column(name: str) -> Sequence[Any]:
        values = rows.column(name)
        return [values[row] for row in chosen]

    return column


def _fine(written: Sequence[ConnectRecord | None] | RecordColumns) -> Any:
    """Without those that cannot be written."""
    if isinstance(written, RecordColumns):
        return written
    return [row for row in written if row is not None]


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
