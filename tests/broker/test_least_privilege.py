"""The ACLs of docs/acls.md: a whole flow works with exactly those, and without one of them the missing one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_tools import delete_topic, group_offsets, wait_for
from least import (
    GROUP,
    READER,
    RECORDS,
    ROUTED,
    TOPIC,
    WRITER,
    Guarded,
    copied,
    guarded,
    names_of,
)

from sparkmirror.preflight.check import Subject, check
from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.privileges import Names, Parts, Privilege, merged, needed

_NAMES = Names(
    source_alias="a",
    target_alias="b",
    topics=TOPIC,
    remote=f"a.{TOPIC}",
    groups=GROUP,
    offset_syncs="mm2-offset-syncs.b.internal",
    checkpoints="a.checkpoints.internal",
    opposite_checkpoints="b.checkpoints.internal",
    heartbeats="heartbeats",
    worker_group="a-mm2",
    worker_topics=(
        "mm2-configs.a.internal",
        "mm2-offsets.a.internal",
        "mm2-status.a.internal",
    ),
)
# What is needed only where there is a flow the other way round is not missed here.
_MISSED = [
    one for one in merged(needed(_NAMES, Parts(group_offsets=True))) if "opposite" not in one.when
]
_PATIENCE_S = 120.0  # a busy machine takes long to start Spark


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as both:
        yield both


@pytest.mark.slow
def test_exactly_these(pair: Guarded, tmp_path: Path) -> None:
    flow = pair.flow("a0", "b0")
    privileges = flow.privileges()
    pair.grant(flow, privileges)
    with pair.running(tmp_path, "a0", "b0") as mirror:
        wait_for("the records", lambda: copied(pair.target, f"a0.{TOPIC}") == RECORDS, _PATIENCE_S)
        wait_for("heartbeats", lambda: copied(pair.target, "heartbeats") > 1)
        wait_for("checkpoints", lambda: copied(pair.target, "a0.checkpoints.internal") > 0)
        expected = {(f"a0.{TOPIC}", 0): RECORDS // 2}
        where = pair.target.open_bootstrap
        wait_for("the group", lambda: group_offsets(where, GROUP) == expected)
        assert "AUTHORIZATION_FAILED" not in mirror.output
        assert "lacks the ACL" not in mirror.output
    report = check(Subject([], [flow]), 30.0)
    assert report.level < Level.WARNING, report.as_json()


def _with_query(dead: str) -> dict[str, str]:
    """Half of the records go elsewhere; one of those is bad."""
    number = "CAST(CAST(CAST(value AS STRING) AS INT) AS STRING)"
    columns = (
        f"IF(offset < 10, '{ROUTED}', topic) AS topic, IF(offset = 3, {number}, value) AS value"
    )
    return {
        "transform.sql": f"SELECT *, {columns} FROM records",  # noqa: S608 - not of a database
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }


@pytest.mark.slow
def test_exactly_these_with_a_query(pair: Guarded, tmp_path: Path) -> None:
    keys = _with_query("dead")
    flow = pair.flow("aq", "bq", keys)
    pair.grant(flow, flow.privileges())
    with pair.running(tmp_path, "aq", "bq", more=keys) as mirror:
        expected = {f"aq.{ROUTED}": 9, f"aq.{TOPIC}": RECORDS - 10, "dead": 1}
        wait_for(
            "the records",
            lambda: {topic: copied(pair.target, topic) for topic in expected} == expected,
            _PATIENCE_S,
        )
        assert "AUTHORIZATION_FAILED" not in mirror.output
        assert "lacks the ACL" not in mirror.output


@pytest.mark.slow
@pytest.mark.parametrize("missing", [f"ar.{ROUTED}", "as-dead"])
def test_without_the_right_to_write_what_a_query_needs(
    pair: Guarded, tmp_path: Path, missing: str
) -> None:
    source, target = missing[:2], f"b{missing[1]}"
    keys = _with_query(f"{source}-dead")
    flow = pair.flow(source, target, keys)
    given = [
        one
        for one in flow.privileges()
        if one.operation != "Write" or missing not in names_of(flow, one)
    ]
    assert len(given) == len(flow.privileges()) - 1
    pair.grant(flow, given)
    sentence = f"User:{WRITER} lacks the ACL Write on topic {missing}"
    with pair.running(tmp_path, source, target, preflight=False, more=keys) as mirror:
        wait_for(sentence, lambda: sentence in mirror.output, _PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "missing"),
    [
        pytest.param(n, one, id=f"{one.side}-{one.operation}-{one.name or 'cluster'}")
        for n, one in enumerate(_MISSED, 1)
    ],
)
def test_without_one(pair: Guarded, tmp_path: Path, number: int, missing: Privilege) -> None:
    source, target = f"a{number}", f"b{number}"
    flow = pair.flow(source, target)
    given = [one for one in flow.privileges() if not _is_same(one, missing)]
    assert len(given) == len(flow.privileges()) - 1
    (left_out,) = [one for one in flow.privileges() if one not in given]
    pair.grant(flow, given)
    if missing.name == "heartbeats" and missing.creates:  # all flows share it
        delete_topic(pair.target.open_bootstrap, "heartbeats")
    (name,) = names_of(flow, left_out)
    who = READER if missing.side == "source" else WRITER
    what = "the cluster" if missing.resource == "cluster" else f"{missing.resource} {name}"
    sentence = f"User:{who} lacks the ACL {missing.operation} on {what}"
    with pair.running(tmp_path, source, target, preflight=_is_foreseen(missing)) as mirror:
        wait_for(sentence, lambda: sentence in mirror.output, _PATIENCE_S)


def _is_foreseen(missing: Privilege) -> bool:
    """Whether only the check at the start can tell: topics that are not shown, and what nobody does for the time being."""
    return (missing.family, missing.operation) in (("topics", "Read"), ("remote", "Alter"))


def _is_same(one: Privilege, other: Privilege) -> bool:
    """Whatever the aliases and topics of this flow are."""
    if one.family != other.family or (not one.family and _kind(one.name) != _kind(other.name)):
        return False
    mine = (one.side, one.resource, one.operation, one.part, one.why)
    return mine == (other.side, other.resource, other.operation, other.part, other.why)


def _kind(name: str) -> str:
    """A name without its aliases."""
    parts = name.replace("-mm2", ".mm2").split(".")
    return ".".join(part for part in parts if part.rstrip("0123456789") not in ("a", "b"))
