"""The checkpoint connector's settings, and those of its tasks."""

from __future__ import annotations

import pytest

from sparkmirror.config.checkpoint import CheckpointConfig, CheckpointTaskConfig, task_config
from sparkmirror.errors import ConfigError

MINIMAL = {
    "name": "cp",
    "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
}


def test_defaults() -> None:
    config = CheckpointConfig.parse(MINIMAL)
    assert (config.name, config.enabled, config.tasks_max) == ("cp", True, 1)
    assert (config.refresh_groups_enabled, config.refresh_groups_interval_seconds) == (True, 600)
    assert (config.emit_checkpoints_enabled, config.emit_checkpoints_interval_seconds) == (True, 5)
    assert config.sync_group_offsets_enabled is False
    assert config.sync_group_offsets_interval_seconds == 60
    assert config.checkpoints_replication_factor == 3
    assert config.checkpoints_replication_factor_explicit is False
    assert (config.offset_syncs_location, config.admin_timeout_ms) == ("source", 60000)
    assert config.warnings == ()


def test_default_filters() -> None:
    config = CheckpointConfig.parse(MINIMAL)
    groups, topics = config.group_filter(), config.topic_filter()
    assert groups.matches("orders")
    assert not any(map(groups.matches, ("console-consumer-1", "connect-x", "__g")))
    assert topics.matches("orders")
    assert not any(map(topics.matches, ("mm2-offset-syncs.B.internal", "x.replica", "__t")))


def test_filters_come_from_the_lists_also_under_their_former_names() -> None:
    config = CheckpointConfig.parse(
        MINIMAL | {"groups": "g1, h.*", "groups.blacklist": "h2", "topics": "t1"}
    )
    assert list(map(config.group_filter().matches, ("g1", "h1", "h2", "x"))) == [1, 1, 0, 0]
    assert list(map(config.topic_filter().matches, ("t1", "t2"))) == [1, 0]
    assert any("groups.blacklist" in warning for warning in config.warnings)


def test_the_internal_topics() -> None:
    config = CheckpointConfig.parse(MINIMAL)
    assert config.offset_syncs_topic == "mm2-offset-syncs.B.internal"
    assert config.checkpoints_topic == "A.checkpoints.internal"
    on_target = CheckpointConfig.parse(MINIMAL | {"offset-syncs.topic.location": "target"})
    assert on_target.offset_syncs_topic == "mm2-offset-syncs.A.internal"
    underscored = CheckpointConfig.parse(MINIMAL | {"replication.policy.separator": "_"})
    assert underscored.checkpoints_topic == "A_checkpoints_internal"


def test_checkpoints_need_offset_syncs() -> None:
    for key in ("emit.checkpoints.enabled", "emit.offset-syncs.enabled"):
        with pytest.raises(ConfigError, match=key):
            CheckpointConfig.parse(MINIMAL | {key: "false"})
        CheckpointConfig.parse(MINIMAL | {key: "false", "enabled": "false"})


def test_groups_cannot_be_refreshed_all_the_time() -> None:
    zero = MINIMAL | {"refresh.groups.interval.seconds": "0"}
    with pytest.raises(ConfigError, match=r"refresh\.groups\.interval\.seconds: Value must be"):
        CheckpointConfig.parse(zero)
    off = CheckpointConfig.parse(zero | {"refresh.groups.enabled": "false"})
    assert off.refresh_groups_enabled is False


def test_an_interval_of_zero_moves_no_groups_and_says_so() -> None:
    config = CheckpointConfig.parse(
        MINIMAL | {"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "0"}
    )
    assert config.sync_group_offsets_enabled is False
    assert any("sync.group.offsets.interval.seconds" in warning for warning in config.warnings)


def test_a_negative_interval_switches_off() -> None:
    config = CheckpointConfig.parse(
        MINIMAL
        | {"emit.checkpoints.interval.seconds": "-1", "refresh.groups.interval.seconds": "-1"}
    )
    assert (config.emit_checkpoints_enabled, config.refresh_groups_enabled) == (False, False)


@pytest.mark.parametrize("key", ["groups", "groups.exclude", "topics", "topics.exclude"])
def test_a_wrong_pattern_is_a_wrong_setting(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} has the pattern '\*'"):
        CheckpointConfig.parse(MINIMAL | {key: "fine,*"})


def test_a_java_filter_cannot_run_here() -> None:
    with pytest.raises(ConfigError, match=r"group\.filter\.class"):
        CheckpointConfig.parse(MINIMAL | {"group.filter.class": "org.example.Filter"})


def test_a_task_reads_its_groups_as_they_were_written() -> None:
    props = task_config(MINIMAL, ("g1", "g 2", "g-3"), 4)
    assert props == MINIMAL | {"task.assigned.groups": "g1,g 2,g-3", "task.index": "4"}
    task = CheckpointTaskConfig.parse(props)
    assert (task.groups, task.index) == (("g1", "g 2", "g-3"), "4")
    assert task.connector.name == "cp"


def test_a_task_without_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.assigned\.groups"):
        CheckpointTaskConfig.parse(MINIMAL)
