"""Properties of remote topics kept in step with real brokers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import pytest
from cluster_pair import ClusterPair
from confluent_kafka.admin import AclOperation
from copying import settings_of
from guarded import forbid, guarded_cluster
from kafka_tools import create_topic, delete_topic, set_topic_configs, topics, wait_for
from watching import Watching, connector_config

from sparkmirror.config.source import SourceConfig
from sparkmirror.connectors.topic_configs import plan
from sparkmirror.kafka import acls, topic_configs
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.kafka.topic_configs import Alteration
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
MODULE = "sparkmirror.connectors.topic_configs"


def own(bootstrap: str, topic: str) -> dict[str, str]:
    """The properties that are set on the topic itself."""
    with contextlib.closing(Cluster(client_settings("any", {"bootstrap.servers": bootstrap}))) as c:
        entries = topic_configs.describe(c, [topic]).configs[topic]
    return {entry.name: str(entry.value) for entry in entries if entry.is_set_on_topic}


def unset(bootstrap: str, topic: str, name: str) -> None:
    with contextlib.closing(Cluster(client_settings("any", {"bootstrap.servers": bootstrap}))) as c:
        assert topic_configs.alter(c, {topic: [Alteration(name, "DELETE")]}) == {topic: None}


def allow_everything(bootstrap: str) -> None:
    """Take all ACLs of topics away, on a cluster where that allows everything."""
    with contextlib.closing(Cluster(client_settings("any", {"bootstrap.servers": bootstrap}))) as c:
        found = acls.describe(c, acls.Resource.TOPIC)
        assert not any(acls.delete(c, found).values())
        wait_for("all is allowed", lambda: not acls.describe(c, acls.Resource.TOPIC))


def lines(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == MODULE and topic in r.getMessage()]


def test_properties_follow_the_source_and_edits_by_hand_are_taken_back(
    cluster_pair: ClusterPair, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source, target = cluster_pair.source.bootstrap, cluster_pair.target.bootstrap
    topic, gone = unique("orders"), unique("gone")
    remote = f"A.{topic}"
    create_topic(
        source, topic, configs={"max.message.bytes": "2000000", "cleanup.policy": "compact"}
    )
    create_topic(source, gone)
    config = connector_config(source, target, f"{topic},{gone}", sync_topic_configs_enabled="true")
    with Watching(config, unique("offsets")):
        wait_for("the copies are there", lambda: {remote, f"A.{gone}"} <= topics(target).keys())
        wanted = {"max.message.bytes": "2000000", "cleanup.policy": "compact"}
        assert own(target, remote) == wanted

        set_topic_configs(source, topic, {"segment.bytes": "70000000"})
        unset(source, topic, "cleanup.policy")
        # One that is gone does not keep the others from being in step.
        delete_topic(target, f"A.{gone}")
        delete_topic(source, gone)
        wanted = {"max.message.bytes": "2000000", "segment.bytes": "70000000"}
        wait_for("changes are copied", lambda: own(target, remote) == wanted)

        # By hand: another value, one that the source does not set, and one that is excluded.
        by_hand = {"max.message.bytes": "5", "retention.bytes": "7", "min.insync.replicas": "1"}
        set_topic_configs(target, remote, by_hand)
        wanted["min.insync.replicas"] = "1"
        wait_for("edits are taken back", lambda: own(target, remote) == wanted)
    said = lines(caplog, remote)
    assert any(
        "segment.bytes from 1073741824 (not set on the topic) to 70000000" in s for s in said
    )
    assert any("cleanup.policy from compact to the cluster's default" in s for s in said)
    assert any("max.message.bytes from 5 to 2000000" in s for s in said)
    assert any("retention.bytes from 7 to the cluster's default" in s for s in said)
    assert not [s for s in said if "min.insync.replicas" in s]
    assert len(said) == len(set(said))
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.slow
def test_a_dry_run_alters_nothing_and_tells_each_difference_once(
    cluster_pair: ClusterPair, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source, target = cluster_pair.source.bootstrap, cluster_pair.target.bootstrap
    topic = unique("orders")
    remote = f"A.{topic}"
    create_topic(source, topic, configs={"segment.bytes": "70000000"})
    create_topic(target, remote, configs={"max.message.bytes": "5000"})
    keys = {"sync_topic_configs_enabled": "true", "sync_topic_configs_dry_run": "true"}
    config = connector_config(source, target, topic, **keys)
    here, there = (Cluster(settings_of(a, c)) for a, c in zip("AB", cluster_pair, strict=True))
    with Watching(config, unique("offsets")):
        wait_for("it is told", lambda: len(lines(caplog, remote)) == 1)
        found = plan(here, there, {remote: topic}, SourceConfig.parse(config))
        assert {change.name: change.after for change in found.changes[remote]} == {
            "segment.bytes": "70000000",
            "max.message.bytes": None,
        }
        set_topic_configs(source, topic, {"segment.bytes": "60000000"})
        wait_for("it is told anew", lambda: len(lines(caplog, remote)) == 2)
    assert all("would be altered" in line for line in lines(caplog, remote))
    assert own(target, remote) == {"max.message.bytes": "5000"}
    here.close()
    there.close()


def test_defaults_of_the_source(cluster_pair: ClusterPair, unique: Unique) -> None:
    source, target = cluster_pair.source.bootstrap, cluster_pair.target.bootstrap
    topic = unique("orders")
    remote = f"A.{topic}"
    create_topic(source, topic)
    create_topic(target, remote, configs={"max.message.bytes": "5000"})
    keys = {"sync_topic_configs_enabled": "true", "use_defaults_from": "source"}
    with Watching(connector_config(source, target, topic, **keys), unique("offsets")):
        wait_for(
            "the source's default is set",
            lambda: own(target, remote).get("max.message.bytes") == "1048588",
        )
    # What the brokers' file says at the source is not the topic's affair, nor is what is excluded.
    assert not {"retention.ms", "min.insync.replicas"} & own(target, remote).keys()


def test_one_topic_that_cannot_be_altered_does_not_disturb_the_others(
    cluster_pair: ClusterPair, unique: Unique
) -> None:
    target = Cluster(settings_of("B", cluster_pair.target))
    target.refresh([])
    good, bad, gone = unique("good"), unique("bad"), unique("gone")
    for topic in (good, bad):
        create_topic(cluster_pair.target.bootstrap, topic)
    outcomes = topic_configs.alter(
        target,
        {
            bad: [Alteration("segment.bytes", "SET", "-3")],
            good: [Alteration("segment.bytes", "SET", "70000000")],
            gone: [Alteration("segment.bytes", "SET", "70000000")],
        },
    )
    assert outcomes[good] is None
    refused, unknown = outcomes[bad], outcomes[gone]
    assert refused is not None
    assert unknown is not None
    assert refused.name == "INVALID_CONFIG"
    assert bad in str(refused)
    assert "segment.bytes" in str(refused)
    assert unknown.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert own(cluster_pair.target.bootstrap, good) == {"segment.bytes": "70000000"}
    target.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster whose ACLs count."""
    yield from guarded_cluster(tmp_path_factory)


@pytest.mark.slow
def test_rights_that_are_missing(
    guarded: KafkaCluster, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """C-048: what is not allowed is told with operation, topic and cluster; other topics go on. A new one gets the target's own
    properties. A target that cannot be read is told all.
    """
    bootstrap = guarded.bootstrap
    good, hidden, new = (unique(name) for name in ("good", "hidden", "new"))
    for topic in (good, hidden, new):
        create_topic(bootstrap, topic, configs={"segment.bytes": "70000000"})
    for topic in (good, hidden):
        create_topic(bootstrap, f"A.{topic}")
    for topic in (hidden, new, f"A.{good}"):
        forbid(guarded, AclOperation.DESCRIBE_CONFIGS, topic)
    wanted = ",".join((good, hidden, new))
    config = connector_config(bootstrap, bootstrap, wanted, sync_topic_configs_enabled="true")

    def warnings(topic: str) -> list[str]:
        words = f"topic {topic} "
        found = [record for record in caplog.records if record.levelno == logging.WARNING]
        return [record.getMessage() for record in found if words in record.getMessage()]

    with Watching(config, unique("offsets")):
        wait_for("both are told", lambda: warnings(hidden) and warnings(new))
        wait_for("the new one is there", lambda: f"A.{new}" in topics(bootstrap))
    for topic in (hidden, new):
        warning = warnings(topic)[0]
        assert "cluster A" in warning
        assert f"User:ANONYMOUS lacks the ACL DescribeConfigs on topic {topic}" in warning
    # Refusals are told after everything was sent.
    allow_everything(bootstrap)
    assert own(bootstrap, f"A.{good}") == {"segment.bytes": "70000000"}
    assert own(bootstrap, f"A.{hidden}") == {}
    assert own(bootstrap, f"A.{new}") == {}
