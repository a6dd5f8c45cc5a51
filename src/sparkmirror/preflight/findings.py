"""What a check has found: single findings in, a report with its sections, worst level and JSON out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from sparkmirror.errors import SparkMirrorError
from sparkmirror.kafka.api_versions import Use
from sparkmirror.veil import VEIL


class Level(IntEnum):
    """How bad it is; only errors make a check fail."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one thing. `check` is a word for scripts, such as `reachability`."""

    level: Level
    check: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()

    def veiled(self) -> Finding:
        """The same without secrets, whoever has said them."""
        return replace(self, message=VEIL.hide(self.message), remedy=VEIL.hide(self.remedy))

    def as_json(self) -> dict[str, str]:
        found = {"level": str(self.level), "check": self.check, "message": self.message}
        return found | ({"remedy": self.remedy} if self.remedy else {})


@dataclass(frozen=True, slots=True)
class Section:
    """What was found of one file, cluster or flow."""

    title: str
    findings: Sequence[Finding] = ()
    uses: Sequence[Use] = ()
    """Of a cluster: the APIs that are used."""

    @property
    def level(self) -> Level:
        return max((finding.level for finding in self.findings), default=Level.OK)


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found, in the order in which it is told."""

    sections: Sequence[Section] = field(default=())

    @property
    def level(self) -> Level:
        return max((section.level for section in self.sections), default=Level.OK)

    @property
    def exit_code(self) -> int:
        return int(self.level is Level.ERROR)

    def veiled(self) -> Report:
        return Report(
            [
                replace(part, findings=[finding.veiled() for finding in part.findings])
                for part in self.sections
            ]
        )

    def count(self, level: Level) -> int:
        return sum(finding.level is level for part in self.sections for finding in part.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "level": str(self.level),
            "sections": [
                {
                    "title": section.title,
                    "level": str(section.level),
                    "findings": [finding.as_json() for finding in section.findings],
                    **({"apis": [one._asdict() for one in section.uses]} if section.uses else {}),
                }
                for section in self.sections
            ],
        }


def ok(check: str, message: str) -> Finding:
    return Finding(Level.OK, check, message)


def note(check: str, message: str, remedy: str = "") -> Finding:
    return Finding(Level.NOTE, check, message, remedy)


def warning(check: str, message: str, remedy: str = "") -> Finding:
    return Finding(Level.WARNING, check, message, remedy)


def error(check: str, message: str, remedy: str = "") -> Finding:
    return Finding(Level.ERROR, check, message, remedy)


def failed(check: str, failure: SparkMirrorError) -> Finding:
    """An error of ours as a finding."""
    return error(check, failure.message, failure.remedy)


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    known = list(names)
    shown = ", ".join(known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"


def without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once, in the order in which they came."""
    return list(dict.fromkeys(findings))
