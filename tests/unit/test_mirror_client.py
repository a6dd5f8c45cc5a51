"""The public client before it has talked to anybody: properties, arguments, time-outs."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from sparkmirror.client import MirrorClient, remote_consumer_offsets
from sparkmirror.errors import ConfigError, ConnectionFailed

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
JAVA = "org.apache.kafka.connect.mirror"


def test_bootstrap_servers_are_needed() -> None:
    for props in ({}, {"bootstrap.servers": " "}, {"admin.bootstrap.servers": "a:1"}):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
            MirrorClient(props)


def test_a_prefixed_value_beats_the_plain_one_and_the_rest_is_dropped() -> None:
    props = {
        "bootstrap.servers": "plain:1",
        "admin.bootstrap.servers": "admin:2",
        "consumer.request.timeout.ms": "7",
        "request.timeout.ms": "7",
        "client.id": "mine",
    }
    client = MirrorClient(props)
    settings = client.cluster.settings
    assert settings.bootstrap == (("admin", 2),)
    assert settings.request_timeout == 30.0
    assert settings.client_id == "sparkmirror-client"
    assert client._consumer.bootstrap == (("plain", 1),)
    assert client._consumer.request_timeout == 30.0


def test_the_policy_is_that_of_the_properties() -> None:
    policy = MirrorClient(NOBODY).replication_policy
    assert policy.format_remote_topic("A", "t") == "A.t"
    custom = MirrorClient({**NOBODY, "replication.policy.separator": "__"}).replication_policy
    assert custom.checkpoints_topic("A") == "A__checkpoints__internal"
    names = {**NOBODY, "replication.policy.class": f"{JAVA}.IdentityReplicationPolicy"}
    assert MirrorClient(names).replication_policy.format_remote_topic("A", "t") == "t"
    with pytest.raises(ConfigError, match=r"no\.such\.Policy"):
        MirrorClient({**NOBODY, "replication.policy.class": "no.such.Policy"})


def test_references_are_resolved_by_the_providers_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ADDRESS", "there:5")
    reference = {"bootstrap.servers": "${env:ADDRESS}"}
    client = MirrorClient({**reference, "config.providers": "env"})
    assert client.cluster.settings.bootstrap == (("there", 5),)
    with pytest.raises(ConfigError, match="host:port"):
        MirrorClient(reference)


def test_none_is_no_argument() -> None:
    none = cast(Any, None)
    client = MirrorClient(NOBODY)
    for arguments in ((none, "A", 1.0), ("g", none, 1.0), ("g", "A", none)):
        with pytest.raises(TypeError, match="is None"):
            client.remote_consumer_offsets(*arguments)
    with pytest.raises(TypeError, match="alias is None"):
        client.replication_hops(none)


def test_no_time_gives_nothing_and_asks_nobody() -> None:
    assert remote_consumer_offsets(NOBODY, "A", "g", timeout=0.0) == {}
    assert remote_consumer_offsets(NOBODY, "A", re.compile("g.*"), timeout=0.0) == {}


def test_a_cluster_that_is_away_is_an_error() -> None:
    with MirrorClient(NOBODY) as client:
        with pytest.raises(ConnectionFailed, match=r"No broker of cluster target \(127"):
            client.upstream_clusters()
        with pytest.raises(ConnectionFailed):
            client.remote_consumer_offsets("g", "A", 0.2)
