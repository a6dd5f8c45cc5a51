"""What a connector has copied, however its tasks tell of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.control.copy_counts import CopyCounts
from sparkmirror.dataplane.copy import LedgerRow
from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.spark.accumulators import UNKNOWN, Lag

T0, T1 = ("t", 0), ("t", 1)


def report(since: int, records: int, lag: int = 0, partition: int = 0) -> Progress:
    row = PartitionProgress("t", partition, "a.t", 0, 0, records, records * 10, lag, -1)
    return Progress("msc", 0, since, since, (row,))


def ledger(since: int, records: int, partition: int = 0) -> LedgerRow:
    return LedgerRow("t", partition, 0, records, records * 10, 0, 0, since=since)


def counts(*keys: tuple[str, int]) -> CopyCounts:
    made = CopyCounts()
    made.assign(keys)
    return made


def test_counters_are_read_as_what_was_added() -> None:
    found = counts(T0, T1)
    found.note([report(1, 3), report(1, 5), report(1, 2, partition=1)])
    assert found.take() == (7, 70)
    assert found.take() == (0, 0)


def test_a_new_job_counts_from_zero_and_the_ledger_tells_the_rest_of_the_old_one() -> None:
    found = counts(T0)
    found.note([report(1, 3)])
    found.note_ledger([ledger(1, 8)])
    found.assign([T0])
    found.note([report(2, 1)])
    assert found.take().records == 9


def test_a_late_report_counts_nothing_again() -> None:
    found = counts(T0)
    found.note([report(1, 3), report(2, 4), report(1, 3)])
    assert found.take().records == 7


def test_a_task_that_begins_with_a_clock_behind_is_counted() -> None:
    found = counts(T0)
    found.note([report(9, 3), report(4, 4)])
    assert found.take().records == 7


def test_what_others_copy_is_not_counted() -> None:
    found = counts(T0)
    found.note([report(1, 3, partition=1)])
    assert found.take().records == 0


def test_a_lag_that_is_not_known_is_not_zero() -> None:
    found = counts(T0, T1)
    assert found.lag == Lag(UNKNOWN, 2)
    found.note([report(1, 0, lag=7)])
    assert found.lag == Lag(7, 1)
    found.note([report(1, 0, lag=-1), report(1, 0, lag=0, partition=1)])
    assert found.lag == Lag(0, 1)
    found.assign([T0])
    assert found.lag == Lag(UNKNOWN, 1)
    found.assign(())
    assert found.lag == Lag()


@given(st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=6), max_size=12), st.data())
def test_each_record_counts_once_whichever_reports_are_lost_or_repeated(
    runs: list[list[int]], data: st.DataObject
) -> None:
    """Of a run any reports may be missing, as long as its ledger comes."""
    found, total = counts(T0), 0
    for since, run in enumerate(runs):
        readings = [report(since, sum(run[: n + 1])) for n in range(len(run))]
        seen = data.draw(st.lists(st.sampled_from(readings), max_size=8))
        found.note(seen)
        found.note_ledger([ledger(since, sum(run))])
        found.note([replace(each, time=each.time + 1) for each in seen])
        total += sum(run)
    assert found.take() == (total, total * 10)
