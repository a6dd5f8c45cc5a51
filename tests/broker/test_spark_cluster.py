"""A Spark cluster of several nodes: its slots are used, and partitions go on when nodes come, go or are not there."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_tools import NewRecord, create_topic, end_offsets, produce, topics, wait_for
from running import Mirror, assert_same, properties
from spark_cluster import SparkCluster

from sparkmirror.tools.clusters import KafkaCluster, free_port

pytestmark = pytest.mark.slow
Unique = Callable[[str], str]
FLOWS_ON_S = 15.0


class Copied:
    """A topic whose partitions get a record each, again and again, and its copy."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, topic: str, count: int) -> None:
        self.source, self.target, self.topic, self.count = source, target, topic, count
        self.rounds = 0
        create_topic(source.bootstrap, topic, count)

    def add(self) -> None:
        """One more record for each partition."""
        key = b"%d" % self.rounds
        produce(
            self.source.bootstrap, self.topic, [NewRecord(key, key, n) for n in range(self.count)]
        )
        self.rounds += 1

    def arrives(self, patience: float = 120.0) -> None:
        """What was added last is copied, in every partition."""
        wait_for("every partition is copied", self._is_there, patience)

    def _is_there(self) -> bool:
        remote = f"A.{self.topic}"
        if remote not in topics(self.target.bootstrap):
            return False
        ends = end_offsets(self.target.bootstrap, remote)
        return len(ends) == self.count and all(end == self.rounds for end in ends.values())

    def assert_same(self) -> None:
        assert_same(self.source, self.topic, self.target, f"A.{self.topic}")


@pytest.fixture
def topic(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[Copied]:
    yield Copied(source_cluster, target_cluster, unique("spread"), 6)


def keys(topic: Copied, master: str, tasks: int, **more: str) -> dict[str, str]:
    return properties(
        topic.source,
        topic.target,
        flow_topics=topic.topic,
        tasks_max=str(tasks),
        spark_master=master,
        spark_executor_memory="512m",
        spark_driver_host="127.0.0.1",
        **more,
    )


def submitted(mirror: Mirror) -> list[int]:
    """How many Spark tasks each job of the flow had."""
    lines = [line for line in mirror.output.splitlines() if "Spark task(s) submitted" in line]
    return [int(line.split(":")[-1].split()[0]) for line in lines]


def test_the_slots_of_all_nodes_are_used(topic: Copied, tmp_path: Path) -> None:
    with (
        SparkCluster(tmp_path, 4, 4) as spark,
        Mirror(tmp_path, keys(topic, spark.url, 6)) as mirror,
    ):
        topic.add()
        topic.arrives()
        assert submitted(mirror)[-1] == 6
        for node in spark.nodes:
            wait_for("both nodes have an executor", node.executors)
        topic.assert_same()


def test_a_node_that_is_lost_for_good_leaves_no_partition_standing(
    topic: Copied, tmp_path: Path
) -> None:
    with SparkCluster(tmp_path, 1, 1) as spark:
        more = {"mirror_epoch_ms": "8000"}
        with Mirror(tmp_path, keys(topic, spark.url, 2, **more)) as mirror:
            topic.add()
            topic.arrives()
            wait_for("two Spark tasks", lambda: 2 in submitted(mirror))
            spark.nodes[1].kill()
            topic.add()
            topic.arrives(FLOWS_ON_S)
            deadline = time.monotonic() + 30  # several jobs later no partition starves, either
            while time.monotonic() < deadline:
                topic.add()
                topic.arrives(FLOWS_ON_S)
        topic.assert_same()


def test_nodes_that_come_late_are_used(topic: Copied, tmp_path: Path) -> None:
    """A cluster without nodes is told of; the first one is used as soon as it is there, and so is the second."""
    with SparkCluster(tmp_path) as spark, Mirror(tmp_path, keys(topic, spark.url, 4)) as mirror:
        topic.add()
        mirror.wait_until_says(
            f"No Spark task can run: no executor is registered at {spark.url}", 40
        )
        spark.add_node(2)
        topic.arrives()
        wait_for("two Spark tasks", lambda: submitted(mirror)[-1:] == [2])
        spark.add_node(2)
        wait_for("four Spark tasks", lambda: submitted(mirror)[-1:] == [4], 30)
        topic.add()
        topic.arrives()
        topic.assert_same()


def test_driver_and_tasks_use_the_ports_that_are_set_and_let_nobody_else_in(
    topic: Copied, tmp_path: Path
) -> None:
    """With a query, so that tasks of queries connect to copy tasks, too."""
    ports = {"mirror_driver_port": str(free_port()), "mirror_task_ports": "11000-11063"}
    query = {"flow_transform_sql": "SELECT value FROM records WHERE length(value) > 0"}
    with (
        SparkCluster(tmp_path, 2, 2) as spark,
        Mirror(tmp_path, keys(topic, spark.url, 2, **ports, **query)),
    ):
        topic.add()
        topic.arrives()
        driver = int(ports["mirror_driver_port"])
        tasks = [port for port in range(11000, 11064) if is_listening(port)]
        assert tasks
        for port in (driver, *tasks):
            assert is_refused(port, b"GET / HTTP/1.1\r\nHost: localhost:8083\r\n\r\n")
            assert is_refused_over_tls(port)
        topic.add()
        topic.arrives()
        topic.assert_same()


def is_listening(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def is_refused(port: int, words: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", port), 20) as stranger:
        stranger.sendall(words)
        return _is_cut(stranger)


def is_refused_over_tls(port: int) -> bool:
    """By who has no certificate of the session."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain) as stranger,
    ):
        return _is_cut(stranger)


def _is_cut(stranger: socket.socket) -> bool:
    """Nothing but an alert of TLS comes before the end."""
    try:
        while said := stranger.recv(100):
            assert said[0] == 21, said
    except (ConnectionError, ssl.SSLError):
        return True
    return True
