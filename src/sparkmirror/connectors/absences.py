"""How long things have been missing: which are, and the time, in; which have just gone, are back or due out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found."""

    gone: list[str]
    """Missing for the first time."""
    back: list[str]
    """Not missing any more."""
    due: list[str]
    """Missing at every look for the whole grace time."""


class Absences:
    """Counts from the first look at which something was missing.

    Invariant: `_since` names exactly what was missing at the last look, and at every look from that time (monotonic) on.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: dict[str, float] = {}

    def look(self, missing: Collection[str], now: float) -> Look:
        before, self._since = (
            self._since,
            {name: self._since.get(name, now) for name in missing},
        )
        return Look(
            gone=sorted(name for name in missing if name not in before),
            back=sorted(name for name in before if name not in self._since),
            due=sorted(name for name, since in self._since.items() if now - since >= self._grace),
        )

    def forget(self, names: Collection[str]) -> None:
        """The matter is settled; it is neither missing nor back from now on."""
        self._since = {name: since for name, since in self._since.items() if name not in names}
