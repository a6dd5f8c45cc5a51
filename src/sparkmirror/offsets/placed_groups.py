"""Groups of topics whose copies have another number of partitions: committed offsets in, checkpoints by time out.

Also of topics that had another number once: until a group has read all that was placed by key then, time alone tells where the
rest of it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sparkmirror.formats.mirror import BY_TIME, Checkpoint

from .by_time import Ends, TimeTranslator
from .checkpoints import CheckpointStore
from .groups import Offsets, TopicPartition

log = logging.getLogger(__name__)
GroupTopic = tuple[str, str]


class WholeMap(Protocol):
    """Who knows whether all that a group has still to read was copied partition by partition."""

    def is_whole(self, topic: str, offsets: Mapping[int, int], ends: Ends) -> bool: ...


class PlacedGroups:
    """Translates the groups of a task in the topics that need it.

    Invariant: `_seen` holds what a group had committed when its checkpoints were last written; of a group that has gone back
    since, or of which nothing is known, checkpoints may go back.
    """

    def __init__(
        self,
        may_be_placed: Callable[[str], bool],
        downstream: Callable[[str], str],
        store: CheckpointStore,
        times: TimeTranslator,
    ) -> None:
        self._may_be_placed = may_be_placed
        self._downstream = downstream
        self._store = store
        self._times = times
        self._by_time: dict[GroupTopic, dict[int, int]] = {}
        self._groups: set[str] = set()
        self._seen: dict[GroupTopic, dict[int, int]] = {}
        self._told: set[str] = set()

    def look(
        self, groups: Mapping[str, Offsets], is_wanted: Callable[[str], bool], known: WholeMap
    ) -> None:
        """Find out who is to be translated by time, and all that this takes."""
        candidates = self._candidates(groups, is_wanted)
        ends = self._times.look({topic for _, topic in candidates})
        self._by_time = {
            (group, topic): offsets
            for (group, topic), offsets in candidates.items()
            if topic not in ends or self._needs_time(topic, offsets, ends[topic], known)
        }
        self._groups = {group for group, _ in self._by_time}
        lowest: dict[TopicPartition, int] = {}
        for (_, topic), offsets in self._by_time.items():
            for partition, offset in offsets.items():
                key = topic, partition
                lowest[key] = min(offset, lowest.get(key, offset))
        self._tell({topic for _, topic in self._by_time if topic in ends})
        self._times.read(lowest)

    def _candidates(
        self, groups: Mapping[str, Offsets], is_wanted: Callable[[str], bool]
    ) -> dict[GroupTopic, dict[int, int]]:
        found: dict[GroupTopic, dict[int, int]] = {}
        for group, offsets in groups.items():
            for (topic, partition), committed in offsets.items():
                may_be = self._may_be_placed(topic) or self._store.is_by_time(
                    group, self._downstream(topic)
                )
                if may_be and committed is not None and is_wanted(topic):
                    found.setdefault((group, topic), {})[partition] = committed.offset
        return found

    def _needs_time(
        self, topic: str, offsets: Mapping[int, int], ends: Ends, known: WholeMap
    ) -> bool:
        if self._may_be_placed(topic) and ends.counts_differ:
            return True
        return not known.is_whole(topic, offsets, ends)

    def _tell(self, topics: set[str]) -> None:
        for topic in sorted(topics - self._told):
            log.info("Offsets of groups in topic %s are translated by time only.", topic)
        self._told |= topics

    def by_map(self, group: str, offsets: Offsets) -> Offsets:
        """What of a group's offsets is translated as usual."""
        if group not in self._groups:
            return offsets
        return {
            key: value for key, value in offsets.items() if (group, key[0]) not in self._by_time
        }

    def news(self) -> list[Checkpoint]:
        """Checkpoints by time that say something new."""
        found: list[Checkpoint] = []
        for (group, topic), offsets in self._by_time.items():
            downstream = self._times.translate(topic, offsets)
            if downstream is not None:
                found += self._new_ones(group, topic, offsets, downstream)
        return found

    def _new_ones(
        self, group: str, topic: str, offsets: Mapping[int, int], downstream: Mapping[int, int]
    ) -> Iterable[Checkpoint]:
        seen = self._seen.get((group, topic))
        may_go_back = seen is None or any(offsets.get(p, -1) < seen[p] for p in seen)
        remote = self._downstream(topic)
        for partition, offset in downstream.items():
            last = self._store.last(group, remote, partition)
            there = -1 if last is None else last.downstream_offset
            if offset > there or (may_go_back and offset < there):
                yield Checkpoint(group, remote, partition, BY_TIME, offset)

    def written(self) -> None:
        """The news are in the checkpoints topic, and in the store."""
        self._seen = {key: dict(offsets) for key, offsets in self._by_time.items()}
