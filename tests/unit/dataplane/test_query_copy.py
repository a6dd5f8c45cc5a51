"""A partition with a query, step by step: answers in any order, records that cannot go on, and what is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from sparkmirror.dataplane.query.copy import QueryCopy
from sparkmirror.dataplane.query.dead_letters import DeadLetters
from sparkmirror.dataplane.query.routing import BadRecord
from sparkmirror.errors import QueryFailed, ReplicationError
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from tests.unit.dataplane.query_desk import Query, QueryCopier, Row, settings_of
from tests.unit.dataplane.two_clusters import World, simulate
from tests.unit.making import batch


def marked(row: Row) -> Row:
    if row["value"] == b"bad":
        raise ValueError("it is bad")
    return {"value": b"*" + row["value"]}


def by_value(row: Row) -> Row:
    return {"topic": row["value"].decode()}


QUERIES = {
    "mark": Query(frozenset({"value"}), marked),
    "route": Query(frozenset({"topic"}), by_value),
    "drop": Query(frozenset(), lambda row: None),
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """With slices of one batch each."""
    simulate(monkeypatch)
    monkeypatch.setattr("sparkmirror.dataplane.query.routing._PORTION_BYTES", 1)
    yield World()


def fill(world: World, *batches: list[bytes]) -> None:
    for values in batches:
        base = world.log.end
        rows = [NewRecord(base + n, 7, b"k", value, []) for n, value in enumerate(values)]
        world.log.add(batch(rows, base=base))


def copier(world: World, sql: str = "mark", **more: Any) -> QueryCopier:
    return QueryCopier(world, settings_of(sql, **more), QUERIES)


def taken(world: World, count: int, sql: str = "mark", **more: Any) -> QueryCopier:
    """A copier with so many slices out."""
    found = copier(world, sql, **more)
    found.feed(99)
    found.desk.take(count)
    assert len(found.desk.out) == count
    return found


def passed(copier: QueryCopier) -> None:
    for _ in range(9):
        copier._settle()
        copier.send(9)
        copier.answer(9)


def values(world: World, topic: str = "A.t") -> list[bytes | None]:
    return [row[2] for row in world.target.logs[topic, 0].contents()]


def test_answers_may_come_in_any_order(world: World) -> None:
    fill(world, [b"0", b"1"], [b"2"], [b"3"])
    copy = taken(world, 3)
    copy.desk.answer(2)
    copy.desk.answer(1)
    passed(copy)
    assert values(world) == []
    assert copy.copy.position.offset == -1
    assert not copy.copy.is_idle
    copy.desk.answer(0)
    passed(copy)
    assert values(world) == [b"*0", b"*1", b"*2", b"*3"]
    assert copy.copy.position.offset == 3
    assert copy.copy.is_idle


def test_the_position_moves_with_what_is_written_not_with_what_is_answered(world: World) -> None:
    fill(world, [b"0"], [b"1"])
    copy = taken(world, 2)
    copy.desk.answer()
    copy.desk.answer()
    assert copy.copy.position.offset == -1
    passed(copy)
    assert copy.copy.position.offset == 1


def test_dropped_records_move_the_position(world: World) -> None:
    fill(world, [b"0"], [b"1"])
    copy = copier(world, "drop").converge()
    assert copy.copy.position.offset == 1
    assert values(world) == []


def test_a_bad_record_that_is_not_tolerated_stops_the_partition_exactly_there(
    world: World,
) -> None:
    fill(world, [b"0", b"1"], [b"2", b"3", b"bad", b"5"], [b"6"])
    copy = taken(world, 3)
    copy.desk.answer(2)
    copy.desk.answer(1)
    copy.desk.answer(0)
    passed(copy)
    assert values(world) == [b"*0", b"*1", b"*2", b"*3"]
    assert copy.copy.position.offset == 3
    assert isinstance(copy.error, QueryFailed)
    assert "t-0: the query fails at offset 4: it is bad" in str(copy.error)
    assert "errors.tolerance=all" in str(copy.error)
    again = copier(world)
    for _ in range(9):
        again.work()  # who tries again comes to the same place
    assert values(world) == [b"*0", b"*1", b"*2", b"*3"]
    assert again.copy.position.offset == 3
    assert "offset 4" in str(again.error)


def test_a_bad_record_at_the_beginning_stops_the_partition_before_it(world: World) -> None:
    fill(world, [b"bad", b"1"])
    copy = taken(world, 1)
    copy.desk.answer()
    passed(copy)
    assert values(world) == []
    assert copy.copy.position.offset == -1
    assert "offset 0" in str(copy.error)


def test_bad_records_that_are_tolerated_are_left_out(world: World) -> None:
    fill(world, [b"0", b"bad"], [b"bad"], [b"3"])
    copy = copier(world, are_tolerated=True).converge()
    assert copy.error is None
    assert values(world) == [b"*0", b"*3"]
    assert copy.copy.position.offset == 3


def test_a_slice_that_fails_as_a_whole_stops_the_partition_before_it(world: World) -> None:
    fill(world, [b"0"], [b"1"], [b"2"])
    copy = taken(world, 3)
    copy.desk.answer(2)
    copy.desk.fail(1, "it does not end")
    copy.desk.answer(0)
    passed(copy)
    assert values(world) == [b"*0"]
    assert copy.copy.position.offset == 0
    assert "t-0: the query fails at offset 1: it does not end" in str(copy.error)


class Letters:
    """Dead letters that are written when the test says so."""

    def __init__(self) -> None:
        self.taken: list[BadRecord] = []
        self.records = 0
        self.writer: Any = None

    def take(self, writer: object, bad: BadRecord) -> None:
        self.writer = writer
        self.taken.append(bad)

    def pending(self, writer: object) -> list[tuple[Letters, int]]:
        return [(self, len(self.taken))] if self.records < len(self.taken) else []

    def forget(self, writer: object) -> None:
        self.taken.clear()

    def write(self, count: int = 1 << 30) -> None:
        self.records = min(count, len(self.taken))
        self.writer.letters_written()

    def refuse(self, number: int) -> None:
        error = ReplicationError(f"letter {number} is refused")
        self.writer.letters_refused(self, number, self.taken[number].record.offset, error)


def with_letters(world: World, letters: Letters, **more: Any) -> QueryCopier:
    settings = settings_of("mark", are_tolerated=True, **more)
    return QueryCopier(world, settings, QUERIES, letters=cast(DeadLetters, letters))


def test_dead_letters_are_written_before_anything_behind_them(world: World) -> None:
    """Who resumes the partition sees what the target has, and not which letters were written."""
    fill(world, [b"0", b"bad"], [b"2"], [b"bad"])
    letters = Letters()
    copy = with_letters(world, letters)
    for _ in range(9):
        copy.work()
    assert [bad.record.offset for bad in letters.taken] == [1]
    assert values(world) == []
    assert copy.copy.position.offset == -1
    letters.write(1)
    passed(copy)
    assert [bad.record.offset for bad in letters.taken] == [1, 3]
    assert values(world) == [b"*0", b"*2"]
    assert copy.copy.position.offset == 2
    letters.write(2)
    assert copy.copy.position.offset == 3
    assert copy.copy.is_idle


def test_a_dead_letter_that_was_not_written_is_written_by_whoever_comes_next(world: World) -> None:
    fill(world, [b"0", b"bad"], [b"2"])
    for _ in range(2):  # killed before the answer came
        copy = with_letters(world, letters := Letters())
        for _ in range(9):
            copy.work()
        copy.flush()
        assert [bad.record.offset for bad in letters.taken] == [1]


def test_a_partition_goes_on_when_its_dead_letters_are_written(world: World) -> None:
    fill(world, [b"bad"], *([b"%d" % n] for n in range(1, 21)))
    letters = Letters()
    copy = with_letters(world, letters)
    for _ in range(9):
        copy.work()
    copy.desk.takers.clear()  # no fetch answer comes any more
    assert copy.copy.position.offset == -1
    letters.write()
    assert copy.copy.position.offset == 0
    assert len(copy.desk.takers) == 1


def test_a_dead_letter_that_is_refused_stops_the_partition_before_its_record(world: World) -> None:
    fill(world, [b"0", b"bad", b"2", b"bad", b"4", b"bad"], [b"6"], [b"bad"], [b"8"])
    letters = Letters()
    copy = with_letters(world, letters)
    for _ in range(9):
        copy.work()
    assert [bad.record.offset for bad in letters.taken] == [1, 3, 5]
    letters.refuse(1)
    was_idle = copy.copy.is_idle  # the letter before it is still on its way
    letters.write(1)
    passed(copy)
    assert (was_idle, copy.copy.is_idle) == (False, True)
    assert copy.copy.position.offset == 2
    assert values(world) == [b"*0", b"*2"]
    assert copy.copy.fetch_trouble
    assert str(copy.error) == "letter 1 is refused"
    copy.flush()
    again = with_letters(world, letters := Letters())
    for _ in range(9):
        again.work()
    assert [bad.record.offset for bad in letters.taken] == [
        3,
        5,
    ]  # it is tried again, and the first is not
    letters.write()
    passed(again)
    letters.write()
    again.converge()
    assert again.copy.position.offset == 8
    assert values(world) == [b"*0", b"*2", b"*4", b"*6", b"*8"]


def test_dead_letters_are_as_the_source_has_them(world: World) -> None:
    chain = TransformChain.parse(
        {
            "transforms": "h",
            "transforms.h.type": "InsertHeader",
            "transforms.h.header": "via",
            "transforms.h.value.literal": "x",
        }
    )
    fill(world, [b"0"], [b"1", b"bad"], [b"bad"])
    letters = Letters()
    copy = with_letters(world, letters, chain=chain)
    for _ in range(9):
        copy.work()
    letters.write()
    passed(copy)
    assert [tuple(bad.record) for bad in letters.taken] == [
        ("t", 0, offset, 7, b"k", b"bad", []) for offset in (2, 3)
    ]
    letters.write()
    passed(copy)
    assert [row[3] for row in world.target.logs["A.t", 0].contents()] == [[("via", b"x")]] * 2


def test_a_batch_that_cannot_be_read_stops_the_partition_exactly_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkmirror.dataplane.query.routing._PORTION_BYTES", 1 << 20)
    fill(world, [b"0", b"1"], [b"2"])
    world.log.add(batch([NewRecord(3, 7, b"k", b"3", [])], base=3, attributes=1))  # no gzip
    fill(world, [b"4"])
    copy = copier(world)
    for _ in range(9):
        copy.work()
    assert values(world) == [b"*0", b"*1", b"*2"]
    assert copy.copy.position.offset == 2
    assert "t-0: from offset 3 on" in str(copy.error)
    assert copy.copy.is_idle


def test_a_partition_that_is_put_to_rest_forgets_what_it_asked(world: World) -> None:
    fill(world, [b"0"], [b"1"])
    copy = taken(world, 2)
    late = [piece for _, piece in copy.desk.out]
    copy.copy.suspend()
    assert copy.desk.out == []
    assert copy.desk.takers == {}
    for piece in late:
        copy.copy.answered(piece)  # type: ignore[attr-defined]
    passed(copy)
    assert values(world) == []
    copy.resume()
    copy.converge()
    assert values(world) == [b"*0", b"*1"]


def test_a_partition_that_begins_anew_forgets_what_it_asked(world: World) -> None:
    fill(world, [b"0"], [b"1"], [b"2"])
    copy = taken(world, 2)
    late = [piece for _, piece in copy.desk.out]
    copy.resume()
    assert copy.desk.out == []
    for piece in late:
        copy.copy.answered(piece)  # type: ignore[attr-defined]
    copy.converge()
    assert values(world) == [b"*0", b"*1", b"*2"]
    assert copy.copy.position.offset == 2


def test_not_all_that_was_read_is_asked_at_once(world: World) -> None:
    fill(world, *([b"%d" % n] for n in range(60)))
    copy = copier(world)
    copy.feed(99)
    copy.desk.take()
    assert 1 < len(copy.desk.out) < 30
    while copy.desk.out:
        copy.desk.answer()
    copy.desk.take()
    assert len(copy.desk.out) < 30, "nothing of it is written yet"
    copy.converge()
    assert values(world) == [b"*%d" % n for n in range(60)]


def test_what_follows_waits_until_a_new_target_is_there(world: World) -> None:
    fill(world, [b"a"], [b"b", b"a"], [b"t"])
    copy = taken(world, 3, "route")
    for _ in range(3):
        copy.desk.answer()
    passed(copy)
    assert values(world, "A.a") == [b"a", b"a"]
    assert values(world, "A.b") == [b"b"]
    assert values(world) == [b"t"]
    assert copy.copy.position.offset == 3


def test_what_transforms_drop_does_not_come_to_the_desk(world: World) -> None:
    chain = TransformChain.parse(
        {
            "transforms": "f",
            "transforms.f.type": "Filter",
            "transforms.f.predicate": "matches",
            "predicates": "matches",
            "predicates.matches.type": "TopicNameMatches",
            "predicates.matches.pattern": ".*",
        }
    )
    fill(world, [b"0"], [b"1"])
    copy = copier(world, chain=chain)
    copy.feed(9)
    copy.desk.take()
    assert copy.desk.out == []
    assert copy.copy.position.offset == 1
    assert copy.copy.is_idle


def test_of_slices_that_fail_together_the_first_is_told_and_what_is_before_it_written(
    world: World,
) -> None:
    fill(world, [b"0"], [b"1"], [b"2"], [b"3"])
    copy = taken(world, 4)
    pieces = [piece for _, piece in copy.desk.out]
    own = cast(QueryCopy, copy.copy)
    for place in (3, 1, 2):
        own.failed(pieces[place], QueryFailed(f"slice {place}"))
    copy.desk.answer(0)
    passed(copy)
    assert values(world) == [b"*0"]
    assert "fails at offset 1: slice 1" in str(copy.error)


def test_a_partition_whose_records_transforms_drop_asks_for_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = TransformChain.parse(
        {
            "transforms": "f",
            "transforms.f.type": "Filter",
            "transforms.f.predicate": "marked",
            "predicates": "marked",
            "predicates.marked.type": "TopicNameMatches",
            "predicates.marked.pattern": ".*",
        }
    )
    fill(world, [b"0"], [b"1"])
    copy = copier(world, chain=chain)
    copy.feed(99)
    told: list[object] = []
    monkeypatch.setattr(copy, "changed", told.append)
    copy.desk.take()
    assert copy.copy.position.offset == 1
    assert told
