"""Transforms between real brokers: each target holds what the chain says of the whole source, whatever was killed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from copied import Content
from kafka_tools import (
    Record,
    consume,
    create_topic,
    delete_topic,
    set_topic_configs,
    topics,
    wait_for,
)
from transformed import (
    Contents,
    Make,
    Transformed,
    Unique,
    as_content,
    assert_same,
    chain_of,
    connect_record,
    transforming,
)

from sparkmirror.dataplane.partition import PartitionCopy
from sparkmirror.dataplane.record_path import RecordCopy
from sparkmirror.formats.mirror import decode_offset_sync
from sparkmirror.kafka.batches import Batch
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.transforms.chain import TransformChain

NEVER = 3600.0
INSERT = {
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "via",
    "transforms.h.value.literal": "eu-1",
}
DROP = {"transforms.d.type": "DropHeaders", "transforms.d.headers": "drop, n"}
RENAME = {
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "A\\.(.*)",
    "transforms.r.replacement": "$1-renamed",
}
BY_DAY = {
    "transforms.t.type": "TimestampRouter",
    "transforms.t.topic.format": "${topic}.${timestamp}",
}
FILTER = {"transforms.f.type": "Filter"}
TOMBSTONE = {"predicates": "p", "predicates.p.type": "RecordIsTombstone"}
HAS_HEADER = {"predicates": "p", "predicates.p.type": "HasHeaderKey", "predicates.p.name": "keep"}
MATCHES = {
    "predicates": "p",
    "predicates.p.type": "TopicNameMatches",
    "predicates.p.pattern": ".*-0",
}
EVERYTHING = {
    "transforms": "f,h,t,d",
    **FILTER,
    "transforms.f.predicate": "p",
    **TOMBSTONE,
    **INSERT,
    **BY_DAY,
    **DROP,
}
CHAINS: dict[str, dict[str, str]] = {
    "InsertHeader": {"transforms": "h", **INSERT},
    "DropHeaders": {"transforms": "d", **DROP},
    "RegexRouter": {"transforms": "r", **RENAME},
    "TimestampRouter": {"transforms": "t", **BY_DAY},
    "Filter tombstones": {"transforms": "f", **FILTER, "transforms.f.predicate": "p", **TOMBSTONE},
    "Filter but tombstones": {
        "transforms": "f",
        **FILTER,
        "transforms.f.predicate": "p",
        "transforms.f.negate": "true",
        **TOMBSTONE,
    },
    "Filter all": {"transforms": "f", **FILTER},
    "Filter by header": {"transforms": "f", **FILTER, "transforms.f.predicate": "p", **HAS_HEADER},
    "Filter by topic": {"transforms": "f", **FILTER, "transforms.f.predicate": "p", **MATCHES},
    "RegexRouter by header": {
        "transforms": "r",
        **RENAME,
        "transforms.r.predicate": "p",
        **HAS_HEADER,
    },
    "RegexRouter by topic": {"transforms": "r", **RENAME, "transforms.r.predicate": "p", **MATCHES},
    "everything": EVERYTHING,
}


@pytest.fixture
def make(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[Make]:
    with transforming(source_cluster, target_cluster, unique) as made:
        yield made


def provide(made: Transformed, chain: TransformChain) -> None:
    """Create the topics that all records of a topic go to, as the connector does."""
    for name in made.names:
        target = chain.target(f"A.{name}")
        if target is not None and target not in topics(made.target):
            create_topic(made.target, target, made.partitions)


def total(contents: Contents) -> int:
    return sum(len(rows) for rows in contents.values())


@pytest.mark.parametrize("name", CHAINS)
def test_every_target_holds_what_the_chain_says(make: Make, name: str) -> None:
    made, chain = make(2, 2), chain_of(CHAINS[name])
    provide(made, chain)
    made.produce(100, compression_type="lz4", batch_num_messages=30)
    expected = made.expected(chain)
    with made.copying(chain) as task:
        made.until(task, total(expected))
        made.until_done(task)
    assert_same(made.arrived(), expected)
    assert [row.offset for row in task.ledger] == [99] * 4
    assert {name for copy in task.task._copies.values() for name in written(copy)} == set(expected)


def written(copy: PartitionCopy) -> list[str]:
    if isinstance(copy, RecordCopy):
        return copy.routed.split()
    return [copy.plan.remote] if copy.records else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["everything", "RegexRouter by header", "InsertHeader", "RegexRouter"]
)
def test_nothing_is_lost_and_nothing_comes_twice_when_the_task_is_killed(
    make: Make, name: str
) -> None:
    made, chain = make(2), chain_of(CHAINS[name])
    provide(made, chain)
    rng = random.Random(name)
    unfinished = turn = 0
    # On a busy machine a task may be done before it is killed: then once more.
    while turn < 6 or (not unfinished and turn < 30):
        made.produce(300 * (1 + turn // 6), batch_num_messages=1 + turn % 6)
        flush = rng.choice([NEVER, 0.05])
        with made.copying(
            chain, flush_interval=flush, max_in_flight=1 + turn % 5, merge_bytes=1
        ) as task:
            made.kill_within(task, rng)
        unfinished += made.arrived_count() < total(made.expected(chain))
        turn += 1
    assert unfinished, "no task was killed at its work"
    expected = made.expected(chain)
    with made.copying(chain) as task:
        made.until(task, total(expected))
        made.until_done(task)
    assert_same(made.arrived(), expected)


@pytest.mark.slow
def test_two_tasks_at_once_write_every_record_once(make: Make) -> None:
    made, chain = make(2), chain_of(EVERYTHING)
    with made.copying(chain) as one, made.copying(chain) as other:
        for _ in range(10):
            made.produce(200, batch_num_messages=20)
        expected = made.expected(chain)
        made.until(one, total(expected))
        made.until_done(one)
        made.until_done(other)
    assert_same(made.arrived(), expected)


def test_several_topics_may_become_one(make: Make) -> None:
    """Each keeps its order; partitions stay what they are."""
    made = make(2, 3)
    chain = chain_of(
        {
            "transforms": "r",
            "transforms.r.type": "RegexRouter",
            "transforms.r.regex": "A\\.(.*)-\\d",
            "transforms.r.replacement": "$1-all",
        }
    )
    provide(made, chain)
    for _ in range(3):
        made.produce(100, batch_num_messages=10)
        with made.copying(chain, flush_interval=NEVER) as task:
            made.until(task, made.count // 2)
            task.abandon()
    with made.copying(chain) as task:
        made.until(task, made.count)
    (found,) = made.arrived().values()
    wanted = made.expected(chain)[f"{made.name}-all"]
    assert sorted(found, key=number) == sorted(wanted, key=number)
    origins = {row.key: name for name, rows in made.sent().items() for row in rows}
    for name in made.names:
        for partition in range(2):
            rows = [row for row in found if row[0] == partition and origins[row[2]] == name]
            assert rows == sorted(rows, key=number)


def number(row: Content) -> int:
    return int((row[2] or b"k0")[1:])


def test_transforms_may_come_change_and_go(make: Make) -> None:
    """With a kill before every change; each record passes through what was set when it was copied, once."""
    made = make()
    chains = [
        None,
        chain_of(CHAINS["InsertHeader"]),
        chain_of(EVERYTHING),
        chain_of(CHAINS["RegexRouter"]),
        None,
    ]
    rng = random.Random(5)
    for chain in chains:
        if chain is not None:
            provide(made, chain)
        made.produce(300, batch_num_messages=7)
        with made.copying(chain, flush_interval=NEVER, merge_bytes=1) as task:
            made.kill_within(task, rng)
    with made.copying(None) as task:
        made.until_done(task)
    assert_in_phases(made, chains)
    position = made.position()
    assert (position.transforms, position.targets) == (None, ())


def assert_in_phases(made: Transformed, chains: list[TransformChain | None]) -> None:
    """Every record is there once as one of the chains gives it, and never as an earlier one than the record before it."""
    found: dict[bytes | None, list[tuple[str, Content]]] = {}
    for topic, rows in made.arrived().items():
        assert [number(row) for row in rows] == sorted(number(row) for row in rows)
        for row in rows:
            found.setdefault(row[2], []).append((topic, row))
    phase = 0
    for sent in made.sent()[made.names[0]]:
        while found.get(sent.key, []) != given(made, chains[phase], sent):
            phase += 1
            assert phase < len(chains), f"record {sent.offset}: {found.get(sent.key)}"


def given(
    made: Transformed, chain: TransformChain | None, row: Record
) -> list[tuple[str, Content]]:
    record = connect_record(f"A.{made.names[0]}", row)
    after = record if chain is None else chain.apply(record)
    return [] if after is None else [(after.topic, as_content(after))]


def test_topics_named_by_records_are_made_as_wide_as_the_source(make: Make) -> None:
    made, chain = make(3), chain_of(CHAINS["TimestampRouter"])
    made.produce(50, days=2)
    with made.copying(
        chain, replication_factor=7
    ) as task:  # there is one broker: it gets what there is
        made.until(task, 150)
    known = topics(made.target)
    assert [known[f"A.{made.names[0]}.2023111{day}"] for day in (5, 6)] == [3, 3]


def test_a_factor_that_was_asked_for_is_not_lowered(make: Make) -> None:
    made, chain = make(), chain_of(CHAINS["TimestampRouter"])
    made.produce(1, days=1)
    with made.copying(chain, replication_factor=7, may_lower_factor=False) as task:
        task.until("the error", lambda: bool(task.task._troubles.standing))
        ((error, _),) = task.task._troubles.standing.values()
    assert "INVALID_REPLICATION_FACTOR" in error
    assert f"Creating topic A.{made.names[0]}.20231115" in error


def test_a_topic_that_records_named_and_somebody_deleted_is_made_anew(make: Make) -> None:
    made, chain = make(), chain_of(CHAINS["TimestampRouter"])
    made.produce(100, days=1)
    remote = f"A.{made.names[0]}.20231115"
    with made.copying(chain) as task:
        made.until(task, 100)
        delete_topic(made.target, remote)
        wait_for("it is gone", lambda: remote not in topics(made.target))
        made.produce(100, days=1)
        made.until(task, 100)
    assert_same(made.arrived(), {remote: made.expected(chain)[remote][100:]})


def test_offset_syncs_are_those_of_the_remote_topic(make: Make, unique: Unique) -> None:
    made = make()
    chain = chain_of(CHAINS["RegexRouter by header"])
    made.produce(90)
    syncs = unique("mm2-offset-syncs")
    create_topic(made.target, syncs)
    with made.copying(
        chain, offset_syncs_topic=syncs, offset_syncs_at_source=False, offset_lag_max=0
    ) as task:
        made.until(task, 90)
        remote = consume(made.target, f"A.{made.names[0]}")
        keys = {row.key: row.offset for row in remote}
        sent = [row for row in made.sent()[made.names[0]] if row.key in keys]
        places = {row.offset: keys[row.key] for row in sent}
        task.until("the last sync", lambda: max(synced(made, syncs), default=-1) == max(places))
    assert 0 < len(places) < 90
    found = synced(made, syncs)
    assert found == {upstream: places[upstream] for upstream in found}


def synced(made: Transformed, topic: str) -> dict[int, int]:
    rows = [decode_offset_sync(row.key, row.value) for row in consume(made.target, topic)]
    return {sync.upstream_offset: sync.downstream_offset for sync in rows}


def test_batches_keep_their_codec(make: Make) -> None:
    made, chain = make(), chain_of(CHAINS["InsertHeader"])
    made.produce(200, compression_type="zstd", linger_ms=200)
    with made.copying(chain) as task:
        made.until(task, 200)
    views = made.batches(f"A.{made.names[0]}")
    assert {Batch(memoryview(view)).codec for view in views} == {4}


def test_a_batch_that_grew_too_large_is_split(make: Make) -> None:
    made = make()
    chain = chain_of(
        {
            "transforms": "h",
            "transforms.h.type": "InsertHeader",
            "transforms.h.header": "long",
            "transforms.h.value.literal": "x" * 3000,
        }
    )
    set_topic_configs(made.target, f"A.{made.names[0]}", {"max.message.bytes": "20000"})
    made.produce(100, linger_ms=200)
    with made.copying(chain) as task:
        made.until(task, 100)
    assert_same(made.arrived(), made.expected(chain))
