"""A Spark cluster of several nodes: its slots are used, and partitions go on when nodes come, go or are not there."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from kafka_tools import consume, wait_for
from running import Mirror
from spark_cluster import SparkCluster
from spread import SpreadTopic, keys, submitted

from sparkmirror.formats.progress import decode as decode_progress
from sparkmirror.tools.clusters import KafkaCluster, free_port

pytestmark = pytest.mark.slow
Unique = Callable[[str], str]
FLOWS_ON_S = 15.0
SAID_WITHIN_S = 20.0
IDLE_S = 5
DYNAMIC = {
    "spark_dynamicAllocation_enabled": "true",
    "spark_dynamicAllocation_shuffleTracking_enabled": "true",
    "spark_dynamicAllocation_executorIdleTimeout": f"{IDLE_S}s",
    "spark_executor_cores": "1",
}
QUERY = {"flow_transform_sql": "SELECT value FROM records WHERE length(value) > 0"}


@pytest.fixture
def topic(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[SpreadTopic]:
    yield SpreadTopic(source_cluster, target_cluster, unique("spread"), 6)


def executors_of(spark: SparkCluster) -> list[int]:
    return [len(node.executors()) for node in spark.nodes]


def waiting(topic: SpreadTopic) -> set[int]:
    """The partitions of which the progress reports say that they wait for a slot."""
    rows = [
        row
        for record in consume(topic.target.bootstrap, "mm2-progress.A.internal")
        for row in decode_progress(record.value or b"").partitions
    ]
    last = {row.partition: row for row in rows if row.topic == topic.topic}
    return {
        number
        for number, row in last.items()
        if row.state == "WAITING" and row.error.startswith("No Spark task can run: no executor")
    }


def test_the_slots_of_all_nodes_are_used(topic: SpreadTopic, tmp_path: Path) -> None:
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
    topic: SpreadTopic, tmp_path: Path
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


@pytest.mark.alone
def test_nodes_that_come_late_are_used(topic: SpreadTopic, tmp_path: Path) -> None:
    """A cluster without nodes is told of; the first one is used as soon as it is there, and so is the second."""
    with SparkCluster(tmp_path) as spark, Mirror(tmp_path, keys(topic, spark.url, 4)) as mirror:
        topic.add()
        mirror.wait_until_says("is ready.", 60)
        mirror.wait_until_says(
            f"No Spark task can run: no executor is registered at {spark.url}", SAID_WITHIN_S
        )
        wait_for("progress says it of each partition", lambda: waiting(topic) == {*range(6)})
        spark.add_node(2)
        topic.arrives()
        wait_for("two Spark tasks", lambda: submitted(mirror)[-1:] == [2])
        spark.add_node(2)
        wait_for("four Spark tasks", lambda: submitted(mirror)[-1:] == [4], 30)
        topic.add()
        topic.arrives()
        topic.assert_same()


def test_dynamic_allocation_grows_to_the_tasks_and_keeps_what_it_got(
    topic: SpreadTopic, tmp_path: Path
) -> None:
    """Two nodes have room for four executors of one core. None of them is idle while its task copies."""
    with (
        SparkCluster(tmp_path, 2, 2) as spark,
        Mirror(tmp_path, keys(topic, spark.url, 4, **DYNAMIC)) as mirror,
    ):
        topic.add()
        topic.arrives()
        assert submitted(mirror)[-1] == 4
        wait_for("two executors on each node", lambda: executors_of(spark) == [2, 2], 30)
        deadline = time.monotonic() + 3 * IDLE_S  # no executor counts as idle
        while time.monotonic() < deadline:
            topic.add()
            topic.arrives(FLOWS_ON_S)
        assert executors_of(spark) == [2, 2]
        topic.assert_same()


def test_dynamic_allocation_packs_until_the_cluster_has_room(
    topic: SpreadTopic, tmp_path: Path
) -> None:
    """Where executors do not come, all partitions share those that are there; Spark is still asked for more."""
    with (
        SparkCluster(tmp_path, 2) as spark,
        Mirror(tmp_path, keys(topic, spark.url, 4, **DYNAMIC)) as mirror,
    ):
        topic.add()
        topic.arrives()
        wait_for("two Spark tasks", lambda: submitted(mirror)[-1:] == [2], 60)
        topic.add()
        topic.arrives(FLOWS_ON_S)
        spark.add_node(2)
        wait_for("four Spark tasks", lambda: submitted(mirror)[-1:] == [4], 60)
        topic.add()
        topic.arrives(FLOWS_ON_S)
        assert executors_of(spark) == [2, 2]
        topic.assert_same()


@pytest.mark.skipif(pyspark.__version__ < "4", reason="queries need PySpark 4")
def test_dynamic_allocation_with_a_query_starts_without_an_executor_and_asks_again_without_one(
    topic: SpreadTopic, tmp_path: Path
) -> None:
    """No slot is there before a job waits for one. On the two that come, copy tasks leave one to the query."""
    with (
        SparkCluster(tmp_path, 2) as spark,
        Mirror(tmp_path, keys(topic, spark.url, 4, **QUERY, **DYNAMIC)) as mirror,
    ):
        topic.add()
        topic.arrives()
        spark.nodes[0].kill()
        topic.add()
        mirror.wait_until_says("wait for a slot: no executor is registered", 90)
        spark.add_node(2)
        topic.arrives()
        topic.assert_same()


@pytest.mark.skipif(pyspark.__version__ < "4", reason="queries need PySpark 4")
def test_driver_and_tasks_use_the_ports_that_are_set_and_let_nobody_else_in(
    topic: SpreadTopic, tmp_path: Path
) -> None:
    """With a query, so that tasks of queries connect to copy tasks, too."""
    ports = {"mirror_driver_port": str(free_port()), "mirror_task_ports": "11000-11063"}
    events = tmp_path / "events"
    events.mkdir()
    log = {
        "spark_eventLog_enabled": "true",
        "spark_eventLog_compress": "false",
        "spark_eventLog_dir": events.as_uri(),
    }
    with (
        SparkCluster(tmp_path, 2, 2) as spark,
        Mirror(tmp_path, keys(topic, spark.url, 2, **ports, **QUERY, **log)),
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
    written = "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    assert "sparkmirror.query.order" in written
    assert "PRIVATE KEY" not in written


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
