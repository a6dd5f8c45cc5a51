"""S5's clusters and files: a managed source that asks for an API key or a truststore, and the properties files that name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certificates import PASSWORD
from kafka_tools import NewRecord, consume, create_topic, end_offsets, produce, topics, wait_for
from scenario_files import ScenarioFiles
from secured import SecuredCluster, secured_cluster

from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import KAFKA_VERSION

API_KEY = '5kW-0f\\4"x'
AS_WRITTEN = '5kW-0f\\\\\\\\4\\\\"x'  # escaped for JAAS, and that for a properties file


@contextmanager
def managed_source(directory: Path, version: str = KAFKA_VERSION) -> Iterator[SecuredCluster]:
    """The source, with records in `orders`, and in a topic that is not to be copied."""
    users = {"token": API_KEY}
    with secured_cluster(directory, plain_users=users, version=version, stores="JKS") as cluster:
        create_topic(cluster.open_bootstrap, "orders", 3)
        create_topic(cluster.open_bootstrap, "payments", 1)
        produce(cluster.open_bootstrap, "orders", orders(0, 600))
        produce(cluster.open_bootstrap, "payments", [NewRecord(b"p", b"not to be copied")])
        yield cluster


def orders(first: int, count: int) -> list[NewRecord]:
    return [
        NewRecord(
            b"order-%d" % i,
            b'{"amount":%d}' % i,
            i % 3,
            1_700_000_000_000 + i,
            (("trace", b"%d" % i), ("empty", None)),
        )
        for i in range(first, first + count)
    ]


def files(source: SecuredCluster, target: KafkaCluster, directory: Path) -> ScenarioFiles:
    """The files as their user has them, hosts and secrets aside."""
    addresses = {
        "kafka-prod-0.example:9093": source.bootstrap("SASL_SSL"),
        "my-cluster-kafka-bootstrap.example:443": source.bootstrap("SSL"),
        "localhost:9092": target.bootstrap,
        "an-api-key": AS_WRITTEN,
        "/home/user/truststore.jks": str(source.authority.store("JKS").path),
        "a-store-password": PASSWORD,
    }
    return ScenarioFiles("s5", directory, addresses)


def trusted(source: SecuredCluster) -> dict[str, str]:
    """Variables of a system that trusts the source. Managed clusters have certificates that every system trusts."""
    return {"SSL_CERT_FILE": str(source.authority.store("PEM").path)}


def copy_is_complete(source: SecuredCluster, target: KafkaCluster) -> bool:
    """Whether as many records as the source's `orders` has are on the target."""
    if "source.orders" not in topics(target.bootstrap):
        return False
    there = sum(end_offsets(source.open_bootstrap, "orders").values())
    return sum(end_offsets(target.bootstrap, "source.orders").values()) >= there


def copy_more(source: SecuredCluster, target: KafkaCluster, patience: float = 60.0) -> None:
    """What is there is copied, and so is what comes after it."""
    wait_for("all is copied", lambda: copy_is_complete(source, target), patience)
    there = sum(end_offsets(source.open_bootstrap, "orders").values())
    produce(source.open_bootstrap, "orders", orders(there, 300))
    wait_for("more is copied", lambda: copy_is_complete(source, target), patience)


def assert_copied(source: SecuredCluster, target: KafkaCluster) -> None:
    """`orders` is on the target, each record once and with its headers; so are the topics of S5, and no others."""
    names = {name for name in topics(target.bootstrap) if not name.startswith("__")}
    # The heartbeats that the other direction writes to the source are copied from when they are found there.
    assert names - {"source.heartbeats"} == {
        "mm2-configs.source.internal",
        "mm2-offsets.source.internal",
        "mm2-status.source.internal",
        "source.orders",
        "source.checkpoints.internal",
        "mm2-progress.source.internal",
        "mm2-offset-map.source.internal",
        "heartbeats",
    }
    ours = consume(target.bootstrap, "source.orders")
    assert ours == consume(source.open_bootstrap, "orders")
    assert {name for record in ours for name, _ in record.headers} == {"trace", "empty"}
