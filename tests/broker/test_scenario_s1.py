"""S1, a migration by a Connect worker at the destination: a worker file, three PUTs, topics that keep their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_pair import ClusterPair, running_pair
from connect_worker import ConnectWorker
from kafka_tools import (
    NewRecord,
    commit_group,
    consume,
    create_topic,
    end_offsets,
    group_offsets,
    produce,
    topic_configs,
    topics,
    wait_for,
)
from running import assert_same
from scenario_files import ScenarioFiles

from sparkmirror.formats.mirror import decode_checkpoint, decode_heartbeat
from sparkmirror.tools.clusters import free_port

TOPIC = "ExampleTopic"
STORAGE = {"connect-configs", "connect-offsets", "connect-status"}
GROUP = "mm2TestConsumer1"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ClusterPair]:
    yield from running_pair(1, tmp_path)


def numbered(first: int, count: int) -> list[NewRecord]:
    return [
        NewRecord(b"%d" % i, b'{"clickstream":%d}' % i, i % 3, headers=(("n", b"%d" % i),))
        for i in range(first, first + count)
    ]


def test_three_connectors_migrate_topics_groups_and_settings(
    pair: ClusterPair, tmp_path: Path
) -> None:
    source, target = pair.source.bootstrap, pair.target.bootstrap
    addresses = {
        "mskdest.example:9092": target,
        "msksource.example:9092": source,
        "localhost:8083": f"localhost:{free_port()}",
    }
    files = ScenarioFiles("s1", tmp_path, addresses)
    create_topic(source, TOPIC, 3, configs={"retention.ms": "86400000"})
    produce(source, TOPIC, numbered(0, 3000))
    with ConnectWorker(tmp_path, files.path("connect-distributed.properties")) as worker:
        worker.wait_ready()
        assert worker.get("/")["kafka_cluster_id"] == pair.target.cluster_id
        assert user_topics(target) == STORAGE
        for name, tasks in {"mm2-msc": 3, "mm2-cpc": 0, "mm2-hbc": 1}.items():
            config = files.document(f"{name}.json")
            status, headers, _ = worker.request("PUT", f"/connectors/{name}/config", config)
            assert status == 201
            assert headers["location"].endswith(f"/connectors/{name}")
            assert worker.wait_running(name, tasks)["type"] == "source"
        wait_for("all is copied", lambda: sum(end_offsets(target, TOPIC).values()) == 3000)

        commit_group(source, GROUP, TOPIC, {0: 1000, 1: 1000, 2: 1000})
        worker.wait_running("mm2-cpc", 1)
        wanted = {(TOPIC, 0): 1000, (TOPIC, 1): 1000, (TOPIC, 2): 1000}
        wait_for("the group has moved", lambda: group_offsets(target, GROUP) == wanted)
        produce(source, TOPIC, numbered(3000, 300))
        commit_group(source, GROUP, TOPIC, {0: 1100, 1: 1100, 2: 1100})
        wanted = dict.fromkeys(wanted, 1100)
        wait_for("the group moves on", lambda: group_offsets(target, GROUP) == wanted)
        assert topic_configs(target, TOPIC)["retention.ms"] == "86400000"

        assert user_topics(target) == {
            *STORAGE,
            TOPIC,
            "heartbeats",
            "msksource.checkpoints.internal",
            "mm2-offset-map.msksource.internal",
            "mm2-progress.msksource.internal",
        }
        assert user_topics(source) == {TOPIC, "mm2-offset-syncs.mskdest.internal"}
        assert worker.get("/connectors/mm2-msc/topics") == {"mm2-msc": {"topics": [TOPIC]}}
        assert worker.stop() == 0
    assert assert_same(pair.source, TOPIC, pair.target, TOPIC) == 3300
    beats = [decode_heartbeat(row.key, row.value) for row in consume(target, "heartbeats")]
    assert {(b.source_alias, b.target_alias) for b in beats} == {("msksource", "mskdest")}
    rows = consume(target, "msksource.checkpoints.internal")
    points = [decode_checkpoint(row.key, row.value) for row in rows]
    assert {(p.group, p.topic) for p in points} == {(GROUP, TOPIC)}
    assert "Unable to" not in worker.output
    assert "Traceback" not in worker.output


def user_topics(bootstrap: str) -> set[str]:
    """All but the broker's own."""
    return {name for name in topics(bootstrap) if not name.startswith("__")}
