"""The query of a flow before it runs: keys without effect, functions that are not there, dead letters that come back."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from sparkmirror.config.source import SourceConfig
from sparkmirror.errors import ConfigError
from sparkmirror.preflight.factors import asked_factors
from sparkmirror.preflight.findings import Finding, Level
from sparkmirror.preflight.flow import connector_flow
from sparkmirror.preflight.key_rules import connector_findings, mm2_findings
from sparkmirror.preflight.naming import Copying
from sparkmirror.preflight.query_rules import (
    asked_topic_findings,
    dead_letter_findings,
    is_importable,
    query_findings,
)
from sparkmirror.preflight.subjects import connector_subject, read_subject

SQL = {"transform.sql": "SELECT value FROM records"}
DEAD = {"errors.deadletterqueue.topic.name": "dead"}
TOLERATED = {"errors.tolerance": "all"}
LEAST = {
    "name": "c",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:1",
    "target.cluster.bootstrap.servers": "b:1",
}
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


def told(findings: list[Finding]) -> list[tuple[Level, str]]:
    return [(finding.level, finding.message) for finding in findings]


def copying(
    source: str, target: str, topics: Collection[str], keys: Mapping[str, str] | None = None
) -> Copying:
    named = {"source.cluster.alias": source, "target.cluster.alias": target}
    config = SourceConfig.parse({**LEAST, **named, **(keys or {})})
    return Copying(config, f"id-{source}", f"id-{target}", dict.fromkeys(topics, False))


# -- keys -----------------------------------------------------------------------------------------


def test_nothing_is_told_of_what_has_an_effect() -> None:
    assert query_findings({}) == []
    assert query_findings({**SQL, "transform.topics": "a", "transform.timeout.ms": "1000"}) == []
    assert query_findings({**SQL, **DEAD, **TOLERATED}) == []
    assert query_findings({"transform.sql.file": "/q.sql", "transform.topics": "a"}) == []


def test_keys_without_a_query() -> None:
    found = query_findings({"transform.topics": "a", "transform.interval.ms": "1"})
    assert told(found) == [
        (
            Level.WARNING,
            "transform.topics, transform.interval.ms have no effect without transform.sql.",
        )
    ]


def test_dead_letters_that_nobody_writes() -> None:
    ((level, message),) = told(query_findings(DEAD))
    assert level is Level.WARNING
    assert "errors.deadletterqueue.topic.name has no effect: only records on which" in message
    ((_, message),) = told(query_findings({**SQL, **DEAD}))
    assert "has no effect without errors.tolerance=all" in message
    context = {"errors.deadletterqueue.context.headers.enable": "true"}
    ((_, message),) = told(query_findings({**SQL, **TOLERATED, **context}))
    assert "no effect without errors.deadletterqueue.topic.name" in message


def test_functions_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "owned"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it was run')")
    (package / "masks.py").write_text("raise RuntimeError('it was run')")
    (tmp_path / "single.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {
        name: [finding.level for finding in query_findings({**SQL, "transform.functions": name})]
        for name in (
            "owned.masks:mail",
            "owned:mail",
            "single:x",
            "owned.other:mail",
            "owned.masks.deeper:mail",
            "single.deeper:x",
            "nowhere.at.all:x",
            "owned.masks",
            "owned.masks:",
            "owned-masks:x",
        )
    }
    assert found == {
        "owned.masks:mail": [],
        "owned:mail": [],
        "single:x": [],
        "owned.other:mail": [Level.WARNING],
        "owned.masks.deeper:mail": [Level.WARNING],
        "single.deeper:x": [Level.WARNING],
        "nowhere.at.all:x": [Level.WARNING],
        "owned.masks": [Level.ERROR],
        "owned.masks:": [Level.ERROR],
        "owned-masks:x": [Level.ERROR],
    }
    assert "owned" not in sys.modules
    assert is_importable("json.decoder")
    assert is_importable("math")


def test_keys_of_a_query_are_known_and_slips_of_the_pen_are_told() -> None:
    known = {**LEAST, **SQL, **DEAD, **TOLERATED, "transform.sql.file": "", "transform.topics": "a"}
    assert connector_findings(known, "MirrorSourceConnector") == []
    (found,) = connector_findings({**LEAST, "transform.sq": "x"}, "MirrorSourceConnector")
    assert "Did you mean transform.sql?" in found.message
    slip = {**LEAST, "errors.deadletterqueue.topic.nam": "x"}
    (found,) = connector_findings(slip, "MirrorSourceConnector")
    assert "Did you mean errors.deadletterqueue.topic.name?" in found.message
    (found,) = connector_findings(SQL, "MirrorCheckpointConnector")
    assert "it is a setting of MirrorSourceConnector" in found.message


def test_keys_of_a_query_in_an_mm2_file() -> None:
    flow = {f"A->B.{key}": value for key, value in {**SQL, **DEAD, **TOLERATED}.items()}
    assert mm2_findings({"clusters": "A,B", **SQL, **flow}, ("A", "B")) == []
    (found,) = mm2_findings({"clusters": "A,B", "A.transform.sql": "x"}, ("A", "B"))
    assert "Write A->B.transform.sql, or transform.sql for all flows." in str(found)


def test_a_connector_and_a_file_are_looked_at(tmp_path: Path) -> None:
    subject = connector_subject({**LEAST, "transform.topics": "a"}, None, "file c.json")
    assert any("no effect without transform.sql" in str(f) for f in subject.sections[0].findings)
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\nB->A.enabled = true\ntransform.topics = a\n"
    )
    findings = read_subject([file], None).sections[0].findings
    assert [f.check for f in findings].count("query") == 1, "told once, not for each flow"


def test_two_queries_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Both transform\.sql and transform\.sql\.file"):
        connector_subject({**LEAST, **SQL, "transform.sql.file": "/q"}, None, "file c.json")


# -- topics ---------------------------------------------------------------------------------------


def test_topics_that_the_flow_does_not_copy() -> None:
    keys = {**SQL, "topics": "orders.*", "transform.topics": "orders-eu, order-us, clicks, A.*"}
    flow = copying("A", "B", ["orders-eu", "orders-us", "clicks"], keys)
    found = asked_topic_findings(flow)
    assert [finding.message.split(",")[0] for finding in found] == [
        "transform.topics has order-us",
        "transform.topics has clicks",
        "transform.topics has A.*",
    ]
    assert "Did you mean orders-us?" in found[0].message
    assert asked_topic_findings(copying("A", "B", [], SQL)) == [], "it is for all there will be"
    assert asked_topic_findings(copying("A", "B", ["x"])) == []


def test_dead_letters_among_copies() -> None:
    mixed = {**SQL, **TOLERATED, "errors.deadletterqueue.topic.name": "A.orders"}
    flow = copying("A", "B", ["orders"], mixed)
    ((level, message),) = told(dead_letter_findings([flow]))
    assert level is Level.ERROR
    assert "A.orders of A->B is where orders of A is copied to" in message
    assert dead_letter_findings([copying("A", "B", ["orders"], {**mixed, **DEAD})]) == []
    assert dead_letter_findings([copying("A", "B", ["orders"], {**SQL, **DEAD})]) == []


def test_dead_letters_that_the_way_back_copies() -> None:
    there = copying("A", "B", ["orders"], {**SQL, **DEAD, **TOLERATED})
    back = copying("B", "A", ["A.orders"])
    ((level, message),) = told(dead_letter_findings([there, back]))
    assert level is Level.WARNING
    assert message == "B->A would copy the dead letters of A->B in dead, as B.dead."
    excluded = copying("B", "A", ["A.orders"], {"topics.exclude": "dead"})
    assert dead_letter_findings([there, excluded]) == []


def test_dead_letters_in_a_circle() -> None:
    keys = {**IDENTITY, "topics": "orders,dead"}
    there = copying("A", "B", ["orders"], {**keys, **SQL, **DEAD, **TOLERATED})
    back = copying("B", "A", [], {**keys, "topics": "dead"})
    ((level, message),) = told(dead_letter_findings([there, back]))
    assert level is Level.ERROR
    assert "would be copied in a circle by B->A and A->B" in message


# -- rights ---------------------------------------------------------------------------------------


def test_what_a_query_needs_on_the_target() -> None:
    keys = {**SQL, **DEAD, **TOLERATED}

    def rights(*names: str) -> set[tuple[str, str]]:
        flow = connector_flow({**LEAST, **{k: keys[k] for k in keys if k in names}}, None)
        return {
            (one.name, one.operation)
            for one in flow.privileges()
            if one.when.startswith(("transform.", "errors.")) and one.side == "target"
        }

    routed = {("topics that a query names", o) for o in ("Create", "Write", "Read", "Alter")}
    assert rights() == set()
    assert rights("transform.sql", "errors.deadletterqueue.topic.name") == routed
    assert rights(*keys) == routed | {("dead", "Create"), ("dead", "Write")}


def test_how_often_dead_letters_are_kept_is_looked_at() -> None:
    flow = connector_flow({**LEAST, **SQL, **DEAD, **TOLERATED}, None)

    class Cluster:
        topics: Mapping[str, object] = {}
        brokers = (1,)
        settings = flow.target

    factors = asked_factors(flow, {"target": Cluster()}, [])  # type: ignore[dict-item]
    found = [f for f in factors if f.key == "errors.deadletterqueue.topic.replication.factor"]
    assert [(f.value, f.explicit) for f in found] == [(3, False)]
