"""S4, logs of several data centres: two workers of one group, three connectors for each source cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

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

from sparkmirror.formats.mirror import decode_checkpoint, decode_heartbeat
from sparkmirror.tools.clusters import KafkaCluster, free_port, start_all

CENTRES = ("dc1", "dc2")
KINDS = {"msc": 2, "cpc": 1, "hbc": 1}
"""Each kind of connector with its number of tasks."""
TOPIC = "test"
PARTITIONS = 4
COUNT = 800
GROUP = "log-reader"


class Clusters(NamedTuple):
    target: KafkaCluster
    sources: dict[str, KafkaCluster]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    made = Clusters(
        KafkaCluster("target", 2, tmp_path, jvm=QUICK_JVM),
        {
            "dc1": KafkaCluster("dc1", 2, tmp_path, jvm=QUICK_JVM),
            "dc2": KafkaCluster("dc2", 1, tmp_path, jvm=QUICK_JVM),
        },
    )
    everyone = [made.target, *made.sources.values()]
    start_all(everyone)
    try:
        yield made
    finally:
        for cluster in everyone:
            cluster.close()


@pytest.mark.slow
def test_two_workers_collect_the_logs_of_two_centres(clusters: Clusters, tmp_path: Path) -> None:
    target = clusters.target.bootstrap
    ports = free_port(), free_port()
    addresses = {
        "kafka-target-1:9092,kafka-target-2:9092": target,
        **{f"kafka-{name}:9092": known.bootstrap for name, known in clusters.sources.items()},
        "rest.port=8083": f"rest.port={ports[0]}",
        "rest.port=8084": f"rest.port={ports[1]}",
    }
    files = ScenarioFiles("s4", tmp_path, addresses)
    for name, source in clusters.sources.items():
        create_topic(source.bootstrap, TOPIC, PARTITIONS)
        produce(source.bootstrap, TOPIC, lines(name, 0))
    with ExitStack() as running:
        one, two = (
            running.enter_context(
                ConnectWorker(tmp_path, files.path(f"connect-distributed-{n}.properties"))
            )
            for n in (1, 2)
        )
        for worker in (one, two):
            worker.wait_ready()
        for name in CENTRES:
            deploy(files, name, one if name == "dc1" else two)
        for name in CENTRES:
            commit_group(clusters.sources[name].bootstrap, f"{GROUP}-{name}", TOPIC, {0: 200})
        for worker in (one, two):
            await_all_running(worker)
        assert spread(one) == spread(two)
        await_copies(target, 2 * COUNT)
        for name, source in clusters.sources.items():
            produce(source.bootstrap, TOPIC, lines(name, COUNT))
        await_copies(target, 4 * COUNT)
        wait_for(
            "both groups have checkpoints",
            lambda: checkpoints(target) == dict.fromkeys(CENTRES, 200),
        )
        wait_for("both centres beat", lambda: beating(target) == set(CENTRES))
        for worker in (one, two):
            check_notes(worker)
            assert worker.stop() == 0
    check_copies(clusters)


def deploy(files: ScenarioFiles, centre: str, worker: ConnectWorker) -> None:
    """What the deploy script does: PUT each of the three files."""
    for kind in KINDS:
        connector = f"mm2-{kind}-{centre}"
        config = files.document(f"mm2/{connector}.json")
        answer = worker.request("PUT", f"/connectors/{connector}/config", config)
        assert answer.status == 201, answer
        if kind == "msc":  # JSON that is no text is taken as its text
            assert answer.document["config"]["sync.topic.acls.enabled"] == "false"
            assert answer.document["config"]["tasks.max"] == "2"


def await_all_running(worker: ConnectWorker) -> None:
    assert set(worker.get("/connectors")) == {f"mm2-{k}-{c}" for k in KINDS for c in CENTRES}
    for name in CENTRES:
        for kind, tasks in KINDS.items():
            worker.wait_running(f"mm2-{kind}-{name}", tasks)


def check_notes(worker: ConnectWorker) -> None:
    """Each old key is told of once."""
    for key in ("rest.port", "internal.key.converter", "internal.value.converter"):
        assert worker.output.count(f"{key} is an old key") == 1


def spread(worker: ConnectWorker) -> dict[str, int]:
    """How many connectors and tasks each worker has; no worker may have two more than the other."""
    connectors: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    for known in worker.get("/connectors?expand=status").values():
        connectors[known["status"]["connector"]["worker_id"]] += 1
        tasks.update(task["worker_id"] for task in known["status"]["tasks"])
    assert sorted(connectors.values()) == [3, 3], connectors
    assert sorted(tasks.values()) == [4, 4], tasks
    return dict(connectors + tasks)


def lines(centre: str, first: int) -> list[NewRecord]:
    return [
        NewRecord(centre.encode(), b"%s line %d" % (centre.encode(), i), i % PARTITIONS)
        for i in range(first, first + COUNT)
    ]


def await_copies(target: str, count: int) -> None:
    wait_for(
        f"{TOPIC} has {count} records",
        lambda: TOPIC in topics(target) and sum(end_offsets(target, TOPIC).values()) >= count,
    )


def check_copies(clusters: Clusters) -> None:
    """Each centre's lines are there once and in order, between those of the other."""
    found = consume(clusters.target.bootstrap, TOPIC)
    assert len(found) == 4 * COUNT
    for name, source in clusters.sources.items():
        wanted = [record[2:] for record in consume(source.bootstrap, TOPIC)]
        assert [r[2:] for r in found if r.key == name.encode()] == wanted


def checkpoints(target: str) -> dict[str, int]:
    """Where each centre's group stands at its source, by the last checkpoint."""
    found = {}
    for name in CENTRES:
        topic = f"{name}.checkpoints.internal"
        for record in consume(target, topic) if topic in topics(target) else ():
            point = decode_checkpoint(record.key, record.value)
            assert (point.group, point.topic) == (f"{GROUP}-{name}", TOPIC)
            found[name] = point.upstream_offset
    return found


def beating(target: str) -> set[str]:
    rows = consume(target, "heartbeats") if "heartbeats" in topics(target) else []
    return {decode_heartbeat(row.key, row.value).source_alias for row in rows}
