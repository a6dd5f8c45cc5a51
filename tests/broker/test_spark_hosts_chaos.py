"""Executors on two hosts: all that can be lost is lost at random while records flow; the target equals the source.

Some accidents in `make slow`; each kind more than once in `make chaos` (CHAOS_LONG=1).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accidents import restart_broker
from hosts import Network, can_make_hosts
from kafka_tools import end_offsets, wait_for
from spark_cluster import SparkCluster
from spark_site import (
    NODES,
    Site,
    clusters_on,
    cut_off_host,
    drain_node,
    kill_driver,
    kill_executor,
    lose_kafka,
)
from spread import SpreadTopic
from steady import SteadyProducer

from sparkmirror.tools.clusters import KafkaCluster

LONG = os.environ.get("CHAOS_LONG") == "1"
ACCIDENTS = 30 if LONG else 5
PARTITIONS = 8
SECONDS_EACH = 12.0
RECORDS_EACH = 2000
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.alone,
    pytest.mark.timeout(3600 if LONG else 900),
    pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root, ip and tc"),
]
Accident = Callable[[Site, random.Random], None]


def lose_worker(site: Site, rng: random.Random) -> None:
    _kill_python(site, rng, is_daemon=False)


def lose_daemon(site: Site, rng: random.Random) -> None:
    _kill_python(site, rng, is_daemon=True)


def _kill_python(site: Site, rng: random.Random, *, is_daemon: bool) -> None:
    node = site.nodes[rng.choice(NODES)]
    victims = wait_for(
        "Python processes to kill", lambda: node.python_processes(is_daemon=is_daemon), 120
    )
    rng.choice(victims).kill()


def lose_executor(site: Site, rng: random.Random) -> None:
    kill_executor(site)


def lose_jvm(site: Site, rng: random.Random) -> None:
    rng.choice(wait_for("the driver's JVM", site.mirror.jvms, 120)).kill()


def lose_driver(site: Site, rng: random.Random) -> None:
    kill_driver(site)


def lose_host_for_a_while(site: Site, rng: random.Random) -> None:
    cut_off_host(site)
    time.sleep(rng.uniform(2, 20))  # this is the accident itself
    site.network["node2"].join()


def replace_node(site: Site, rng: random.Random) -> None:
    """Drained, and another one in its place."""
    drain_node(site)
    drained = site.nodes["node2"]
    wait_for("the node has ended", lambda: not drained.is_running, 120)
    site.add_node("node2")


def lose_kafka_for_a_while(site: Site, rng: random.Random) -> None:
    lose_kafka(site)


def restart_source(site: Site, rng: random.Random) -> None:
    restart_broker(site.topic.source, rng)


def restart_target(site: Site, rng: random.Random) -> None:
    restart_broker(site.topic.target, rng)


KINDS: tuple[Accident, ...] = (
    lose_worker,
    lose_daemon,
    lose_executor,
    lose_jvm,
    lose_driver,
    lose_host_for_a_while,
    replace_node,
    lose_kafka_for_a_while,
    restart_source,
    restart_target,
)


@pytest.fixture(scope="module")
def clusters(
    network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Three brokers each, so that one may be lost."""
    yield from clusters_on(network, 3, tmp_path_factory.mktemp("hosts"))


def accidents(rng: random.Random) -> list[Accident]:
    """Each kind as often as any other, in a random order."""
    rounds = -(-ACCIDENTS // len(KINDS))
    found = [kind for _ in range(rounds) for kind in rng.sample(KINDS, len(KINDS))]
    return found[:ACCIDENTS]


def test_nothing_is_lost_and_nothing_comes_twice(
    network: Network,
    clusters: tuple[KafkaCluster, KafkaCluster],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    rng = random.Random(SEED)
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - to repeat a failure
    source, target = clusters
    configs = {"min.insync.replicas": "2"}
    topic = SpreadTopic(source, target, unique("chaos"), PARTITIONS, replication=3, configs=configs)
    remote = f"A.{topic.topic}"
    with SparkCluster(tmp_path, machine=network["driver"].machine) as spark:
        site = Site(network, spark, topic, tmp_path, replication_factor="3")
        with site.mirror:
            site.mirror.wait_until_says("Spark task(s) submitted", 120)
            producer = SteadyProducer(
                source.bootstrap,
                topic.topic,
                RECORDS_EACH * ACCIDENTS,
                PARTITIONS,
                SECONDS_EACH * ACCIDENTS,
            )
            for accident in accidents(rng):
                before = end_offsets(target.bootstrap, remote)
                accident(site, rng)
                # Not before the next accident, so that each hits work that is under way.
                flows = lambda seen=before: _every_partition_flows(topic, seen)  # noqa: E731
                wait_for(f"records flow again after {accident.__name__}", flows, 120)
            wait_for("the producer is done", lambda: producer.done, 900)
            assert not producer.failed
            topic.arrives(300)
    assert topic.assert_same() == RECORDS_EACH * ACCIDENTS


def _every_partition_flows(topic: SpreadTopic, before: dict[int, int]) -> bool:
    wanted = end_offsets(topic.source.bootstrap, topic.topic)
    found = end_offsets(topic.target.bootstrap, f"A.{topic.topic}")
    return all(found[each] > end or wanted[each] == end for each, end in before.items())
