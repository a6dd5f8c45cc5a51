"""The table of ratios: what is demanded, what holds, and what a failure does to the verdict."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import workloads as w
from bench.report import failures, number, passed, row_of, rows_of, table_of, write_results
from bench.runs import Outcome

FASTER = w.Bar(w.RECORDS_PER_S, w.Bound.AT_LEAST, 3)
LEANER = w.Bar(w.CPU_PER_GB, w.Bound.AT_MOST, 0.1)
WORKLOAD = w.Throughput("W2", "1 KB lz4", 1000, 1000, w.Batched("lz4"), (FASTER, LEANER))


def outcomes(speed: float, cpu: float) -> dict[str, dict[str, Outcome]]:
    return {
        "W2": {
            "mm2": Outcome({w.RECORDS_PER_S: 50_000, w.CPU_PER_GB: 20, w.START_S: 10}),
            "sparkmirror": Outcome({w.RECORDS_PER_S: speed, w.CPU_PER_GB: cpu}),
        }
    }


@pytest.mark.parametrize(
    ("speed", "cpu", "holds"),
    [
        (150_000, 2.0, [True, True, None]),
        (149_000, 2.0, [False, True, None]),
        (200_000, 2.1, [True, False, None]),
    ],
)
def test_bars_are_judged_by_the_ratio(speed: float, cpu: float, holds: list[bool | None]) -> None:
    rows = rows_of([WORKLOAD], outcomes(speed, cpu))
    assert [row.metric for row in rows] == [w.RECORDS_PER_S, w.CPU_PER_GB, w.START_S]
    assert [row.holds for row in rows] == holds
    assert rows[0].ratio == pytest.approx(speed / 50_000)
    assert passed(rows, outcomes(speed, cpu)) == (False not in holds)


def test_a_failed_replicator_does_not_hold_its_bars() -> None:
    broken = {
        "W2": {"mm2": Outcome({w.RECORDS_PER_S: 1.0}), "sparkmirror": Outcome(failure="ended")}
    }
    rows = rows_of([WORKLOAD], broken)
    assert [row.holds for row in rows] == [False, False]
    assert failures(broken) == ["W2, sparkmirror: ended"]
    assert not passed(rows, broken)


def test_one_replicator_alone_is_not_judged() -> None:
    alone = {"W2": {"mm2": Outcome({w.RECORDS_PER_S: 1.0})}}
    rows = rows_of([WORKLOAD], alone)
    assert [row.holds for row in rows] == [None, None]
    assert passed(rows, alone)


def test_table_and_file_tell_the_same(tmp_path: Path) -> None:
    measured = outcomes(200_000, 1.0)
    screen = io.StringIO()
    table = table_of([WORKLOAD], rows_of([WORKLOAD], measured))
    Console(file=screen, width=140).print(table)
    assert "4.00 x" in screen.getvalue()
    assert screen.getvalue().count("holds") == 2
    write_results(tmp_path / "results.json", [WORKLOAD], measured, {"scale": 1.0})
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert document["rows"][0]["ratio"] == 4.0
    assert document["rows"][0]["demand"] == "≥ 3"
    assert document["outcomes"]["W2"]["mm2"]["metrics"][w.START_S] == 10


def test_numbers_keep_three_digits_or_so() -> None:
    assert [number(v) for v in (None, 0.1234, 12.34, 123456.7)] == ["-", "0.12", "12.3", "123,457"]


def test_every_workload_is_chosen_once_and_scaled() -> None:
    everything = w.Choice(scale=0.01).workloads()
    twice = {"W1": "W1d", "W2": "W2d", "W3": "W3d", "W12": "W12u", "W13": "W13u"}
    names = [f"W{n}" for n in range(1, 15)]
    expected = [each for name in names for each in (name, twice.get(name)) if each]
    assert [workload.name for workload in everything] == expected
    quick = w.Choice(quick=True).workloads()
    assert [workload.name for workload in quick] == ["W2", "W8"]
    assert isinstance(quick[1], w.Latency)
    assert quick[1].seconds == w.QUICK_SECONDS
    assert w.Choice(names=("W4", "W99")).unknown() == ("W99",)
    assert isinstance(everything[6], w.Throughput)
    assert everything[6].records == 50_000


def test_a_bar_may_be_for_our_own_value() -> None:
    bar = w.Bar("p50", w.Bound.AT_MOST, 700, absolute=True)
    values = {"mm2": Outcome({"p50": 5.0}), "sparkmirror": Outcome({"p50": 600.0})}
    assert row_of("W14", "p50", values, bar).holds is True
    values["sparkmirror"] = Outcome({"p50": 701.0})
    assert row_of("W14", "p50", values, bar).holds is False
    assert row_of("W13", "p50", {"sparkmirror": Outcome({"p50": 1.0})}, bar).holds is True
