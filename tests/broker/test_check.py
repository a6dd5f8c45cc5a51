"""`sparkmirror check` against real clusters: what would go wrong is said, with its remedy, and nothing is changed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka_tools import QUICK_JVM, NewRecord, create_topic, produce, topics

from sparkmirror.config.source import SourceConfig
from sparkmirror.connectors.checking import check_copying
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.preflight.check import check
from sparkmirror.preflight.findings import Finding, Level, Report
from sparkmirror.preflight.subjects import connector_subject, mm2_subject
from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]
_DAY_MS = 86_400_000


def _flow(
    source: KafkaCluster, target: KafkaCluster, keys: Mapping[str, str] | None = None
) -> dict[str, str]:
    return {
        "clusters": "A,B",
        "A.bootstrap.servers": source.bootstrap,
        "B.bootstrap.servers": target.bootstrap,
        "A->B.enabled": "true",
        "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
        **(keys or {}),
    }


def _checked(properties: Mapping[str, str], seconds: float = 30.0) -> Report:
    return check(mm2_subject(properties, "file"), seconds)


def _found(report: Report, kind: str, least: Level = Level.NOTE) -> list[Finding]:
    return [
        finding
        for section in report.sections
        for finding in section.findings
        if finding.check == kind and finding.level >= least
    ]


def test_a_flow_that_is_right(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic = unique("right")
    create_topic(source_cluster.bootstrap, topic, 2)
    produce(source_cluster.bootstrap, topic, [NewRecord(b"k", b"v")])
    before = topics(source_cluster.bootstrap), topics(target_cluster.bootstrap)
    report = _checked(_flow(source_cluster, target_cluster, {"topics": topic}))
    assert report.level < Level.WARNING, report.as_json()
    said = json.dumps(report.as_json())
    assert f"{topic} as A.{topic}" in said
    assert "lacks none of the rights" in said
    assert (topics(source_cluster.bootstrap), topics(target_cluster.bootstrap)) == before


def test_limits_of_the_target(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic = unique("limits")
    now = time.time_ns() // 1_000_000
    create_topic(source_cluster.bootstrap, topic, configs={"max.message.bytes": "3000000"})
    produce(
        source_cluster.bootstrap,
        topic,
        [NewRecord(b"k", b"v", 0, now - 30 * _DAY_MS), NewRecord(b"k", b"v", 0, now)],
    )
    create_topic(
        target_cluster.bootstrap,
        f"A.{topic}",
        configs={
            "message.timestamp.before.max.ms": str(_DAY_MS),
            "retention.ms": str(7 * _DAY_MS),
        },
    )
    keys = {"topics": topic, "sync.topic.configs.enabled": "false", "replication.factor": "3"}
    report = _checked(_flow(source_cluster, target_cluster, keys))
    (size,) = _found(report, "max-message-bytes")
    assert "3000000" in size.message
    (times,) = _found(report, "timestamps")
    assert times.level is Level.ERROR
    assert "30 days" in times.message
    (kept,) = _found(report, "retention")
    assert "7 days" in kept.message
    # The topic is there, so no factor is asked for; with the sync of configs the size is right.
    assert not _found(report, "replication-factor", Level.ERROR)
    synced = _checked(_flow(source_cluster, target_cluster, {"topics": topic}))
    assert not _found(synced, "max-message-bytes")


def test_more_replicas_than_brokers(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic = unique("factor")
    create_topic(source_cluster.bootstrap, topic)
    keys = {
        "topics": topic,
        "replication.factor": "3",
        "offset-syncs.topic.replication.factor": "2",
        "B.config.storage.replication.factor": "3",
        "B.config.storage.topic": unique("configs"),
    }
    flow = {**_flow(source_cluster, target_cluster, keys), "A->B.source.cluster.alias": unique("A")}
    flow["A->B.target.cluster.alias"] = unique("B")
    report = _checked(flow)
    wrong = [f.message for f in _found(report, "replication-factor", Level.ERROR)]
    assert any("replication.factor=3, but cluster" in text and topic in text for text in wrong)
    assert any("offset-syncs.topic.replication.factor=2" in text for text in wrong)
    assert any("config.storage.replication.factor=3" in text for text in wrong)
    assert report.exit_code == 1


def test_names(source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique) -> None:
    topic = unique("orders")
    create_topic(source_cluster.bootstrap, topic)
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    keys = {
        "B->A.enabled": "true",
        "topics": f"{topic},{topic[:-1]}",
        "replication.policy.class": policy,
    }
    report = _checked(_flow(source_cluster, target_cluster, keys))
    (loop,) = _found(report, "loop")
    assert topic in loop.message
    assert "A->B and B->A" in loop.message
    missing = [f.message for f in _found(report, "naming", Level.WARNING)]
    assert any(f"{topic[:-1]}, which is not on A. Did you mean {topic}?" in m for m in missing)
    assert any("is not on B" in m for m in missing)  # B -> A finds neither of them


def test_one_cluster_under_two_names(source_cluster: KafkaCluster, unique: Unique) -> None:
    topic = unique("same")
    create_topic(source_cluster.bootstrap, topic)
    report = _checked(_flow(source_cluster, source_cluster, {"topics": f".*{topic}"}))
    (same,) = _found(report, "cluster-id")
    assert "the same cluster" in same.message
    assert _found(report, "loop")


def test_a_cluster_that_is_not_there(source_cluster: KafkaCluster, tmp_path: Path) -> None:
    """As a user calls it; the exit code and JSON are for scripts."""
    nowhere = f"127.0.0.1:{free_port()}"
    file = tmp_path / "mm2.properties"
    keys = _flow(source_cluster, source_cluster) | {"B.bootstrap.servers": nowhere}
    file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
    command = [sys.executable, "-m", "sparkmirror", "check", str(file)]
    asked = [*command, "--json", "--timeout", "20"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    (lost,) = [s for s in answer["sections"] if s["title"].startswith("cluster B")]
    assert "Connection refused" in lost["findings"][0]["message"]
    assert lost["findings"][0]["remedy"]


def test_a_connector_by_its_file(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic = unique("lone")
    create_topic(source_cluster.bootstrap, topic)
    props = {
        "name": "mm2-src",
        "connector.class": "MirrorSource",
        "source.cluster.alias": "A",
        "source.cluster.bootstrap.servers": source_cluster.bootstrap,
        "target.cluster.bootstrap.servers": target_cluster.bootstrap,
        "source.cluster.max.poll.records": "7",
        "topics": topic,
    }
    report = check(connector_subject(props, None, "file src.json"), 30.0)
    (key,) = _found(report, "keys")
    assert "source.consumer.max.poll.records" in key.remedy
    assert _found(report, "worker")[0].level is Level.NOTE
    assert f"{topic} as A.{topic}" in json.dumps(report.as_json())


def test_at_a_connectors_start(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Unique,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = unique("start")
    create_topic(source_cluster.bootstrap, topic, configs={"max.message.bytes": "3000000"})
    create_topic(target_cluster.bootstrap, f"A.{topic}")
    props = {
        "name": "mm2-src",
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "A",
        "topics": f"{topic},{topic[:-1]}",
        "sync.topic.configs.enabled": "false",
    }
    source, target = (
        Cluster(client_settings(alias, {"bootstrap.servers": cluster.bootstrap}))
        for alias, cluster in (("A", source_cluster), ("target", target_cluster))
    )
    try:
        for cluster in (source, target):
            cluster.refresh(None)
        config = SourceConfig.parse(props)
        check_copying(props | {"preflight.enabled": "false"}, config, source, target)
        assert not caplog.records
        check_copying(props, config, source, target)
    finally:
        source.close()
        target.close()
    told = sorted(record.getMessage() for record in caplog.records)
    assert len(told) == 2, told
    assert f"Connector mm2-src: A.{topic}: the source takes batches of 3000000 bytes" in told[0]
    assert f"topics names {topic[:-1]}, which is not on A. Did you mean {topic}?" in told[1]


class _Misadvertised(KafkaCluster):
    """A broker that tells its clients an address where nobody is."""

    nobody = 0

    def _settings(self, node: int) -> dict[str, str]:
        settings = super()._settings(node)
        client = self.address(node)
        self.nobody = self.nobody or free_port()
        wrong = settings["advertised.listeners"].replace(client, f"127.0.0.1:{self.nobody}")
        return {**settings, "advertised.listeners": wrong}


@pytest.fixture
def misadvertised(tmp_path: Path) -> Iterator[_Misadvertised]:
    with _Misadvertised("astray", 1, tmp_path, jvm=QUICK_JVM) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_wrong_advertised_listener(
    misadvertised: _Misadvertised, target_cluster: KafkaCluster
) -> None:
    report = _checked(_flow(misadvertised, target_cluster))
    (astray,) = _found(report, "advertised-listener")
    assert f"answers at {misadvertised.bootstrap}" in astray.message
    assert f"127.0.0.1:{misadvertised.nobody}" in astray.message
    assert "advertised.listeners of broker 1" in astray.remedy
