"""The heartbeat connector's settings."""

from __future__ import annotations

import pytest

from sparkmirror.config.heartbeat import HeartbeatConfig
from sparkmirror.errors import ConfigError

MINIMAL = {
    "name": "hb",
    "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
}


def test_defaults() -> None:
    config = HeartbeatConfig.parse(MINIMAL)
    assert (config.name, config.source_alias, config.target_alias) == ("hb", "A", "B")
    assert (config.emit_heartbeats_enabled, config.emit_heartbeats_interval_seconds) == (True, 1)
    assert config.heartbeats_replication_factor == 3
    assert config.heartbeats_replication_factor_explicit is False
    assert (config.heartbeats_topic, config.admin_timeout_ms) == ("heartbeats", 60000)


def test_the_topic_keeps_its_name_whatever_the_separator_is() -> None:
    config = HeartbeatConfig.parse(MINIMAL | {"replication.policy.separator": "_"})
    assert config.heartbeats_topic == "heartbeats"


@pytest.mark.parametrize(
    "off", [{"emit.heartbeats.enabled": "false"}, {"emit.heartbeats.interval.seconds": "-1"}]
)
def test_switched_off(off: dict[str, str]) -> None:
    assert HeartbeatConfig.parse(MINIMAL | off).emit_heartbeats_enabled is False


def test_an_interval_of_zero_is_taken() -> None:
    config = HeartbeatConfig.parse(MINIMAL | {"emit.heartbeats.interval.seconds": "0"})
    assert config.emit_heartbeats_enabled is True


def test_a_disabled_flow_still_has_heartbeats() -> None:
    assert HeartbeatConfig.parse(MINIMAL | {"enabled": "false"}).emit_heartbeats_enabled is True


def test_a_factor_that_the_user_set_is_known_as_such() -> None:
    config = HeartbeatConfig.parse(MINIMAL | {"heartbeats.topic.replication.factor": "3"})
    assert config.heartbeats_replication_factor_explicit is True


def test_everything_wrong_is_named_at_once() -> None:
    wrong = {
        "emit.heartbeats.enabled": "maybe",
        "heartbeats.topic.replication.factor": "many",
        "forwarding.admin.class": "org.example.Admin",
    }
    with pytest.raises(ConfigError) as caught:
        HeartbeatConfig.parse(MINIMAL | wrong)
    assert "Connector hb: 3 settings are wrong" in caught.value.message
    for key in wrong:
        assert key in caught.value.message


def test_the_source_alias_is_required() -> None:
    with pytest.raises(ConfigError, match=r"source\.cluster\.alias"):
        HeartbeatConfig.parse({k: v for k, v in MINIMAL.items() if k != "source.cluster.alias"})
