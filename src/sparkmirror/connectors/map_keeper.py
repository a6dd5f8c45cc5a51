"""Keeps the offset map whole and small: its topic and both logs in; segments joined, removed and found again out.

A task that was killed leaves out what it had not written yet, and a map may be lost altogether. Both logs tell what stood there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from sparkmirror.dataplane.alignment import Pair
from sparkmirror.dataplane.remapping import remap
from sparkmirror.errors import KafkaError, SparkMirrorError
from sparkmirror.formats import offset_map as formats
from sparkmirror.formats.offset_map import NO_ID, Place, Run, Segment, TopicIds
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.offsets.map_reader import MapTopic
from sparkmirror.offsets.map_tidying import Changes, removed, tidied
from sparkmirror.offsets.offset_map import PartitionMap
from sparkmirror.offsets.segments import MOST_NUMBERS, of_runs
from sparkmirror.offsets.target_topics import same_topic

from .source_settings import SourceSettings

log = logging.getLogger(__name__)
_LOOK_S = 5.0
_TIDY_S = 60.0
_MOST_RECORDS = 10_000_000
"""Of a partition that is looked through; of a longer stretch, the last ones."""
_RUNS = MOST_NUMBERS // 4
Stretch = tuple[int, int]
Mark = int | Stretch
"""What a stretch of the target is known by: where it ends, if its beginning moves with the log."""


class MapKeeper:
    """Works in a thread of its own, since looking through logs may take long.

    Invariants: the last segment of a partition is left to the task that writes it. A stretch of a topic on the target that was
    looked through is not looked through again by this keeper, whatever was found in it, unless the map was lost since.
    """

    def __init__(
        self,
        settings: SourceSettings,
        partitions: Callable[[], list[TopicPartition]],
        label: str,
        every: float = _LOOK_S,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._label = label
        self._every = every
        self._source = Cluster(settings.source)
        self._target = Cluster(settings.target)
        self._topic = MapTopic(self._target, settings.copy.offset_map_topic)
        self._tidy_at = 0.0
        self._told = ""
        self._tried: set[tuple[Place, bytes, Mark]] = set()
        self._starts: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"offset map {label}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end; what it waits for on the network is not waited for here."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._every):
                try:
                    self._look()
                except KafkaError as error:
                    self._tell(error)
        finally:
            self._source.close()
            self._target.close()

    def _tell(self, error: KafkaError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            log.warning("%s: the offset map could not be looked at: %s", self._label, error)

    def _look(self) -> None:
        before = self._topic.map
        self._topic.follow()
        if self._topic.map is not before:  # its topic was created again
            self._tried.clear()
            self._tidy_at = 0.0
        if not self._topic.is_loaded:
            return
        if time.monotonic() >= self._tidy_at:
            self._tidy()
            self._tidy_at = time.monotonic() + _TIDY_S
        changed = self._topic.map.changed
        while changed and not self._stopping.is_set():
            known = self._topic.map.get(changed.pop())
            if known is not None:
                self._repair(known)

    # -- small ----------------------------------------------------------------------------------

    def _tidy(self) -> None:
        known = self._topic.map.places
        self._target.refresh(None)
        remotes = {(place.remote, place.remote_partition) for place in known}
        own = {(self._settings.remote(topic), number) for topic, number in self._partitions()}
        self._starts = admin.list_offsets(
            self._target, self._existing(remotes | own), admin.EARLIEST
        )
        changes: Changes = {}
        copied = set(self._partitions())
        for place, segments in known.items():
            start = self._starts.get((place.remote, place.remote_partition))
            # Of a topic that will be created again, the map is what tells that it is another one.
            gone = place.remote not in self._target.topics and place[:2] not in copied
            if gone:
                changes |= removed(segments)
            elif start is not None:
                changes |= tidied(segments, start)
        if changes:
            log.debug("%s: %d row(s) to tidy the offset map.", self._label, len(changes))
            self._write(changes)
        self._find_lost()

    def _existing(self, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        topics = self._target.topics
        return [(t, p) for t, p in keys if t in topics and p in topics[t].partitions]

    def _write(self, changes: Changes) -> None:
        self._topic.append(
            [
                (formats.encode_key(key), None) if segment is None else formats.encode(segment)
                for key, segment in changes.items()
            ]
        )

    # -- whole ----------------------------------------------------------------------------------

    def _repair(self, known: PartitionMap) -> None:
        """Close the holes of a partition, and what is missing before its first segment."""
        place = known.place
        start = self._starts.get((place.remote, place.remote_partition))
        line = known.line
        if not line:
            return
        for hole in list(known.holes()):
            # Which part of a hole is left depends on what was found before: it is a stretch of its own.
            self._look_through(place, known.ids, hole.likely_sources, hole.targets, hole.targets)
        first = line[0]
        if start is not None and start < first.target_start:
            targets = start, first.target_start
            self._look_through(
                place, known.ids, (0, first.source_start), targets, first.target_start
            )

    def _find_lost(self) -> None:
        """Partitions that were copied, and of which the map knows nothing at all."""
        lost = []
        for topic, number in self._partitions():
            place = Place(topic, number, self._settings.remote(topic), number)
            if self._topic.map.get(place) is None and (place, NO_ID, -1) not in self._tried:
                lost.append(place)
        there = self._existing((place.remote, place.partition) for place in lost)
        if not there:
            return
        self._source.refresh({place.topic for place in lost})
        ends = admin.list_offsets(self._target, there, admin.LATEST)
        for place in lost:
            key = (place.remote, place.partition)
            start, end = self._starts.get(key), ends.get(key)
            info = self._source.topics.get(place.topic)
            if start is None or end is None or info is None or self._stopping.is_set():
                continue
            self._tried.add((place, NO_ID, -1))
            if start < end:
                source_end = _end(self._source, place.topic, place.partition)
                ids = TopicIds(info.topic_id, self._target.topics[place.remote].topic_id)
                self._look_through(place, ids, (0, source_end), (start, end), end)

    def _look_through(
        self, place: Place, ids: TopicIds, source: Stretch, target: Stretch, mark: Mark
    ) -> None:
        tried = place, ids.target, mark
        if self._settings.copy.transforms is not None or tried in self._tried:
            return
        if self._settings.asks(place.topic):
            return  # what a query has made of records is not equal to them
        self._tried.add(tried)
        target = max(target[0], target[1] - _MOST_RECORDS), target[1]
        count = 0
        try:
            self._refresh(place)
            if not same_topic(ids.target, self._target.topic(place.remote).topic_id):
                return  # created again: what the map tells is of the old one
            if self._settings.places(place.topic, self._source, self._target):
                return  # its records went to any partition
            runs = remap(self._pair(place), source, target, self._stopping)
            for segment in _segments(place, ids, runs):
                self._topic.append([formats.encode(segment)])
                count += segment.target_end - segment.target_start
        except KafkaError:
            self._tried.discard(tried)
            raise
        except SparkMirrorError as error:  # a damaged batch: what lies behind it is not known
            log.warning("%s: the offset map of %s: %s", self._label, place, error)
        log.info(
            "%s: %d record(s) of %s from offset %d to %d were looked up in both logs for the offset map.",
            self._label,
            count,
            place.remote,
            target[0],
            target[1] - 1,
        )

    def _refresh(self, place: Place) -> None:
        self._source.refresh([place.topic])
        self._target.refresh([place.remote, self._topic.name])

    def _pair(self, place: Place) -> Pair:
        return Pair(
            self._source,
            self._target,
            place.topic,
            place.remote,
            place.partition,
            self._settings.copy.fetch,
        )


def _end(cluster: Cluster, topic: str, partition: int) -> int:
    key = (topic, partition)
    return admin.list_offsets(cluster, [key], admin.LATEST, isolation=1)[key]


def _segments(place: Place, ids: TopicIds, runs: Iterator[Run]) -> Iterator[Segment]:
    part: list[Run] = []
    for run in runs:
        part.append(run)
        if len(part) >= _RUNS:
            yield of_runs(place, ids, part)
            part = []
    if part:
        yield of_runs(place, ids, part)
