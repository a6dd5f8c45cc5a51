"""Spark's settings before anything runs: memory of Python workers, the event log, logs of executors."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.spark_rules import (
    EVENT_BYTES,
    SPACE_MIB,
    needed_mib,
    spark_findings,
)
from sparkmirror.preflight.subjects import read_subject

YARN = {"spark.master": "yarn"}
MOST_BY_DEFAULT = max(n for n in range(1, 99) if needed_mib(n, has_query=False) <= 384)
FILE = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.transform.sql = SELECT value FROM records
spark.master = yarn
spark.executor.cores = 16
"""


def said(spark: dict[str, str], *intervals: int) -> list[str]:
    return [str(finding) for finding in spark_findings(spark, intervals)]


@pytest.mark.parametrize("master", ["local[*]", "local[4]"])
def test_on_one_machine_there_is_no_executor_to_measure(master: str) -> None:
    assert said({"spark.master": master, "spark.executor.cores": "64"}) == []
    assert said({"spark.executor.cores": "64"}) == []


def test_workers_that_fit_are_not_told() -> None:
    assert said(YARN) == []
    assert said({**YARN, "spark.executor.cores": str(MOST_BY_DEFAULT)}) == []


def test_more_workers_than_the_overhead_has_room_for() -> None:
    cores = MOST_BY_DEFAULT + 1
    (text,) = said({**YARN, "spark.executor.cores": str(cores)})
    needed = needed_mib(cores, has_query=False)
    assert f"up to {needed} MiB on an executor with {cores} slots," in text
    assert "spark.executor.memoryOverhead is 384 MiB by default" in text
    wanted = f"{needed + 384}m"
    assert f"Set spark.executor.memoryOverhead to {wanted}" in text
    mended = {"spark.executor.cores": str(cores), "spark.executor.memoryOverhead": wanted}
    assert said({**YARN, **mended}) == []


def test_a_query_takes_more_and_slots_take_cpus() -> None:
    cores = {"spark.executor.cores": "8", "spark.task.cpus": "4"}
    (text,) = said({**YARN, **cores, "spark.executor.memoryOverhead": "100"}, 300)
    needed = needed_mib(2, has_query=True)
    assert f"up to {needed} MiB on an executor with 2 slots for a query," in text
    assert "100 MiB: " in text


@pytest.mark.parametrize(
    ("master", "more", "room"),
    [
        ("yarn", {}, 1024),
        ("yarn", {"spark.executor.memoryOverheadFactor": "0.2"}, 2048),
        ("yarn", {"spark.executor.minMemoryOverhead": "2g"}, 2048),
        ("k8s://https://k:6443", {}, 1024),
        ("k8s://https://k:6443", {"spark.submit.deployMode": "cluster"}, 4096),
        ("k8s://https://k:6443", {"spark.kubernetes.memoryOverheadFactor": "0.3"}, 3072),
        ("yarn", {"spark.executor.memoryOverhead": "700m"}, 700),
        ("yarn", {"spark.executor.memoryOverhead": "3g"}, 3072),
    ],
)
def test_the_overhead_is_the_one_that_spark_asks_for(
    master: str, more: dict[str, str], room: int
) -> None:
    base = {"spark.master": master, "spark.executor.memory": "10g", "spark.executor.cores": "99"}
    (text,) = said({**base, **more})
    assert f"spark.executor.memoryOverhead is {room} MiB" in text


def test_memory_for_python_is_shared_out_between_its_workers() -> None:
    given = {**YARN, "spark.executor.cores": "4", "spark.executor.pyspark.memory": "64m"}
    (text,) = said(given)
    assert "lets each Python worker have 16 MiB of address space; it needs" in text
    needed = f"{4 * SPACE_MIB[False]}m"
    assert f"Set spark.executor.pyspark.memory to {needed}" in text
    assert said({**given, "spark.executor.pyspark.memory": needed}) == []
    (text,) = said({**given, "spark.executor.pyspark.memory": needed}, 300)
    assert f"with a query it needs up to {SPACE_MIB[True]} MiB" in text


def test_a_standalone_cluster_counts_no_overhead() -> None:
    assert said({"spark.master": "spark://m:7077"}) == [], "as many cores as a node has"
    findings = spark_findings({"spark.master": "spark://m:7077", "spark.executor.cores": "2"}, ())
    assert [finding.level for finding in findings] == [Level.NOTE]
    assert f"up to {needed_mib(2, has_query=False)} MiB" in str(findings[0])


@pytest.mark.parametrize("odd", ["", "plenty", "1.5g", "-1"])
def test_what_is_no_size_is_left_to_spark(odd: str) -> None:
    spark = {**YARN, "spark.executor.cores": "99", "spark.executor.memoryOverhead": odd or "?"}
    assert said(spark) == []


def test_the_event_log_of_a_query_is_told_in_gigabytes_a_day() -> None:
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    assert said(log) == [], "without a query it is small"
    assert said({**log, "spark.eventLog.enabled": "false"}, 300) == []
    (text,) = said(log, 300)
    assert "288,000 jobs a day" in text
    assert f"up to {288_000 * EVENT_BYTES / 1e9:.1f} GB into Spark's event log." in text
    (both,) = said({**log, "spark.eventLog.compress": "true"}, 300, 600)
    assert "432,000 jobs a day" in both
    assert f"up to {432_000 * EVENT_BYTES / 1e9:.1f} GB" in both
    assert "before compression" in both


def test_settings_that_only_nodes_read_are_told() -> None:
    rolling = {"spark.executor.logs.rolling.strategy": "size"}
    (text,) = said({"spark.master": "spark://m:7077", **rolling})
    assert "spark.executor.logs.rolling.strategy has no effect here" in text
    assert "SPARK_WORKER_OPTS" in text
    assert said({**YARN, **rolling}) == []


def test_what_a_file_says_is_checked_over_spark_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.eventLog.enabled true\n")
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    (section,) = read_subject([file], None).sections
    told = [str(finding) for finding in section.findings if finding.check == "spark"]
    assert len(told) == 2
    assert f"up to {needed_mib(16, has_query=True)} MiB" in told[0]
    assert "spark.eventLog.enabled=true" in told[1]
