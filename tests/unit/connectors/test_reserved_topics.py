"""The topics in which a worker keeps its state: no flow writes to them, whoever names them."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source_settings import source_settings
from sparkmirror.connectors.source_topics import SourceTopics
from sparkmirror.dataplane.opening import TargetOpener
from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.errors import ConfigError
from sparkmirror.kafka.cluster import Cluster, TopicInfo
from sparkmirror.kafka.settings import ClientSettings

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
WORKER = WorkerConfig.parse(
    {
        "bootstrap.servers": "b:9092",
        "group.id": "g",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "key.converter": BYTES,
        "value.converter": BYTES,
    }
)
FLOW = {
    "name": "copy",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b:9092",
    "topics": ".*",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}
STATE = frozenset({"connect-configs", "connect-offsets", "connect-status"})


def test_they_are_those_of_the_workers_own_cluster() -> None:
    assert source_settings(FLOW, WORKER).copy.reserved == STATE
    elsewhere = {**FLOW, "target.cluster.bootstrap.servers": "c:9092"}
    assert source_settings(elsewhere, WORKER).copy.reserved == frozenset()


def test_topics_of_the_source_that_would_become_them_are_not_copied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = source_settings(FLOW, WORKER)
    source, target = Cluster(settings.source), Cluster(settings.target)
    source.topics = {n: TopicInfo(n, bytes(16), False) for n in ("orders", *STATE)}
    topics = SourceTopics(settings, source, target, threading.Event(), cast(Any, None))
    for _ in range(2):
        assert topics._wanted_topics() == ["orders"]
    assert caplog.text.count("connect-configs is where this worker keeps its state") == 1
    named = {**FLOW, "replication.policy.class": ""}
    del named["replication.policy.class"]
    settings = source_settings(named, WORKER)  # A.connect-configs is another topic
    topics = SourceTopics(settings, source, target, threading.Event(), cast(Any, None))
    assert sorted(topics._wanted_topics()) == [
        "connect-configs",
        "connect-offsets",
        "connect-status",
        "orders",
    ]


def test_transforms_do_not_send_records_there(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClientSettings("B", (("127.0.0.1", 1),))
    target = Cluster(settings)
    monkeypatch.setattr(target, "refresh", lambda topics: None)
    opener = TargetOpener(
        target, target, cast(Any, None), CopySettings(reserved=STATE), cast(Any, None)
    )

    class Wishing:
        key = ("t", 0)
        wanted = (("connect-configs", 0),)

    monkeypatch.setattr(opener, "_wishes", lambda copies: {"connect-configs": None})
    found = opener.open([cast(Any, Wishing())])
    assert "the worker keeps its state in it" in str(found["t", 0])


def test_nor_are_dead_letters_written_there() -> None:
    keys = {
        "transform.sql": "SELECT value FROM records",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "connect-offsets",
    }
    with pytest.raises(ConfigError, match="connect-offsets, in which this worker keeps its state"):
        source_settings({**FLOW, **keys}, WORKER)
