"""How much passes through each partition: progress reports in, bytes per second of the last minutes out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.kafka.fetch import TopicPartition

_MEMORY_S = 120.0
"""What was longer ago than this hardly counts."""


@dataclass(slots=True)
class _Meter:
    since: int
    """When the task began whose counter this is."""
    time: int
    bytes: int
    rate: float = 0.0

    def take(self, since: int, time: int, count: int) -> None:
        """A later reading; counters begin at 0 with each task."""
        began, from_bytes = (self.time, self.bytes) if since == self.since else (since, 0)
        seconds = (time - began) / 1000
        if seconds <= 0:
            return
        rate = max(0, count - from_bytes) / seconds
        self.rate += (1 - math.exp(-seconds / _MEMORY_S)) * (rate - self.rate)
        self.since, self.time, self.bytes = since, time, count

    def at(self, time: int) -> float:
        """The rate, if nothing has passed since it was read."""
        return self.rate * math.exp(-max(0, time - self.time) / 1000 / _MEMORY_S)


class PartitionLoads:
    """The loads of a connector's partitions, whichever tasks have copied them."""

    def __init__(self) -> None:
        self._meters: dict[TopicPartition, _Meter] = {}

    def note(self, reports: Iterable[Progress]) -> None:
        for report in reports:
            for row in report.partitions:
                self._note_row(report, row)

    def _note_row(self, report: Progress, row: PartitionProgress) -> None:
        key = (row.topic, row.partition)
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = _Meter(report.since, report.since, 0)
        if report.time >= meter.time:
            meter.take(report.since, report.time, row.bytes)

    def at(self, time: int) -> dict[TopicPartition, float]:
        """Bytes per second of each at a time in milliseconds."""
        return {key: meter.at(time) for key, meter in self._meters.items()}

    def keep(self, keys: Iterable[TopicPartition]) -> None:
        """Forget all others."""
        wanted = set(keys)
        self._meters = {key: meter for key, meter in self._meters.items() if key in wanted}
