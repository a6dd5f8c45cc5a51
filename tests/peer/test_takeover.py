"""One connector, run by Java's worker and by ours in turn on the same storage topics: nothing is missing.

Who takes over begins right after the position that the other has left; what that one had copied beyond its position, if it was
killed, comes twice, and nothing else does.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from java_connect import ConnectWorker, JavaConnectWorker, connector_path
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    wait_for,
)
from our_connect import OurConnectWorker

from sparkmirror.tools.clusters import KafkaCluster

CONNECTOR = "taken over"
TOPIC = "orders"
REMOTE = f"A.{TOPIC}"
PARTITIONS = 4


@pytest.fixture
def source(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster("source", 1, tmp_path, jvm=QUICK_JVM) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        yield cluster


class Handover(NamedTuple):
    """What the next worker finds, by partition: where the target ends, and the next source offset by the stored positions."""

    target_ends: dict[int, int]
    next_offsets: dict[int, int]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_connector_goes_from_java_to_us_and_back(
    source: KafkaCluster, peer_cluster: KafkaCluster, group: str, tmp_path: Path
) -> None:
    target = peer_cluster.bootstrap
    load = Load(source.bootstrap)
    handovers: list[Handover] = []

    def hand_over() -> None:
        handovers.append(
            Handover(end_offsets(target, REMOTE), next_offsets(target, f"{group}-offsets"))
        )

    load.add(2000)
    with JavaConnectWorker(target, tmp_path, group) as java:
        config = mirror_config(source.bootstrap, target)
        path = f"{connector_path(CONNECTOR)}/config"
        assert java.request("PUT", path, config).status == 201
        java.await_state(CONNECTOR, "RUNNING", 2)
        await_copies(load, target)
    hand_over()
    assert handovers[0].next_offsets == handovers[0].target_ends  # it stopped in good order

    with OurConnectWorker(target, tmp_path, group) as ours:
        assert ours.request("GET", path).body == {**config, "name": CONNECTOR}
        status = ours.await_state(CONNECTOR, "RUNNING", 2)
        assert status["connector"]["worker_id"] == ours.worker_id
        load.add(2000)
        await_copies(load, target)
    hand_over()
    assert handovers[1].next_offsets == handovers[1].target_ends

    with JavaConnectWorker(target, tmp_path, group) as java:
        java.await_state(CONNECTOR, "RUNNING", 2)
        killed_under_load(java, load, target)
    hand_over()

    with OurConnectWorker(target, tmp_path, group) as ours:
        ours.await_state(CONNECTOR, "RUNNING", 2)
        await_progress(load, target)
        killed_under_load(ours, load, target)
    hand_over()

    with JavaConnectWorker(target, tmp_path, group) as java:
        java.await_state(CONNECTOR, "RUNNING", 2)
        load.add(1000)
        wait_for(
            "the last positions are those of the source's end",
            lambda: (
                next_offsets(target, f"{group}-offsets") == end_offsets(source.bootstrap, TOPIC)
            ),
            120,
        )
    check(source, peer_cluster, handovers)


class Load:
    """Numbered records for the source topic."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.count = 0

    def add(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        self.count += count
        produce(
            self._bootstrap,
            TOPIC,
            [
                NewRecord(b"%d" % n, b"order %d" % n + b"." * (n % 200), n % PARTITIONS)
                for n in numbers
            ],
        )

    @contextmanager
    def steady(self) -> Iterator[None]:
        """A little all the time."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(0.02):
                self.add(40)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def mirror_config(source: str, target: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "topics": TOPIC,
        "tasks.max": "2",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }


def copied(target: str) -> int:
    return sum(end_offsets(target, REMOTE).values())


def await_copies(load: Load, target: str) -> None:
    """Until the target has as many records as the source; right only while nothing has come twice."""
    wait_for(f"{REMOTE} has {load.count} records", lambda: copied(target) >= load.count, 120)


def await_progress(load: Load, target: str) -> None:
    """Until something is copied that was not there yet."""
    before = copied(target)
    load.add(100)
    wait_for("records flow", lambda: copied(target) >= before + 100, 120)


def killed_under_load(worker: ConnectWorker, load: Load, target: str) -> None:
    """SIGKILL while records flow and positions are written."""
    before = copied(target)
    with load.steady():
        wait_for("records flow", lambda: copied(target) > before + 1500, 120)
        worker.kill()


def next_offsets(target: str, topic: str) -> dict[int, int]:
    """By the offsets topic, as anybody can read it: the source offset after the last one copied."""
    found: dict[int, int] = {}
    for record in consume(target, topic):
        assert record.key is not None
        connector, partition = json.loads(record.key)
        if connector == CONNECTOR and record.value is not None:
            assert partition["cluster"] == "A"
            assert partition["topic"] == TOPIC
            found[partition["partition"]] = json.loads(record.value)["offset"] + 1
    return dict(sorted(found.items()))


def check(source: KafkaCluster, target: KafkaCluster, handovers: list[Handover]) -> None:
    """The target is what one after the other copied, each from its predecessor's position on, the last to the end."""
    everything = {p: list[tuple[object, ...]]() for p in range(PARTITIONS)}
    copies = {p: list[tuple[object, ...]]() for p in range(PARTITIONS)}
    for record in consume(source.bootstrap, TOPIC):
        everything[record.partition].append(record[2:])
    for record in consume(target.bootstrap, REMOTE):
        copies[record.partition].append(record[2:])
    for partition, wanted in everything.items():
        found = copies[partition]
        begin, position = 0, 0
        for handover in [*handovers, Handover({partition: len(found)}, {})]:
            end = handover.target_ends[partition]
            piece = wanted[position : position + end - begin]
            assert found[begin:end] == piece, f"partition {partition}, from {begin} to {end}"
            last = position + end - begin
            begin, position = end, handover.next_offsets.get(partition, last)
            assert position <= last, f"partition {partition}: a position beyond the copies"
        assert last == len(wanted), f"partition {partition}: the end is missing"
