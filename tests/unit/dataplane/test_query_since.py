"""From which source offset on a query applies: the position keeps it as long as the same is done with records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.formats.position import Entry, decode, encode
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from tests.unit.dataplane.query_desk import Query, QueryCopier, settings_of
from tests.unit.dataplane.two_clusters import World, simulate
from tests.unit.making import batch

QUERIES = {
    "one": Query(frozenset({"value"}), lambda row: {"value": b"1" + row["value"]}),
    "two": Query(frozenset({"value"}), lambda row: {"value": b"2" + row["value"]}),
}
HEADER = TransformChain.parse(
    {
        "transforms": "h",
        "transforms.h.type": "InsertHeader",
        "transforms.h.header": "via",
        "transforms.h.value.literal": "x",
    }
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    simulate(monkeypatch)
    yield World()


def fill(world: World, count: int) -> None:
    base = world.log.end
    rows = [NewRecord(base + n, 7, b"k", b"v", []) for n in range(count)]
    world.log.add(batch(rows, base=base))


def copied(
    world: World, sql: str | None, count: int = 3, width: int = 1, **more: Any
) -> QueryCopier:
    """Some more records, copied to the end, with the position written."""
    fill(world, count)
    settings = CopySettings(**more) if sql is None else settings_of(sql, **more)
    copier = QueryCopier(world, settings, QUERIES, width).converge()
    copier.flush()
    return copier


def since(copier: QueryCopier) -> int:
    return copier.copy.position.since


def test_it_is_kept_until_another_query_is_set(world: World) -> None:
    assert since(copied(world, "one")) == 0
    assert since(copied(world, "one")) == 0
    assert since(copied(world, "two")) == 6
    assert since(copied(world, "two")) == 6
    assert since(copied(world, "one")) == 12
    assert since(copied(world, "one", chain=HEADER)) == 15
    assert since(copied(world, None)) == -1
    assert since(copied(world, "one")) == 21


def test_a_topic_that_was_copied_as_it_is(world: World) -> None:
    copied(world, None)
    assert since(copied(world, "one")) == 3


def test_more_partitions_do_not_make_it_another_query(world: World) -> None:
    copied(world, None)
    first = copied(world, "one")
    wider = copied(world, "one", width=4)
    assert wider.copy.position.transforms != first.copy.position.transforms
    assert since(wider) == since(first) == 3


def test_a_source_that_was_made_anew_begins_at_its_first_record(world: World) -> None:
    copied(world, None)
    assert since(copied(world, "one")) == 3
    world.source.delete("t")
    world.source.create("t")
    assert since(copied(world, "one")) == 0


def test_a_source_that_was_cut_back_behind_it(world: World) -> None:
    copied(world, None)
    assert since(copied(world, "one")) == 3
    world.log.end = 2
    del world.log.batches[:]
    cut = QueryCopier(world, settings_of("one"), QUERIES)
    assert since(cut) == 2, "what comes there now passes through it"


def test_a_source_that_was_cut_back_after_it(world: World) -> None:
    copied(world, None)
    copied(world, "one")
    assert since(copied(world, "one")) == 3
    world.log.end = 6
    del world.log.batches[2:]
    assert since(copied(world, "one")) == 3


def test_a_target_that_is_filled_again_from_the_beginning(world: World) -> None:
    copied(world, None)
    assert since(copied(world, "one")) == 3
    world.target.delete("A.t")
    world.target.create("A.t")
    assert since(copied(world, "one", recreated_target="restart")) == 0


def test_a_target_that_goes_on_in_a_new_topic(world: World) -> None:
    copied(world, None)
    copied(world, "one")
    world.target.delete("A.t")
    world.target.create("A.t")
    assert since(copied(world, "one", recreated_target="continue")) == 3


def test_retention_that_overtook_the_copy(world: World) -> None:
    copied(world, None)
    copied(world, "one")
    fill(world, 3)
    del world.log.batches[:3]
    world.log.start = 9
    assert since(copied(world, "one")) == 3


def test_a_position_that_does_not_tell(world: World) -> None:
    """Of a version that did not write it: nothing is claimed."""
    copied(world, "one")
    key, value = world.shared[-1]
    position = decode(value).position
    assert position is not None
    world.shared.append((key, encode(Entry(replace(position, since=-1)))))
    assert since(copied(world, "one")) == -1
    assert since(copied(world, "two")) == 6


def test_what_is_under_way_is_brought_to_its_end_by_the_old_query(world: World) -> None:
    """One target is ahead of the position: up to there the old query holds, and so it is told."""
    by_offset = Query(frozenset({"topic"}), lambda row: {"topic": f"t{row['offset'] % 2}"})
    queries = {**QUERIES, "route": by_offset}
    fill(world, 2)
    QueryCopier(world, settings_of("route"), queries).converge().flush()
    fill(world, 4)
    copier = QueryCopier(world, settings_of("route"), queries)
    copier.feed(5)
    copier.evaluate()
    copier.send(9)
    lane, sent = copier._wire.pop()  # the second topic takes its batch, the first does not
    world.target.logs[lane.plan.remote, 0].produce(sent.buffer)
    again = QueryCopier(world, settings_of("two"), queries)
    assert again.copy.finishes_at == 5
    assert again.copy.position.since == 0
    again.converge()
    assert again.copy.finishes_at == -1
    assert again.copy.position.since == 6
