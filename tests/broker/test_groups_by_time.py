"""Groups of a topic whose copy has another number of partitions: translated by time, and nothing unread is passed over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_tools import (
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    set_topic_configs,
    topics,
    wait_for,
)
from repeating import Repeating
from timed import Timed, all_by_time

from sparkmirror.tools.clusters import KafkaCluster

Make = Callable[..., Timed]


@pytest.fixture
def make(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Make:
    def made(partitions: int, width: int, **changes: str) -> Timed:
        return Timed(source_cluster, target_cluster, partitions, width, **changes)

    return made


@pytest.mark.parametrize(
    ("partitions", "width"), [(2, 5), pytest.param(4, 2, marks=pytest.mark.slow)]
)
def test_what_a_group_has_not_read_lies_behind_its_offsets(
    make: Make, partitions: int, width: int
) -> None:
    """Groups anywhere, and records that come late."""
    made = make(partitions, width, sync_group_offsets_enabled="true")
    made.produce_timed(1200, jitter_ms=40)
    made.place_all()
    ends = end_offsets(made.source, made.topic)
    committed = {
        made.group(f"g{i}"): {p: made.random.randrange(end) for p, end in ends.items()}
        for i in range(6)
    }
    committed[made.group("end")] = ends
    committed[made.group("half")] = {0: ends[0]}
    committed[made.group("start")] = dict.fromkeys(ends, 0)
    for group, offsets in committed.items():
        made.commit(group, offsets)
    made.provide_topic()
    with made.running(*committed):
        found = {group: made.await_all(group) for group in committed}
        for group in committed:
            wait_for("it was moved", lambda group=group: made.moved(group) == found[group])  # type: ignore[misc]
    made.see()
    for group, offsets in committed.items():
        assert made.missed(offsets, found[group]) == [], group
    # A time tells within what the records of the other partition and late ones are apart: not back to the beginning.
    exact = [
        made.repeated(committed[made.group(f"g{i}")], found[made.group(f"g{i}")]) for i in range(6)
    ]
    assert min(exact) < 600
    assert found[made.group("end")] == end_offsets(made.target, made.remote)
    assert set(found[made.group("half")].values()) == {0}
    assert set(found[made.group("start")].values()) == {0}
    assert all_by_time(made.checkpoints())


@pytest.mark.slow
def test_checkpoints_follow_a_group_and_go_back_with_it(make: Make) -> None:
    made = make(2, 3)
    made.produce_timed(600, jitter_ms=0)
    made.place_all()
    group = made.group("g")
    ends = end_offsets(made.source, made.topic)
    made.provide_topic()
    made.commit(group, {0: 100, 1: 100})
    with made.running(group):
        first = made.await_all(group)
        made.commit(group, {0: 200, 1: 200})
        wait_for("it has gone on", lambda: sum(made.by_time(group).values()) > sum(first.values()))
        made.commit(group, ends)
        target = end_offsets(made.target, made.remote)
        wait_for("it is at the end", lambda: made.by_time(group) == target)
        made.commit(group, {0: 100, 1: 100})
        wait_for("it has gone back", lambda: made.by_time(group) == first)
    # Another task goes on with what this one has told.
    made.commit(group, {0: 50, 1: ends[1]})
    with made.running(group):
        wait_for("it has gone back", lambda: made.by_time(group) != first)
        now = made.by_time(group)
    made.see()
    assert made.missed({0: 50, 1: ends[1]}, now) == []


@pytest.mark.slow
def test_nothing_is_passed_over_while_late_records_come(make: Make) -> None:
    """Each checkpoint is held against what was committed when it was made, with records that come later and are older."""
    made = make(2, 4)
    made.produce_timed(500, jitter_ms=300)
    made.provide_topic()
    groups = [made.group(f"g{i}") for i in range(8)]
    committed: dict[str, dict[int, int]] = {}
    found: list[tuple[str, dict[int, int]]] = []
    with (
        made.placing() as task,
        made.running(*groups),
        Repeating(lambda: made.produce_timed(20, jitter_ms=300), 0.02),
    ):
        for group in groups:
            ends = end_offsets(made.source, made.topic)
            committed[group] = {p: end - made.random.randrange(60) for p, end in ends.items()}
            made.commit(group, committed[group])
            found.append((group, made.await_all(group)))
        found += [(group, made.by_time(group)) for group in groups]
    with made.placing() as task:
        task.until("all is copied", lambda: made.arrived_count() >= made.count)
    made.see()
    for group, downstream in found:
        assert made.missed(committed[group], downstream) == [], group


@pytest.mark.slow
def test_a_copy_with_times_of_its_own_is_not_translated(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(2, 3)
    set_topic_configs(made.target, made.remote, {"message.timestamp.type": "LogAppendTime"})
    made.produce_timed(100, jitter_ms=0)
    made.place_all()
    group = made.group("g")
    made.commit(group, {0: 10, 1: 10})
    made.provide_topic()
    with made.running(group):
        wait_for("it is told", lambda: "message.timestamp.type=LogAppendTime" in caplog.text)
    assert made.checkpoints(group) == []


@pytest.mark.slow
def test_checkpoints_follow_what_expires_and_a_copy_made_anew(make: Make) -> None:
    """What is gone from the source is still to be read on the target; and in another copy, offsets begin again."""
    made = make(2, 3)
    made.produce_timed(600, jitter_ms=0)
    made.place_all()
    made.provide_topic()
    expired, group = made.group("expired"), made.group("g")
    made.commit(expired, {0: 100, 1: 100})
    made.commit(group, {0: 200, 1: 200})
    delete_records(made.source, made.topic, {0: 150, 1: 150})
    with made.running(expired, group):
        assert set(made.await_all(expired).values()) == {0}
        found = made.await_all(group)
        assert min(found.values()) > 0
        delete_topic(made.target, made.remote)
        wait_for("the copy is gone", lambda: made.remote not in topics(made.target))
        create_topic(made.target, made.remote, made.width)
        wait_for("it begins again", lambda: set(made.by_time(group).values()) == {0})
