"""A desk without Spark: queries are functions in Python; slices go through Arrow as they do on their way to Spark and back.

Who tests decides when slices are taken and in which order they are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from sparkmirror.dataplane.partition import Budget
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.query.columns import NUMBER, Feed, Prepared, first_number
from sparkmirror.dataplane.query.copy import QueryCopy
from sparkmirror.dataplane.query.dead_letters import DeadLetters
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.feeding import Feeder, schema_of
from sparkmirror.dataplane.query.parts import Slice, Taker
from sparkmirror.dataplane.query.routing import QueryRouting
from sparkmirror.dataplane.query.slices import from_arrow
from sparkmirror.dataplane.query.terms import BadRecords, QueryLimits, QuerySettings, QueryTerms
from sparkmirror.dataplane.record_path import RecordCopy
from sparkmirror.dataplane.routing import Routings
from sparkmirror.dataplane.sending import Sender
from sparkmirror.errors import QueryFailed, QueryRefused
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.transforms.chain import TransformChain
from sparkmirror.transforms.record import ConnectRecord
from tests.unit.dataplane.two_clusters import Copier, World

Row = dict[str, Any]
ALL = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})


@dataclass(frozen=True)
class Query:
    """What a query does: a row in, the columns that it gives out; None drops the row, ValueError is a bad record.

    Times are microseconds, as in Spark.
    """

    gives: frozenset[str]
    apply: Callable[[Row], Row | None]
    needs: frozenset[str] = ALL


def settings_of(
    sql: str, *, are_tolerated: bool = False, chain: TransformChain | None = None, **more: Any
) -> CopySettings:
    query, bad = (
        QuerySettings(QueryTerms(sql), QueryLimits()),
        BadRecords(are_tolerated=are_tolerated),
    )
    return CopySettings(transforms=chain, query=query, bad=bad, remote_name=remote_name, **more)


def remote_name(topic: str) -> str:
    return f"A.{topic}"


@dataclass(eq=False)
class FakeDesk:
    """Implements what copies use of a `Desk`."""

    queries: Mapping[str, Query]
    takers: dict[Taker, Prepared] = field(default_factory=dict)
    out: list[tuple[Prepared, Slice]] = field(default_factory=list)
    _known: dict[str, Prepared] = field(default_factory=dict)

    def prepare(self, terms: QueryTerms) -> Prepared:
        query = self.queries.get(terms.sql)
        if query is None:
            raise QueryRefused(f"There is no {terms.sql}.", "Write another one.")
        known = Prepared(len(self._known), query.needs, query.gives, Feed(query.needs))
        return self._known.setdefault(terms.sql, known)

    def offer(self, prepared: Prepared, taker: Taker) -> None:
        self.takers[taker] = prepared

    def forget(self, taker: Taker) -> None:
        self.takers.pop(taker, None)
        self.out = [(p, piece) for p, piece in self.out if piece.taker is not taker]

    def ask(self, prepared: Prepared, rows: Sequence[ConnectRecord]) -> Slice:
        piece = Slice(rows, cast(Taker, None))
        assert self._evaluate(prepared, piece)
        return piece

    def ask_all(
        self, prepared: Prepared, portions: Sequence[Sequence[ConnectRecord]]
    ) -> list[Slice]:
        return [self.ask(prepared, rows) for rows in portions]

    # -- what the driver and Spark do ---------------------------------------------------------

    def take(self, count: int = 1 << 30) -> None:
        """Have so many slices given out."""
        while self.takers and count > 0:
            taker = next(iter(self.takers))
            prepared = self.takers[taker]
            piece = taker.next_slice()
            if not taker.is_wanting:
                self.takers.pop(taker, None)
            if piece is not None:
                self.out.append((prepared, piece))
                count -= 1

    def answer(self, place: int = 0) -> None:
        """Answer one of those that are out, in any order."""
        if self.out:
            prepared, piece = self.out.pop(place % len(self.out))
            assert self._evaluate(prepared, piece)
            piece.taker.answered(piece)

    def fail(self, place: int, message: str) -> None:
        _, piece = self.out.pop(place)
        piece.taker.failed(piece, QueryFailed(message, "Wait."))

    def _evaluate(self, prepared: Prepared, piece: Slice) -> bool:
        """In halves where a record is bad, as it is when records are suspects; whether all is known then."""
        sql = next(sql for sql, known in self._known.items() if known == prepared)
        return _passed(self.queries[sql], prepared, piece, 0, piece.rows)


def _passed(
    query: Query, prepared: Prepared, piece: Slice, start: int, rows: Sequence[ConnectRecord]
) -> bool:
    try:
        arrow = Feeder(prepared).fed(rows).arrow(first_number(3, 5))
        result = _result(query, arrow)
    except ValueError as error:
        if len(rows) == 1:
            return piece.refused(start, str(error))
        middle = len(rows) // 2
        _passed(query, prepared, piece, start + middle, rows[middle:])
        return _passed(query, prepared, piece, start, rows[:middle])
    return piece.passed(start, len(rows), from_arrow([result]))


def _result(query: Query, sent: memoryview) -> pa.RecordBatch:
    table = pa.ipc.read_record_batch(pa.py_buffer(sent), schema_of(Feed(query.needs)))
    if "timestamp" in query.needs:  # Python has no times after the year 9999
        times = table.column("timestamp").cast(pa.int64())
        table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", times)
    rows = [(row[NUMBER], query.apply(row)) for row in table.to_pylist()]
    given = [
        {NUMBER: number, **{name: found[name] for name in query.gives}}
        for number, found in rows
        if found is not None
    ]
    fields = [each for each in schema_of(Feed()) if each.name in (NUMBER, *query.gives)]
    return pa.RecordBatch.from_pylist(given, schema=pa.schema(fields))


class QueryCopier(Copier):
    """A copy of a partition with a query."""

    def __init__(
        self,
        world: World,
        settings: CopySettings,
        queries: Mapping[str, Query],
        width: int = 1,
        letters: DeadLetters | None = None,
    ) -> None:
        self.desk = FakeDesk(queries)
        desk = cast(Desk, self.desk)
        self._routings = Routings(lambda plan, shape: QueryRouting(plan, shape, settings, desk))
        none = DeadLetters(settings.bad, "c", cast(Cluster, None), cast(Sender, None))
        self.letters = none if letters is None else letters
        plan = replace(world.plan, queried=settings.query is not None, width=width)
        super().__init__(world, settings, plan, routings=self._routings)

    def _new_copy(self, plan: PartitionPlan, settings: CopySettings, stamp: int) -> RecordCopy:
        desk, letters = cast(Desk, self.desk), self.letters
        return QueryCopy(
            plan, settings, Budget(1 << 30), self, stamp, self._routings, desk, letters
        )

    def evaluate(self) -> None:
        """Let the query get through with all that there is."""
        self.copy.offer_to(self)
        self.desk.take()
        while self.desk.out:
            self.desk.answer()
        self._settle()

    def work(self) -> None:
        self.feed(5)
        self.evaluate()
        self.send(9)
        self.answer(9)

    def converge(self) -> QueryCopier:
        for _ in range(500):
            self.work()
            if self.is_done:
                return self
        raise AssertionError("it does not converge")
