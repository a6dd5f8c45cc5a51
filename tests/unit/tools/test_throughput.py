"""Rates and totals from progress reports, over restarts of tasks."""

from __future__ import annotations

from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.tools.throughput import Throughput


def report(
    time: int,
    *rows: tuple[str, int, int, int],
    since: int = 0,
    lag: int = 0,
    age_ms: int = 5,
    task: int = 0,
) -> Progress:
    partitions = tuple(
        PartitionProgress(topic, number, f"s.{topic}", 0, 0, records, size, lag, age_ms)
        for topic, number, records, size in rows
    )
    return Progress("connector", task, since, time, partitions)


def test_a_rate_is_what_came_within_the_window() -> None:
    flow = Throughput()
    flow.add([report(1_000, ("a", 0, 100, 1_000)), report(9_000, ("a", 0, 600, 6_000))])
    (row,) = flow.rows(now_ms=10_000)
    assert row.records == 600
    assert row.records_per_s == 100  # 500 of the last 5 seconds
    assert row.bytes_per_s == 1_000
    (row,) = flow.rows(now_ms=20_000)
    assert row.records_per_s == 0


def test_a_restarted_task_counts_on() -> None:
    flow = Throughput()
    flow.add([report(1_000, ("a", 0, 100, 10), since=1)])
    flow.add([report(2_000, ("a", 0, 30, 3), since=2)])
    flow.add([report(3_000, ("a", 0, 50, 5), since=2)])
    (row,) = flow.rows(now_ms=3_000)
    assert row.records == 150


def test_partitions_of_a_topic_are_one_row() -> None:
    flow = Throughput()
    flow.add([report(1_000, ("b", 0, 1, 1), ("a", 0, 2, 2), lag=7, age_ms=10)])
    flow.add([report(1_000, ("a", 1, 3, 3), lag=5, age_ms=20, task=1)])
    first, second = flow.rows(now_ms=1_000)
    assert (first.topic, first.partitions, first.records) == ("a", 2, 5)
    assert (first.lag, first.latency_ms) == (12, 15.0)
    assert (second.topic, second.lag) == ("b", 7)


def test_an_unknown_lag_or_age_is_not_a_number() -> None:
    flow = Throughput()
    flow.add([report(1_000, ("a", 0, 0, 0), lag=-1, age_ms=-1)])
    (row,) = flow.rows(now_ms=1_000)
    assert row.lag == 0
    assert row.latency_ms is None
