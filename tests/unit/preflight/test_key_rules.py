"""Properties that reach nothing."""

from __future__ import annotations

import pytest

from sparkmirror.preflight.findings import Finding, Level
from sparkmirror.preflight.key_rules import connector_findings, mm2_findings

_RIGHT = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A.security.protocol": "SSL",
    "A.ssl.truststore.location": "/t.jks",
    "A.consumer.fetch.max.bytes": "1",
    "B.producer.max.in.flight.requests.per.connection": "2",
    "B.offset.flush.interval.ms": "500",
    "B.offset.storage.replication.factor": "1",
    "A->B.enabled": "true",
    "A->B.topics": "orders",
    "A->B.consumer.auto.offset.reset": "latest",
    "topics.exclude": "x",
    "tasks.max": "4",
    "replication.factor": "2",
    "preflight.enabled": "false",
    "spark.master": "local[2]",
    "mirror.epoch.ms": "1",
    "ssl.truststore.password": "p",
}


def _mm2(key: str) -> Finding:
    (found,) = mm2_findings(_RIGHT | {key: "1"}, ("A", "B"))
    return found


def test_a_file_in_which_everything_counts() -> None:
    assert mm2_findings(_RIGHT, ("A", "B")) == []


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("A>B.topics.exclude", "Write A->B.topics.exclude."),
        ("A-->B.topics", "Write A->B.topics."),
        ("A=>B.topics", "Write A->B.topics."),
        ("A-B.topics", "Write A->B.topics."),
        ("A.max.poll.records", "Write A.consumer.max.poll.records."),
        ("A.acks", "Write A.producer.acks."),
        ("A.topics", "Write A->B.topics, or topics for all flows."),
        ("A.boostrap.servers", "Did you mean A.bootstrap.servers?"),
        ("A.consumer.fetch.max.byte", "Did you mean A.consumer.fetch.max.bytes?"),
        ("A.consumer.linger.ms", "linger.ms is a setting of producers, not of consumers"),
        ("C.bootstrap.servers", "C is not among clusters."),
        ("A->B.topcs.exclude", "Did you mean topics.exclude?"),
        ("A->B.consumer.max.pol.records", "Did you mean A->B.consumer.max.poll.records?"),
        ("A->B.source.cluster.max.poll.records", "Write A->B.source.consumer.max.poll.records."),
        ("A->B.offset.flush.interval.ms", "Write B.offset.flush.interval.ms."),
        ("consumer.fetch.max.bytes", "A.consumer.fetch.max.bytes"),
        ("tpics", "Did you mean topics?"),
    ],
)
def test_keys_of_an_mm2_file(key: str, said: str) -> None:
    found = _mm2(key)
    assert found.level is Level.WARNING
    assert key in found.message
    assert said in str(found)


def test_known_client_keys_without_effect_are_notes() -> None:
    for key in ("B.producer.linger.ms", "A->B.consumer.max.poll.records"):
        assert _mm2(key).level is Level.NOTE


_CONNECTOR = {
    "name": "c",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "source.cluster.bootstrap.servers": "a:9092",
    "source.cluster.sasl.jaas.config": "x",
    "target.cluster.bootstrap.servers": "b:9092",
    "topics": "orders",
    "transforms": "t",
    "transforms.t.type": "x",
    "key.converter": "ByteArrayConverter",
    "tasks.max": "3",
    "producer.override.bootstrap.servers": "b:9092",
    "consumer.isolation.level": "read_committed",
    "source.consumer.fetch.max.bytes": "1",
    "errors.restart.enabled": "true",
}


@pytest.mark.parametrize(
    ("key", "level", "said"),
    [
        ("source.cluster.max.poll.records", Level.WARNING, "Write source.consumer.max.poll.records."),
        ("source.cluster.bootstrap.server", Level.WARNING, "Did you mean source.cluster.bootstrap.servers?"),
        ("producer.max.in.flight.requests.per.connection", Level.NOTE, "producer.override.max.in.flight"),
        ("producer.override.linger.ms", Level.NOTE, "has no effect here"),
        ("topic", Level.WARNING, "Did you mean topics?"),
        ("groups", Level.NOTE, "it is a setting of MirrorCheckpointConnector"),
        ("group.id", Level.WARNING, "Write it in the worker's file."),
        ("consumer.isolation.levl", Level.WARNING, "Did you mean consumer.isolation.level?"),
    ],
)  # fmt: skip
def test_keys_of_a_connector(key: str, level: Level, said: str) -> None:
    (found,) = connector_findings(_CONNECTOR | {key: "1"}, "MirrorSourceConnector")
    assert (found.level, key in found.message) == (level, True)
    assert said in str(found)


def test_a_connector_in_which_everything_counts() -> None:
    assert connector_findings(_CONNECTOR, "MirrorSourceConnector") == []
