"""Where records go behind a query: what it gives and what it leaves alone, whole batches, and what cannot be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.query import routing as query_routing
from sparkmirror.dataplane.query.columns import Prepared
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.parts import Slice
from sparkmirror.dataplane.query.routing import Outcome, QueryRouting
from sparkmirror.dataplane.routing import Parts
from sparkmirror.dataplane.shape import Shape
from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.errors import QueryRefused
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, TopicPartition
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from sparkmirror.transforms.record import ConnectRecord
from tests.unit.dataplane.query_desk import FakeDesk, Query, Row, settings_of
from tests.unit.making import Content, batch, content, fetched

PLAN = PartitionPlan("t", 1, "A.t", queried=True, width=4)
MILLION = 1_000_000


def query(*gives: str, **values: Any) -> Query:
    """Gives these columns: as they are in the row, or the same value for all."""

    def apply(row: Row) -> Row | None:
        return {name: values.get(name, row[name]) for name in gives}

    return Query(frozenset(gives), apply)


def of(apply: Any, *gives: str) -> Query:
    return Query(frozenset(gives), apply)


def pieces(*sizes: int, key: bytes | None = b"k") -> list[Piece]:
    """Batches of so many records each."""
    views, offset = [], 100
    for size in sizes:
        rows = [
            NewRecord(offset + n, MILLION + n, key, b"v%d" % (offset + n), [("h", None)])
            for n in range(size)
        ]
        views.append(bytes(batch(rows, base=offset, codec=4)))
        offset += size
    return Stream(100, READ_UNCOMMITTED).feed(fetched(views))


def routing(
    asked: Query, plan: PartitionPlan = PLAN, chain: TransformChain | None = None
) -> QueryRouting:
    settings = settings_of("q", chain=chain)
    return QueryRouting(
        plan, Shape.of(plan, settings), settings, cast(Desk, FakeDesk({"q": asked}))
    )


def outcome(found: QueryRouting, given_pieces: Sequence[Piece]) -> Outcome:
    portion = found.open(given_pieces)
    desk = cast(FakeDesk, found._desk)
    return found.outcome(portion, desk.ask(found.prepared, portion.rows))


def contents(parts: Parts) -> dict[TopicPartition, list[Content]]:
    found: dict[TopicPartition, list[Content]] = {}
    for key, piece in parts:
        found.setdefault(key, []).extend(content(row) for row in piece.records())
    return found


def places(parts: Parts) -> dict[int, TopicPartition]:
    """Where the record of each offset goes."""
    return {row.offset: key for key, piece in parts for row in piece.records()}


def offsets(parts: Parts) -> list[int]:
    return [offset for _, piece in parts for offset, _ in piece.records_with_offsets()]


def chain_of(**props: str) -> TransformChain:
    found = TransformChain.parse(
        {"transforms": "x", **{f"transforms.x.{k}": v for k, v in props.items()}}
    )
    assert found is not None
    return found


# -- what the query leaves alone ------------------------------------------------------------------------


def test_batches_of_which_nothing_is_changed_are_not_opened_again() -> None:
    given_pieces = pieces(3, 2)
    found = outcome(routing(query()), given_pieces)
    assert [piece for _, piece in found.parts] == given_pieces
    assert {key for key, _ in found.parts} == {("A.t", 1)}
    assert found.bad == []


def test_only_batches_that_lose_a_record_are_written_anew() -> None:
    first, second, third = pieces(3, 2, 1)
    gone = of(lambda row: None if row["offset"] in (103, 105) else {})
    found = outcome(routing(gone), [first, second, third])
    (_, whole), (_, part) = found.parts
    assert whole is first
    assert part is not second
    assert offsets(found.parts) == [100, 101, 102, 104]
    assert (part.count, part.first_offset, part.last_offset) == (1, 104, 104)


def test_what_is_not_given_stays_as_it_was() -> None:
    found = outcome(routing(query("value", value=b"new")), pieces(2))
    assert contents(found.parts) == {
        ("A.t", 1): [(MILLION + n, b"k", b"new", [("h", None)]) for n in range(2)]
    }


def test_all_that_may_be_given() -> None:
    given_all = query(
        *("timestamp", "key", "value", "headers"),
        timestamp=7_000,
        key=None,
        value=None,
        headers=[{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    )
    found = outcome(routing(given_all), pieces(1))
    assert contents(found.parts) == {("A.t", 1): [(7, None, None, [("a", b"1"), ("b", None)])]}


def test_null_headers_are_none() -> None:
    found = outcome(routing(query("headers", headers=None)), pieces(1))
    assert contents(found.parts)["A.t", 1][0][3] == []


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_order_is_kept_and_nothing_is_lost_or_made_up(
    sizes: list[int], data: st.DataObject
) -> None:
    kept = {n: data.draw(st.integers(0, 2)) for n in range(100, 100 + sum(sizes))}

    def apply(row: Row) -> Row | None:
        if kept[row["offset"]] == 2:
            raise ValueError(f"bad {row['offset']}")
        return {"value": b"!" + row["value"]} if kept[row["offset"]] else None

    found = outcome(routing(of(apply, "value")), pieces(*sizes))
    assert offsets(found.parts) == [n for n, kind in kept.items() if kind == 1]
    assert [(b.record.offset, b.message) for b in found.bad] == [
        (n, f"bad {n}") for n, kind in kept.items() if kind == 2
    ]
    assert all(row.value == b"!v%d" % row.offset for _, p in found.parts for row in p.records())
    assert all(bad.record.value == b"v%d" % bad.record.offset for bad in found.bad)


def test_nothing_kept_is_nothing() -> None:
    found = outcome(routing(of(lambda row: None, "value")), pieces(2, 2))
    assert found == Outcome([], [])
    assert list(routing(of(lambda row: None, "value")).splits([])) == []


# -- topics ---------------------------------------------------------------------------------------------


def test_topics_that_the_query_names_go_through_the_policy() -> None:
    def by_offset(row: Row) -> Row:
        return {"topic": "t" if row["offset"] == 100 else f"{row['topic']}.{row['offset'] % 2}"}

    asked = routing(of(by_offset, "topic"))
    assert (asked.topic, asked.target) == (None, None)
    found = outcome(asked, pieces(3, 2))
    assert [key for key, _ in found.parts] == [
        ("A.t", 1),  # its own, as without a query
        ("A.t.1", 1),
        ("A.t.0", 1),
        ("A.t.1", 1),
        ("A.t.0", 1),
    ]


def test_a_query_that_names_no_topic_has_one_target() -> None:
    asked = routing(query("value"))
    assert (asked.topic, asked.target) == ("A.t", ("A.t", 1))
    placed = routing(query("partition"))
    assert (placed.topic, placed.target) == ("A.t", None)


@pytest.mark.parametrize("name", [None, "", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_what_is_no_name_for_a_topic_is_a_bad_record(name: str | None) -> None:
    found = outcome(routing(query("topic", topic=name)), pieces(2))
    assert found.parts == []
    assert [bad.record.offset for bad in found.bad] == [100, 101]
    assert "topic" in found.bad[0].message


@pytest.mark.parametrize(("length", "is_bad"), [(247, False), (248, True), (249, True)])
def test_a_name_that_is_too_long_behind_the_policy_is_a_bad_record(
    length: int, is_bad: bool
) -> None:
    found = outcome(routing(query("topic", topic="x" * length)), pieces(1))
    assert bool(found.bad) == is_bad
    assert [len(topic) for (topic, _), _ in found.parts] == ([] if is_bad else [249])
    assert all("longer than 249" in bad.message for bad in found.bad)


# -- partitions -----------------------------------------------------------------------------------------


@given(st.binary(max_size=12), st.integers(1, 40))
def test_without_a_partition_the_key_decides_as_with_kafkas_producer(
    key: bytes, width: int
) -> None:
    asked = routing(query("partition", "key", partition=None, key=key), replace(PLAN, width=width))
    ((place, _),) = outcome(asked, pieces(2)).parts
    assert place == ("A.t", (murmur2(key) & 0x7FFFFFFF) % width)


def test_without_key_and_partition_records_are_spread_alike_each_time() -> None:
    asked = routing(query("partition", partition=None))
    found = outcome(asked, pieces(400, key=None))
    assert len({key for key, _ in found.parts}) == 4
    again = outcome(routing(query("partition", partition=None)), pieces(150, 250, key=None))
    assert places(again.parts) == places(found.parts)


def test_a_partition_that_is_given_is_taken() -> None:
    asked = of(lambda row: {"partition": row["offset"] % 3}, "partition")
    found = outcome(routing(asked), pieces(6))
    assert {key: len(rows) for key, rows in contents(found.parts).items()} == {
        ("A.t", 0): 2,
        ("A.t", 1): 2,
        ("A.t", 2): 2,
    }


@pytest.mark.parametrize("number", [-1, 4, 1 << 30])
@pytest.mark.parametrize("gives", [("partition",), ("partition", "topic")])
def test_a_partition_that_the_source_has_not_is_a_bad_record(
    number: int, gives: tuple[str, ...]
) -> None:
    asked = query(*gives, partition=number, topic="other")
    found = outcome(routing(asked), pieces(1))
    assert found.parts == []
    said = found.bad[0].message
    assert f"The query gives {number} as partition; t has 4 (0 to 3)" in said
    assert "target.partitions" in said


@pytest.mark.parametrize(("number", "is_bad"), [(1, False), (2, True), (3, True)])
def test_with_target_partitions_those_count(number: int, is_bad: bool) -> None:
    asked = routing(query("partition", partition=number), replace(PLAN, places=2))
    found = outcome(asked, pieces(1))
    assert [key for key, _ in found.parts] == ([] if is_bad else [("A.t", number)])
    assert ["the copy of t has 2 (0 to 1)" in bad.message for bad in found.bad] == [True] * is_bad


def test_records_are_placed_by_the_keys_that_the_query_gives() -> None:
    """With target.partitions the copy has another number of partitions."""
    plan = replace(PLAN, places=7)
    for asked in (query("key", key=b"new"), query("key", "partition", key=b"new", partition=None)):
        ((place, _),) = outcome(routing(asked, plan), pieces(2)).parts
        assert place == ("A.t", (murmur2(b"new") & 0x7FFFFFFF) % 7)
    ((place, _),) = outcome(routing(query(), plan), pieces(2)).parts
    assert place == ("A.t", (murmur2(b"k") & 0x7FFFFFFF) % 7)


# -- what cannot be written -------------------------------------------------------------------------------


def test_a_record_without_a_time_is_bad() -> None:
    found = outcome(routing(query("timestamp", timestamp=None)), pieces(1))
    assert "timestamp" in found.bad[0].message


def test_a_header_without_a_key_is_bad() -> None:
    headers = [{"key": None, "value": b"x"}]
    found = outcome(routing(query("headers", headers=headers)), pieces(1))
    assert "header" in found.bad[0].message


def test_bad_records_of_both_kinds_come_in_order() -> None:
    def apply(row: Row) -> Row:
        if row["offset"] == 101:
            raise ValueError("no")
        return {"topic": "/" if row["offset"] in (100, 102) else "t"}

    found = outcome(routing(of(apply, "topic")), pieces(4))
    assert [bad.record.offset for bad in found.bad] == [100, 101, 102]
    assert offsets(found.parts) == [103]


def test_a_bad_record_is_shown_as_it_came_from_the_source() -> None:
    bad = outcome(routing(query("topic", "value", topic="/", value=b"new")), pieces(1)).bad[0]
    assert bad.record[:6] == ("t", 1, 100, MILLION, b"k", b"v100")


# -- transforms before ------------------------------------------------------------------------------------


def test_the_query_sees_what_transforms_give() -> None:
    chain = chain_of(type="InsertHeader", header="via", **{"value.literal": "x"})
    seen: list[Row] = []

    def apply(row: Row) -> Row:
        seen.append(row)
        return {"value": b"new"}

    found = outcome(routing(of(apply, "value"), chain=chain), pieces(2))
    headers = [("h", None), ("via", b"x")]
    assert contents(found.parts)["A.t", 1] == [
        (MILLION + n, b"k", b"new", headers) for n in range(2)
    ]
    assert [row["topic"] for row in seen] == ["t", "t"]
    assert [[h["key"] for h in row["headers"]] for row in seen] == [["h", "via"]] * 2


def test_records_that_transforms_drop_do_not_come_to_the_query() -> None:
    chain = TransformChain.parse(
        {
            "transforms": "f",
            "transforms.f.type": "Filter",
            "transforms.f.predicate": "marked",
            "predicates": "marked",
            "predicates.marked.type": "HasHeaderKey",
            "predicates.marked.name": "h",
        }
    )
    portion = routing(query("value"), chain=chain).open(pieces(2, 1))
    assert not portion.rows
    assert len(portion.pieces) == 2


def test_a_topic_that_transforms_have_named_stays_so() -> None:
    chain = chain_of(type="RegexRouter", regex="A\\.(.*)", replacement="moved.$1")
    found = outcome(routing(query("value", value=b"new"), chain=chain), pieces(1))
    assert list(contents(found.parts)) == [("moved.t", 1)]
    found = outcome(routing(query(), chain=chain), pieces(1))
    assert list(contents(found.parts)) == [("moved.t", 1)]
    found = outcome(routing(query("topic", topic="other"), chain=chain), pieces(1))
    assert list(contents(found.parts)) == [("A.other", 1)]


# -- the same by another way --------------------------------------------------------------------------------


def test_alignment_sees_the_same_as_the_copy() -> None:
    """What one target gets of some pieces, asked for at once and waited for."""

    def by_offset(row: Row) -> Row | None:
        return {"topic": f"s{row['offset'] % 3}"} if row["offset"] % 4 else None

    asked = routing(of(by_offset, "topic"))
    found = contents(outcome(asked, pieces(5, 3, 4)).parts)
    for key, rows in found.items():
        only = asked.only(key)(pieces(5, 3, 4))
        assert [content(row) for piece in only for row in piece.records()] == rows


def test_a_query_that_is_refused_is_told_with_the_partition() -> None:
    settings = settings_of("another")
    with pytest.raises(QueryRefused, match=r"t-1: There is no another\."):
        QueryRouting(PLAN, Shape.of(PLAN, settings), settings, cast(Desk, FakeDesk({})))


def test_alignment_asks_for_no_more_at_once_than_is_worth_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    ask = FakeDesk.ask

    def counted(desk: FakeDesk, prepared: Prepared, rows: Sequence[ConnectRecord]) -> Slice:
        asked.append(len(rows))
        return ask(desk, prepared, rows)

    monkeypatch.setattr(FakeDesk, "ask", counted)
    monkeypatch.setattr(query_routing, "_PORTION_ROWS", 5)
    found = list(routing(query("value")).splits(pieces(2, 2, 2, 9, 1, 4)))
    assert asked == [4, 2, 9, 5]
    assert [piece.count for parts in found for _, piece in parts] == [2, 2, 2, 9, 1, 4]
