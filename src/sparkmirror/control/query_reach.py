"""From which offsets on a query applies: what the tasks of a connector report in, a sentence for people out."""

from __future__ import annotations

from collections.abc import Iterable

from sparkmirror.formats.progress import PartitionProgress
from sparkmirror.kafka.fetch import TopicPartition

_MOST_SHOWN = 20


class QueryReach:
    """Of the partitions of one task.

    Invariants: `_since` has those whose records pass through the query that is set, with the source offset from which they do;
    `_until` those whose records still pass through what was set before, with the last offset of which that is so.
    """

    __slots__ = ("_since", "_until")

    def __init__(self) -> None:
        self._since: dict[TopicPartition, int] = {}
        self._until: dict[TopicPartition, int] = {}

    def take(self, rows: Iterable[PartitionProgress]) -> bool:
        """Take in what was reported; whether the note is another one now."""
        before = dict(self._since), dict(self._until)
        for row in rows:
            key = (row.topic, row.partition)
            _set(self._until, key, row.until)
            _set(self._since, key, row.since if row.until < 0 else -1)
        return before != (self._since, self._until)

    @property
    def note(self) -> str:
        found = []
        if self._since:
            found.append(f"The query applies from {_shown(self._since)} on.")
        if self._until:
            found.append(f"What was set before still applies up to {_shown(self._until)}.")
        return " ".join(found)


def _set(known: dict[TopicPartition, int], key: TopicPartition, offset: int) -> None:
    if offset < 0:
        known.pop(key, None)
    else:
        known[key] = offset


def _shown(offsets: dict[TopicPartition, int]) -> str:
    rows = sorted(offsets.items())
    shown = ", ".join(f"{topic}-{part} offset {at}" for (topic, part), at in rows[:_MOST_SHOWN])
    more = len(rows) - _MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
