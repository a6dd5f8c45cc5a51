"""S5, dedicated mode: `sparkmirror run mm2.properties` from a secured source, with an API key or with a JKS truststore."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import PASSWORD
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from program import Program
from scenario_files import ScenarioFiles
from secured import SecuredCluster, secured_cluster

from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import KAFKA_VERSION

API_KEY = '5kW-0f\\4"x'
AS_WRITTEN = '5kW-0f\\\\\\\\4\\\\"x'  # escaped for JAAS, and that for a properties file


@pytest.fixture(
    scope="module", params=[KAFKA_VERSION, pytest.param("2.4.1", marks=pytest.mark.slow)]
)
def version(request: pytest.FixtureRequest) -> str:
    """Both clusters': the current one, and the one that the scenario was written for."""
    return str(request.param)


@pytest.fixture(scope="module")
def source(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("secured")
    users = {"token": API_KEY}
    with secured_cluster(directory, plain_users=users, version=version, stores="JKS") as cluster:
        create_topic(cluster.open_bootstrap, "orders", 3)
        create_topic(cluster.open_bootstrap, "payments", 1)
        produce(cluster.open_bootstrap, "orders", orders(0, 600))
        produce(cluster.open_bootstrap, "payments", [NewRecord(b"p", b"not to be copied")])
        yield cluster


@pytest.fixture
def target(version: str, tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster("target", 1, tmp_path, jvm=QUICK_JVM, version=version) as cluster:
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


def run(source: SecuredCluster, target: KafkaCluster, directory: Path, name: str) -> Program:
    addresses = {
        "kafka-prod-0.example:9093": source.bootstrap("SASL_SSL"),
        "my-cluster-kafka-bootstrap.example:443": source.bootstrap("SSL"),
        "localhost:9092": target.bootstrap,
        "an-api-key": AS_WRITTEN,
        "/home/user/truststore.jks": str(source.authority.store("JKS").path),
        "a-store-password": PASSWORD,
    }
    files = ScenarioFiles("s5", directory, addresses)
    command = [sys.executable, "-m", "sparkmirror", "run", str(files.path(name))]
    # Managed clusters have certificates that every system trusts; this one's CA is made one of those.
    trusted = {"SSL_CERT_FILE": str(source.authority.store("PEM").path)}
    return Program(command, files.folder / "sparkmirror.log", os.environ | trusted)


def check_flow(source: SecuredCluster, target: KafkaCluster, mirror: Program) -> None:
    """All of `orders` and nothing else arrives, headers too, and goes on to; the topics of S5 are there."""

    def is_copied(count: int) -> bool:
        known = "source.orders" in topics(target.bootstrap)
        return known and sum(end_offsets(target.bootstrap, "source.orders").values()) >= count

    there = len(consume(source.open_bootstrap, "orders"))
    with mirror:
        wait_for("all is copied", lambda: is_copied(there))
        produce(source.open_bootstrap, "orders", orders(there, 300))
        wait_for("more is copied", lambda: is_copied(there + 300))
        assert mirror.stop() == 0
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
    assert "Traceback" not in mirror.output


def test_an_api_key_over_sasl_ssl(
    source: SecuredCluster, target: KafkaCluster, tmp_path: Path
) -> None:
    mirror = run(source, target, tmp_path, "mm2-sasl.properties")
    check_flow(source, target, mirror)
    assert API_KEY not in mirror.output
    assert AS_WRITTEN not in mirror.output


@pytest.mark.slow
def test_a_jks_truststore_made_by_keytool(
    source: SecuredCluster, target: KafkaCluster, tmp_path: Path
) -> None:
    mirror = run(source, target, tmp_path, "mm2-jks.properties")
    check_flow(source, target, mirror)
    assert PASSWORD not in mirror.output
