"""A flow whose copy tasks run on Spark nodes, one on each host; and what happens to such hosts and what runs on them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from hosts import Network
from kafka_tools import QUICK_JVM
from running import Mirror
from spark_cluster import SparkCluster, SparkNode
from spread import SpreadTopic, keys

from sparkmirror.tools.clusters import KafkaCluster, start_all

NODES = ("node1", "node2")
FAR_S = 0.03
"""How long it takes to the host `far`, and back again."""


def clusters_on(
    network: Network, brokers: int, folder: Path
) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """A source and a target with so many brokers on a host each, until the generator is closed."""
    source, target = (
        KafkaCluster(name, brokers, folder, jvm=QUICK_JVM, machine=network[name].machine)
        for name in ("source", "target")
    )
    start_all([source, target])
    yield source, target
    source.close()
    target.close()


class Site:
    """The mirror on the driver's host, and its nodes."""

    def __init__(
        self,
        network: Network,
        spark: SparkCluster,
        topic: SpreadTopic,
        folder: Path,
        nodes: tuple[str, ...] = NODES,
        **more: str,
    ) -> None:
        self.network, self.spark, self.topic = network, spark, topic
        self.nodes: dict[str, SparkNode] = {}
        for name in nodes:
            self.add_node(name)
        driver = network["driver"]
        settings = {
            "spark_driver_host": driver.address,
            "spark_decommission_enabled": "true",
            "mirror_epoch_ms": "20000",
        }
        wanted = keys(topic, spark.url, 4, **(settings | more))
        self.mirror = Mirror(folder, wanted, machine=driver.machine)

    def add_node(self, name: str) -> None:
        self.nodes[name] = self.spark.add_node(2, self.network[name].machine)


def kill_executor(site: Site) -> None:
    for executor in site.nodes["node2"].executors():
        executor.kill()


def cut_off_host(site: Site) -> None:
    site.network["node2"].cut_off()


def drain_node(site: Site) -> None:
    site.nodes["node2"].drain()


def kill_driver(site: Site) -> None:
    site.mirror.kill()
    site.mirror.start()


def lose_kafka(site: Site) -> None:
    """For longer than a broker is waited for; the driver is still there."""
    node, brokers = site.network["node2"], (site.network["source"], site.network["target"])
    node.lose(*brokers)
    time.sleep(10)  # this is the fault itself
    node.find(*brokers)
