"""How a check is shown: a report in, lines for a terminal out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from sparkmirror.kafka.api_versions import Use
from sparkmirror.preflight.findings import Finding, Level, Report

_MARKS = {Level.OK: "ok", Level.NOTE: "note", Level.WARNING: "warning", Level.ERROR: "ERROR"}
_STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
}
_WIDTH = max(len(mark) for mark in _MARKS.values())


def shown(report: Report, *, shows_all: bool = False) -> Iterator[Text]:
    """Sections with their findings, the worst first, and a last line that counts them.

    Of the APIs of a cluster those of which something is lost, or all of them.
    """
    for section in report.sections:
        yield Text(section.title, style="bold")
        for finding in sorted(section.findings, key=lambda one: -one.level):
            yield from _finding(finding)
        yield from _table([use for use in section.uses if shows_all or use.lost])
        yield Text("")
    yield Text(summary(report), style=_STYLES[report.level])


def _table(uses: Sequence[Use]) -> Iterator[Text]:
    """What a cluster offers of each API, which version is used, and what is lost."""
    if not uses:
        return
    rows = [
        ("API", "offered", "used", "lost"),
        *((u.api, u.offered, u.used or "-", u.lost) for u in uses),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield Text("  " + "  ".join([*cells, row[3]]).rstrip(), style="bold" if number == 0 else "")


def summary(report: Report) -> str:
    counts = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for level, word in (
            (Level.ERROR, "error"),
            (Level.WARNING, "warning"),
            (Level.NOTE, "note"),
        )
        if (count := report.count(level))
    ]
    return ", ".join(counts) + "." if counts else "Nothing is wrong, as far as can be seen."


def _finding(finding: Finding) -> Iterator[Text]:
    mark = _MARKS[finding.level]
    line = Text("  ")
    line.append(mark.ljust(_WIDTH), style=_STYLES[finding.level])
    line.append(f"  {finding.message}")
    yield line
    if finding.remedy:
        yield Text(f"  {'':{_WIDTH}}  {finding.remedy}", style="dim")
