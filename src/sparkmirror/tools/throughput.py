"""How fast a flow goes: progress reports come in, one row a topic goes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from sparkmirror.formats.progress import PartitionProgress, Progress

_WINDOW_MS = 5_000


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic now: rates are means of the last seconds, lag is in records."""

    topic: str
    partitions: int
    records: int
    records_per_s: float
    bytes_per_s: float
    lag: int
    latency_ms: float | None


@dataclass(slots=True)
class _Topic:
    records: int = 0
    recent: deque[tuple[int, int, int]] = field(default_factory=deque)
    partitions: dict[int, PartitionProgress] = field(default_factory=dict)


class Throughput:
    """The flow as its tasks report it.

    Invariants: `records` of a topic never goes down, though a task's counters begin again at zero
    with each start of the task (`since` tells); `recent` holds only the last window.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._counters: dict[tuple[str, int], tuple[int, int, int]] = {}

    def add(self, reports: Iterable[Progress]) -> None:
        """Take reports in, in the order they were written."""
        for report in reports:
            for row in report.partitions:
                self._count(report, row)

    def rows(self, now_ms: int) -> list[TopicRow]:
        """Every topic that was reported, by name."""
        return [_row(name, topic, now_ms) for name, topic in sorted(self._topics.items())]

    def _count(self, report: Progress, row: PartitionProgress) -> None:
        key = (row.topic, row.partition)
        since, records, size = self._counters.get(key, (report.since, 0, 0))
        if since != report.since:
            records = size = 0
        self._counters[key] = (report.since, row.records, row.bytes)
        topic = self._topics.setdefault(row.topic, _Topic())
        topic.records += row.records - records
        topic.recent.append((report.time, row.records - records, row.bytes - size))
        topic.partitions[row.partition] = row


def _row(name: str, topic: _Topic, now_ms: int) -> TopicRow:
    recent = topic.recent
    while recent and recent[0][0] < now_ms - _WINDOW_MS:
        recent.popleft()
    seconds = _WINDOW_MS / 1000
    rows = topic.partitions.values()
    ages = [row.age_ms for row in rows if row.age_ms >= 0]
    return TopicRow(
        topic=name,
        partitions=len(rows),
        records=topic.records,
        records_per_s=sum(records for _, records, _ in recent) / seconds,
        bytes_per_s=sum(size for _, _, size in recent) / seconds,
        lag=sum(max(row.lag, 0) for row in rows),
        latency_ms=median(ages) if ages else None,
    )
