"""What one connector has copied on this worker: progress reports and ledgers in; how much that is, and its lag, out.

The counters of a copy task begin at 0 with it. A partition is copied by one task after the other, whose reports may come late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparkmirror.dataplane.copy import LedgerRow
from sparkmirror.formats.progress import Progress
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.spark.accumulators import UNKNOWN, Lag

_RUNS = 4


class Copied(NamedTuple):
    records: int
    bytes: int


_NOTHING = Copied(0, 0)


class CopyCounts:
    """Counts each record once, whichever task reports it and how often.

    Invariants: `_runs` holds the last reading of each of the last runs of a partition, by when they began; `_lags` has all
    partitions that are copied here.
    """

    def __init__(self) -> None:
        self._runs: dict[TopicPartition, dict[int, Copied]] = {}
        self._lags: dict[TopicPartition, int] = {}
        self._records = self._bytes = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these are copied here; of new ones the lag is not known."""
        self._lags = {key: self._lags.get(key, UNKNOWN) for key in partitions}
        self._runs = {key: runs for key, runs in self._runs.items() if key in self._lags}

    def note(self, reports: Iterable[Progress]) -> None:
        for report in reports:
            for row in report.partitions:
                key = (row.topic, row.partition)
                if key in self._lags:
                    self._lags[key] = row.lag
                    self._read(key, report.since, Copied(row.records, row.bytes))

    def note_ledger(self, rows: Iterable[LedgerRow]) -> None:
        """What the tasks of a job had copied when they ended."""
        for row in rows:
            self._read((row.topic, row.partition), row.since, Copied(row.records, row.bytes))

    def _read(self, key: TopicPartition, since: int, now: Copied) -> None:
        runs = self._runs.setdefault(key, {})
        before = runs.get(since, _NOTHING)
        if since not in runs and len(runs) == _RUNS:
            del runs[next(iter(runs))]
        runs[since] = Copied(max(before.records, now.records), max(before.bytes, now.bytes))
        self._records += runs[since].records - before.records
        self._bytes += runs[since].bytes - before.bytes

    def take(self) -> Copied:
        """What was copied since this was asked last."""
        taken = Copied(self._records, self._bytes)
        self._records = self._bytes = 0
        return taken

    @property
    def lag(self) -> Lag:
        known = [lag for lag in self._lags.values() if lag >= 0]
        return Lag(sum(known) if known else UNKNOWN, len(self._lags) - len(known))
