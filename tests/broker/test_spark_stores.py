"""Stores, keytabs and tokens that only the driver has: executors get them with the job, and again when they are renewed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from certificates import Authority, Identity
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from copied import Unique
from kafka_tools import QUICK_JVM, wait_for
from running import Mirror
from spark_cluster import SparkCluster
from spread import SpreadTopic, keys, submitted

from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.machine import Machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to hide the driver's files"),
]
# `sh` gets the folder as $0.
_HIDE = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


def without(folder: Path) -> Machine:
    """A machine on which this folder is empty."""
    return Machine(enter=(*_HIDE, str(folder)))


def sees(process: psutil.Process, folder: Path) -> list[str]:
    """What a process finds in a folder; one that has just ended finds nothing."""
    try:
        return [file.name for file in Path(f"/proc/{process.pid}/root{folder}").iterdir()]
    except FileNotFoundError:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            raise
        return []


def show(cluster: KafkaCluster, identity: Identity) -> None:
    """Let the broker show another certificate to who connects to MUTUAL from now on."""
    store = identity.store("PEM")
    entries = [
        ConfigEntry(
            f"listener.name.mutual.ssl.keystore.{name}",
            value,
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, value in (("type", store.kind), ("location", str(store.path)))
    ]
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 3})
    admin.incremental_alter_configs([broker])[broker].result(60)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def cluster(tmp_path: Path, authority: Authority) -> Iterator[KafkaCluster]:
    broker = authority.issue("broker")
    properties = authority.listener("OPEN", authority.issue("other"))
    properties |= authority.listener("MUTUAL", broker, "required")
    listeners = {"OPEN": "SSL", "MUTUAL": "SSL"}
    with KafkaCluster("tls", 1, tmp_path, properties, jvm=QUICK_JVM, listeners=listeners) as found:
        yield found


def test_executors_without_the_drivers_stores(
    cluster: KafkaCluster, authority: Authority, unique: Unique, tmp_path: Path
) -> None:
    """Mutual TLS; then the broker gets a certificate of another CA, which only the renewed truststore trusts."""
    folder = tmp_path / "stores"
    folder.mkdir()
    trust, renewed = folder / "trust.pem", Authority(tmp_path / "renewed", "renewed")
    authority.write_trust(trust, "PEM")
    authority.write_trust(folder / "trust.jks", "JKS")
    alice = authority.issue("alice")
    alice.write_store(folder / "alice.p12", "PKCS12")
    given = {
        "A": authority.truststore("JKS")
        | {"ssl.truststore.location": str(folder / "trust.jks")}
        | {"bootstrap.servers": cluster.bootstrap_of("OPEN")},
        "B": authority.truststore("PEM")
        | {"ssl.truststore.location": str(trust)}
        | alice.store("PKCS12").as_keystore()
        | {"ssl.keystore.location": str(folder / "alice.p12")}
        | {"bootstrap.servers": cluster.bootstrap_of("MUTUAL")},
    }
    topic = SpreadTopic(cluster, cluster, unique("stores"), 4)
    with SparkCluster(tmp_path) as spark:
        node = spark.add_node(2, without(folder))
        wanted = keys(topic, spark.url, 2)
        for alias, properties in given.items():
            properties["security.protocol"] = "SSL"
            wanted |= {f"{alias}.{key}": value for key, value in properties.items()}
        with Mirror(tmp_path, wanted) as mirror:
            topic.add()
            topic.arrives()
            assert node.executors()
            assert all(sees(executor, folder) == [] for executor in node.executors())

            assert (
                mirror.output.count("Spark's connections are not encrypted: what logging in") == 1
            )

            before = len(submitted(mirror))
            show(cluster, renewed.issue("broker"))
            topic.add()
            topic.arrives()  # over connections that were there before
            renewed.write_trust(trust, "PEM")
            mirror.wait_until_says(f"planning its Spark tasks again: {trust} changed")
            wait_for("another job", lambda: len(submitted(mirror)) > before)
            topic.add()
            topic.arrives()
        assert topic.assert_same() == 12
