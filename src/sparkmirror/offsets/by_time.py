"""Translation by time: committed offsets of all partitions of a topic in, offsets for all partitions of its copy out.

For topics whose copies have another number of partitions: records of one partition went to any, so no pair of offsets tells how
far a group is. What it has not read yet has times, and the target finds the first record that is not before the earliest of them:
all that lies before that record was read. Records behind it may have been read too; they are read again.

The order of the questions matters. First the ends of the copy's partitions are asked, then those of the source's: so every record
before the former is among those of which the times are known, and no group is ever sent beyond the former.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sparkmirror.errors import CorruptBatch, KafkaError
from sparkmirror.kafka import admin, records, topic_configs
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka.batches import Batch, end_offset, magic_of, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, Fetched, FetchLimits, TopicPartition

from .unread_times import UnreadTimes

log = logging.getLogger(__name__)
_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)
_READING_S = 2.0
"""For so long the source is read in one go: a group far behind must not keep the others waiting."""
_CONFIGS_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class Ends:
    """A topic on both sides at one moment: offsets by partition."""

    remote: str
    target_starts: dict[int, int]
    target_ends: dict[int, int]
    source_starts: dict[int, int]
    source_ends: dict[int, int]

    @property
    def counts_differ(self) -> bool:
        return len(self.source_ends) != len(self.target_ends)


class TimeTranslator:
    """Looks at both clusters again and again.

    Invariants: `_ends` is of the last look. A `_lines` entry is of a topic's id, so that one created anew begins anew.
    """

    def __init__(self, source: Cluster, target: Cluster, downstream: Callable[[str], str]) -> None:
        self._source = source
        self._target = target
        self._downstream = downstream
        self._ends: dict[str, Ends] = {}
        self._lines: dict[tuple[str, bytes, int], UnreadTimes] = {}
        self._found: dict[tuple[str, int], dict[int, int]] = {}
        self._used: set[tuple[str, int]] = set()
        self._stamped: dict[str, bool] = {}
        self._stamped_until = 0.0
        self._told: set[tuple[str, str]] = set()

    # -- looking ------------------------------------------------------------------------------

    def look(self, topics: Collection[str]) -> dict[str, Ends]:
        """How these topics are now, without those that cannot be asked about, which must not stop the others."""
        self._found = {key: found for key, found in self._found.items() if key in self._used}
        self._used.clear()
        self._ends = {}
        try:
            self._ends = self._look_at(topics) if topics else {}
        except KafkaError as error:
            if len(topics) == 1:
                self._tell(next(iter(topics)), str(error))
            else:
                self._ends = self._one_by_one(topics)
        return self._ends

    def _one_by_one(self, topics: Collection[str]) -> dict[str, Ends]:
        found: dict[str, Ends] = {}
        for topic in topics:
            try:
                found |= self._look_at([topic])
            except KafkaError as error:
                self._tell(topic, str(error))
        return found

    def _look_at(self, topics: Collection[str]) -> dict[str, Ends]:
        remotes = {topic: self._downstream(topic) for topic in topics}
        self._source.refresh(set(topics))
        self._target.refresh(set(remotes.values()))
        there = [
            topic
            for topic, remote in remotes.items()
            if _is_led(self._source, topic) and _is_led(self._target, remote)
        ]
        copies = _partitions(self._target, {remotes[topic] for topic in there})
        target_starts = admin.list_offsets(self._target, copies, admin.EARLIEST)
        target_ends = admin.list_offsets(self._target, copies, admin.LATEST)
        originals = _partitions(self._source, there)
        source_starts = admin.list_offsets(self._source, originals, admin.EARLIEST)
        source_ends = admin.list_offsets(self._source, originals, admin.LATEST)
        return {
            topic: Ends(
                remotes[topic],
                _of(target_starts, remotes[topic]),
                _of(target_ends, remotes[topic]),
                _of(source_starts, topic),
                _of(source_ends, topic),
            )
            for topic in there
        }

    def read(self, lowest: Mapping[TopicPartition, int]) -> None:
        """Read on in the partitions in which groups have something to read, each from the lowest offset of any group."""
        deadline = time.monotonic() + _READING_S
        lines: dict[tuple[str, bytes, int], UnreadTimes] = {}
        for (topic, partition), offset in lowest.items():
            ends = self._ends.get(topic)
            if ends is None or partition not in ends.source_ends:
                continue
            key = topic, self._source.topic(topic).topic_id, partition
            start = max(offset, ends.source_starts[partition])
            end = ends.source_ends[partition]
            line = self._lines.get(key)
            if line is None or start < line.start or start > line.end or line.end > end:
                line = UnreadTimes(start)
            line.forget(start)
            lines[key] = line
            self._read_on(line, topic, partition, end, deadline)
        self._lines = lines

    def _read_on(
        self, line: UnreadTimes, topic: str, partition: int, end: int, deadline: float
    ) -> None:
        if line.end >= end or time.monotonic() > deadline:
            return
        try:
            for fetched in kafka_log.read(
                self._source, topic, partition, line.end, end, _LIMITS, _READING_S
            ):
                _take(line, fetched)
                if time.monotonic() > deadline:
                    return
        except (KafkaError, CorruptBatch) as error:
            self._tell(topic, f"its records on {self._source.settings} cannot be read: {error}")

    # -- translation --------------------------------------------------------------------------

    def translate(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int] | None:
        """Where a group that has committed these goes on in each partition of the copy; None if that is not known (yet)."""
        try:
            return self._translated(topic, offsets)
        except KafkaError as error:
            self._tell(topic, str(error))
            return None

    def _translated(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int] | None:
        ends = self._ends.get(topic)
        if ends is None or self._stamps_its_own(topic, ends.remote):
            return None
        times = []
        for partition, end in ends.source_ends.items():
            start = ends.source_starts[partition]
            offset = offsets.get(partition)
            if offset is None:
                if start < end:  # it has read nothing of these
                    return dict(ends.target_starts)
                continue
            offset = max(offset, start)
            if offset >= end:
                continue
            line = self._lines.get((topic, self._source.topic(topic).topic_id, partition))
            if line is None or not line.covers(offset, end):
                return None
            earliest = line.earliest(offset)
            if earliest is not None:
                times.append(earliest)
        if not times:
            return dict(ends.target_ends)
        if min(times) <= 0:  # records without a time: they are before any
            return dict(ends.target_starts)
        return self._at(topic, ends, min(times))

    def _at(self, topic: str, ends: Ends, moment: int) -> dict[int, int]:
        """The first record of each partition of the copy that is not before a moment, or its end."""
        key = topic, moment
        self._used.add(key)
        found = self._found.get(key)
        if found is None or -1 in found.values() or len(found) != len(ends.target_ends):
            keys = [(ends.remote, partition) for partition in ends.target_ends]
            found = _of(admin.list_offsets(self._target, keys, moment), ends.remote)
            self._found[key] = found
        return {
            partition: max(min(end, found[partition] if found[partition] >= 0 else end), start)
            for (partition, end), start in zip(
                ends.target_ends.items(), ends.target_starts.values(), strict=True
            )
        }

    def _stamps_its_own(self, topic: str, remote: str) -> bool:
        """Whether the copies have the target's time instead of their own, so that none can be found by it."""
        if time.monotonic() > self._stamped_until:
            self._stamped.clear()
            self._stamped_until = time.monotonic() + _CONFIGS_AGE_S
        known = self._stamped.get(remote)
        if known is None:
            rows = topic_configs.describe(self._target, [remote]).configs.get(remote, ())
            known = any(
                row.name == "message.timestamp.type" and row.value == "LogAppendTime"
                for row in rows
            )
            self._stamped[remote] = known
        if known:
            self._tell(topic, f"{remote} has message.timestamp.type=LogAppendTime.")
        return known

    def _tell(self, topic: str, why: str) -> None:
        if (topic, why) not in self._told:
            self._told.add((topic, why))
            log.warning("Offsets of groups in %s cannot be translated by time: %s", topic, why)


def _take(line: UnreadTimes, fetched: Fetched) -> None:
    for view in whole_batches(fetched.records):
        end = end_offset(view)
        if end <= line.end:
            continue
        begin = line.end
        if magic_of(view) < 2 or not Batch(view).is_control:
            for record in records.decode(view):
                if record.offset >= begin:
                    line.take(record.offset, record.timestamp)
        line.end = end


def _is_led(cluster: Cluster, topic: str) -> bool:
    """Whether a topic is there, with a leader for every partition: others would have to be waited for."""
    info = cluster.topics.get(topic)
    return info is not None and all(p.leader in cluster.brokers for p in info.partitions.values())


def _partitions(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    return [
        (topic, partition) for topic in topics for partition in cluster.topics[topic].partitions
    ]


def _of(offsets: Mapping[TopicPartition, int], topic: str) -> dict[int, int]:
    return {
        partition: offset for (name, partition), offset in sorted(offsets.items()) if name == topic
    }
