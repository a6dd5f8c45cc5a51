"""Spark's own pages and metrics show what is copied: jobs by name, records, bytes and lag."""

from __future__ import annotations

import csv
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_tools import end_offsets, topics, wait_for
from running import Mirror, properties
from spread import SpreadTopic

from sparkmirror.spark.accumulators import Lag
from sparkmirror.spark.session import SparkSession
from sparkmirror.tools.clusters import KafkaCluster, free_port

pytestmark = pytest.mark.slow
Unique = Callable[[str], str]
_ROUNDS = 40
PATIENCE_S = 120.0
_SOURCE = ".driver.AccumulatorSource.sparkmirror.A.B."


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - our own page
        return json.load(answer)


def shown(page: str) -> dict[str, int]:
    """The metrics of all connectors from A to B, by connector and name."""
    gauges = read(f"{page}/metrics/json")["gauges"]
    named = {name.partition(_SOURCE)[2]: each["value"] for name, each in gauges.items()}
    return {name: value for name, value in named.items() if name}


def in_files(folder: Path, name: str) -> int:
    """The last line of a metric in the CSV sink; -2 before there is one."""
    for file in folder.glob(f"*AccumulatorSource.sparkmirror.A.B.{name}.csv"):
        rows = list(csv.DictReader(file.read_text().splitlines()))
        return int(rows[-1]["value"]) if rows else -2
    return -2


def jobs(page: str) -> list[dict[str, Any]]:
    (application,) = read(f"{page}/api/v1/applications")
    found: list[dict[str, Any]] = read(f"{page}/api/v1/applications/{application['id']}/jobs")
    return found


def copied_heartbeats(target: KafkaCluster) -> int:
    """Those of earlier tests are copied, too."""
    name = "A.heartbeats"
    there = name in topics(target.bootstrap)
    return sum(end_offsets(target.bootstrap, name).values()) if there else 0


def test_jobs_have_names_and_metrics_tell_what_is_copied_across_jobs(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """With the pages on, on a local master; one of two topics passes through a query."""
    both = [SpreadTopic(source_cluster, target_cluster, unique(name), 3) for name in ("a", "q")]
    port, sink = free_port(), tmp_path / "csv"
    sink.mkdir()
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=", ".join(each.topic for each in both),
        flow_transform_sql="SELECT value FROM records",
        flow_transform_topics=both[1].topic,
        tasks_max="2",
        spark_master="local[2]",
        spark_ui_enabled="true",
        spark_ui_port=str(port),
        mirror_epoch_ms="30000",
        emit_heartbeats_enabled="false",
    ) | {
        "spark.metrics.conf.driver.sink.csv.class": "org.apache.spark.metrics.sink.CsvSink",
        "spark.metrics.conf.driver.sink.csv.period": "1",
        "spark.metrics.conf.driver.sink.csv.directory": str(sink),
    }
    page, name = f"http://127.0.0.1:{port}", "MirrorSourceConnector."
    before = copied_heartbeats(target_cluster)
    with Mirror(tmp_path, keys) as mirror:
        for each in both:
            each.add()
            each.arrives()
        for _ in range(_ROUNDS):
            for each in both:
                each.add()
        wait_for(
            "a second job", lambda: mirror.output.count("Spark task(s) submitted") >= 2, PATIENCE_S
        )
        for each in both:
            each.add()
            each.arrives()
        wanted = 2 * 3 * (_ROUNDS + 2) + copied_heartbeats(target_cluster) - before

        def is_counted() -> bool:
            found = shown(page)
            is_known = found[f"{name}partitionsOfUnknownLag"] == 0  # a job that has just begun
            return is_known and found[f"{name}recordsCopied"] >= wanted and found[f"{name}lag"] == 0

        wait_for("all is counted", is_counted, PATIENCE_S)
        found = shown(page)
        assert found[f"{name}recordsCopied"] == wanted, "and no more"
        assert found[f"{name}bytesCopied"] > wanted
        counted = f"{name}recordsCopied"
        wait_for("the sink has it", lambda: in_files(sink, counted) == wanted, PATIENCE_S)
        names = {each["description"]: each["name"] for each in jobs(page)}
    copying = {text for text, stage in names.items() if stage == "copy A->B"}
    queries = {text for text, stage in names.items() if stage == "query 1"}
    assert copying, names
    assert queries, names
    assert copying | queries == names.keys()
    assert all(text.startswith("sparkmirror A->B: ") for text in copying), names
    assert all("; 2 tasks of MirrorSourceConnector in " in text for text in copying), names
    head = f"sparkmirror A->B, query 1: {both[1].topic[:79]}"
    assert all(text.startswith(head) for text in queries), names


def test_the_metrics_of_an_application_go_on_where_they_were_and_begin_anew_with_the_next() -> None:
    """A connector that comes back finds its names; a Spark that is gone is nobody's trouble."""
    session = SparkSession({"spark.master": "local[1]", "spark.ui.enabled": "true"})
    session.start()
    try:
        page = session.accumulators("A", "B", "mm2.src")
        page.show(3, 30, Lag(5, 1))
        again = session.accumulators("A", "B", "mm2.src")
        again.show(2, 20, Lag())
        other = session.accumulators("A", "B", "orders/eu")
        assert session._context is not None
        url = str(session._context.uiWebUrl)
        assert shown(url) == {
            "mm2%2Esrc.recordsCopied": 5,
            "mm2%2Esrc.bytesCopied": 50,
            "mm2%2Esrc.lag": -1,
            "mm2%2Esrc.partitionsOfUnknownLag": 0,
            "orders%2Feu.recordsCopied": 0,
            "orders%2Feu.bytesCopied": 0,
            "orders%2Feu.lag": -1,
            "orders%2Feu.partitionsOfUnknownLag": 0,
        }
        session.stop()
        other.show(1, 1, Lag(0, 0))
        session.start()
        session.accumulators("A", "B", "mm2.src").show(1, 10, Lag(0, 0))
        url = str(session._context.uiWebUrl)
        assert shown(url)["mm2%2Esrc.recordsCopied"] == 1
    finally:
        session.stop()
