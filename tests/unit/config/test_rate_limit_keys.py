"""`mirror.rate.limit.*`: which cap counts for what, and what is refused with which words."""

from __future__ import annotations

import pytest

from sparkmirror.config.connect_validation import require_valid, validate
from sparkmirror.config.flows import MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.rate_limits import (
    FLOW_LIMIT,
    RATE_LIMIT_KEYS,
    TOPIC_LIMIT,
    RateLimitConfig,
)
from sparkmirror.config.source import SourceConfig
from sparkmirror.config.worker_notes import notes
from sparkmirror.errors import BadRequest, ConfigError
from tests.unit.config.test_connect_validation import LEAST, WORKER, errors

FILE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
    "B->A.enabled": "true",
}
AB, BA = SourceAndTarget("A", "B"), SourceAndTarget("B", "A")


@pytest.mark.parametrize(
    ("value", "topic", "limit"),
    [
        ("", "orders", 0),
        ("1000", "anything", 1000),
        ("orders.*:1000", "orders-2", 1000),
        ("orders.*:1000", "clicks", 0),
        ("orders.*:1000,500", "clicks", 500),
        ("audit:0,500", "audit", 0),
        ("500,orders:1000", "orders", 500),
        ("a:b:3", "a:b", 3),
        ("(?i)ORDERS:3", "orders", 3),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(
    value: str, topic: str, limit: int
) -> None:
    assert RateLimitConfig.parse({TOPIC_LIMIT: value}).topic(topic) == limit


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (FLOW_LIMIT, "-1"),
        (FLOW_LIMIT, "5MB"),
        (FLOW_LIMIT, "1.5"),
        (TOPIC_LIMIT, "orders"),
        (TOPIC_LIMIT, "orders:"),
        (TOPIC_LIMIT, ":5"),
        (TOPIC_LIMIT, "orders:-5"),
        (TOPIC_LIMIT, "*:5"),
        (TOPIC_LIMIT, "orders:5,"),
        (TOPIC_LIMIT, "orders:1e3"),
        ("mirror.rate.limit.byte", "5"),
        ("mirror.rate.limit.topic.bytes.orders", "5"),
    ],
)
def test_a_wrong_value_is_refused_by_name(key: str, value: str) -> None:
    props = LEAST | {key: value}
    assert key in errors(validate(props, WORKER))
    with pytest.raises(BadRequest, match=key):
        require_valid(props, WORKER)
    with pytest.raises(ConfigError, match=key):
        SourceConfig.parse(props)
    require_valid(LEAST | {FLOW_LIMIT: "5000000", TOPIC_LIMIT: "orders.*:1000,500"}, WORKER)


def test_validation_does_not_list_them_unless_they_are_wrong() -> None:
    """A Java worker does not, either."""
    assert all(key.hidden and key.doc.startswith("Ours. ") for key in RATE_LIMIT_KEYS)
    names = [entry["value"]["name"] for entry in validate(LEAST, WORKER)["configs"]]
    assert not [name for name in names if name.startswith("mirror.rate")]


def limits_of(pair: SourceAndTarget, properties: dict[str, str]) -> RateLimitConfig:
    config = MirrorMakerConfig(FILE | properties, {})
    assert config.unused() == []
    return SourceConfig.parse(config.connector_config(pair, "source")).rate_limits


def test_they_count_for_one_flow_or_for_all() -> None:
    assert limits_of(AB, {}) == RateLimitConfig()
    one = {f"A->B.{FLOW_LIMIT}": "1000", f"A->B.{TOPIC_LIMIT}": "t:10"}
    assert limits_of(AB, one) == RateLimitConfig(1000, (("t", 10),))
    assert limits_of(BA, one) == RateLimitConfig()
    both = {FLOW_LIMIT: "2000", TOPIC_LIMIT: "20", f"A->B.{FLOW_LIMIT}": "1000"}
    assert limits_of(AB, both) == RateLimitConfig(1000, ((".*", 20),))
    assert limits_of(BA, both) == RateLimitConfig(2000, ((".*", 20),))


def test_they_are_settings_of_connectors_and_not_of_workers() -> None:
    file = {FLOW_LIMIT: "1", f"A->B.{TOPIC_LIMIT}": "1", "mirror.epoch.ms": "1000"}
    assert MirrorMakerConfig(FILE | file, {}).mirror == {"mirror.epoch.ms": "1000"}
    (note,) = notes(file, standalone=False)[:1]
    assert FLOW_LIMIT in note
    assert "source connector" in note
