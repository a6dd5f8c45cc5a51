"""What a target would refuse or lose."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparkmirror.config.source import SourceConfig
from sparkmirror.errors import BrokerError
from sparkmirror.kafka.dry_run import Creation
from sparkmirror.preflight.facts import Ages, Pair, TopicFacts
from sparkmirror.preflight.findings import Finding, Level
from sparkmirror.preflight.limit_rules import Factor, expected, factor_findings, topic_findings

_NOW = 1_800_000_000_000
_DAY = 86_400_000


def _config(**keys: str) -> SourceConfig:
    given = {name.replace("_", "."): value for name, value in keys.items()}
    return SourceConfig.parse(
        {
            "name": "c",
            "connector.class": "MirrorSourceConnector",
            "source.cluster.alias": "A",
            **given,
        }
    )


def _pair(
    source: Mapping[str, str],
    target: Mapping[str, str] | None = None,
    *,
    own: Mapping[str, str] | None = None,
    created: Mapping[str, str] | None = None,
    replicas: int = 1,
    oldest: int | None = None,
    newest: int | None = None,
) -> Pair:
    return Pair(
        TopicFacts("orders", 1, 1, {**source, **(own or {})}, own or {}),
        "A.orders",
        None if target is None else TopicFacts("A.orders", 1, replicas, target),
        None if created is None else Creation(None, replicas, created),
        Ages(oldest, newest),
    )


def _said(pair: Pair, config: SourceConfig) -> list[Finding]:
    return [f for f in topic_findings([pair], config, _NOW) if f.level > Level.OK]


def test_nothing_to_say() -> None:
    (found,) = topic_findings([_pair({"max.message.bytes": "9"})], _config(), _NOW)
    assert found.level is Level.OK


@pytest.mark.parametrize(
    ("pair", "is_told"),
    [
        (_pair({"max.message.bytes": "9"}, {"max.message.bytes": "5"}), True),
        (_pair({"max.message.bytes": "5"}, {"max.message.bytes": "9"}), False),
        (_pair({"max.message.bytes": "9"}, created={"max.message.bytes": "5"}), True),
        (_pair({}, {"max.message.bytes": "5"}, own={"max.message.bytes": "9"}), False),
        (_pair({}, created={"max.message.bytes": "5"}, own={"max.message.bytes": "9"}), False),
    ],
)
def test_sizes(pair: Pair, is_told: bool) -> None:
    found = _said(pair, _config())
    assert [f.check for f in found] == (["max-message-bytes"] if is_told else [])
    if is_told:
        assert "max.message.bytes=9" in found[0].remedy


def test_what_is_not_synced_stays_as_it_is() -> None:
    pair = _pair({}, {"max.message.bytes": "5"}, own={"max.message.bytes": "9"})
    assert expected(pair, "max.message.bytes", _config()) == "9"
    off = _config(sync_topic_configs_enabled="false")
    assert expected(pair, "max.message.bytes", off) == "5"
    left_out = _config(config_properties_exclude="max.message.bytes")
    assert expected(pair, "max.message.bytes", left_out) == "5"


@pytest.mark.parametrize(
    ("limit", "level"),
    [(_DAY, Level.ERROR), (3 * _DAY, None), (0x7FFFFFFFFFFFFFFF, None)],
)
def test_old_times(limit: int, level: Level | None) -> None:
    target = {"message.timestamp.before.max.ms": str(limit)}
    found = _said(_pair({}, target, oldest=_NOW - 2 * _DAY), _config())
    assert [f.level for f in found] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("ahead", "level"),
    [(2 * 3_600_000, Level.ERROR), (600_000, Level.NOTE), (1000, None), (-5, None)],
)
def test_times_ahead_of_the_clock(ahead: int, level: Level | None) -> None:
    target = {"message.timestamp.after.max.ms": "3600000"}
    found = _said(_pair({}, target, newest=_NOW + ahead), _config())
    assert [f.level for f in found] == ([] if level is None else [level])


def test_log_append_time_takes_any_time_and_changes_it() -> None:
    target = {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1"}
    (found,) = _said(_pair({}, target, oldest=_NOW - _DAY), _config())
    assert found.level is Level.WARNING
    assert "time of their arrival" in found.message


@pytest.mark.parametrize(
    ("source", "target", "is_told"),
    [
        ({"retention.ms": "-1"}, {"retention.ms": str(_DAY)}, True),
        ({"retention.ms": str(_DAY)}, {"retention.ms": str(_DAY)}, False),
        ({"retention.ms": "-1"}, {"retention.ms": "-1"}, False),
        ({"retention.ms": "-1"}, {"retention.ms": str(_DAY), "cleanup.policy": "compact"}, False),
    ],
)
def test_retention(source: Mapping[str, str], target: Mapping[str, str], is_told: bool) -> None:
    source = {"cleanup.policy": target.get("cleanup.policy", "delete"), **source}
    found = _said(_pair(source, target, oldest=_NOW - 5 * _DAY), _config())
    assert [f.check for f in found] == (["retention"] if is_told else [])


def test_replicas_in_sync() -> None:
    (found,) = _said(_pair({}, {"min.insync.replicas": "2"}, replicas=1), _config())
    assert (found.check, found.level) == ("min-insync-replicas", Level.ERROR)
    assert _said(_pair({}, {"min.insync.replicas": "2"}, replicas=2), _config()) == []
    (new,) = _said(_pair({}, created={"min.insync.replicas": "3"}, replicas=2), _config())
    assert "replication.factor to at least 3" in new.remedy


def test_compaction_on_one_side_only() -> None:
    pair = _pair({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"})
    (found,) = _said(pair, _config())
    assert found.level is Level.NOTE
    both = _pair({"cleanup.policy": "compact"}, {"cleanup.policy": "compact"})
    assert _said(both, _config()) == []


def test_what_the_controller_refuses() -> None:
    refusal = BrokerError(44, "POLICY_VIOLATION", "Creating topic A.orders: POLICY_VIOLATION.")
    pair = Pair(TopicFacts("orders", 1, 1), "A.orders", None, Creation(refusal, -1, None))
    (found,) = topic_findings([pair, pair], _config(), _NOW)
    assert "POLICY_VIOLATION. (1 other topic(s) likewise.)" in found.message
    told_elsewhere = BrokerError(38, "INVALID_REPLICATION_FACTOR", "x")
    other = Pair(TopicFacts("o", 1, 1), "A.o", None, Creation(told_elsewhere, -1, None))
    assert [f.level for f in topic_findings([other], _config(), _NOW)] == [Level.OK]


def test_factors() -> None:
    asked = [
        Factor("replication.factor", 3, True, "B", 1, "topic A.orders"),
        Factor("offset-syncs.topic.replication.factor", 3, False, "A", 1, "topic syncs"),
        Factor("x", 1, True, "B", 1, "topic x"),
        Factor("x", -1, True, "B", 1, "topic x"),
    ]
    wrong, lowered = factor_findings(asked)
    assert wrong.level is Level.ERROR
    assert "replication.factor=3, but cluster B has 1 broker(s)" in wrong.message
    assert "Set replication.factor to 1 or less" in wrong.remedy
    assert lowered.level is Level.NOTE
    assert "topic syncs would get 1 replica(s) instead of the default 3" in lowered.message
    assert "Set offset-syncs.topic.replication.factor" in lowered.remedy
