"""Answers about keys and values, Connect's or ours: they come in as they are, and go out without what is meant to differ."""

from __future__ import annotations

import re
from typing import Any

from sparkmirror.config.plugins import STRUCTURED_TRANSFORMATIONS

DEFAULTS = {
    "refresh.topics.interval.seconds": ("600", "30"),
    "emit.checkpoints.interval.seconds": ("60", "5"),
    "offset.flush.interval.ms": ("60000", "1000"),
}
"""Defaults of ours that differ on purpose: Java's, then ours."""
# The words about a wrong regular expression are those of the language that reads it.
_REGEX = re.compile(r"(Invalid regex: ).*", re.DOTALL)


def same_definition(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """The definition of a key without its text, and with our default."""
    if found is None:
        return None
    same = {name: value for name, value in found.items() if name != "documentation"}
    java, ours = DEFAULTS.get(found["name"], (None, None))
    if java is not None and found["default_value"] == java:
        same["default_value"] = ours
    return same


def same_entry(found: dict[str, Any]) -> dict[str, Any]:
    """An entry without what differs on purpose everywhere: texts, defaults, steps we do not have."""
    value = dict(found["value"])
    java, ours = DEFAULTS.get(value["name"], (None, None))
    if java is not None and value["value"] == java:
        value["value"] = ours
    value["recommended_values"] = [
        name for name in value["recommended_values"] if name not in STRUCTURED_TRANSFORMATIONS
    ]
    value["errors"] = [_REGEX.sub(r"\1...", message) for message in value["errors"]]
    return {"definition": same_definition(found["definition"]), "value": value}
