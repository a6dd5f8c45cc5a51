"""Copies with another number of partitions, between real brokers: each record once, where its key places it, whatever happens."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copying import Copying
from flow_records import sparkmirror
from kafka_tools import (
    NewRecord,
    add_partitions,
    commit_group,
    consume,
    create_topic,
    delete_topic,
    end_offsets,
    group_offsets,
    produce,
    topics,
    wait_for,
)
from placed import Make, Placed, Unique, assert_placed, placing
from running import Mirror, assert_same, properties
from transformed import BEGIN_MS, DAY_MS, chain_of

from sparkmirror.dataplane.partition import PartitionCopy
from sparkmirror.dataplane.shape import Shape
from sparkmirror.formats.connect import default_partition
from sparkmirror.formats.mirror import decode_offset_sync
from sparkmirror.formats.progress import decode as decode_progress
from sparkmirror.tools.clusters import KafkaCluster

NEVER = 3600.0
PATIENCE = 180.0
BY_DAY = {
    "transforms": "t",
    "transforms.t.type": "TimestampRouter",
    "transforms.t.topic.format": "${topic}.${timestamp}",
}
INSERT = {
    "transforms": "h",
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "via",
    "transforms.h.value.literal": "eu-1",
}


@pytest.fixture
def make(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[Make]:
    with placing(source_cluster, target_cluster, unique) as made:
        yield made


@pytest.mark.parametrize(
    ("partitions", "width"),
    [
        (3, 7),
        (4, 2),
        pytest.param(1, 5, marks=pytest.mark.slow),
        pytest.param(5, 1, marks=pytest.mark.slow),
    ],
)
def test_every_record_is_where_its_key_places_it(make: Make, partitions: int, width: int) -> None:
    made = make(partitions, width)
    made.produce(1500, compression_type="lz4", linger_ms=20)
    with made.copying() as task:
        made.until(task, 1500)
        made.produce(500, linger_ms=0)
        made.until(task, 2000)
        made.until_done(task)
    made.check()
    ends = {row.partition: row.offset for row in task.ledger}
    assert sum(ends.values()) == 2000 - partitions
    known = [(len(made.position(p).targets), made.position(p).offset) for p in range(partitions)]
    assert known == [(width, ends[p]) for p in range(partitions)]


def test_places_are_those_of_another_producer(make: Make, unique: Unique) -> None:
    made = make(2, 11)
    made.produce(600)
    with made.copying() as task:
        made.until(task, 600)
    theirs = unique("theirs")
    create_topic(made.target, theirs, 11)
    sent = [NewRecord(row.key, row.value) for row in made.sent() if row.key is not None]
    produce(made.target, theirs, sent, partitioner="murmur2")
    places = {(row.key, row.partition) for row in consume(made.target, theirs)}
    assert {(r.key, r.partition) for r in made.arrived() if r.key is not None} == places


def test_a_copy_that_is_widened_goes_on_with_the_new_number(make: Make) -> None:
    """With a kill before: what was written since the last position is known by the number that it was written with."""
    made = make(2, 3)
    rng = random.Random(3)
    for width in (3, 5, 8):
        if width > made.width:
            made.widen(width)
        made.produce(400, batch_num_messages=9)
        with made.copying(flush_interval=NEVER, merge_bytes=1) as task:
            made.kill_within(task, rng)
    with made.copying() as task:
        made.until(task, made.count)
        made.until_done(task)
    made.check(3, 5, 8)
    assert made.position().transforms == Shape(places=8).text


def test_nothing_is_told_of_offsets(make: Make, unique: Unique) -> None:
    made = make(2, 3)
    made.produce(300)
    syncs, offset_map = unique("mm2-offset-syncs"), unique("mm2-offset-map")
    for name in (syncs, offset_map):
        create_topic(made.target, name)
    with made.copying(
        offset_syncs_topic=syncs,
        offset_syncs_at_source=False,
        offset_map_topic=offset_map,
        offset_lag_max=0,
    ) as task:
        made.until(task, 300)
        made.until_done(task)
    assert consume(made.target, syncs) == consume(made.target, offset_map) == []


def test_transforms_come_first(make: Make) -> None:
    made, chain = make(2, 3), chain_of(INSERT)
    made.produce(300, compression_type="zstd")
    with made.copying(transforms=chain) as task:
        made.until(task, 300)
        made.until_done(task)
    sent = {row.value: row for row in made.sent()}
    for copy in made.arrived():
        row = sent.pop(copy.value)
        assert copy.headers == (*row.headers, ("via", b"eu-1"))
        assert row.key is None or copy.partition == default_partition(row.key, 3)
    assert not sent


@pytest.mark.slow
def test_topics_that_transforms_name_are_as_wide_as_asked_for(make: Make) -> None:
    made, chain = make(2, 3), chain_of(BY_DAY)
    rows = [NewRecord(b"%d" % i, b"v", -1, BEGIN_MS + i % 2 * DAY_MS) for i in range(100)]
    produce(made.source, made.topic, rows, partitioner="murmur2_random")
    names = [f"{made.remote}.2023111{day}" for day in (5, 6)]
    with made.copying(transforms=chain) as task:
        made.until_done(task)
    for name in names:
        assert topics(made.target)[name] == 3
        found = consume(made.target, name)
        assert len(found) == 50
        assert all(row.partition == default_partition(row.key or b"", 3) for row in found)


@pytest.mark.slow
def test_a_copy_may_become_one_of_equal_numbers_and_back(make: Make) -> None:
    """The source grows to the copy's number, and beyond: no record is lost or comes twice where the way changes."""
    made = make(2, 4)
    rng = random.Random(4)
    for partitions in (2, 4, 6):
        grow(made, partitions)
        made.produce(300, batch_num_messages=9)
        with made.copying(flush_interval=NEVER, merge_bytes=1) as task:
            made.kill_within(task, rng)
    with made.copying() as task:
        made.until(task, made.count)
        made.until_done(task)
    assert made.arrived_count() == made.count
    assert sorted(row.value or b"" for row in made.arrived()) == sorted(
        row.value or b"" for row in made.sent()
    )


def grow(made: Placed, partitions: int) -> None:
    if partitions > made.partitions:
        add_partitions(made.source, made.topic, partitions)
        made.partitions = partitions


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fail", "restart"])
def test_a_copy_that_was_made_anew_and_smaller(make: Make, mode: str) -> None:
    """As one does who wants fewer partitions than there were: delete the copy, set the number, and copy again."""
    made = make(4, 4)
    made.produce(200)
    with made.copying() as task:
        made.until(task, 200)
    delete_topic(made.target, made.remote)
    wait_for("it is gone", lambda: made.remote not in topics(made.target))
    create_topic(made.target, made.remote, 2)
    made.width = 2
    with made.copying(recreated_target=mode) as task:
        if mode == "restart":
            made.until(task, 200)
            made.until_done(task)
        else:
            task.until("the error", lambda: len(task.task._troubles.standing) == 4)
            (error, _) = next(iter(task.task._troubles.standing.values()))
            assert "was deleted and created again" in error
    if mode == "restart":
        made.check()


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "width"), [(3, 7), (4, 2)])
def test_nothing_is_lost_and_nothing_comes_twice_when_the_task_is_killed(
    make: Make, partitions: int, width: int
) -> None:
    made = make(partitions, width)
    rng = random.Random(width)
    unfinished = turn = 0
    # On a busy machine a task may be done before it is killed: then once more.
    while turn < 8 or (not unfinished and turn < 30):
        made.produce(600 * (1 + turn // 8), batch_num_messages=1 + turn % 8)
        flush = rng.choice([NEVER, 0.05])
        with made.copying(flush_interval=flush, max_in_flight=1 + turn % 5, merge_bytes=1) as task:
            made.kill_within(task, rng)
        unfinished += made.arrived_count() < made.count
        turn += 1
    assert unfinished, "no task was killed at its work"
    with made.copying() as task:
        made.until(task, made.count)
        made.until_done(task)
    made.check()


@pytest.mark.slow
def test_two_tasks_at_once_write_every_record_once(make: Make) -> None:
    made = make(3, 5)
    with made.copying() as one, made.copying() as other:
        for _ in range(10):
            made.produce(400, batch_num_messages=20)
        made.until(one, made.count)
        made.until_done(one)
        made.until_done(other)
    made.check()


@pytest.mark.slow
def test_two_tasks_of_different_numbers_agree_on_the_newer(make: Make) -> None:
    """One has not heard yet that the copy was widened: it goes along as soon as it notices."""
    made = make(2, 3)
    made.produce(500, batch_num_messages=20)
    with made.copying() as one:
        made.until(one, 500)
        made.widen(6)
        with made.copying() as other:
            made.until_switched()
            made.produce(500, batch_num_messages=20)
            made.until(other, 1000)

            def goes_along() -> bool:
                # Where the other has not written yet, the old number is still taken: it is noticed with a later record.
                made.produce(20, batch_num_messages=20)
                return all(c.places == 6 for c in copies(one))

            one.until("it goes along", goes_along)
            late = made.count
            made.produce(500, batch_num_messages=20)
            made.until_done(one)
            made.until_done(other)
    values = [row.value for row in made.arrived()]
    assert set(values) == {row.value for row in made.sent()}
    new = [value for value in values if value is not None and int(value.split(b":")[0]) >= late]
    assert len(new) == len(set(new)) == 500


def copies(task: Copying) -> list[PartitionCopy]:
    return list(task.task._copies.values())


@pytest.mark.slow
def test_a_compacted_source(make: Make) -> None:
    """Keys keep their last values, also when tasks are killed."""
    made = make(2, 3, configs={"cleanup.policy": "compact"})
    rng = random.Random(9)
    for _ in range(4):
        rows = [NewRecord(b"k%d" % (i % 50), b"%d" % (made.count + i)) for i in range(300)]
        made.count += 300
        produce(made.source, made.topic, rows, partitioner="murmur2_random")
        with made.copying(flush_interval=NEVER) as task:
            made.kill_within(task, rng)
    with made.copying() as task:
        made.until_done(task)
    last = {row.key: row.value for row in made.sent()}
    assert {row.key: row.value for row in made.arrived()} == last
    assert all(row.partition == default_partition(row.key or b"", 3) for row in made.arrived())


@pytest.mark.slow
def test_a_flow_of_a_file(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """With a kill in its midst; the other topics are copied as ever, and groups are moved."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    wide, equal, other = (unique(name) for name in ("wide", "equal", "other"))
    group = unique("group")
    for name in (wide, equal, other):
        create_topic(source, name, 3)
        produce(source, name, keyed(0, 3000), partitioner="murmur2_random")
    ends = end_offsets(source, wide)
    committed = {partition: end // 2 for partition, end in ends.items()}
    for name in (wide, equal):
        commit_group(source, group, name, committed)
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=",".join((wide, equal, other)),
        flow_target_partitions=f"{wide}:5,{equal}:3",
        flow_groups=group,
        emit_checkpoints_interval_seconds="1",
        sync_group_offsets_enabled="true",
        sync_group_offsets_interval_seconds="1",
    )
    with Mirror(tmp_path, keys) as mirror:
        wait_for("half is copied", lambda: copied(target, wide) > 1500, PATIENCE)
        mirror.kill()
        mirror.start()
        produce(source, wide, keyed(3000, 1000), partitioner="murmur2_random")
        wait_for("all is copied", lambda: copied(target, wide) >= 4000, PATIENCE)
        for name in (equal, other):
            wait_for("all is copied", lambda name=name: copied(target, name) >= 3000)  # type: ignore[misc]
        moved = wait_for("the group was moved", lambda: whole(group_offsets(target, group), wide))
        mirror.wait_until_says(
            "are placed by their keys, and offsets of groups are translated by time only"
        )
        file = str(tmp_path / "mm2.properties")

        def by_time(topic: str) -> set[bool]:
            told = sparkmirror("offsets", "translate", file, "--group", group)
            return {"by time" in line for line in told.stdout.splitlines() if topic in line}

        assert by_time(f"A.{wide}") == {True}
        # What the killed task had not mapped is looked up first; until then time is all there is.
        wait_for("exact offsets", lambda: by_time(f"A.{equal}") == {False}, PATIENCE)
        reports = [
            decode_progress(r.value or b"") for r in consume(target, "mm2-progress.A.internal")
        ]
        places = {(row.topic, row.places) for report in reports for row in report.partitions}
        assert places >= {(wide, 5), (equal, 0), (other, 0)}
        assert mirror.stop() == 0
    counts = topics(target)
    assert [counts[f"A.{name}"] for name in (wide, equal, other)] == [5, 3, 3]
    sent, arrived = consume(source, wide), consume(target, f"A.{wide}")
    assert_placed(sent, arrived, 5)
    for name in (equal, other):
        assert_same(source_cluster, name, target_cluster, f"A.{name}")
    unread = {row.value for row in sent if row.offset >= committed[row.partition]}
    assert [r for r in arrived if r.value in unread and r.offset < moved[r.partition]] == []
    syncs = consume(source, "mm2-offset-syncs.B.internal")
    synced = {decode_offset_sync(row.key, row.value).topic for row in syncs}
    assert wide not in synced
    assert {equal, other} <= synced


def keyed(first: int, count: int) -> list[NewRecord]:
    begin = int(time.time() * 1000) - 600_000
    return [
        NewRecord(b"k%d" % (i % 500), b"%d" % i, -1, begin + i) for i in range(first, first + count)
    ]


def copied(target: str, topic: str) -> int:
    remote = f"A.{topic}"
    return sum(end_offsets(target, remote).values()) if remote in topics(target) else 0


def whole(offsets: dict[tuple[str, int], int], topic: str) -> dict[int, int] | None:
    found = {
        partition: offset for (name, partition), offset in offsets.items() if name == f"A.{topic}"
    }
    return found if len(found) == 5 else None
