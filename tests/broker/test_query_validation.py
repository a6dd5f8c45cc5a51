"""Queries that Spark refuses: told when a connector is created, over REST as Connect tells what is wrong with configs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from connect_worker import Answer, ConnectWorker, connector_path, worker_properties
from kafka_tools import NewRecord, create_topic, end_offsets, produce, topics, wait_for
from running import Mirror, properties
from worker_flow import Flow

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
PATIENCE_S = 120.0
_VALIDATE = "/connector-plugins/MirrorSourceConnector/config/validate"
_INVALID = "Connector configuration is invalid and contains the following 1 error(s):"


@pytest.fixture(scope="module")
def worker(
    target_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectWorker]:
    """One worker for all: it refuses things, which leaves nothing behind."""
    keys = worker_properties(target_cluster.bootstrap, f"queries-{time.time_ns()}") | {
        "transform.functions.allowed": "no.such",
        "transform.sql.file.allowed.paths": str(tmp_path_factory.getbasetemp()),
    }
    with ConnectWorker(tmp_path_factory.mktemp("queries"), keys) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def flow(source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique) -> Flow:
    return Flow(source_cluster, target_cluster, unique("refused"))


def refused(worker: ConnectWorker, flow: Flow, key: str, **keys: str) -> str:
    """What is said of a config; the same wherever it is sent, and nothing comes of it."""
    config = flow.config(**keys)
    put = worker.request("PUT", f"{connector_path(flow.name)}/config", config)
    post = worker.request("POST", "/connectors", {"name": flow.name, "config": config})
    named = {**config, "name": flow.name}
    validated = worker.request("PUT", _VALIDATE, named)
    assert (put.status, post.status, validated.status) == (400, 400, 200), put
    entries = {e["value"]["name"]: e for e in validated.document["configs"]}
    assert validated.document["error_count"] == 1
    assert [name for name, e in entries.items() if e["value"]["errors"]] == [key]
    (message,) = entries[key]["value"]["errors"]
    for answer in (put, post):
        assert answer.document["error_code"] == 400
        assert answer.document["message"].startswith(f"{_INVALID}\n{message}\n")
    assert worker.status(flow.name) is None
    return str(message)


def test_a_syntax_error(worker: ConnectWorker, flow: Flow) -> None:
    said = refused(
        worker, flow, "transform.sql", transform_sql="SELECT value\nFROM records WHERE value LIKE"
    )
    assert "PARSE_SYNTAX_ERROR" in said
    assert "(line 2, pos 25)" in said


def test_what_spark_folds_is_told_in_our_words(worker: ConnectWorker, flow: Flow) -> None:
    nothing = "(SELECT * FROM records WHERE false)"
    for sql, reason in (
        ("SELECT 1 AS nonsense, value FROM records WHERE false", "a column 'nonsense', which"),
        ("SELECT CAST(TIMESTAMP'now' AS STRING) AS value FROM records", "The query asks for 'now'"),
        (f"SELECT b.value FROM {nothing} a RIGHT JOIN records b ON a.key = b.key", "more than once"),  # noqa: S608
        ("SELECT value, value FROM (SELECT sha2(value, 256) AS value FROM records)", ""),
    ):  # fmt: skip
        config = {**flow.config(transform_sql=sql), "name": flow.name}
        answer = worker.request("PUT", _VALIDATE, config)
        said = [error for e in answer.document["configs"] for error in e["value"]["errors"]]
        assert (len(said) == 1, reason in "".join(said)) == (bool(reason), True)


@pytest.mark.slow
def test_an_unknown_column(worker: ConnectWorker, flow: Flow) -> None:
    said = refused(
        worker, flow, "transform.sql", transform_sql="SELECT valeu AS value FROM records"
    )
    assert "UNRESOLVED_COLUMN" in said
    assert "`valeu`" in said
    assert "`value`" in said  # what may be meant
    assert "line 1 pos 7" in said


@pytest.mark.slow
def test_a_wrong_type(worker: ConnectWorker, flow: Flow) -> None:
    said = refused(worker, flow, "transform.sql", transform_sql="SELECT 1 AS value FROM records")
    assert said.startswith("The query gives value as INT; it must be BINARY or STRING.")
    wrong = "SELECT upper(headers) AS value FROM records"
    said = refused(worker, flow, "transform.sql", transform_sql=wrong)
    assert "DATATYPE_MISMATCH" in said
    assert "line 1 pos 7" in said


@pytest.mark.slow
def test_what_cannot_be_run_record_by_record(worker: ConnectWorker, flow: Flow) -> None:
    for sql, reason in (
        ("SELECT max(value) AS value FROM records", "it aggregates"),
        ("SELECT value FROM records ORDER BY offset", "it sorts"),
        ("SELECT uuid() AS value FROM records", "uuid, which gives another answer each time"),
    ):
        assert reason in refused(worker, flow, "transform.sql", transform_sql=sql)


@pytest.mark.slow
def test_functions_that_are_not_there(worker: ConnectWorker, flow: Flow) -> None:
    sql = "SELECT f(value) AS value FROM records"
    names = {"transform_sql": sql, "transform_functions": "no.such.module:f"}
    said = refused(worker, flow, "transform.functions", **names)
    assert "module no.such.module cannot be imported: ModuleNotFoundError" in said
    said = refused(worker, flow, "transform.sql", transform_sql=sql)
    assert "UNRESOLVED_ROUTINE" in said
    assert "line 1 pos 7" in said


@pytest.mark.slow
def test_a_query_in_a_file(worker: ConnectWorker, flow: Flow, tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_text("SELECT value FORM records")
    said = refused(worker, flow, "transform.sql.file", transform_sql_file=str(file))
    assert "(line 1, pos 18)" in said


@pytest.mark.slow
def test_a_change_that_is_refused_changes_nothing(worker: ConnectWorker, flow: Flow) -> None:
    flow.produce(100)
    config = flow.config(transform_sql="SELECT value FROM records WHERE offset % 2 = 0")
    worker.put(flow.name, config)
    try:
        wait_for("half is there", lambda: flow.copied() == 50, PATIENCE_S)
        patch = {"transform.sql": "SELECT value FROM nowhere"}
        answer = worker.request("PATCH", f"{connector_path(flow.name)}/config", patch)
        assert answer.status == 400
        assert "TABLE_OR_VIEW_NOT_FOUND" in answer.document["message"]
        assert worker.get(f"{connector_path(flow.name)}/config") == {**config, "name": flow.name}
        flow.produce(100)
        wait_for("and half of the rest", lambda: flow.copied() == 100, PATIENCE_S)
    finally:
        worker.delete(flow.name)


@pytest.mark.slow
def test_others_are_answered_while_spark_starts(
    target_cluster: KafkaCluster, flow: Flow, unique: Unique, tmp_path: Path
) -> None:
    keys = worker_properties(target_cluster.bootstrap, unique("starting"))
    with ConnectWorker(tmp_path, keys) as starting:
        wait_for("REST answers", lambda: starting.health() is not None, PATIENCE_S)
        answers: list[Answer] = []
        config = {**flow.config(transform_sql="SELECT FROM records"), "name": flow.name}

        def validate() -> None:
            answers.append(starting.request("PUT", _VALIDATE, config))

        asking = threading.Thread(target=validate)
        asking.start()
        longest, count, start = 0.0, 0, time.monotonic()
        while asking.is_alive():
            began = time.monotonic()
            assert starting.request("GET", "/connectors").status == 200
            longest = max(longest, time.monotonic() - began)
            count += 1
            asking.join(0.05)
        assert count > 3, "Spark was there already: nothing was seen"
        assert longest < (time.monotonic() - start) / 2
        assert answers[0].document["error_count"] == 1


@pytest.mark.slow
def test_a_file_whose_flow_has_a_refused_query_does_not_start(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=unique("never"),
        flow_transform_sql="SELECT value FORM records",
        emit_heartbeats_enabled="false",
    )
    before = topics(target_cluster.bootstrap)
    with Mirror(tmp_path, keys) as mirror:
        assert mirror.wait(PATIENCE_S) == 2
        said = mirror.output
    assert "sparkmirror: A->B: transform.sql: [PARSE_SYNTAX_ERROR]" in said
    assert "(line 1, pos 18)" in said
    assert topics(target_cluster.bootstrap) == before


@pytest.mark.slow
def test_a_flow_without_a_query_runs_beside_one_that_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    here, there = unique("here"), unique("there")
    create_topic(source_cluster.bootstrap, here)
    create_topic(target_cluster.bootstrap, there)
    produce(target_cluster.bootstrap, there, [NewRecord(b"k", b"v")])
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=here,
        flow_transform_sql="SELECT nothing AS value FROM records",
        emit_heartbeats_enabled="false",
        heartbeats_replication_enabled="false",
    )
    keys |= {"B->A.enabled": "true", "B->A.topics": there}
    remote = f"B.{there}"
    with Mirror(tmp_path, keys) as mirror:
        wait_for(
            "the other flow copies",
            lambda: (
                remote in topics(source_cluster.bootstrap)
                and end_offsets(source_cluster.bootstrap, remote) == {0: 1}
            ),
            PATIENCE_S,
        )
        mirror.wait_until_says("UNRESOLVED_COLUMN", PATIENCE_S)
        assert mirror.stop() == 1  # something had failed
