"""S4 with `target.partitions` added to its files: the logs of both centres in one topic that is wider than either's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from connect_worker import ConnectWorker
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    commit_group,
    consume,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from scenario_files import ScenarioFiles

from sparkmirror.formats.connect import default_partition
from sparkmirror.formats.mirror import decode_checkpoint
from sparkmirror.tools.clusters import KafkaCluster, free_port, start_all

CENTRES = ("dc1", "dc2")
KINDS = {"msc": 2, "cpc": 1, "hbc": 1}
TOPIC = "test"
PARTITIONS, WIDTH, COUNT = 4, 6, 600
PATIENCE = 180.0


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, KafkaCluster]]:
    made = {name: KafkaCluster(name, 1, tmp_path, jvm=QUICK_JVM) for name in ("target", *CENTRES)}
    start_all(list(made.values()))
    try:
        yield made
    finally:
        for cluster in made.values():
            cluster.close()


@pytest.mark.slow
def test_the_logs_of_two_centres_in_a_wider_topic(
    clusters: dict[str, KafkaCluster], tmp_path: Path
) -> None:
    target = clusters["target"].bootstrap
    ports = free_port(), free_port()
    addresses = {
        "kafka-target-1:9092,kafka-target-2:9092": target,
        **{f"kafka-{name}:9092": clusters[name].bootstrap for name in CENTRES},
        "rest.port=8083": f"rest.port={ports[0]}",
        "rest.port=8084": f"rest.port={ports[1]}",
    }
    files = ScenarioFiles("s4", tmp_path, addresses)
    for name in CENTRES:
        create_topic(clusters[name].bootstrap, TOPIC, PARTITIONS)
        produce(clusters[name].bootstrap, TOPIC, lines(name), partitioner="murmur2_random")
    with ExitStack() as running:
        workers = [
            running.enter_context(
                ConnectWorker(tmp_path, files.path(f"connect-distributed-{n}.properties"))
            )
            for n in (1, 2)
        ]
        for worker in workers:
            worker.wait_ready()
        refused = workers[0].request(
            "PUT", "/connectors/mm2-msc-dc1/config", config(files, "mm2-msc-dc1", "test:none")
        )
        assert refused.status == 400
        assert "target.partitions" in str(refused.document)
        for name in CENTRES:
            for kind in KINDS:
                connector = f"mm2-{kind}-{name}"
                document = config(files, connector, f"{TOPIC}:{WIDTH}")
                answer = workers[0].request("PUT", f"/connectors/{connector}/config", document)
                assert answer.status == 201, answer
            half = {p: end // 2 for p, end in end_offsets(clusters[name].bootstrap, TOPIC).items()}
            commit_group(clusters[name].bootstrap, f"reader-{name}", TOPIC, half)
        wait_for("all lines are there", lambda: count(target) >= 2 * COUNT, PATIENCE)
        for name in CENTRES:
            for kind, tasks in KINDS.items():
                workers[1].wait_running(f"mm2-{kind}-{name}", tasks)
            wait_for(
                "its group has checkpoints",
                lambda name=name: len(by_time(target, name)) == WIDTH,  # type: ignore[misc]
                PATIENCE,
            )
        note = f"{TOPIC} ({WIDTH}). Group offsets of these topics are translated by time only."
        assert [note in worker.text("/status") for worker in workers] == [True, True]
        for worker in workers:
            assert worker.stop() == 0
    assert topics(target)[TOPIC] == WIDTH
    found = consume(target, TOPIC)
    assert len(found) == 2 * COUNT
    assert all(row.partition == default_partition(row.key or b"", WIDTH) for row in found)
    for name in CENTRES:
        sent = consume(clusters[name].bootstrap, TOPIC)
        ours = [row for row in found if (row.value or b"").startswith(name.encode())]
        for key in {row.key for row in sent}:  # each key was in one partition
            wanted = [row[2:] for row in sent if row.key == key]
            assert [row[2:] for row in ours if row.key == key] == wanted
        ends = end_offsets(clusters[name].bootstrap, TOPIC)
        unread = {row.value for row in sent if row.offset >= ends[row.partition] // 2}
        places = by_time(target, name)
        assert [
            row for row in ours if row.value in unread and row.offset < places[row.partition]
        ] == []


def config(files: ScenarioFiles, connector: str, partitions: str) -> dict[str, object]:
    document: dict[str, object] = files.document(f"mm2/{connector}.json")
    return document if "hbc" in connector else document | {"target.partitions": partitions}


def lines(centre: str) -> list[NewRecord]:
    return [
        NewRecord(b"host-%d" % (i % 40), b"%s line %d" % (centre.encode(), i)) for i in range(COUNT)
    ]


def count(target: str) -> int:
    return sum(end_offsets(target, TOPIC).values()) if TOPIC in topics(target) else 0


def by_time(target: str, centre: str) -> dict[int, int]:
    topic = f"{centre}.checkpoints.internal"
    rows = consume(target, topic) if topic in topics(target) else []
    points = [decode_checkpoint(row.key, row.value) for row in rows]
    assert all(point.is_by_time and point.topic == TOPIC for point in points)
    return {point.partition: point.downstream_offset for point in points}
