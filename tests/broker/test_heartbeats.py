"""The heartbeat connector and its task against a real target cluster."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation
from guarded import forbid, guarded_cluster
from kafka_tools import QUICK_JVM, Record, consume, delete_topic, topic_configs, topics, wait_for
from thread_tasks import ConnectorWatch, Running, TaskWatch

from sparkmirror.connectors.heartbeat import HeartbeatConnector, HeartbeatTask
from sparkmirror.errors import BrokerError
from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]


def config(bootstrap: str, alias: str, **changes: str) -> dict[str, str]:
    """A heartbeat connector's config; `alias` makes its heartbeats known among those of other tests."""
    return {
        "name": "hb",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "source.cluster.alias": alias,
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "target.cluster.bootstrap.servers": bootstrap,
        **{name.replace("_", "."): value for name, value in changes.items()},
    }


def key(alias: str) -> bytes:
    return struct.pack(">h", len(alias)) + alias.encode() + b"\x00\x01B"


def heartbeats(bootstrap: str, alias: str) -> list[Record]:
    return [record for record in consume(bootstrap, "heartbeats") if record.key == key(alias)]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster whose ACLs count."""
    yield from guarded_cluster(tmp_path_factory)


def test_heartbeats_are_written(target_cluster: KafkaCluster, unique: Unique) -> None:
    alias, bootstrap = unique("A"), target_cluster.bootstrap
    if "heartbeats" in topics(bootstrap):  # of another test, which may have had brokers create it
        delete_topic(bootstrap, "heartbeats")
    props = config(bootstrap, alias)
    connector = HeartbeatConnector(props, ConnectorWatch())
    connector.start()
    connector.stop()
    wait_for("the topic is there", lambda: "heartbeats" in topics(bootstrap))
    assert topics(bootstrap)["heartbeats"] == 1
    assert topic_configs(bootstrap, "heartbeats")["cleanup.policy"] == "compact"

    (task_props,) = connector.task_configs(5)
    java_class = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"
    assert task_props == {**props, "task.class": java_class}
    watch = TaskWatch()
    with Running(HeartbeatTask(task_props, watch)):
        found = wait_for("three heartbeats", lambda: (r := heartbeats(bootstrap, alias))[2:] and r)
    assert {record.partition for record in found} == {0}
    for record in found:
        assert record.value == struct.pack(">hq", 0, record.timestamp)
    times = [record.timestamp for record in found]
    assert all(later - earlier > 900 for earlier, later in pairwise(times))
    assert watch.topics == {"heartbeats"}
    offset_key = f'["hb",{{"sourceClusterAlias":"{alias}","targetClusterAlias":"B"}}]'
    assert watch.offsets == [(offset_key.encode(), b'{"offset":0}')]


@pytest.mark.parametrize("off", [{"emit_heartbeats_enabled": "false"}])
def test_switched_off_there_are_no_tasks(off: dict[str, str]) -> None:
    assert (
        HeartbeatConnector(config("127.0.0.1:1", "A", **off), ConnectorWatch()).task_configs(1)
        == []
    )


@pytest.mark.slow
def test_a_target_that_is_down_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = KafkaCluster("late", 1, tmp_path, jvm=QUICK_JVM)
    props = config(cluster.bootstrap, "A", admin_timeout_ms="100")
    watch = ConnectorWatch()
    connector = HeartbeatConnector(props, watch)
    connector.start()  # returns, although nothing could be made yet
    (task_props,) = connector.task_configs(1)

    def tries(of: str) -> list[str]:
        return [m for m in caplog.messages if m.startswith(of) and "Trying again in" in m]

    with caplog.at_level(logging.WARNING), Running(HeartbeatTask(task_props, TaskWatch())) as task:
        wait_for("both tried twice", lambda: tries("Task hb-0:")[1:] and tries("Connector hb:")[1:])
        assert all("No broker of cluster B" in m and "\n" not in m for m in tries("Task hb-0:"))
        assert task.is_alive
        with cluster:
            wait_for(
                "heartbeats come",
                lambda: (
                    "heartbeats" in topics(cluster.bootstrap)
                    and heartbeats(cluster.bootstrap, "A")[1:]
                ),
            )
            cluster.kill(1)
            known = len(tries("Task hb-0:"))
            wait_for("the loss is noticed", lambda: len(tries("Task hb-0:")) > known)
    connector.stop()
    assert watch.errors == []


def test_a_stop_is_heard_while_nobody_answers() -> None:
    props = config(f"127.0.0.1:{free_port()}", "A")
    with Running(HeartbeatTask(props, TaskWatch())) as task:
        task.stop(5.0)


@pytest.mark.parametrize("missing", [AclOperation.WRITE, AclOperation.DESCRIBE])
def test_who_may_not_write_fails_and_is_told_why(
    guarded: KafkaCluster, missing: AclOperation
) -> None:
    props = config(guarded.bootstrap, "A")
    connector = HeartbeatConnector(props, ConnectorWatch())
    connector.start()
    connector.stop()
    forbid(guarded, missing, "heartbeats")
    running = Running(HeartbeatTask(connector.task_configs(1)[0], TaskWatch()))
    with pytest.raises(BrokerError) as caught, running:
        wait_for("the task fails", lambda: not running.is_alive)
    assert "TOPIC_AUTHORIZATION_FAILED" in caught.value.message
    assert "User:ANONYMOUS lacks the ACL Write on topic heartbeats." in caught.value.remedy
