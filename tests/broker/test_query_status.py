"""What people see of a query: the status tells from which source offset on it applies, and what it may do to records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import NewRecord, consume, create_topic, produce, topics, wait_for
from worker_flow import MIRROR

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
PATIENCE_S = 240.0
KEPT = "SELECT concat('1:', CAST(value AS STRING)) AS value FROM records"
VARYING = "SELECT concat('2:', CAST(value AS STRING), uuid()) AS value FROM records"


@pytest.mark.slow
def test_the_status_tells_from_where_a_query_applies(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    name, topic = unique("asked"), unique("t")
    create_topic(source_cluster.bootstrap, topic, 1)
    config = {
        "connector.class": f"{MIRROR}.MirrorSourceConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source_cluster.bootstrap,
        "target.cluster.bootstrap.servers": target_cluster.bootstrap,
        "topics": topic,
        "replication.factor": "-1",
        "heartbeats.replication.enabled": "false",
        "tasks.max": "1",
    }

    def write(count: int) -> None:
        rows = [NewRecord(b"k", b"%d" % n, 0, 1_700_000_000_000 + n) for n in range(count)]
        produce(source_cluster.bootstrap, topic, rows)

    def copied() -> list[bytes]:
        remote = f"A.{topic}"
        if remote not in topics(target_cluster.bootstrap):
            return []
        return [(row.value or b"")[:2] for row in consume(target_cluster.bootstrap, remote)]

    def noted() -> tuple[str, str]:
        status = worker.status(name)
        if status is None:  # it has not been started yet
            return "", ""
        tasks = [task.get("note", "") for task in status["tasks"]]
        return status["connector"].get("note", ""), " ".join(tasks)

    worker = ConnectWorker(tmp_path, worker_properties(target_cluster.bootstrap, unique("group")))
    with worker:
        worker.wait_ready()
        write(5)
        worker.put(name, {**config, "transform.sql": KEPT})
        first = f"The query applies from {topic}-0 offset 0 on."
        wait_for("the first query is told", lambda: noted() == ("", first), PATIENCE_S)
        wait_for("five records are there", lambda: copied() == [b"1:"] * 5, PATIENCE_S)
        varying = {"transform.sql": VARYING, "transform.nondeterministic": "allow"}
        worker.put(name, {**config, **varying})
        second = f"The query applies from {topic}-0 offset 5 on."
        wait_for("the second query is told", lambda: noted()[1] == second, PATIENCE_S)
        assert noted()[0].startswith("Records may come twice after a failure")
        page = worker.text("/status")
        assert second in page
        assert "Records may come twice" in page
        write(3)
        everything = [b"1:"] * 5 + [b"2:"] * 3
        wait_for("three more are there", lambda: copied() == everything, PATIENCE_S)
        worker.put(name, config)
        wait_for("there is nothing to tell", lambda: noted() == ("", ""), PATIENCE_S)
