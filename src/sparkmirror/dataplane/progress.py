"""What the tasks reported last: the progress topic in, the newest report of each partition out."""

from __future__ import annotations

from collections.abc import Iterator

from sparkmirror.errors import CorruptBatch, KafkaError
from sparkmirror.formats import progress as formats
from sparkmirror.formats.progress import Progress
from sparkmirror.kafka import admin, log, records
from sparkmirror.kafka.batches import end_offset, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits, TopicPartition

_LIMITS = FetchLimits(max_wait_ms=10, isolation=READ_UNCOMMITTED)


class ProgressReader:
    """Tails the progress topic of one source cluster.

    Invariant: every report is given once, in the order of the log, beginning `back` records before the end at first use, or with
    those that were written at or after `since` (ms).
    """

    def __init__(self, cluster: Cluster, topic: str, back: int = 0, since: int = -1) -> None:
        self._cluster = cluster
        self._topic = topic
        self._back = back
        self._since = since
        self._next = -1

    def poll(self) -> list[Progress]:
        """The reports that came since the last call."""
        return list(self.reports())

    def reports(self) -> Iterator[Progress]:
        """The same, one after the other as they are read."""
        key = (self._topic, 0)
        if self._topic not in self._cluster.topics:
            self._cluster.refresh([self._topic])
        if self._topic not in self._cluster.topics:
            return
        end = admin.list_offsets(self._cluster, [key], admin.LATEST)[key]
        if self._next < 0 or self._next > end:  # beyond the end: the topic was created again
            self._next = self._first(key, end)
        for fetched in log.read(self._cluster, self._topic, 0, self._next, end, _LIMITS):
            for view in whole_batches(fetched.records):
                yield from self._reports(view)
                self._next = end_offset(view)

    def _first(self, key: TopicPartition, end: int) -> int:
        if self._since >= 0:
            found = admin.list_offsets(self._cluster, [key], self._since)[key]
            return end if found < 0 else found
        start = admin.list_offsets(self._cluster, [key], admin.EARLIEST)[key]
        return max(start, end - self._back)

    def _reports(self, view: memoryview) -> list[Progress]:
        found: list[Progress] = []
        try:
            rows = records.decode_internal(view)
        except CorruptBatch:  # nobody's report
            return found
        for record in rows:
            if record.offset < self._next or record.value is None:
                continue
            try:
                found.append(formats.decode(record.value))
            except KafkaError:  # another version's report
                continue
        return found
