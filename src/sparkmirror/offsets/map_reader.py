"""Translation by the offset map, and by offset syncs where it has nothing to say: both topics in, downstream offsets out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from sparkmirror.errors import BrokerError
from sparkmirror.formats import offset_map as formats
from sparkmirror.formats.mirror import Checkpoint, MalformedRecord
from sparkmirror.formats.offset_map import NO_ID, Place
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.records import Record

from .by_time import Ends
from .internal_topic import InternalTopic
from .offset_map import OffsetMap, PartitionMap
from .target_topics import Seen, same_topic
from .translator import Translator

log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 5.0
_STARTS_AGE_S = 60.0
# To somebody whose rights are those that MirrorMaker 2 needs, a topic of ours is none.
_NOT_THERE = (messages.UNKNOWN_TOPIC_OR_PARTITION, messages.TOPIC_AUTHORIZATION_FAILED)


class Elsewhere(NamedTuple):
    """Where a group goes on that stands at an offset of `source`."""

    source: TopicPartition
    remote: str
    partition: int
    offset: int


class MapTopic:
    """Follows the topic of an offset map.

    Invariants: every segment of the log is in `map`, the last of its key, up to `position`; `map` is another object for each log:
    of two segments the later offset counts, which means nothing between two logs. A topic that is not there, or may not be read,
    is looked for again from time to time; until then the map holds what was read before.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = InternalTopic(cluster, topic)
        self._topic.on_restart = self._restart
        self.map = OffsetMap()
        self._load_to: int | None = None
        self._look_at = 0.0
        self._is_told = False
        self.is_loaded = False

    @property
    def name(self) -> str:
        return self._topic.name

    def follow(self) -> None:
        """Take in what is there; KafkaError if the cluster cannot be asked."""
        if time.monotonic() < self._look_at:
            return
        try:
            self.load()
        except BrokerError as error:
            if error.code not in _NOT_THERE:
                raise
            self._look_at = time.monotonic() + _LOOK_AGAIN_S
            self.is_loaded = True
            if error.code == messages.TOPIC_AUTHORIZATION_FAILED and not self._is_told:
                self._is_told = True
                log.warning("%s Offsets are translated without it, less exactly.", error)

    def load(self) -> None:
        """Take in everything up to the end as it is now; BrokerError also if the topic is not there, or may not be read."""
        while True:
            if self._load_to is None:
                self._load_to = self._topic.end()
            before = self._topic.position
            for record in self._topic.poll(0.0):
                self._take(record)
            self.is_loaded |= self._is_at_end
            if self._topic.position == before:
                return

    @property
    def _is_at_end(self) -> bool:
        return self._load_to is not None and self._topic.position >= self._load_to

    def _restart(self) -> None:
        self.map = OffsetMap()
        self.is_loaded, self._load_to = False, None

    def _take(self, record: Record) -> None:
        try:
            if record.value is None:
                place, target_start = formats.decode_key(record.key)
                self.map.remove(place, target_start)
            else:
                segment = formats.decode(record.key, record.value)
                self.map.put(segment, record.offset, record.timestamp)
        except MalformedRecord as error:
            log.warning("Offset %d of %s: %s", record.offset, self._topic.name, error)

    def append(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        """Write rows; they are in the map when they have been read back."""
        self._topic.append(rows, time.time_ns() // 1_000_000)


class WayBack:
    """Offsets of copies that came from the target itself, in terms of their originals there: a group that went over comes back.

    The map of the flow that made the copies tells; it lies where they lie, on the source of this flow.
    """

    def __init__(self, source: Cluster, topic: str, leads_home: Callable[[str], bool]) -> None:
        self._topic = MapTopic(source, topic)
        self.leads_home = leads_home

    @property
    def is_ready(self) -> bool:
        return self._topic.is_loaded

    def follow(self) -> None:
        self._topic.follow()

    def translate(self, copy: str, original: str, partition: int, offset: int) -> int | None:
        known = self._topic.map.get(Place(original, partition, copy, partition))
        return None if known is None else known.translate_back(offset)

    def original_ids(self, original: str, partition: int) -> set[bytes]:
        """The ids of the topics on the target that translations to this partition are of."""
        known = self._topic.map
        return {known.places[place].ids.source for place in known.from_source(original, partition)}


class Syncs(Translator, Protocol):
    """A translator by offset syncs, which do not tell what topics they are of."""

    def written_at(self, topic: str, partition: int) -> int:
        """When the last sync of a partition was written (ms); -1 if none is known."""

    def forget(self, before: Callable[[str], float]) -> None:
        """Forget the syncs of partitions of which none began a new series since the moment (monotonic) for their source topic."""


class MapReader:
    """A `Translator` that knows exactly, wherever records were copied by one of us.

    Where the map ends (or has a hole) offset syncs may know more, since each of them is sent at once; before it begins, since
    MirrorMaker 2 was at work then, they know something. Both are right, so the later one counts, but for positions that were
    set back: of those only the map knows. And a sync does not tell which topic on the target it is of: one that is older than the
    end of the map, or contradicts its beginning, may be of a topic that was deleted and created again since.

    Invariant: `_starts` holds where logs began, each with the id of the topic that this was asked of.
    """

    def __init__(
        self,
        target: Cluster,
        topic: str,
        downstream: Callable[[str], str],
        syncs: Syncs,
        way_back: WayBack,
    ) -> None:
        self._target = target
        self._topic = MapTopic(target, topic)
        self._downstream = downstream
        self._syncs = syncs
        self._way_back = way_back
        self._starts: dict[TopicPartition, tuple[bytes, int]] = {}
        self._wanted: set[TopicPartition] = set()
        self._starts_at = 0.0

    @property
    def is_ready(self) -> bool:
        return self._topic.is_loaded and self._way_back.is_ready and self._syncs.is_ready

    def follow(self, wait: float) -> None:
        self._topic.follow()
        self._way_back.follow()
        self._learn_starts()
        self._syncs.follow(wait)

    def follow_map(self) -> bool:
        """Follow the map alone, which is on the target: also while the source is lost. Whether it is read to its end."""
        self._topic.follow()
        return self._topic.is_loaded

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        remote = self._downstream(topic)
        if self._way_back.leads_home(topic):
            return self._way_back.translate(topic, remote, partition, offset)
        known = self._map(topic, remote, partition)
        if known is None or not known.line:
            return self._syncs.translate(topic, partition, offset)
        start = self._start(known)
        found = known.translate(offset, start)
        if found is None:
            self._want((remote, partition))
            by_syncs = self._syncs.translate(topic, partition, offset)
            is_before = by_syncs is not None and by_syncs <= known.line[0].target_start
            return by_syncs if is_before else None
        # What was deleted since is not there to be read: an offset before the log would be reset by the client.
        reached = max(found.offset, start or 0)
        if found.is_exact or self._syncs.written_at(topic, partition) < known.written_at:
            return reached
        by_syncs = self._by_syncs(topic, partition, offset, known)
        return reached if by_syncs is None else max(reached, by_syncs)

    def _by_syncs(self, topic: str, partition: int, offset: int, known: PartitionMap) -> int | None:
        """What offset syncs tell, but never past a record that the map knows to be unread.

        After a position was set back and forward, an offset sync tells of the last copies of some records; others, which the
        group has not read either, lie before.
        """
        found, bound = self._syncs.translate(topic, partition, offset), known.bound(offset)
        return found if found is None or bound is None else min(found, bound)

    # -- what topics the answers are of ---------------------------------------------------------

    def target_id(self, remote: str, partition: int) -> bytes | None:
        """The id of the target's topic that translations are of: zero if it is not known, None if they are of several."""
        known = self._topic.map
        ids = {known.places[place].ids.target for place in known.to_target(remote, partition)}
        ids = (ids or self._way_back.original_ids(remote, partition)) - {NO_ID}
        if len(ids) > 1:
            return None
        return next(iter(ids), NO_ID)

    def is_exact(self, remote: str, partition: int, upstream: int) -> bool:
        """Whether the map tells what an offset of the one source of a partition is there, and that this is in the log."""
        places = self._topic.map.to_target(remote, partition)
        known = self._topic.map.get(next(iter(places))) if len(places) == 1 else None
        if known is None:
            return False
        start = self._start(known)
        if start is None:
            self._want((remote, partition))
            return False
        moved = known.translate(upstream, start)
        return moved is not None and moved.is_exact and moved.offset >= start

    def is_too_far(self, checkpoint: Checkpoint) -> bool:
        """Whether the map tells of a record before a checkpoint that the group has not read: so it is of an older log."""
        places = self._topic.map.to_target(checkpoint.topic, checkpoint.partition)
        if checkpoint.is_by_time or len(places) != 1:
            return False
        known = self._topic.map.places[next(iter(places))]
        bound = known.bound(checkpoint.upstream_offset)
        return bound is not None and bound < checkpoint.downstream_offset

    def forget(self, recreated: Mapping[str, Seen]) -> None:
        """These topics were created again: forget what may be of the old ones, which were last seen then."""

        def outdated(topic: str) -> float:
            seen = recreated.get(self._downstream(topic))
            return -math.inf if seen is None else seen.at

        self._syncs.forget(outdated)

    def is_shared(self, topic: str, partition: int) -> bool:
        """Whether the copy of a partition holds records of others as well, which a query has put there."""
        return len(self._topic.map.to_target(self._downstream(topic), partition)) > 1

    def elsewhere(self, offsets: Mapping[TopicPartition, int]) -> Iterator[Elsewhere]:
        """Where a group goes on in partitions that a query has sent records to, beside the one where they go by policy.

        Of several source partitions that feed one, the one counts of which the first record is next that the group has not
        read; and each must be among its offsets.
        """
        found: dict[TopicPartition, list[Elsewhere]] = {}
        for key, offset in offsets.items():
            if self._way_back.leads_home(key[0]):
                continue
            for place in self._topic.map.from_source(*key):
                target = place.remote, place.remote_partition
                is_own = target == (self._downstream(key[0]), key[1])
                if is_own and len(self._topic.map.to_target(*target)) < 2:
                    continue
                downstream = self._there(place, offset)
                if downstream is None:
                    self._want(target)
                else:
                    found.setdefault(target, []).append(Elsewhere(key, *target, downstream))
        for target, ways in found.items():
            if len(ways) == len(self._topic.map.to_target(*target)):
                yield min(ways, key=lambda way: way.offset)

    def _there(self, place: Place, offset: int) -> int | None:
        """Before which offset of a target nothing lies that a group has not read of one source; None if that is not known."""
        target = place.remote, place.remote_partition
        known = self._topic.map.get(place)
        start = None if known is None else self._start(known)
        shared = self._topic.map.coverage(*target)
        moved = None if known is None else known.translate(offset, start, shared)
        return None if moved is None else max(moved.offset, start or 0)

    def is_whole(self, topic: str, offsets: Mapping[int, int], ends: Ends) -> bool:
        """Whether all that a group has still to read of what was copied so far went to the partition that it was in.

        That is so if the copy holds nothing but such records, or if no record from the group's offsets on is unknown.
        """
        maps = {p: self._map(topic, ends.remote, p) for p in (*ends.target_ends, *offsets)}
        if all(
            start >= ends.target_ends[p]
            if (known := maps[p]) is None
            else known.is_dense_from(start)
            for p, start in ends.target_starts.items()
        ):
            return True
        return all(
            offset >= ends.source_ends.get(p, -1)
            if (known := maps[p]) is None
            else known.is_whole_from(offset)
            for p, offset in offsets.items()
        )

    def _map(self, topic: str, remote: str, partition: int) -> PartitionMap | None:
        return self._topic.map.get(Place(topic, partition, remote, partition))

    # -- where logs begin ---------------------------------------------------------------------

    def _start(self, known: PartitionMap) -> int | None:
        """Where the log began that a map is of; None if that is not known."""
        place = known.place
        topic_id, start = self._starts.get((place.remote, place.remote_partition), (NO_ID, None))
        return start if same_topic(topic_id, known.ids.target) else None

    def _want(self, remote: TopicPartition) -> None:
        """A group stands before the map: whether that is before the log as well will be known at its next turn."""
        if remote not in self._wanted:
            self._wanted.add(remote)
            self._starts_at = 0.0

    def _learn_starts(self) -> None:
        now = time.monotonic()
        if not self._wanted or now < self._starts_at:
            return
        self._starts_at = now + _STARTS_AGE_S
        self._target.refresh({topic for topic, _ in self._wanted})
        there = [
            (topic, partition)
            for topic, partition in self._wanted
            if topic in self._target.topics and partition in self._target.topics[topic].partitions
        ]
        # Before the offsets: if a topic is created again in between, its id is another one at the next look.
        ids = {topic: self._target.topics[topic].topic_id for topic, _ in there}
        starts = admin.list_offsets(self._target, there, admin.EARLIEST)
        self._starts |= {key: (ids[key[0]], start) for key, start in starts.items()}
