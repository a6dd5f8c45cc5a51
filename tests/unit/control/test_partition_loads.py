"""Loads of partitions, from what copy tasks report."""

from __future__ import annotations

import pytest

from sparkmirror.control.partition_loads import PartitionLoads
from sparkmirror.formats.progress import PartitionProgress, Progress


def report(since: int, time: int, count: int, partition: int = 0) -> Progress:
    row = PartitionProgress("t", partition, "a.t", 0, 0, 0, count, 0, -1)
    return Progress("msc", 0, since * 1000, time * 1000, (row,))


def loads_of(*reports: Progress) -> PartitionLoads:
    loads = PartitionLoads()
    loads.note(reports)
    return loads


def test_a_steady_flow_is_measured() -> None:
    loads = loads_of(*[report(0, second, second * 1000) for second in range(1, 1200)])
    assert loads.at(1_199_000)[("t", 0)] == pytest.approx(1000, rel=0.01)


def test_a_task_that_begins_counts_from_zero() -> None:
    first = [report(0, second, second * 1000) for second in range(1, 600)]
    second = [report(600, 600 + second, second * 1000) for second in range(1, 600)]
    assert loads_of(*first, *second).at(1_199_000)[("t", 0)] == pytest.approx(1000, rel=0.02)


def test_what_stops_is_forgotten_in_minutes() -> None:
    loads = loads_of(*[report(0, second, second * 1000) for second in range(1, 600)])
    assert loads.at(600_000 + 600_000)[("t", 0)] < 10
    loads.note([report(0, 1200, 599_000)])
    assert loads.at(1_200_000)[("t", 0)] < 10


def test_a_report_that_comes_late_is_passed_over() -> None:
    loads = loads_of(report(0, 10, 10_000), report(0, 20, 20_000))
    before = loads.at(20_000)
    loads.note([report(0, 10, 10_000)])
    assert loads.at(20_000) == before


def test_partitions_that_are_gone_are_forgotten() -> None:
    loads = loads_of(report(0, 10, 10_000), report(0, 10, 10_000, partition=1))
    loads.keep([("t", 1)])
    assert loads.at(10_000).keys() == {("t", 1)}
