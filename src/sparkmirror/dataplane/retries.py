"""Retries that an operator should know of: failed tries of partitions in, one log line for each cause out.

A partition that comes through within a few tries is not worth a line; one that does not is, and a thousand of them with the
same cause are worth one line together.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkmirror.kafka.cluster import QUIET_TRIES

log = logging.getLogger(__name__)

_AGAIN_S = 30.0
_MOST_NAMED = 5


class Cause(NamedTuple):
    """Why partitions are retried."""

    what: str
    """Which request to which cluster."""
    error: str
    """Kafka's name of the error, with what the broker said beside it."""


@dataclass(slots=True)
class _Retried:
    """The partitions that are retried for one cause."""

    partitions: dict[Hashable, int] = field(default_factory=dict)
    wait: float = 0.0
    due_at: float = 0.0


class RetryLog:
    """Collects failed tries and tells of them once a tick.

    Invariant: every partition that was named in a line is in `_told`, until a line says that it has recovered.
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._causes: dict[Cause, _Retried] = {}
        self._told: dict[Hashable, int] = {}
        self._recovered: dict[Hashable, int] = {}

    def failed(self, partition: Hashable, cause: Cause, tries: int, wait: float) -> None:
        """One more try of a partition has failed; the next one comes after `wait` seconds."""
        if tries <= QUIET_TRIES:
            return
        retried = self._causes.setdefault(cause, _Retried())
        retried.partitions[partition] = tries
        retried.wait = wait
        if partition in self._told:
            self._told[partition] = tries

    def passed(self, partition: Hashable) -> None:
        """A try has succeeded. Called for every acknowledged batch."""
        for retried in self._causes.values():
            retried.partitions.pop(partition, None)
        if self._told and partition in self._told:
            self._recovered[partition] = self._told.pop(partition)

    def tell(self, now: float) -> None:
        """Write the lines that are due."""
        for cause, retried in list(self._causes.items()):
            if now < retried.due_at:
                continue
            if not retried.partitions:  # none for this cause since the last line
                del self._causes[cause]
                continue
            log.warning(
                "Flow %s: retrying %s: %s: %s; %d tries so far, next try in %.1f s.",
                self._flow,
                _named(retried.partitions),
                cause.what,
                cause.error,
                max(retried.partitions.values()),
                retried.wait,
            )
            self._told |= retried.partitions
            retried.partitions.clear()
            retried.due_at = now + _AGAIN_S
        if self._recovered:
            tries = max(self._recovered.values())
            log.info(
                "Flow %s: %s recovered after %d tries.", self._flow, _named(self._recovered), tries
            )
            self._recovered.clear()


def _named(partitions: dict[Hashable, int]) -> str:
    """The first few by name, the rest by number."""
    names = [str(partition) for partition in partitions]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
