"""Partitions whose records are placed by their keys, in simulated clusters: each record once, in its place, come what may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from sparkmirror.dataplane.placing import STRETCH, Placing, hashes
from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.dataplane.record_resume import RecordResumer
from sparkmirror.dataplane.shape import PLAIN, Shape
from sparkmirror.errors import ConfigError, TopicRecreated
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from tests.unit.dataplane.two_clusters import (
    PLAN,
    Copier,
    SharedPositions,
    SimulatedLog,
    World,
    simulate,
)
from tests.unit.making import batch

# Batches of the source: the keys of their records, codec, offsets that are gone behind them.
_batches = st.lists(
    st.tuples(
        st.lists(
            st.sampled_from([None, b"", b"a", b"b", b"c", b"longer-1", b"longer-2"]),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([0, 4]),
        st.sampled_from([0, 0, 2, STRETCH]),
    ),
    min_size=1,
    max_size=12,
)
_script = st.lists(
    st.tuples(
        st.sampled_from(
            ["feed", "send", "send", "answer", "answer", "work", "break", "flush", "kill"]
        ),
        st.integers(0, 4),
    ),
    max_size=40,
)
Shapes = list[tuple[list[bytes | None], int, int]]
Script = list[tuple[str, int]]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[World]]:
    simulate(monkeypatch)
    yield World


def placed(world: type[World], width: int) -> World:
    made = world()
    made.target.delete("A.t")
    made.target.create("A.t", width)
    made.plan = replace(PLAN, places=width)
    return made


def widen(made: World, width: int) -> None:
    for partition in range(width):
        made.target.logs.setdefault(("A.t", partition), SimulatedLog())
    made.target.refresh(["A.t"])
    made.plan = replace(PLAN, places=0 if width == 1 else width)


def fill(made: World, shapes: Shapes) -> list[NewRecord]:
    found: list[NewRecord] = []
    for keys, codec, gone in shapes:
        first = made.log.end
        rows = [
            NewRecord(first + i, 1000 + first + i, key, b"%d" % (first + i), [])
            for i, key in enumerate(keys)
        ]
        made.log.add(batch(rows, base=first, last=first + len(rows) - 1 + gone, codec=codec))
        found += rows
    return found


def place(row: NewRecord, width: int) -> int:
    return row.offset // STRETCH % width if row.key is None else default_partition(row.key, width)


def arrived(made: World) -> dict[int, list[bytes | None]]:
    return {
        p: [c[2] for c in found.contents()]
        for (topic, p), found in made.target.logs.items()
        if topic == "A.t"
    }


def expected(rows: list[NewRecord], width: int) -> dict[int, list[bytes | None]]:
    return {p: [row.value for row in rows if place(row, width) == p] for p in range(width)}


def play(made: World, copier: Copier, script: Script) -> Copier:
    for action, number in script:
        match action:
            case "feed":
                copier.feed(number + 1)
            case "send":
                copier.send(number + 1)
            case "answer":
                copier.answer(number + 1)
            case "work":
                copier.feed(number + 1)
                copier.send(9)
                copier.answer(9)
            case "break":
                copier.break_off(number)
            case "flush":
                copier.flush()
            case "kill":
                copier = made.copier(None)
        assert copier.error is None
        assert copier.losses == []
    return copier


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.integers(2, 5), _script)
def test_every_record_arrives_once_whatever_is_killed(
    world: type[World], shapes: Shapes, width: int, script: Script
) -> None:
    made = placed(world, width)
    rows = fill(made, shapes)
    play(made, made.copier(None), script)
    last = made.converge(None)
    assert last.losses == []
    assert arrived(made) == expected(rows, width)
    assert last.copy.position.offset == made.log.end - 1


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    _batches,
    st.integers(2, 5),
    st.lists(st.tuples(st.sampled_from([0, 1]), _script.filter(bool)), max_size=12),
)
def test_two_copies_at_once_do_no_harm(
    world: type[World], shapes: Shapes, width: int, script: list[tuple[int, Script]]
) -> None:
    made = placed(world, width)
    rows = fill(made, shapes)
    twins = [made.copier(None), made.copier(None)]
    for which, actions in script:
        twins[which] = play(made, twins[which], actions[:8])
    made.converge(None)
    assert arrived(made) == expected(rows, width)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.lists(st.tuples(st.integers(0, 2), _script), min_size=1, max_size=5))
def test_a_new_number_takes_effect_at_one_offset(
    world: type[World], shapes: Shapes, phases: list[tuple[int, Script]]
) -> None:
    """From one partition, which is copied as it is, to more: what was written before a kill is known by the number of then."""
    made = world()
    rows = fill(made, shapes)
    widths = [1]
    for more, script in phases:
        widths.append(widths[-1] + more)
        widen(made, widths[-1])
        play(made, made.copier(None), script)
    last = made.converge(None)
    assert last.copy.position.transforms == Shape(places=made.plan.places).text
    found = arrived(made)
    places = {value: p for p, values in found.items() for value in values}
    assert sorted(len(v) for v in [places, rows]) == [len(rows)] * 2
    assert sum(len(values) for values in found.values()) == len(rows)
    for values in found.values():
        assert values == sorted(values, key=lambda value: int(value or b"0"))
    phase = 0
    for row in rows:
        while places[row.value] != place(row, widths[phase]):
            phase += 1
            assert phase < len(widths), row


def test_an_older_plan_goes_along_with_a_newer_number(world: type[World]) -> None:
    made = placed(world, 2)
    rows = fill(made, [([b"a", b"b", b"c", b"d", b"e", b"f"], 0, 0)])
    old = made.plan
    made.converge(None).flush()
    widen(made, 3)
    newer = Copier(made, CopySettings(), made.plan, stamp=78)
    newer.feed(5)
    newer.flush()
    rows += fill(made, [([b"a", b"b", b"c", b"d", b"e", b"f"], 0, 0)])
    made.plan = old
    last = made.converge(None)
    assert last.copy.places == 3
    assert last.copy.position.transforms == Shape(places=3).text
    assert sum(len(values) for values in arrived(made).values()) == 12


def test_the_next_number_is_the_next_epoch_of_the_same_producer(world: type[World]) -> None:
    """So that somebody who still writes by the old one is refused."""
    made = placed(world, 2)
    fill(made, [([b"a", b"b", b"c"], 0, 0)])
    before = made.converge(None).copy.numbering
    widen(made, 4)
    after = made.converge(None).copy.numbering
    assert before is not None
    assert after is not None
    assert (after.producer_id, after.epoch) == (before.producer_id, before.epoch + 1)


def test_partitions_that_are_placed_have_producers_of_their_own(world: type[World]) -> None:
    made = placed(world, 3)
    made.source.logs["t", 1] = SimulatedLog()
    made.source.refresh(["t"])
    source, target = cast("Cluster", made.source), cast("Cluster", made.target)
    store = SharedPositions(made.shared)
    plans = [replace(made.plan, partition=partition) for partition in (0, 1)]
    found = RecordResumer(source, target, store, CopySettings(), 77).resume(plans).positions
    one, other = (found[plan.key].numbering for plan in plans)
    assert one is not None
    assert other is not None
    assert one.producer_id != other.producer_id


def test_a_copy_that_was_made_anew_is_told(world: type[World]) -> None:
    """Also where it was copied partition by partition before, and is smaller now."""
    made = placed(world, 3)
    rows = fill(made, [([b"a", b"b", b"c"], 0, 0)])
    made.converge(None).flush()
    made.target.delete("A.t")
    made.target.create("A.t", 2)
    made.plan = replace(PLAN, places=2)
    assert isinstance(made.copier(None).error, TopicRecreated)
    copier = made.copier(None, recreated_target="restart")
    for _ in range(3):
        copier.feed(5)
        copier.send(9)
        copier.answer(9)
    assert arrived(made) == expected(rows, 2)


def test_all_partitions_of_the_copy_are_named_at_once(world: type[World]) -> None:
    made = placed(world, 4)
    fill(made, [([b"a"], 0, 0)])
    position = made.converge(None).copy.position
    assert [target.key for target in position.targets] == [("A.t", p) for p in range(4)]


# -- places -----------------------------------------------------------------------------------


@given(
    st.integers(0, 40).flatmap(
        lambda n: st.lists(st.binary(min_size=n, max_size=n), min_size=1, max_size=30)
    )
)
def test_hashes_are_those_of_another_client(keys: list[bytes]) -> None:
    assert hashes(keys) == [int(kafka_python_murmur2(key)) & 0x7FFFFFFF for key in keys]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=60), st.integers(1, 50))
def test_places_do_not_depend_on_what_was_placed_before(
    keys: list[bytes | None], count: int
) -> None:
    rows = [NewRecord(7 * i, 0, key, None, []) for i, key in enumerate(keys)]
    at_once = Placing(3, count).of(rows)
    one_by_one = Placing(3, count)
    assert [one_by_one.of([row])[0] for row in rows] == at_once == one_by_one.of(rows)


def test_many_keys_do_not_stay_in_memory() -> None:
    placing = Placing(0, 7)
    for start in range(0, 20_000, 500):
        rows = [NewRecord(i, 0, b"%d" % i, None, []) for i in range(start, start + 500)]
        assert placing.of(rows) == [default_partition(row.key or b"", 7) for row in rows]
    assert len(placing._known) <= 4096


def test_records_without_a_key_are_spread_in_stretches() -> None:
    rows = [NewRecord(i, 0, None, b"", []) for i in range(4 * STRETCH)]
    places = Placing(2, 3).of(rows)
    assert [places[i * STRETCH] for i in range(4)] == [2, 0, 1, 2]
    assert all(len(set(places[i * STRETCH : (i + 1) * STRETCH])) == 1 for i in range(4))


# -- shapes as text -----------------------------------------------------------------------------


def test_a_shape_is_read_back_from_its_text() -> None:
    chain = TransformChain.parse({"transforms": "f", "transforms.f.type": "Filter"})
    assert chain is not None
    for shape in (Shape(chain), Shape(chain, 7), Shape(None, 7)):
        text = shape.text
        assert text is not None
        assert Shape.read(text) == shape
    assert Shape(chain).text == chain.text
    assert (PLAIN.text, PLAIN.is_plain) == (None, True)


@pytest.mark.parametrize(
    "text", ["", "7", "[]x", '{"target.partitions":"x"}', '{"transforms":"f"}']
)
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Shape.read(text)
