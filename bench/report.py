"""Outcomes of both replicators come in; one table of ratios, a file and a verdict go out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.runs import Outcome
from bench.workloads import Bar, Workload

Outcomes = Mapping[str, Mapping[str, Outcome]]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one workload, side by side; `holds` is None where nothing is demanded."""

    workload: str
    metric: str
    mm2: float | None
    sparkmirror: float | None
    ratio: float | None
    demand: str
    holds: bool | None


def ratio_of(sparkmirror: float | None, mm2: float | None) -> float | None:
    return sparkmirror / mm2 if sparkmirror is not None and mm2 else None


def row_of(workload: str, metric: str, values: Mapping[str, Outcome], bar: Bar | None) -> Row:
    mm2, ours = (
        values[peer].metrics.get(metric) if peer in values else None
        for peer in ("mm2", "sparkmirror")
    )
    ratio = ratio_of(ours, mm2)
    if bar is None:
        return Row(workload, metric, mm2, ours, ratio, "", None)
    # A bar that could not be measured because a replicator failed does not hold.
    failed = any(outcome.failure for outcome in values.values())
    value = ours if bar.absolute else ratio
    holds = bar.holds(value) if value is not None else (False if failed else None)
    return Row(workload, metric, mm2, ours, ratio, f"{bar.bound} {bar.ratio:g}", holds)


def rows_of(workloads: Sequence[Workload], outcomes: Outcomes) -> list[Row]:
    """The demanded metrics of each workload first, then what else was measured."""
    rows: list[Row] = []
    for workload in workloads:
        values = outcomes.get(workload.name, {})
        demanded = {bar.metric: bar for bar in workload.bars}
        measured = {metric for outcome in values.values() for metric in outcome.metrics}
        rows += [row_of(workload.name, metric, values, bar) for metric, bar in demanded.items()]
        rows += [
            row_of(workload.name, metric, values, None)
            for metric in sorted(measured - set(demanded))
        ]
    return rows


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def verdict(holds: bool | None) -> str:
    if holds is None:
        return ""
    return "[green]holds[/green]" if holds else "[red]does not hold[/red]"


def table_of(workloads: Sequence[Workload], rows: Sequence[Row]) -> Table:
    table = Table(title="sparkmirror beside MirrorMaker 2", caption="GB and MB of record payload")
    for column in ("", "workload", "metric"):
        table.add_column(column, no_wrap=True)
    for column in ("MM2", "sparkmirror", "ratio", "demanded"):
        table.add_column(column, justify="right")
    table.add_column("")
    titles = {workload.name: workload.title for workload in workloads}
    before = ""
    for row in rows:
        new = row.workload != before
        if new and before:
            table.add_section()
        before = row.workload
        table.add_row(
            row.workload if new else "",
            titles[row.workload] if new else "",
            row.metric,
            number(row.mm2),
            number(row.sparkmirror),
            "-" if row.ratio is None else f"{row.ratio:.2f} x",
            row.demand,
            verdict(row.holds),
        )
    return table


def failures(outcomes: Outcomes) -> list[str]:
    return [
        f"{workload}, {peer}: {outcome.failure}"
        for workload, values in outcomes.items()
        for peer, outcome in values.items()
        if outcome.failure
    ]


def passed(rows: Sequence[Row], outcomes: Outcomes) -> bool:
    return not failures(outcomes) and all(row.holds is not False for row in rows)


def write_results(
    path: Path, workloads: Sequence[Workload], outcomes: Outcomes, about: Mapping[str, object]
) -> None:
    """Everything that was measured, for other programs; written anew after each workload."""
    rows = rows_of(workloads, outcomes)
    document = {
        **about,
        "cores": os.cpu_count(),
        "outcomes": {
            name: {peer: asdict(outcome) for peer, outcome in values.items()}
            for name, values in outcomes.items()
        },
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
