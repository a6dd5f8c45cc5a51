"""`target.partitions`: which number counts for which topic, and what is refused with which words."""

from __future__ import annotations

import pytest

from sparkmirror.config.checkpoint import CheckpointConfig
from sparkmirror.config.connect_validation import require_valid, validate
from sparkmirror.config.flows import MirrorMakerConfig
from sparkmirror.config.source import SourceConfig
from sparkmirror.config.target_partitions import TargetPartitions
from sparkmirror.errors import BadRequest, ConfigError
from tests.unit.config.test_connect_validation import LEAST, WORKER, errors

KEY = "target.partitions"


def rules(text: str) -> TargetPartitions:
    return TargetPartitions.parse(text.split(","))


@pytest.mark.parametrize(
    ("text", "topic", "count"),
    [
        ("6", "anything", 6),
        ("orders:12", "orders", 12),
        ("orders:12", "orders-2", None),
        ("orders.*:12", "orders-2", 12),
        ("orders.*:12,6", "orders-2", 12),
        ("orders.*:12,6", "clicks", 6),
        ("6,orders.*:12", "orders", 6),
        ("(?:a|b):3", "b", 3),
        ("(?i)ORDERS:3", "orders", 3),
        ("a:b:3", "a:b", 3),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(
    text: str, topic: str, count: int | None
) -> None:
    assert rules(text).count(topic) == count


def test_without_rules_copies_are_as_wide_as_their_sources() -> None:
    assert TargetPartitions().count("t") is None


@pytest.mark.parametrize(
    "text",
    ["orders:", ":6", "orders:0", "0", "-1", "x", "orders:6,", "6.5", "t:1e3", "t:9999999999"],
)
def test_what_is_no_rule_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=KEY):
        rules(text)


@pytest.mark.parametrize("plugin", ["MirrorSourceConnector", "MirrorCheckpointConnector"])
@pytest.mark.parametrize("value", ["orders:0", "*:3", "ten"])
def test_a_wrong_value_is_refused_when_the_connector_is_created(plugin: str, value: str) -> None:
    props = LEAST | {"connector.class": plugin, KEY: value}
    assert KEY in errors(validate(props, WORKER))
    with pytest.raises(BadRequest, match=KEY):
        require_valid(props, WORKER)
    require_valid(props | {KEY: "orders.*:3,6"}, WORKER)


def test_validation_does_not_list_it_unless_it_is_wrong() -> None:
    for props in (LEAST, LEAST | {KEY: "6"}):
        names = [entry["value"]["name"] for entry in validate(props, WORKER)["configs"]]
        assert KEY not in names


def test_heartbeats_keep_their_partition() -> None:
    source = SourceConfig.parse(LEAST | {KEY: "6"})
    assert source.wanted_partitions("orders") == 6
    assert source.wanted_partitions("heartbeats") is None
    assert source.wanted_partitions("C.heartbeats") is None
    checkpoint = CheckpointConfig.parse(
        LEAST | {"connector.class": "MirrorCheckpointConnector", KEY: "6"}
    )
    assert checkpoint.may_be_placed("orders")
    assert not checkpoint.may_be_placed("heartbeats")


def test_a_flow_of_a_file_gives_it_to_both_connectors() -> None:
    props = {
        "clusters": "A, B",
        "A.bootstrap.servers": "a:9092",
        "B.bootstrap.servers": "b:9092",
        "A->B.enabled": "true",
        f"A->B.{KEY}": "orders:12",
    }
    file = MirrorMakerConfig(props)
    (pair,) = file.replicating_pairs()
    assert file.unused() == []
    assert file.connector_config(pair, "source")[KEY] == "orders:12"
    assert file.connector_config(pair, "checkpoint")[KEY] == "orders:12"
