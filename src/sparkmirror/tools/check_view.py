"""How a check is shown: a report in, lines for a terminal out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from sparkmirror.preflight.findings import Finding, Level, Report

_MARKS = {Level.OK: "ok", Level.NOTE: "note", Level.WARNING: "warning", Level.ERROR: "ERROR"}
_STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
}
_WIDTH = max(len(mark) for mark in _MARKS.values())


def shown(report: Report) -> Iterator[Text]:
    """Sections with their findings, the worst first, and a last line that counts them."""
    for section in report.sections:
        yield Text(section.title, style="bold")
        for finding in sorted(section.findings, key=lambda one: -one.level):
            yield from _finding(finding)
        yield Text("")
    yield Text(summary(report), style=_STYLES[report.level])


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
