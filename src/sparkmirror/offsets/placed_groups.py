"""Groups of topics whose copies have another number of partitions: committed offsets in, checkpoints by time out.

Also of topics that had another number once: until a group has read all that was placed by key then, time alone tells where the
rest of it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sparkmirror.formats.mirror import BY_TIME, Checkpoint
from sparkmirror.kafka.cluster import NO_TOPIC_ID

from .by_time import Ends, TimeTranslator
from .checkpoints import CheckpointStore
from .groups import Offsets

log = logging.getLogger(__name__)
GroupTopic = tuple[str, str]
_LONG_S = 600.0


class WholeMap(Protocol):
    """Who knows whether all that a group has still to read was copied partition by partition."""

    def is_whole(self, topic: str, offsets: Mapping[int, int], ends: Ends) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a group had committed when it was translated, and the id of the copy that this was for."""

    offsets: dict[int, int]
    copy: bytes

    def goes_back_to(self, now: _Seen) -> bool:
        """Whether what was told for this may be too far for what is now."""
        return now.copy != self.copy or any(
            now.offsets.get(partition, -1) < offset for partition, offset in self.offsets.items()
        )


class PlacedGroups:
    """Translates the groups of a task in the topics that need it.

    Invariants: `_seen` holds what a group had committed when it was last translated and its checkpoints were written, however
    often it could not be translated since; of a group that has gone back since, or of which nothing is known, checkpoints may go
    back. `_fresh` is the same of the news that are not written yet. `_waiting` holds since when a group could not be translated.
    `same` holds the last checkpoints that the last call of `news` found to hold as they are.
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
        self._ends: Mapping[str, Ends] = {}
        self._seen: dict[GroupTopic, _Seen] = {}
        self._fresh: dict[GroupTopic, _Seen] = {}
        self._waiting: dict[GroupTopic, float] = {}
        self._told_of_waiting: set[GroupTopic] = set()
        self._told: set[str] = set()
        self.same: list[Checkpoint] = []

    def look(
        self, groups: Mapping[str, Offsets], is_wanted: Callable[[str], bool], known: WholeMap
    ) -> None:
        """Find out who is to be translated by time, and all that this takes."""
        candidates = self._candidates(groups, is_wanted)
        self._ends = ends = self._times.look({topic for _, topic in candidates})
        self._by_time = {
            (group, topic): offsets
            for (group, topic), offsets in candidates.items()
            if topic not in ends or self._needs_time(topic, offsets, ends[topic], known)
        }
        self._groups = {group for group, _ in self._by_time}
        self._tell({topic for _, topic in self._by_time if topic in ends})
        self._times.read((topic, offsets) for (_, topic), offsets in self._by_time.items())

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
        self._fresh = {}
        self.same = []
        for (group, topic), offsets in self._by_time.items():
            downstream = self._times.translate(topic, offsets)
            if downstream is not None:
                now = _Seen(offsets, self._ends[topic].target_id)
                found += self._new_ones(group, topic, now, downstream)
                self._fresh[group, topic] = now
        self._wait(self._by_time.keys() - self._fresh.keys())
        return found

    def _new_ones(
        self, group: str, topic: str, now: _Seen, downstream: Mapping[int, int]
    ) -> Iterable[Checkpoint]:
        seen = self._seen.get((group, topic))
        may_go_back = seen is None or seen.goes_back_to(now)
        remote = self._downstream(topic)
        for partition, offset in downstream.items():
            last = self._store.last(group, remote, partition)
            there = -1 if last is None else last.downstream_offset
            if offset > there or (may_go_back and offset < there):
                yield Checkpoint(group, remote, partition, BY_TIME, offset)
            elif last is not None and offset == there:
                self.same.append(last)

    def target_id(self, remote: str) -> bytes:
        """The id of a copy at the last look."""
        ids = (ends.target_id for ends in self._ends.values() if ends.remote == remote)
        return next(ids, NO_TOPIC_ID)

    def _wait(self, untranslated: Collection[GroupTopic]) -> None:
        """Tell of groups that could not be translated for long: one line a topic, and of each group once."""
        now = time.monotonic()
        self._waiting = {key: self._waiting.get(key, now) for key in untranslated}
        late = {key for key, since in self._waiting.items() if now - since >= _LONG_S}
        news: dict[str, list[str]] = {}
        for group, topic in sorted(late - self._told_of_waiting):
            news.setdefault(topic, []).append(group)
        for topic, groups in sorted(news.items()):
            log.warning(
                "%d group(s) in topic %s could not be translated for %d minutes and keep the checkpoints that they have; the "
                "first is %s. Unless a line before this one tells why, all that they have not read is still being read.",
                len(groups),
                topic,
                _LONG_S // 60,
                groups[0],
            )
        self._told_of_waiting = late

    def written(self) -> None:
        """The news are in the checkpoints topic, and in the store."""
        known = self._seen | self._fresh
        self._seen = {key: known[key] for key in self._by_time if key in known}
        self._fresh = {}
