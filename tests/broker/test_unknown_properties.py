"""Topic properties that exist on one version of Kafka and not on another."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest
from cluster_pair import ClusterPair
from copying import Flow, settings_of
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    create_topic,
    produce,
    set_topic_configs,
    topics,
    wait_for,
)
from running import properties
from watching import Watching, connector_config

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.errors import BrokerError
from sparkmirror.kafka import admin, topic_configs
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.property_support import Properties, PropertySupport
from sparkmirror.kafka.settings import client_settings
from sparkmirror.kafka.topic_configs import Alteration
from sparkmirror.preflight.check import check
from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.subjects import mm2_subject
from sparkmirror.tools.clusters import KafkaCluster, start_all

Unique = Callable[[str], str]
FORMAT = "message.format.version"
SYNC = {"sync_topic_configs_enabled": "true"}


class Versions(NamedTuple):
    """One cluster of each."""

    v24: KafkaCluster
    v28: KafkaCluster
    v43: KafkaCluster


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    directory = tmp_path_factory.mktemp("versions")
    clusters = Versions(
        *(
            KafkaCluster(f"v{version}", 1, directory, jvm=QUICK_JVM, version=version)
            for version in ("2.4.1", "2.8.2", "4.3.1")
        )
    )
    start_all(clusters)
    with contextlib.ExitStack() as stack:
        for cluster in clusters:
            stack.callback(cluster.close)
        yield clusters


def own(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """The properties that are set on the topic itself."""
    settings = client_settings("any", {"bootstrap.servers": cluster.bootstrap})
    with contextlib.closing(Cluster(settings)) as client:
        entries = topic_configs.describe(client, [topic]).configs[topic]
    return {entry.name: str(entry.value) for entry in entries if entry.is_set_on_topic}


def await_copies(cluster: KafkaCluster, names: Mapping[str, object]) -> None:
    remotes = {f"A.{name}" for name in names}
    wait_for("the copies are there", lambda: remotes <= topics(cluster.bootstrap).keys())


def said(caplog: pytest.LogCaptureFixture, least: int, *words: str) -> list[str]:
    """The lines of a level that have all these words."""
    return [
        text
        for record in caplog.records
        if record.levelno >= least
        and record.name.startswith("sparkmirror")
        and all(word in (text := record.getMessage()) for word in words)
    ]


def test_what_a_broker_does_not_know_is_left_out(cluster_pair: ClusterPair, unique: Unique) -> None:
    topic = unique("orders")
    support = PropertySupport()
    with contextlib.closing(Cluster(settings_of("B", cluster_pair.target))) as cluster:
        cluster.refresh([])

        def create(wanted: Mapping[str, Properties]) -> dict[str, BrokerError]:
            new = [
                NewTopic(name, 1, 1, {key: str(value) for key, value in its.items()})
                for name, its in wanted.items()
            ]
            return {n: e for n, e in admin.create_topics(cluster, new).items() if e is not None}

        def alter(wanted: Mapping[str, Properties]) -> dict[str, BrokerError]:
            told = {
                name: [Alteration(key, "SET", value) for key, value in its.items()]
                for name, its in wanted.items()
            }
            return {n: e for n, e in topic_configs.alter(cluster, told).items() if e is not None}

        wanted = {FORMAT: "2.8", "no.such": "1", "retention.ms": "90000000"}
        assert support.send({topic: wanted}, create) == {}
        wait_for("the topic is there", lambda: topic in topics(cluster_pair.target.bootstrap))
        assert own(cluster_pair.target, topic) == {"retention.ms": "90000000"}
        wanted = {"nor.this": "1", "no.such": "2", "retention.ms": "80000000"}
        assert support.send({topic: wanted}, alter) == {}
        assert own(cluster_pair.target, topic) == {"retention.ms": "80000000"}
    assert {one.name for one in support.news()} == {FORMAT, "no.such", "nor.this"}


@pytest.mark.slow
def test_a_property_that_the_target_does_not_know_is_left_out_and_told_once(
    versions: Versions, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source, target = versions.v28, versions.v43
    topic, plain = unique("orders"), unique("plain")
    configs = {FORMAT: "2.8-IV1", "retention.ms": "90000000", "cleanup.policy": "compact"}
    create_topic(source.bootstrap, topic, configs=configs)
    create_topic(source.bootstrap, plain, configs={"retention.ms": "80000000"})
    config = connector_config(source.bootstrap, target.bootstrap, f"{topic},{plain}", **SYNC)
    remote = f"A.{topic}"
    with Watching(config, unique("offsets")):
        await_copies(target, {topic: 1, plain: 1})
        assert own(target, remote) == {"retention.ms": "90000000", "cleanup.policy": "compact"}
        assert own(target, f"A.{plain}") == {"retention.ms": "80000000"}
        # In every later sync, too, and whatever else has changed is in step.
        set_topic_configs(source.bootstrap, topic, {"retention.ms": "70000000"})
        wait_for("it follows", lambda: own(target, remote).get("retention.ms") == "70000000")
        set_topic_configs(source.bootstrap, plain, {FORMAT: "2.8-IV1", "retention.ms": "60000000"})
        wait_for("so it does", lambda: own(target, f"A.{plain}")["retention.ms"] == "60000000")
    for name in (remote, f"A.{plain}"):
        assert len(said(caplog, logging.WARNING, name, FORMAT, "cluster B")) == 1
    assert len(said(caplog, logging.WARNING, FORMAT)) == 2
    assert said(caplog, logging.INFO, "altered", FORMAT) == []
    assert said(caplog, logging.ERROR) == []


@pytest.mark.slow
def test_the_check_tells_what_would_be_left_out(versions: Versions, unique: Unique) -> None:
    topic = unique("orders")
    create_topic(versions.v28.bootstrap, topic, configs={FORMAT: "2.8-IV1"})
    keys = properties(versions.v28, versions.v43, topics=topic, emit_heartbeats_enabled="false")
    report = check(mm2_subject(keys, "file"), 30.0)
    found = [f for section in report.sections for f in section.findings]
    (told,) = [f for f in found if f.check == "properties"]
    assert told.level is Level.WARNING
    assert f"A.{topic} on cluster B would be created without {FORMAT}" in told.message
    assert not [f for f in found if f.check == "creation"]


@pytest.mark.slow
def test_formats_that_an_old_target_cannot_have(
    versions: Versions, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """One that it does not know, and one that has no place for the numbers of exactly once; others are copied."""
    caplog.set_level(logging.INFO)
    source, target = versions.v28, versions.v24
    formats = {unique("old"): "0.10.2-IV0", unique("new"): "2.8-IV1", unique("fit"): "2.4-IV1"}
    for topic, value in formats.items():
        create_topic(source.bootstrap, topic, configs={FORMAT: value, "retention.ms": "90000000"})
    config = connector_config(source.bootstrap, target.bootstrap, ",".join(formats), **SYNC)
    old, new, fit = (f"A.{topic}" for topic in formats)
    with Watching(config, unique("offsets")):
        await_copies(target, formats)
        for remote in (old, new):
            assert own(target, remote) == {"retention.ms": "90000000"}
        assert own(target, fit) == {"retention.ms": "90000000", FORMAT: "2.4-IV1"}
        for topic in formats:
            set_topic_configs(source.bootstrap, topic, {"retention.ms": "70000000"})
        wait_for(
            "all follow",
            lambda: {own(target, r)["retention.ms"] for r in (old, new, fit)} == {"70000000"},
        )
    assert FORMAT not in own(target, old) | own(target, new)
    assert len(said(caplog, logging.WARNING, old, FORMAT, "0.11", "cluster B")) == 1
    assert len(said(caplog, logging.WARNING, new, FORMAT, "2.8-IV1", "cluster B")) == 1
    assert len(said(caplog, logging.WARNING, FORMAT)) == 2
    assert said(caplog, logging.ERROR) == []


@pytest.mark.slow
def test_a_copy_in_an_old_format_says_what_to_do(
    versions: Versions, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = versions.v28, versions.v24
    topic = unique("orders")
    create_topic(source.bootstrap, topic)
    create_topic(target.bootstrap, f"A.{topic}", configs={FORMAT: "0.10.2-IV0"})
    produce(source.bootstrap, topic, [NewRecord(b"k", b"v")])
    flow = Flow(source, target, unique("flow"))
    plan = PartitionPlan(topic, 0, f"A.{topic}", False)
    with contextlib.closing(flow), flow.copying([plan]) as task:
        task.until(
            "the partition says why it fails",
            lambda: bool(said(caplog, logging.ERROR, "UNSUPPORTED_FOR_MESSAGE_FORMAT", topic)),
        )
        (text, *_) = said(caplog, logging.ERROR, "UNSUPPORTED_FOR_MESSAGE_FORMAT", topic)
        assert f"A.{topic}" in text
        assert f"Set {FORMAT}=0.11.0 or later on the remote topic" in text
        set_topic_configs(target.bootstrap, f"A.{topic}", {FORMAT: "2.4"})
        task.until("it is copied", lambda: ends(flow, f"A.{topic}") == 1)


def ends(flow: Flow, topic: str) -> int:
    key = (topic, 0)
    return admin.list_offsets(flow.target, [key], admin.LATEST)[key]
