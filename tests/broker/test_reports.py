"""What a copy task writes beside the data arrives, however many partitions it has and however little its topics take."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_pair import ClusterPair
from copied import Copied, Reports, Unique
from kafka_tools import QUICK_JVM, NewRecord, consume, create_topic, set_topic_configs

from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.formats.mirror import decode_offset_sync
from sparkmirror.formats.offset_map import Place
from sparkmirror.offsets.map_reader import MapTopic
from sparkmirror.tools.clusters import KafkaCluster, start_all

Make = Callable[[int], Copied]


@pytest.fixture
def make(cluster_pair: ClusterPair, unique: Unique) -> Iterator[Make]:
    """Topics with their copies, on two clusters of one broker."""
    made: list[Copied] = []

    def copied(partitions: int) -> Copied:
        made.append(Copied(*cluster_pair, unique, partitions))
        return made[-1]

    yield copied
    for each in made:
        each.close()


def one_each(partitions: int) -> list[NewRecord]:
    """A record for each partition."""
    return [NewRecord(b"k", b"%d" % number, number) for number in range(partitions)]


def written_positions(copied: Copied) -> int:
    """How many partitions the offsets topic shows as copied."""
    store = PositionStore(copied.flow.target, copied.flow.store)
    store.catch_up()
    positions = [store.get((copied.topic, number)) for number in range(copied.partitions)]
    return sum(1 for position in positions if position is not None and position.next_offset == 1)


def reported(reports: Reports, copied: Copied) -> int:
    """How many partitions the progress topic shows as copied."""
    rows = [reports.row(copied.topic, number) for number in range(copied.partitions)]
    return sum(1 for row in rows if row is not None and (row.records, row.offset) == (1, 1))


def mapped(copied: Copied, topic: str) -> int:
    """How many partitions the offset map knows."""
    copied.flow.target.refresh([topic])
    known = MapTopic(copied.flow.target, topic)
    known.follow()
    places = [
        Place(copied.topic, number, copied.remote, number) for number in range(copied.partitions)
    ]
    return sum(1 for place in places if known.map.get(place) is not None)


def synced(copied: Copied, topic: str) -> int:
    """How many partitions have an offset sync."""
    rows = consume(copied.target, topic)
    return len({decode_offset_sync(row.key, row.value).partition for row in rows})


def test_reports_arrive_in_topics_that_take_only_small_batches(make: Make, unique: Unique) -> None:
    count = 60
    copied = make(count)
    reports = Reports(copied, unique)
    offset_map, syncs = unique("map"), unique("syncs")
    for name in (offset_map, syncs):
        create_topic(copied.target, name, configs={"cleanup.policy": "compact"})
    sizes = {reports.topic: 1500, copied.flow.offsets_topic: 1500, offset_map: 1000, syncs: 600}
    for name, size in sizes.items():
        set_topic_configs(copied.target, name, {"max.message.bytes": str(size)})
    copied.produce(one_each(count))
    with copied.copying(
        progress_topic=reports.topic,
        progress_interval=0.2,
        offset_map_topic=offset_map,
        offset_syncs_topic=syncs,
        offset_syncs_at_source=False,
    ) as task:
        task.until("positions arrive", lambda: written_positions(copied) == count)
        task.until("progress arrives", lambda: reported(reports, copied) == count)
        task.until("the offset map arrives", lambda: mapped(copied, offset_map) == count)
        task.until("offset syncs arrive", lambda: synced(copied, syncs) == count)


def test_a_report_that_is_refused_is_said_once_and_the_copy_goes_on(
    make: Make, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    copied = make(2)
    reports = Reports(copied, unique)
    set_topic_configs(copied.target, reports.topic, {"max.message.bytes": "100"})
    caplog.set_level(logging.WARNING)

    def said() -> list[str]:
        return [
            row.getMessage()
            for row in caplog.records
            if row.levelno == logging.ERROR and reports.topic in row.getMessage()
        ]

    with copied.copying(progress_topic=reports.topic, progress_interval=0.05) as task:
        task.until("the refusal is said", lambda: bool(said()))
        copied.produce(one_each(2))
        copied.until(task, 2)
        task.until("positions arrive", lambda: written_positions(copied) == 2)
    (line,) = said()
    assert f"Writing progress to topic {reports.topic} on cluster B" in line
    assert "TOO_LARGE" in line
    assert f"Raise max.message.bytes of topic {reports.topic}" in line


@pytest.mark.slow
def test_one_task_reports_on_five_thousand_partitions(
    tmp_path: Path, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    count = 5000
    pair = [KafkaCluster(name, 1, tmp_path, jvm=QUICK_JVM) for name in ("source", "target")]
    start_all(pair)
    try:
        copied = Copied(pair[0], pair[1], unique, count, offsets_partitions=1)
        reports = Reports(copied, unique)
        copied.produce(one_each(count))
        caplog.set_level(logging.WARNING, logger="sparkmirror.dataplane")
        with copied.copying(progress_topic=reports.topic, flush_interval=1.0) as task:
            copied.until(task, count, patience=240)
            task.until("positions arrive", lambda: written_positions(copied) == count)
            task.until("progress arrives", lambda: reported(reports, copied) == count)
        copied.close()
        assert [row.getMessage() for row in caplog.records] == []
    finally:
        for cluster in pair:
            cluster.close()
