"""Topics of the target as they are now: names in, topic ids and log ends out.

A topic that was deleted and created again has another id: offsets of the old topic mean nothing in the new one. Brokers before
2.8 have no ids; there, only an offset beyond the end of the log is known to be of an older topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import NO_TOPIC_ID, QUIET_TRIES, Cluster
from sparkmirror.kafka.fetch import TopicPartition

log = logging.getLogger(__name__)
NO_END = 1 << 63
"""Beyond any offset."""


def same_topic(one: bytes, other: bytes) -> bool:
    """Whether two ids may be of one topic: they are equal, or one is not known."""
    return one == other or NO_TOPIC_ID in (one, other)


class Seen(NamedTuple):
    """The id that a topic had, and when it was last seen with it (monotonic)."""

    topic_id: bytes
    at: float


class TargetTopics:
    """Looks at topics of one cluster.

    Invariants: `_seen` holds the last id that was seen of each topic, `_gone` the ids that topics had before: a broker that names
    one of those has not heard of the new topic yet. `recreated` holds what was seen before of each topic that got another id
    since `take_recreated` was last called.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, Seen] = {}
        self._gone: set[bytes] = set()
        self._looked_at: set[str] = set()
        self.recreated: dict[str, Seen] = {}
        self._unanswered: dict[str, int] = {}
        """How often the ends of a topic could not be told, one look after the other."""

    def look(self, names: Collection[str]) -> None:
        """Read the metadata of these topics."""
        if not names:
            return
        now = time.monotonic()
        self._cluster.refresh(names)
        self._looked_at |= set(names)
        for name in names:
            topic_id = self.id_of(name) or NO_TOPIC_ID
            if topic_id == NO_TOPIC_ID:
                continue
            before = self._seen.get(name)
            self._seen[name] = Seen(topic_id, now)
            if before is not None and before.topic_id != topic_id:
                self._gone.add(before.topic_id)
                self.recreated.setdefault(name, before)
                log.info(
                    "Topic %s was deleted and created again on %s: checkpoints of the old topic no longer count; new ones follow "
                    "when records have been copied to the new topic.",
                    name,
                    self._cluster.settings,
                )

    def look_once(self, names: Collection[str]) -> None:
        """Look at those of these topics that were never looked at."""
        self.look(set(names) - self._looked_at)

    def take_recreated(self) -> dict[str, Seen]:
        """The topics that were created again since the last call, each with the id that it had before."""
        found, self.recreated = self.recreated, {}
        return found

    def id_of(self, name: str) -> bytes | None:
        """The id at the last look: None if there is no such topic, zero where the broker has no ids or hides the topic."""
        info = self._cluster.topics.get(name)
        if info is not None:
            return None if info.topic_id in self._gone else info.topic_id
        return NO_TOPIC_ID if self.is_hidden(name) else None

    def is_hidden(self, name: str) -> bool:
        """Whether we may not see the topic: then its id and its end are not known, as to MirrorMaker 2."""
        return self._cluster.is_hidden(name)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these logs end, without those whose leader cannot tell now; `look` at their topics first.

        Of a topic that is hidden from us the end is `NO_END`: whoever writes of it hears from the broker what is not allowed.
        """
        topics: dict[str, list[TopicPartition]] = {}
        found: dict[TopicPartition, int] = {}
        for key in set(partitions):
            if self.is_hidden(key[0]):
                found[key] = NO_END
            elif self._is_led(key):
                topics.setdefault(key[0], []).append(key)
        try:
            return found | self._asked([key for its in topics.values() for key in its])
        except BrokerError as error:  # of one of them: the others must not wait for it
            log.debug("The ends of %d topic(s) are asked one by one: %s", len(topics), error)
        for its in topics.values():
            try:
                found |= self._asked(its)
            except BrokerError as error:
                self._tell(its[0][0], error)
        return found

    def _tell(self, topic: str, error: BrokerError) -> None:
        """Log an error that has lasted for more than three looks, once."""
        tries = self._unanswered[topic] = self._unanswered.get(topic, 0) + 1
        if tries == QUIET_TRIES + 1:
            log.warning(
                "%s No checkpoints of topic %s are written until its end is known; next try with the next checkpoints.",
                error,
                topic,
            )

    def _asked(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = admin.list_offsets(self._cluster, keys, admin.LATEST) if keys else {}
        for name in {key[0] for key in found} & self._unanswered.keys():
            del self._unanswered[name]
        return found

    def has(self, key: TopicPartition) -> bool:
        """Whether there was such a partition at the last look."""
        info = self._cluster.topics.get(key[0])
        return info is not None and key[1] in info.partitions

    def _is_led(self, key: TopicPartition) -> bool:
        info = self._cluster.topics.get(key[0])
        part = None if info is None else info.partitions.get(key[1])
        return part is not None and part.leader in self._cluster.brokers
