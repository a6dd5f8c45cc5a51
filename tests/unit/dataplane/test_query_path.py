"""Partitions with a query: whatever is killed where, every target gets what the query says of the source, once and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.dataplane.shape import Shape
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from tests.unit.dataplane.query_desk import Query, QueryCopier, Row, remote_name, settings_of
from tests.unit.dataplane.two_clusters import World, simulate
from tests.unit.making import Content, batch

WIDTH = 3


def second(row: Row) -> int:
    return int(row["timestamp"] // 1_000_000)


def masked(row: Row) -> Row | None:
    return {"value": None if row["value"] is None else b"*" + row["value"][:2]}


def routed(row: Row) -> Row | None:
    return {"topic": f"s{second(row)}", "value": row["value"]} if second(row) else None


def spread(row: Row) -> Row:
    return {"partition": None if second(row) else 1, "headers": [*row["headers"], {"key": "x"}]}


def picky(row: Row) -> Row:
    if row["value"] is None:
        raise ValueError("there is no value")
    return {"key": row["value"][:1]}


def nothing(row: Row) -> Row | None:
    return {}


def without_tombstones(row: Row) -> Row | None:
    return None if row["value"] is None else {}


QUERIES = {
    "keep": Query(frozenset(), nothing, frozenset()),
    "filter": Query(frozenset(), without_tombstones, frozenset({"value"})),
    "mask": Query(frozenset({"value"}), masked, frozenset({"value"})),
    "route": Query(frozenset({"topic", "value"}), routed),
    "spread": Query(frozenset({"partition", "headers"}), spread),
    "pick": Query(frozenset({"key"}), picky),
}
HEADER = {
    "transforms": "h",
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "via",
    "transforms.h.value.literal": "x",
}
CHAIN = TransformChain.parse(HEADER)
Contents = dict[TopicPartition, list[Content]]

# Batches of the source: (second, tombstone) of each record, their size, codec, offsets that are gone behind them.
Shapes = list[tuple[list[tuple[int, bool]], int, int, int]]
_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
        st.sampled_from([0, 0, 900]),
        st.sampled_from([0, 4]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=10,
)
_actions = ["feed", "take", "reply", "reply", "send", "answer", "work", "break", "flush", "kill"]
Script = list[tuple[str, int]]
_script = st.lists(st.tuples(st.sampled_from(_actions), st.integers(0, 4)), max_size=40)
_queries = st.sampled_from(sorted(QUERIES))
_quiet = [HealthCheck.function_scoped_fixture]


def fill(world: World, shapes: Shapes) -> list[NewRecord]:
    """Append these batches to the source."""
    found: list[NewRecord] = []
    for kinds, size, codec, gone in shapes:
        first = world.log.end
        rows = [
            NewRecord(
                first + i,
                when * 1000 + (first + i) % 1000,
                b"k%d" % (first + i),
                None if dead else b"%d" % (first + i) + b"." * size,
                [("n", b"1"), ("none", None)],
            )
            for i, (when, dead) in enumerate(kinds)
        ]
        world.log.add(batch(rows, base=first, last=first + len(rows) - 1 + gone, codec=codec))
        found += rows
    return found


def expected(sql: str | None, rows: list[NewRecord], chain: TransformChain | None) -> Contents:
    """What each target must hold, by the queries' own functions and Kafka's rules."""
    found: Contents = defaultdict(list)
    for one in rows:
        headers = [*one.headers, ("via", b"x")] if chain is not None else list(one.headers)
        row = {
            "timestamp": one.timestamp * 1000,
            "value": one.value,
            "headers": [{"key": k, "value": v} for k, v in headers],
        }
        try:
            given = {} if sql is None else QUERIES[sql].apply(row)
        except ValueError:
            continue
        if given is None:
            continue
        topic = f"A.{given.get('topic', 't')}"
        key, place = given.get("key", one.key), given.get("partition", 0)
        if place is None:
            assert key is not None
            place = (murmur2(key) & 0x7FFFFFFF) % WIDTH
        if "headers" in given:
            headers = [(h["key"], h.get("value")) for h in given["headers"]]
        value = given.get("value", one.value)
        found[topic, place].append((one.timestamp, key, value, headers))
    return dict(found)


def contents(world: World) -> Contents:
    found = {key: log.contents() for key, log in world.target.logs.items()}
    return {key: rows for key, rows in found.items() if rows}


def copier(
    world: World, sql: str | None, chain: TransformChain | None = None, **more: Any
) -> QueryCopier:
    if sql is None:
        plain = CopySettings(transforms=chain, remote_name=remote_name, **more)
        return QueryCopier(world, plain, QUERIES, WIDTH)
    settings = settings_of(sql, are_tolerated=True, chain=chain, **more)
    return QueryCopier(world, settings, QUERIES, WIDTH)


def play(copier: QueryCopier, action: str, number: int) -> None:
    match action:
        case "feed":
            copier.feed(number + 1)
        case "take":
            copier.copy.offer_to(copier)
            copier.desk.take(number + 1)
        case "reply":
            copier.desk.answer(number)
            copier._settle()
        case "send":
            copier.send(number + 1)
        case "answer":
            copier.answer(number + 1)
        case "work":
            copier.work()
        case "break":
            copier.break_off(number)
        case "flush":
            copier.flush()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[World]]:
    simulate(monkeypatch)
    monkeypatch.setattr("sparkmirror.dataplane.query.routing._PORTION_BYTES", 2000)
    yield World


def made_by(world: type[World]) -> World:
    made = world()
    made.target.create("A.t", WIDTH)
    return made


@settings(max_examples=80, suppress_health_check=_quiet)
@given(_batches, _queries, st.sampled_from([None, CHAIN]), _script)
def test_every_record_arrives_once_whatever_is_killed(
    world: type[World], shapes: Shapes, sql: str, chain: TransformChain | None, script: Script
) -> None:
    made = made_by(world)
    rows = fill(made, shapes)
    copy = copier(made, sql, chain)
    for action, number in script:
        if action == "kill":
            copy = copier(made, sql, chain)
        else:
            play(copy, action, number)
        assert copy.error is None
        assert copy.losses == []
    last = copier(made, sql, chain).converge()
    assert last.losses == []
    assert contents(made) == expected(sql, rows, chain)
    assert last.copy.position.offset == made.log.end - 1


@settings(max_examples=80, suppress_health_check=_quiet)
@given(_batches, _queries, _script)
def test_the_offset_map_tells_of_every_record_whatever_is_killed(
    world: type[World], shapes: Shapes, sql: str, script: Script
) -> None:
    """Nobody could find out later: the content is another."""
    made = made_by(world)
    rows = fill(made, shapes)
    copy = copier(made, sql)
    for action, number in script:
        if action == "kill":
            copy = copier(made, sql)
        else:
            play(copy, action, number)
    copier(made, sql).converge().flush()
    assert mapped_times(made, rows) == times_of(made)


@settings(max_examples=80, suppress_health_check=_quiet)
@given(_batches, _queries, _script)
def test_the_offset_map_tells_of_every_record_where_each_start_begins_a_numbering(
    world: type[World], shapes: Shapes, sql: str, script: Script
) -> None:
    """What is acknowledged is written once a second; who begins a numbering and is killed within that second leaves a hole."""
    made = world(compacted=True)
    made.target.create("A.t", WIDTH)
    rows = fill(made, shapes)
    copy = copier(made, sql)
    for action, number in script:
        if action == "kill":
            copy = copier(made, sql)
            copy.flush()
        else:
            if action == "break":
                copy.flush()
            play(copy, action, number)
            if action == "break":
                copy.flush()
    copier(made, sql).converge().flush()
    assert mapped_times(made, rows) == times_of(made)


def mapped_times(world: World, rows: list[NewRecord]) -> dict[TopicPartition, list[int]]:
    """By the offset map: when the records of each target were made, in their order."""
    times = {row.offset: row.timestamp for row in rows}
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    for (topic, partition, offset), source in sorted(world.mapped.items()):
        assert offset == len(found[topic, partition]), "there is a hole before it"
        found[topic, partition].append(times[source])
    return dict(found)


def times_of(world: World) -> dict[TopicPartition, list[int]]:
    return {key: [row[0] for row in found] for key, found in contents(world).items()}


@settings(max_examples=50, suppress_health_check=_quiet)
@given(_batches, _queries, _script, st.data())
def test_what_a_target_lost_is_copied_again(
    world: type[World], shapes: Shapes, sql: str, script: Script, data: st.DataObject
) -> None:
    made = made_by(world)
    rows = fill(made, shapes)
    copy = copier(made, sql)
    for action, number in [*script, ("kill", 0)]:
        if action == "kill":
            for log in made.target.logs.values():
                log.lose(data.draw(st.integers(0, min(3, len(log.batches)))))
            copy = copier(made, sql)
        else:
            play(copy, action, number)
    copier(made, sql).converge()
    assert contents(made) == expected(sql, rows, None)


@settings(max_examples=40, suppress_health_check=_quiet)
@given(
    _batches,
    _queries,
    st.lists(st.tuples(st.sampled_from([0, 1]), _script.filter(bool)), max_size=10),
)
def test_two_copies_at_once_do_no_harm(
    world: type[World], shapes: Shapes, sql: str, script: list[tuple[int, Script]]
) -> None:
    made = made_by(world)
    rows = fill(made, shapes)
    twins = [copier(made, sql), copier(made, sql)]
    for which, actions in script:
        for action, number in actions[:8]:
            if action == "kill":
                twins[which] = copier(made, sql)
            else:
                play(twins[which], action, number)
    copier(made, sql).converge()
    assert contents(made) == expected(sql, rows, None)


Phase = tuple[str | None, TransformChain | None]
_chains = st.sampled_from([None, CHAIN])
_phases = st.lists(
    st.tuples(st.tuples(st.sampled_from([None, *QUERIES]), _chains), _script),
    min_size=1,
    max_size=5,
)


@settings(max_examples=80, suppress_health_check=_quiet)
@given(_batches, _phases)
def test_a_changed_query_takes_effect_at_one_offset_which_is_told(
    world: type[World], shapes: Shapes, phases: list[tuple[Phase, Script]]
) -> None:
    """Also from and to none; whatever was killed in between, each record went through the old one or the new one."""
    made = made_by(world)
    rows = fill(made, shapes)
    for (sql, chain), script in phases:
        copy = copier(made, sql, chain)
        for action, number in script:
            if action == "kill":
                copy = copier(made, sql, chain)
            else:
                play(copy, action, number)
        assert copy.error is None
        assert copy.losses == []
    sql, chain = phases[-1][0]
    copy = copier(made, sql, chain).converge()
    position = copy.copy.position
    settings = CopySettings(transforms=chain) if sql is None else settings_of(sql, chain=chain)
    assert position.transforms == Shape.of(copy.copy.plan, settings).text
    assert copy.copy.finishes_at == -1
    assert_in_phases(made, rows, [phase for phase, _ in phases])
    if position.transforms is None:
        assert position.since == -1
        return
    assert 0 <= position.since <= made.log.end
    # From that offset on, all is as the last one has it.
    late = [row for row in rows if row.offset >= position.since]
    for key, wanted in expected(sql, late, chain).items():
        assert contents(made)[key][-len(wanted) :] == wanted


def test_a_query_that_routes_may_be_taken_away(world: type[World]) -> None:
    made = made_by(world)
    rows = fill(made, [([(1, False), (2, False)], 0, 0, 0)])
    copier(made, "route").work()
    copier(made, None).converge()
    assert contents(made) == expected("route", rows, None)


def assert_in_phases(made: World, rows: list[NewRecord], phases: list[Phase]) -> None:
    """The records can be divided so that each phase has had its share of them, one after the other."""
    found = contents(made)
    keys = sorted(found)
    # Where one may be after a record: a phase, and how much of each target is accounted for.
    reached: set[tuple[int, tuple[int, ...]]] = {(0, (0,) * len(keys))}
    for one in rows:
        ways: set[tuple[int, tuple[int, ...]]] = set()
        for phase, counts in reached:
            for later in range(phase, len(phases)):
                sql, chain = phases[later]
                after = _accounted(expected(sql, [one], chain), keys, counts, found)
                if after is not None:
                    ways.add((later, after))
        assert ways, f"record {one.offset}"
        reached = ways
    assert tuple(len(found[key]) for key in keys) in {counts for _, counts in reached}


def _accounted(
    wanted: Contents, keys: list[TopicPartition], counts: tuple[int, ...], found: Contents
) -> tuple[int, ...] | None:
    after = list(counts)
    for key, rows in wanted.items():
        if key not in found:
            return None
        at = keys.index(key)
        if found[key][after[at] : after[at] + len(rows)] != rows:
            return None
        after[at] += len(rows)
    return tuple(after)
