"""Driver, executors and Kafka clusters on hosts of their own, and what happens to such hosts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts import Network, can_make_hosts
from kafka_tools import QUICK_JVM, NewRecord, consume, produce, wait_for
from spark_cluster import SparkCluster
from spark_site import (
    FAR_S,
    NODES,
    Site,
    clusters_on,
    cut_off_host,
    drain_node,
    kill_driver,
    kill_executor,
    lose_kafka,
)
from spread import SpreadTopic, submitted

from sparkmirror.formats.progress import RunsOn, decode, progress_topic
from sparkmirror.tools.clusters import KafkaCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root, ip and tc"),
]
Unique = Callable[[str], str]
RECOVERS_S = 60.0
UNEQUAL = (8000, 4000, 2000, 2000, 1000, 1000, 500, 500)


@pytest.fixture(scope="module")
def clusters(
    network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    yield from clusters_on(network, 1, tmp_path_factory.mktemp("hosts"))


@pytest.fixture
def topic(clusters: tuple[KafkaCluster, KafkaCluster], unique: Unique) -> SpreadTopic:
    return SpreadTopic(*clusters, unique("spread"), len(UNEQUAL))


@pytest.fixture
def spark(network: Network, tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path, machine=network["driver"].machine) as made:
        yield made


@pytest.mark.parametrize(
    "fault", [kill_executor, cut_off_host, drain_node, kill_driver, lose_kafka]
)
def test_nothing_is_lost_or_repeated(
    network: Network,
    spark: SparkCluster,
    topic: SpreadTopic,
    tmp_path: Path,
    fault: Callable[[Site], None],
) -> None:
    site = Site(network, spark, topic, tmp_path)
    try:
        with site.mirror:
            with topic.load(UNEQUAL):
                wait_for("four Spark tasks", lambda: 4 in submitted(site.mirror), 60)
                topic.arrives()
                fault(site)
                topic.arrives(RECOVERS_S)
            topic.arrives(RECOVERS_S)
            assert topic.assert_same() > 100
    finally:
        network["node2"].join()


def test_tasks_are_spread_over_executors_with_one_more_than_there_are(
    network: Network, spark: SparkCluster, topic: SpreadTopic, tmp_path: Path
) -> None:
    site = Site(network, spark, topic, tmp_path, tasks_max="3")
    with site.mirror:
        topic.add()
        topic.arrives()
        reports = wait_for("all Spark tasks have reported", lambda: _last_job(topic, 3))
    assert {each.attempt for each in reports.values()} == {0}
    hosts = sorted(each.host for each in reports.values())
    addresses = sorted(network[name].address for name in NODES)
    assert hosts in (sorted([*addresses, each]) for each in addresses), hosts


def _last_job(topic: SpreadTopic, tasks: int) -> dict[int, RunsOn]:
    """Where the Spark tasks run that report now, once there are so many."""
    rows = consume(topic.target.bootstrap, progress_topic("A"))
    reports = [decode(row.value) for row in rows if row.value is not None]
    last = {each.runs_on.spark_task: each.runs_on for each in reports[-3 * tasks :]}
    return last if last.keys() == set(range(tasks)) else {}


def test_partitions_with_unequal_load_are_spread_over_both_hosts(
    network: Network, spark: SparkCluster, topic: SpreadTopic, tmp_path: Path
) -> None:
    site = Site(network, spark, topic, tmp_path, mirror_epoch_ms="8000")
    with site.mirror, topic.load(UNEQUAL):
        wait_for("load has been measured", lambda: len(submitted(site.mirror)) >= 3, 90)
        topic.arrives()
        before = {name: network[name].sent_bytes for name in NODES}
        time.sleep(8)  # what is sent meanwhile is measured
        sent = {name: network[name].sent_bytes - before[name] for name in NODES}
    print(f"bytes sent by each host: {sent}")  # noqa: T201 - for the docs
    assert min(sent.values()) > 0.6 * max(sent.values())


def test_two_hosts_copy_faster_than_one(
    network: Network, spark: SparkCluster, topic: SpreadTopic, tmp_path: Path
) -> None:
    """Where the hosts of the executors are the limit."""
    for name in NODES:
        network[name].limit(40)
    rows = [NewRecord(b"%d" % n, b"x" * 10_000, n % topic.count) for n in range(12_000)]
    seconds: dict[int, float] = {}
    for nodes in (NODES[:1], NODES):
        folder = tmp_path / str(len(nodes))
        folder.mkdir()
        other = SpreadTopic(topic.source, topic.target, f"{topic.topic}-{len(nodes)}", topic.count)
        produce(topic.source.bootstrap, other.topic, rows)
        seconds[len(nodes)] = _copied_in(network, spark, other, folder, nodes)
    print(f"seconds with one and with two hosts: {seconds}")  # noqa: T201 - for the docs
    assert seconds[1] > 1.6 * seconds[2]


def test_a_source_far_away_is_copied_while_an_executor_is_lost(
    network: Network,
    clusters: tuple[KafkaCluster, KafkaCluster],
    spark: SparkCluster,
    unique: Unique,
    tmp_path: Path,
) -> None:
    """Each request to the source takes 60 ms at least: a flow that waits for each of its batches would not get far."""
    place = network["far"].machine
    with KafkaCluster("far", 1, tmp_path, jvm=QUICK_JVM, machine=place) as far:
        topic = SpreadTopic(far, clusters[1], unique("far"), len(UNEQUAL))
        assert _seconds_to(far) >= 2 * FAR_S
        rows = [NewRecord(b"%d" % n, b"x" * 10_000, n % topic.count) for n in range(4000)]
        produce(far.bootstrap, topic.topic, rows)
        site = Site(network, spark, topic, tmp_path)
        with site.mirror:
            wait_for("copying has begun", lambda: topic.copied() > 0, 90)
            began = time.monotonic()
            topic.arrives()
            print(f"40 MB took {time.monotonic() - began:.1f} s")  # noqa: T201 - for the docs
            with topic.load(UNEQUAL):
                kill_executor(site)
                topic.arrives(2 * RECOVERS_S)
            topic.arrives(2 * RECOVERS_S)
            assert topic.assert_same() > len(rows)


def _seconds_to(cluster: KafkaCluster) -> float:
    """How long the handshake of a connection takes."""
    host, _, port = cluster.bootstrap.partition(":")
    began = time.monotonic()
    socket.create_connection((host, int(port)), 10).close()
    return time.monotonic() - began


def _copied_in(
    network: Network, spark: SparkCluster, topic: SpreadTopic, folder: Path, nodes: tuple[str, ...]
) -> float:
    site = Site(network, spark, topic, folder, nodes)
    with site.mirror:
        wait_for("copying has begun", lambda: topic.copied() > 0, 90)
        began = time.monotonic()
        topic.arrives()
        took = time.monotonic() - began
    for node in site.nodes.values():
        node.kill()
    return took
