"""The source connector's settings, its clients and the rules between its keys."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path

import pytest

from sparkmirror.config.source import SourceConfig, client_id, client_properties
from sparkmirror.config.validation import checkpoint_problems, source_problems
from sparkmirror.errors import ConfigError
from sparkmirror.policy.naming import DefaultReplicationPolicy

MINIMAL = {
    "name": "ConnectorName",
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "source1",
    "target.cluster.alias": "target2",
}


def parsed(**changes: str) -> SourceConfig:
    return SourceConfig.parse(MINIMAL | {k.replace("__", "."): v for k, v in changes.items()})


def test_defaults() -> None:
    config = SourceConfig.parse(MINIMAL)
    assert (config.name, config.enabled, config.tasks_max) == ("ConnectorName", True, 1)
    assert (config.replication_factor, config.replication_factor_explicit) == (2, False)
    assert (config.offset_syncs_replication_factor, config.offset_lag_max) == (3, 100)
    assert config.offset_syncs_replication_factor_explicit is False
    assert (config.refresh_topics_enabled, config.refresh_topics_interval_seconds) == (True, 30)
    assert (config.sync_topic_configs_interval_seconds, config.use_defaults_from) == (600, "target")
    assert (config.emit_offset_syncs, config.heartbeats_replication) == (True, True)
    assert (config.admin_timeout_ms, config.consumer_poll_timeout_ms) == (60000, 1000)
    assert config.isolation_level == "read_committed"
    assert type(config.policy) is DefaultReplicationPolicy


def test_a_factor_that_the_user_set_is_known_as_such_even_if_it_is_the_default() -> None:
    config = SourceConfig.parse(
        MINIMAL | {"replication.factor": "2", "offset-syncs.topic.replication.factor": "1"}
    )
    assert config.replication_factor_explicit is True
    assert config.offset_syncs_replication_factor == 1
    assert config.offset_syncs_replication_factor_explicit is True


def test_the_offset_syncs_topic_is_named_after_the_other_cluster() -> None:
    assert SourceConfig.parse(MINIMAL).offset_syncs_topic == "mm2-offset-syncs.target2.internal"
    on_target = SourceConfig.parse(MINIMAL | {"offset-syncs.topic.location": "target"})
    assert on_target.offset_syncs_topic == "mm2-offset-syncs.source1.internal"
    underscored = SourceConfig.parse(MINIMAL | {"replication.policy.separator": "_"})
    assert underscored.offset_syncs_topic == "mm2-offset-syncs_target2_internal"
    assert underscored.checkpoints_topic == "source1_checkpoints_internal"
    with pytest.raises(ConfigError, match="String must be one of: source, target"):
        SourceConfig.parse(MINIMAL | {"offset-syncs.topic.location": "something"})


@pytest.mark.parametrize("timer", ["refresh.topics", "sync.topic.configs", "sync.topic.acls"])
def test_an_interval_of_zero_is_refused_unless_it_is_switched_off(timer: str) -> None:
    zero = MINIMAL | {f"{timer}.interval.seconds": "0"}
    with pytest.raises(ConfigError, match=f"{timer}.interval.seconds: Value must be at least 1"):
        SourceConfig.parse(zero)
    SourceConfig.parse(zero | {f"{timer}.enabled": "false"})


def test_a_negative_interval_switches_off() -> None:
    config = SourceConfig.parse(MINIMAL | {"refresh.topics.interval.seconds": "-1"})
    assert config.refresh_topics_enabled is False


def test_filters_come_from_the_lists() -> None:
    config = SourceConfig.parse(
        MINIMAL
        | {"topics": "topic1, t.*", "topics.exclude": "t2", "config.properties.exclude": "p2"}
    )
    assert [t for t in ("topic1", "t2", "t3", "x") if config.topic_filter().matches(t)] == [
        "topic1",
        "t3",
    ]
    assert config.config_property_filter().matches("p1")
    assert not config.config_property_filter().matches("p2")


def test_a_wrong_pattern_is_found_at_once() -> None:
    with pytest.raises(ConfigError, match=r"topics has the pattern '\*'"):
        SourceConfig.parse(MINIMAL | {"topics": "*"})
    with pytest.raises(ConfigError, match=r"config\.properties\.exclude has the pattern"):
        SourceConfig.parse(MINIMAL | {"config.properties.exclude": r"\p{L}"})


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        SourceConfig.parse(
            MINIMAL
            | {
                "tasks.max": "0",
                "emit.offset-syncs.enabled": "false",
                "offset-syncs.topic.location": "target",
                "topic.filter.class": "com.acme.Filter",
                "consumer.isolation.level": "dirty",
            }
        )
    message = raised.value.message
    assert message.startswith("Connector ConnectorName: 4 settings are wrong")
    for part in ("tasks.max", "emit.offset-syncs.enabled is false", "com.acme.Filter", "dirty"):
        assert part in message


def test_java_classes_that_change_nothing_are_accepted() -> None:
    java = "org.apache.kafka.connect.mirror"
    config = SourceConfig.parse(
        MINIMAL
        | {
            "topic.filter.class": f"{java}.DefaultTopicFilter",
            "config.property.filter.class": f"{java}.DefaultConfigPropertyFilter",
            "forwarding.admin.class": "org.apache.kafka.clients.admin.ForwardingAdmin",
        }
    )
    assert config.topics == SourceConfig.parse(MINIMAL).topics


def test_a_policy_of_the_users_own_gets_the_connector_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "acme_policy.py").write_text(
        "from sparkmirror.policy.naming import DefaultReplicationPolicy\n"
        "class Suffix(DefaultReplicationPolicy):\n"
        "    def configure(self, properties):\n"
        "        super().configure(properties)\n"
        "        self.suffix = properties['suffix']\n"
        "    def format_remote_topic(self, source_alias, topic):\n"
        "        return topic + self.suffix\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = parsed(replication__policy__class="acme_policy.Suffix", suffix="-copy")
    assert config.policy.format_remote_topic("source1", "orders") == "orders-copy"
    assert config.policy_class == "acme_policy.Suffix"
    assert isinstance(sys.modules["acme_policy"], types.ModuleType)


def test_settings_pickle() -> None:
    config = SourceConfig.parse(MINIMAL)
    assert pickle.loads(pickle.dumps(config.topic_filter())) == config.topic_filter()  # noqa: S301


# Rules between keys


def test_offset_syncs_that_are_not_written_need_no_topic() -> None:
    off = {"emit.offset-syncs.enabled": "false"}
    assert source_problems(off) == []
    for key in ("offset-syncs.topic.location", "offset-syncs-x"):
        (problem,) = source_problems(off | {key: "1"})
        assert problem.key == "emit.offset-syncs.enabled"
    assert source_problems({"offset-syncs.topic.location": "1"}) == []
    upper = {"emit.offset-syncs.enabled": "FALSE", "offset-syncs.topic.location": "target"}
    assert source_problems(upper) == [], "the rule looks at the text, as Kafka's does"


@pytest.mark.parametrize(
    ("shared", "own", "fits"),
    [
        (None, None, True),  # an intended difference: committed data is what we read by default
        ("read_committed", None, True),
        (None, "read_committed", True),
        ("read_uncommitted", "read_committed", True),
        ("read_committed", "read_uncommitted", False),
        ("read_uncommitted", None, False),
        (None, "read_uncommitted", False),
    ],
)
def test_exactly_once_may_be_required_of_committed_data_only(
    shared: str | None, own: str | None, fits: bool
) -> None:
    props = {"exactly.once.support": "required"}
    if shared is not None:
        props["consumer.isolation.level"] = shared
    if own is not None:
        props["source.consumer.isolation.level"] = own
    assert [p.key for p in source_problems(props)] == ([] if fits else ["exactly.once.support"])
    assert source_problems(props | {"exactly.once.support": "requested"}) == []


def test_a_checkpoint_connector_needs_checkpoints_and_syncs() -> None:
    nothing = {"emit.checkpoints.enabled": "false", "emit.offset-syncs.enabled": "false"}
    assert [p.key for p in checkpoint_problems(nothing)] == list(nothing)
    assert checkpoint_problems(nothing | {"enabled": "false"}) == []
    assert checkpoint_problems({}) == []


# Clients


def test_client_properties_are_layered() -> None:
    props = MINIMAL | {
        "source.cluster.bootstrap.servers": "a:1",
        "source.cluster.ssl.key.password": "x",
        "source.cluster.max.poll.records": "1",
        "source.cluster.security.protocol": "SSL",
        "target.cluster.bootstrap.servers": "b:1",
        "consumer.fetch.min.bytes": "1",
        "consumer.max.wait": "1",
        "source.consumer.max.wait": "2",
        "target.consumer.max.wait": "3",
        "producer.acks": "all",
        "consumer.security.protocol": "SASL_SSL",
    }
    assert client_properties(props, "source", "consumer") == {
        "bootstrap.servers": "a:1",
        "ssl.key.password": "x",
        "security.protocol": "SASL_SSL",
        "fetch.min.bytes": "1",
        "max.wait": "2",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    assert client_properties(props, "target", "consumer")["max.wait"] == "3"
    assert client_properties(props, "target", "producer") == {
        "bootstrap.servers": "b:1",
        "acks": "all",
    }
    assert client_properties(props, "source", "admin")["security.protocol"] == "SSL"


def test_consumers_never_commit_and_may_start_elsewhere() -> None:
    props = {"consumer.enable.auto.commit": "true", "source.consumer.auto.offset.reset": "latest"}
    found = client_properties(props, "source", "consumer")
    assert found == {"enable.auto.commit": "false", "auto.offset.reset": "latest"}


@pytest.mark.parametrize(
    ("extra", "role", "task", "expected"),
    [
        ({}, "", None, "source1->target2|ConnectorName"),
        ({}, "test", None, "source1->target2|ConnectorName|test"),
        ({}, "replication-consumer", 3, "source1->target2|ConnectorName-3|replication-consumer"),
        ({}, "r", "?", "source1->target2|ConnectorName-?|r"),
        ({"consumer.client.id": "me"}, "r", None, "me|source1->target2|ConnectorName|r"),
        ({"source.consumer.client.id": "me2"}, "", 0, "me2|source1->target2|ConnectorName-0"),
        ({"target.consumer.client.id": "no"}, "", None, "source1->target2|ConnectorName"),
    ],
)
def test_client_ids_tell_flow_connector_task_and_role(
    extra: dict[str, str], role: str, task: int | str | None, expected: str
) -> None:
    assert client_id(MINIMAL | extra, "source", "consumer", role, task) == expected
