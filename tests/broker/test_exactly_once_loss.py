"""Logs that are cut back, deleted or created again, on either side: what is lost is told, the rest is copied once."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest
from kafka_tools import delete_records
from mirrored import Make, Unique, assert_sequence, lose_tails, making

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.tools.clusters import KafkaCluster


@pytest.fixture
def make(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[Make]:
    with making(source_cluster, target_cluster, unique) as made:
        yield made


@pytest.mark.slow
def test_the_target_loses_acknowledged_records(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Some or all of them, with a copy that runs or that starts later.

    Where nothing is left, the leader does not know the producer any more and takes any number: a running copy notices by the
    offsets it is given.
    """
    some, everything, running, running_all = cases = [make() for _ in range(4)]
    for mirrored in cases:
        mirrored.produce(1000, batch_num_messages=10)
    with running.copying() as first, running_all.copying() as second:
        some.copy_all()
        everything.copy_all()
        running.wait(first)
        running_all.wait(second)
        keep = {c.remote: n for c, n in zip(cases, [600, 0, 600, 0], strict=True)}
        ends = lose_tails(some.target, keep)
        for mirrored in cases:
            mirrored.produce(300, batch_num_messages=10)
        some.copy_all()
        everything.copy_all()
        first.until("all is there", running.has_all)
        second.until("all is there", running_all.has_all)
    for mirrored in (some, everything, running):
        mirrored.assert_same()
        lost = 1000 - ends[mirrored.remote]
        assert f"{mirrored.remote} lost {lost} acknowledged record(s)" in caplog.text
    assert f"{running_all.remote} lost 1000 acknowledged record(s)" in caplog.text
    whole = running_all.target_content()[0]
    assert_sequence(whole[-1300:], running_all.source_content()[0])


@pytest.mark.slow
def test_the_source_is_cut_back(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """What was copied stays, what replaced it at the source is copied behind."""
    stopped, stale, running = cases = [make() for _ in range(3)]
    for mirrored in cases:
        mirrored.produce(1000, batch_num_messages=10)
    with running.copying() as task:
        stopped.copy_all()
        stale.copy_and_abandon()
        running.wait(task)
        before = {m.topic: m.target_content()[0] for m in cases}
        ends = lose_tails(stopped.source, {m.topic: 700 for m in cases})
        for mirrored in cases:
            mirrored.produce(800)
        running.wait(task, 1800)
    for mirrored in cases:
        mirrored.produce(10)
        mirrored.copy_all(expected=1810)
        end = ends[mirrored.topic]
        rest = mirrored.source_content()[0][end:]
        assert_sequence(mirrored.target_content()[0], before[mirrored.topic] + rest)
        words = f"has only {end}" if mirrored is stale else f"was cut back to offset {end}"
        assert [line for line in caplog.messages if mirrored.topic in line and words in line]


def test_retention_overtook_before_the_start(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = make()
    mirrored.produce(300)
    mirrored.copy_all()
    before = mirrored.target_content()[0]
    mirrored.produce(500)
    delete_records(mirrored.source.bootstrap, mirrored.topic, {0: 450})
    mirrored.copy_all(expected=650)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])
    assert "records 300 to 449 were deleted by retention" in caplog.text


@pytest.mark.parametrize(("first", "lost"), [(250, ""), (550, "records 500 to 549 were deleted")])
def test_retention_overtook_a_stale_position(
    make: Make, caplog: pytest.LogCaptureFixture, first: int, lost: str
) -> None:
    mirrored = make()
    mirrored.produce(500, batch_num_messages=40)
    mirrored.copy_and_abandon()
    before = mirrored.target_content()[0]
    mirrored.produce(200, batch_num_messages=40)
    rest = mirrored.source_content()[0][max(first, 500) :]
    delete_records(mirrored.source.bootstrap, mirrored.topic, {0: first})
    mirrored.copy_all(expected=500 + len(rest))
    assert_sequence(mirrored.target_content()[0], before + rest)
    assert (lost or "deleted by retention") in caplog.text or not lost
    assert bool(lost) == ("deleted by retention" in caplog.text)


@pytest.mark.parametrize("commits", [True, False])
def test_retention_that_passes_control_and_aborted_batches_loses_nothing(
    make: Make, caplog: pytest.LogCaptureFixture, commits: bool
) -> None:
    """The marker of a transaction is no record: the position moves over it, and over what was aborted."""
    mirrored = make()
    mirrored.produce(20)
    with mirrored.copying() as task:
        mirrored.produce_transaction(30, commits=commits)
        end = 51
        task.until("the position is behind the marker", lambda: mirrored.next_offset() == end)
    before = mirrored.target_content()[0]
    assert len(before) == (50 if commits else 20)
    delete_records(mirrored.source.bootstrap, mirrored.topic, {0: end})
    mirrored.produce(10)
    mirrored.copy_all(expected=len(before) + 10)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])
    assert "deleted by retention" not in caplog.text


def test_retention_overtakes_while_running(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """The copy waits for a target that does not take its records; meanwhile the source deletes the next ones."""
    mirrored = make(remote_configs={"max.message.bytes": "2000"})
    mirrored.produce(100)
    with mirrored.copying(buffer_bytes=1, partition_buffer_bytes=1) as task:
        mirrored.wait(task)
        mirrored.produce(1, size=5000)
        task.until("the record is refused", lambda: "more than topic" in caplog.text)
        mirrored.produce(100)
        delete_records(mirrored.source.bootstrap, mirrored.topic, {0: 150})
        mirrored.wait(task, 151)
    rest = mirrored.source_content()[0]
    assert len(rest) == 51
    assert_sequence(mirrored.target_content()[0][100:], rest)
    assert "records 100 to 149 were deleted by retention" in caplog.text


def test_the_source_topic_was_created_again_while_stopped(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored = make()
    mirrored.produce(300)
    mirrored.copy_all()
    before = mirrored.target_content()[0]
    mirrored.delete_source()
    mirrored.create_source()
    mirrored.produce(500)
    mirrored.copy_all(expected=800)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])
    assert "deleted and created again" in caplog.text


def test_the_source_topic_is_created_again_while_running(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored = make(2)
    mirrored.produce(300)
    with mirrored.copying() as task:
        mirrored.wait(task)
        before = mirrored.target_content()[0]
        mirrored.delete_source()
        mirrored.create_source()
        mirrored.produce(500)
        mirrored.wait(task, 800)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0])
    assert "deleted and created again" in caplog.text


@pytest.mark.parametrize("side", ["source", "target"])
def test_one_answer_with_the_id_of_the_topic_before_starts_nothing_over(
    make: Make, caplog: pytest.LogCaptureFixture, side: str
) -> None:
    """A broker that has not heard yet of a topic that was created again still gives the id of the old one."""
    mirrored = make()
    mirrored.produce(300)
    with mirrored.copying(recreated_target="restart") as task:
        mirrored.wait(task)
        cluster = task.task._source if side == "source" else task.task._target
        name = mirrored.topic if side == "source" else mirrored.remote
        old = cluster.topics[name].topic_id
        if side == "source":
            mirrored.delete_source()
            mirrored.create_source()
        else:
            mirrored.delete_target()
            mirrored.create_target()
        mirrored.produce(200)
        mirrored.wait(task, 500)
        wanted = mirrored.target_content()[0]
        answered = answer_once(cluster, name, old)
        task.task._refresh_due = True
        task.until("the old id was answered", answered.is_set)
        mirrored.produce(10)
        mirrored.wait(task, 510)
        mirrored.produce(10)
        mirrored.wait(task, 520)
    assert_sequence(mirrored.target_content()[0], wanted + mirrored.source_content()[0][-20:])
    assert caplog.text.count("deleted and created again") <= 1


def answer_once(cluster: Cluster, topic: str, topic_id: bytes) -> threading.Event:
    """Let the next metadata of a topic carry this id; gives an event that is set when it was read."""
    read = cluster.refresh
    answered = threading.Event()

    def refresh(topics: Collection[str] | None) -> None:
        read(topics)
        if topics is not None and topic in topics:
            cluster.topics[topic] = replace(cluster.topics[topic], topic_id=topic_id)
            cluster.refresh = read  # type: ignore[method-assign]
            answered.set()

    cluster.refresh = refresh  # type: ignore[method-assign]
    return answered


@pytest.mark.parametrize(("mode", "first"), [("restart", 0), ("continue", 300)])
def test_the_target_topic_was_created_again_while_stopped(
    make: Make, caplog: pytest.LogCaptureFixture, mode: str, first: int
) -> None:
    mirrored = make()
    mirrored.produce(300)
    mirrored.copy_all()
    mirrored.delete_target()
    mirrored.create_target()
    mirrored.produce(200)
    with mirrored.copying() as task:
        task.until("it fails with a remedy", lambda: "mirror.recreated.target" in caplog.text)
    assert mirrored.target_count() == 0
    mirrored.copy_all(expected=500 - first, recreated_target=mode)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][first:])
    mirrored.produce(10)
    mirrored.copy_all(expected=510 - first)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][first:])


def test_the_copy_goes_to_another_topic_from_now_on(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a change of the replication policy: what was copied stays where it is, and nothing is copied again."""
    mirrored = make()
    mirrored.produce(300)
    mirrored.copy_all()
    first, mirrored.remote = mirrored.remote, f"other-{mirrored.topic}"
    mirrored.create_target()
    mirrored.produce(200)
    mirrored.copy_all(expected=200)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][300:])
    assert f"were copied to {first} on" in caplog.text


@pytest.mark.parametrize(("mode", "first"), [("fail", None), ("restart", 0), ("continue", 300)])
def test_the_target_topic_is_created_again_while_running(
    make: Make, caplog: pytest.LogCaptureFixture, mode: str, first: int | None
) -> None:
    mirrored = make()
    mirrored.produce(300)
    with mirrored.copying(recreated_target=mode) as task:
        mirrored.wait(task)
        mirrored.delete_target()
        mirrored.create_target()
        mirrored.produce(200)
        if first is None:
            task.until("it fails with a remedy", lambda: "mirror.recreated.target" in caplog.text)
            assert mirrored.target_count() == 0
            return
        mirrored.wait(task, 500 - first)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][first:])


def test_what_is_retried_for_long_is_told(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = make()
    mirrored.produce(100)
    with mirrored.copying(recreated_target="restart") as task:
        mirrored.wait(task)
        mirrored.delete_target()
        mirrored.produce(50)
        line = f"retrying {mirrored.topic}-0: writing to cluster B "
        task.until("it is told", lambda: line in caplog.text)
        assert re.search(r"UNKNOWN_TOPIC_.*; \d tries so far, next try in [\d.]+ s", caplog.text)
        mirrored.create_target()
        mirrored.wait(task)
    mirrored.assert_same()


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("restart", 0),
        pytest.param("continue", 300, marks=pytest.mark.slow),
        pytest.param("fail", None, marks=pytest.mark.slow),
    ],
)
def test_an_idle_copy_notices_that_the_target_topic_was_created_again(
    make: Make, caplog: pytest.LogCaptureFixture, mode: str, first: int | None
) -> None:
    """No record comes that could be refused: fresh metadata tells."""
    mirrored = make()
    mirrored.produce(300)
    with mirrored.copying(recreated_target=mode, metadata_max_age=0.5) as task:
        mirrored.wait(task)
        old = mirrored.position().target_id
        mirrored.delete_target()
        mirrored.create_target()
        if first is None:
            task.until("it fails with a remedy", lambda: "mirror.recreated.target" in caplog.text)
            assert mirrored.target_count() == 0
            return
        task.until("it has noticed", lambda: mirrored.position().target_id != old, 20.0)
        mirrored.wait(task, 300 - first)
        mirrored.produce(10)
        mirrored.wait(task, 310 - first)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][first:])


@pytest.mark.slow
def test_an_idle_copy_with_transforms_notices_that_its_target_was_created_again(make: Make) -> None:
    mirrored = make(2)
    for partition in (0, 1):
        mirrored.produce(50, partition)
    plans = [replace(plan, places=2) for plan in mirrored.plans]
    settings = {"recreated_target": "restart", "metadata_max_age": 0.5}
    with mirrored.flow.copying(plans, **settings) as task:
        mirrored.wait(task)
        mirrored.delete_target()
        mirrored.create_target()
        mirrored.wait(task)
    found = [row for rows in mirrored.target_content().values() for row in rows]
    wanted = [row for rows in mirrored.source_content().values() for row in rows]
    assert sorted(found, key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("at_start", [True, False])
def test_a_topic_that_is_gone_does_not_disturb_the_others(make: Make, at_start: bool) -> None:
    mirrored, gone = make(2), make()
    mirrored.produce(100)
    plans = [*mirrored.plans, *gone.plans, PartitionPlan("never-was", 0, "A.never-was")]
    if at_start:
        gone.delete_source()
    with mirrored.flow.copying(plans) as task:
        mirrored.wait(task)
        if not at_start:
            gone.delete_source()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            before = time.monotonic()
            mirrored.produce(20, 1)
            mirrored.wait(task)
            assert time.monotonic() - before < 2.0
    mirrored.assert_same()
