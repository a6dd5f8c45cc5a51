"""Translation by time: committed offsets of all partitions of a topic in, offsets for all partitions of its copy out.

For topics whose copies have another number of partitions: records of one partition went to any, so no pair of offsets tells how
far a group is. What it has not read yet has times, and the target finds the first record that is not before the earliest of them:
all that lies before that record was read. Records behind it may have been read too; they are read again.

The order of the questions matters. First the ends of the copy's partitions are asked, then those of the source's: so every record
before the former is among those of which the times are known, and no group is ever sent beyond the former.

What has expired at the source may still be in the copy. A group that had not read it is sent to the beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkmirror.errors import CorruptBatch, KafkaError
from sparkmirror.kafka import admin, records, topic_configs
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka.batches import end_offset, is_control, whole_batches
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, Fetched, FetchLimits, TopicPartition

from .unread_times import UnreadStretches, UnreadTimes

log = logging.getLogger(__name__)
_LITTLE = FetchLimits(max_wait_ms=100, partition_max_bytes=1 << 20, isolation=READ_UNCOMMITTED)
_MUCH = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)
_READING_S = 2.0
"""For so long the source is read in one go: a group far behind must not keep the others waiting."""
LineKey = tuple[str, bytes, int]
_CONFIGS_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class Ends:
    """A topic on both sides at one moment: offsets by partition."""

    remote: str
    target_starts: dict[int, int]
    target_ends: dict[int, int]
    source_starts: dict[int, int]
    source_ends: dict[int, int]
    target_id: bytes = NO_TOPIC_ID
    source_id: bytes = NO_TOPIC_ID

    @property
    def counts_differ(self) -> bool:
        return len(self.source_ends) != len(self.target_ends)

    def lead_to_the_start(self, offsets: Mapping[int, int]) -> bool:
        """Whether there is something that a group has not read and of which no time is known.

        It has committed nothing in a partition that holds records, or what comes next for it has expired.
        """
        return any(
            start < self.source_ends[partition] if offset is None else offset < start
            for partition, start in self.source_starts.items()
            for offset in (offsets.get(partition),)
        )


class TimeTranslator:
    """Looks at both clusters again and again.

    Invariants: `_ends` is of the last look. A `_lines` entry is of a source topic's id and a `_found` entry of a copy's, so that
    one created anew begins anew. `_lines` begins with what was read least lately.
    """

    def __init__(self, source: Cluster, target: Cluster, downstream: Callable[[str], str]) -> None:
        self._source = source
        self._target = target
        self._downstream = downstream
        self._ends: dict[str, Ends] = {}
        self._lines: dict[LineKey, UnreadStretches] = {}
        self._found: dict[tuple[str, bytes, int], dict[int, int]] = {}
        self._used: set[tuple[str, bytes, int]] = set()
        self._stamped: dict[tuple[str, bytes], bool] = {}
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
        # Before the offsets: if a topic is made anew in between, its id is another one at the next look.
        ids = {
            topic: (
                self._target.topic(remotes[topic]).topic_id,
                self._source.topic(topic).topic_id,
            )
            for topic in there
        }
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
                *ids[topic],
            )
            for topic in there
        }

    def read(self, groups: Iterable[tuple[str, Mapping[int, int]]]) -> None:
        """Read on in the partitions in which groups (each with a topic and its offsets there) have something to read.

        Each partition has its turn before any has another, and the next time those come first that had none.
        """
        deadline = time.monotonic() + _READING_S
        wanted = self._wanted(groups)
        known = self._lines
        self._lines = {key: line for key, line in known.items() if key in wanted}
        for key, offsets in wanted.items():
            self._lines.setdefault(key, UnreadStretches()).keep(offsets[0], self._end(key))
        due, limits = list(self._lines), _LITTLE
        while due:
            unfinished = []
            for key in due:
                if time.monotonic() > deadline:
                    return
                self._lines[key] = self._lines.pop(key)
                if self._read_on(key, wanted[key], limits):
                    unfinished.append(key)
            due, limits = unfinished, _MUCH

    def _wanted(self, groups: Iterable[tuple[str, Mapping[int, int]]]) -> dict[LineKey, list[int]]:
        """From where on groups have to read, in order, without groups of which that makes no difference."""
        wanted: dict[LineKey, set[int]] = {}
        for topic, offsets in groups:
            ends = self._ends.get(topic)
            if ends is None or ends.lead_to_the_start(offsets):
                continue
            for partition, offset in offsets.items():
                if offset < ends.source_ends.get(partition, -1):
                    wanted.setdefault((topic, ends.source_id, partition), set()).add(offset)
        return {key: sorted(offsets) for key, offsets in wanted.items()}

    def _end(self, key: LineKey) -> int:
        topic, _, partition = key
        return self._ends[topic].source_ends[partition]

    def _read_on(self, key: LineKey, wanted: Sequence[int], limits: FetchLimits) -> bool:
        """Read once; False if there is nothing more, or if it cannot be read."""
        topic, _, partition = key
        lines = self._lines[key]
        gap = lines.next_gap(wanted, self._end(key))
        if gap is None:
            return False
        line, upto = gap
        try:
            for fetched in kafka_log.read(
                self._source, topic, partition, line.end, upto, limits, _READING_S
            ):
                _take(line, fetched, upto)
                break
        except (KafkaError, CorruptBatch) as error:
            self._tell(topic, f"its records on {self._source.settings} cannot be read: {error}")
            return False
        lines.join()
        return True

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
        if ends is None or self._stamps_its_own(topic, ends):
            return None
        if ends.lead_to_the_start(offsets):
            return dict(ends.target_starts)
        if self._source.topic(topic).topic_id != ends.source_id:  # it was made anew since the look
            return None
        times = []
        for partition, end in ends.source_ends.items():
            offset = offsets.get(partition, end)
            if offset >= end:
                continue
            line = self._lines.get((topic, ends.source_id, partition))
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
        key = topic, ends.target_id, moment
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

    def _stamps_its_own(self, topic: str, ends: Ends) -> bool:
        """Whether the copies have the target's time instead of their own, so that none can be found by it."""
        if time.monotonic() > self._stamped_until:
            self._stamped.clear()
            self._stamped_until = time.monotonic() + _CONFIGS_AGE_S
        remote, key = ends.remote, (ends.remote, ends.target_id)
        known = self._stamped.get(key)
        if known is None:
            rows = topic_configs.describe(self._target, [remote]).configs.get(remote, ())
            known = any(
                row.name == "message.timestamp.type" and row.value == "LogAppendTime"
                for row in rows
            )
            self._stamped[key] = known
        if known:
            self._tell(topic, f"{remote} has message.timestamp.type=LogAppendTime.")
        return known

    def _tell(self, topic: str, why: str) -> None:
        if (topic, why) not in self._told:
            self._told.add((topic, why))
            log.warning("Offsets of groups in %s cannot be translated by time: %s", topic, why)


def _take(line: UnreadTimes, fetched: Fetched, upto: int) -> None:
    """Records before `upto`: what comes then is known already, or is not asked for."""
    for view in whole_batches(fetched.records):
        end = min(end_offset(view), upto)
        if end <= line.end:
            continue
        begin = line.end
        if not is_control(view):
            for record in records.decode(view):
                if begin <= record.offset < upto:
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
