"""Things that are done at intervals: a timer's name comes in, whether and how often it runs goes out.

A timer is a pair of keys, `<name>.enabled` and `<name>.interval.seconds`. A negative interval switches it off, as in
MirrorMaker 2.
"""

from __future__ import annotations

from sparkmirror.config.keys import Problem, Values
from sparkmirror.config.validators import invalid


def is_on(values: Values, timer: str) -> bool:
    """Whether it is wanted; an interval of 0 means as often as can be."""
    return values.boolean(f"{timer}.enabled") and interval(values, timer) >= 0


def interval(values: Values, timer: str) -> int:
    """Seconds from one time to the next."""
    return values.integer(f"{timer}.interval.seconds")


def zero_problem(values: Values, timer: str) -> Problem | None:
    """For timers that run at a fixed rate, which cannot be 0."""
    name = f"{timer}.interval.seconds"
    if values.boolean(f"{timer}.enabled") and interval(values, timer) == 0:
        return Problem(name, invalid(name, 0, "Value must be at least 1"))
    return None
