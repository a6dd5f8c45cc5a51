"""Logs explained: lines of MirrorMaker 2, Connect, a broker or ours in; what the known errors among them mean out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkmirror.preflight.findings import Finding, Level, Report, Section
from sparkmirror.preflight.known_errors import KNOWN, KnownError

_LONGEST_LINE = 20_000


@dataclass(slots=True)
class _Seen:
    known: KnownError
    words: dict[str, str]
    first: int
    count: int = 1


def explain(lines: Iterable[str]) -> list[Finding]:
    """One finding for each kind of error, with where it was seen first and how often."""
    seen: dict[tuple[str, str, tuple[str, ...]], _Seen] = {}
    for number, line in enumerate(lines, 1):
        found = recognise(line[:_LONGEST_LINE])
        if found is None:
            continue
        known, words = found
        key = (known.name, known.cause, tuple(words[name] for name in known.by))
        if key in seen:
            seen[key].count += 1
        else:
            seen[key] = _Seen(known, words, number)
    return [_finding(one) for one in seen.values()]


def recognise(line: str) -> tuple[KnownError, dict[str, str]] | None:
    """What is known of a line, with the words of its groups."""
    for known in KNOWN:
        match = known.pattern.search(line)
        if match is not None:
            return known, {name: text or "" for name, text in match.groupdict().items()}
    return None


def _finding(seen: _Seen) -> Finding:
    where = f"line {seen.first}" + (f", {seen.count} times" if seen.count > 1 else "")
    cause = seen.known.cause.format(**seen.words)
    return Finding(
        seen.known.level,
        seen.known.name,
        f"{cause} ({where})",
        seen.known.remedy.format(**seen.words),
    )


def log_report(name: str, lines: Iterable[str]) -> Report:
    """The same as a report on one file."""
    found = explain(lines)
    if not found:
        found = [Finding(Level.OK, "log", "No line of a known error was found.")]
    return Report([Section(f"log {name}", found)])
