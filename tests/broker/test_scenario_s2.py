"""S2, first steps: a worker on the source's cluster that the environment configures, and one POST."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_pair import ClusterPair, VersionPair, running_pair
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from connect_worker import ConnectWorker
from kafka_tools import (
    NewRecord,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import assert_same
from scenario_files import ScenarioFiles

from sparkmirror.tools.clusters import free_port
from sparkmirror.tools.jvm import KAFKA_VERSION

TOPIC = "to_replicate"
COUNT = 600


@pytest.fixture(params=[KAFKA_VERSION, pytest.param("2.8.2", marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterPair]:
    """Of the current version, and of the one that the scenario was written for."""
    yield from running_pair(1, tmp_path, VersionPair(request.param, request.param))


def test_one_post_copies_to_the_other_cluster_and_never_to_the_source(
    pair: ClusterPair, tmp_path: Path
) -> None:
    source, target = pair.source.bootstrap, pair.target.bootstrap
    port = str(free_port())
    addresses = {"broker:9092": source, "broker2:9092": target, "28082": port}
    files = ScenarioFiles("s2", tmp_path, addresses)
    for topic in (TOPIC, f"{TOPIC}_2", f"{TOPIC}_3"):
        create_topic(source, topic, 2)
        produce(source, topic, numbered(0, COUNT))
    document = files.document("connector.json")
    with ConnectWorker(tmp_path, {}, environment=files.environment("worker.env")) as worker:
        worker.wait_ready()
        assert worker.url == f"http://127.0.0.1:{port}"
        assert worker.get("/")["kafka_cluster_id"] == pair.source.cluster_id
        assert worker.output.count("rest.port is an old key") == 1
        assert is_connect_group(source, '"quickstart"')
        assert not is_connect_group(source, "quickstart")
        storage = {"quickstart_config", "quickstart_offsets", "quickstart_status"}
        assert storage <= topics(source).keys()

        status, headers, created = worker.request("POST", "/connectors", document)
        assert status == 201
        assert headers["location"] == f"{worker.url}/connectors/mm2"
        assert created["config"] == {**document["config"], "name": "mm2"}
        assert worker.wait_running("mm2", 1)["connector"]["worker_id"] == f"localhost:{port}"
        assert worker.get("/connectors") == ["mm2"]
        await_copies(target, f"source.{TOPIC}", COUNT)
        produce(source, TOPIC, numbered(COUNT, 100))
        await_copies(target, f"source.{TOPIC}", COUNT + 100)

        # Without the override Connect writes to the worker's own cluster, which is the source.
        other = without_override(document, f"{TOPIC}_2")
        assert worker.request("POST", "/connectors", other).status == 201
        await_copies(target, f"source.{TOPIC}_2", COUNT)
        third = without_override(document, f"{TOPIC}_3")
        third["config"]["replication.policy.separator"] = "_"
        assert worker.request("POST", "/connectors", third).status == 201
        await_copies(target, f"source_{TOPIC}_3", COUNT)
        assert not [name for name in topics(source) if name.startswith("source")]
        assert not storage & topics(target).keys()
        assert worker.stop() == 0

        # Positions are on the worker's own cluster: it goes on from there, record for record.
        produce(source, TOPIC, numbered(COUNT + 100, 50))
        with worker:
            worker.wait_ready()
            await_copies(target, f"source.{TOPIC}", COUNT + 150)
    assert assert_same(pair.source, TOPIC, pair.target, f"source.{TOPIC}") == COUNT + 150
    assert assert_same(pair.source, f"{TOPIC}_2", pair.target, f"source.{TOPIC}_2") == COUNT
    assert assert_same(pair.source, f"{TOPIC}_3", pair.target, f"source_{TOPIC}_3") == COUNT
    assert not [name for name in topics(source) if name.startswith("source")]


def numbered(first: int, count: int) -> list[NewRecord]:
    return [NewRecord(b"%d" % i, b"value %d" % i, i % 2) for i in range(first, first + count)]


def without_override(document: Any, topic: str) -> Any:
    config = {k: v for k, v in document["config"].items() if not k.startswith("producer.override")}
    return {"name": f"mm2-{topic}", "config": {**config, "topics": topic}}


def await_copies(bootstrap: str, topic: str, count: int) -> None:
    wait_for(
        f"{topic} has {count} records",
        lambda: topic in topics(bootstrap) and sum(end_offsets(bootstrap, topic).values()) >= count,
    )


def is_connect_group(bootstrap: str, group: str) -> bool:
    """Whether workers are in a group of this name (librdkafka refuses to describe one of theirs, and says why)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.describe_consumer_groups([group])[group].result(30)
    except KafkaException as refusal:
        return str(refusal.args[0].str()).endswith("is not a consumer group (connect).")
    return False
