"""Remote topics whose source topic was deleted: both clusters and the ledger in, deletions after a grace time out.

A wrong deletion cannot be undone, so everything must speak for it. See `TopicDeletes`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.resume import hex_id
from sparkmirror.formats.position import Entry, Position
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.policy.filters import should_replicate_topic

from .absences import Absences
from .ledger import Fields, Ledger
from .news import News
from .source_settings import SourceSettings

log = logging.getLogger(__name__)
_CLUSTER, _PARTITIONS = "source_cluster", "partitions"


class TopicDeletes:
    """Deletes a remote topic only if
    - this flow has seen its source topic on the cluster with the id that the source has now (the ledger says so),
    - that cluster, asked for the topic by name, says that there is none, at every look for the whole grace time; "not allowed to
      see it" is another answer, and so is any error,
    - the source has other topics, and none of those that are copied goes to the same remote topic,
    - the topic would still be replicated by the settings of now, and is nobody's internal topic,
    - the stored positions name the remote topic by its id: it is the one that this flow has written.

    Its positions go with it, so a source topic that is created again under the name is copied from its beginning.
    """

    def __init__(
        self,
        settings: SourceSettings,
        source: Cluster,
        target: Cluster,
        home: Cluster,
        label: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._home = home
        self._ledger = Ledger(home, settings.store, "seen-topics")
        self._label = label
        self._clock = clock
        self._grace = settings.config.sync_topic_deletes_grace_ms / 1000
        self._absences = Absences(self._grace)
        self._news = News()
        self._store = PositionStore(home, settings.store)
        self._cluster_id: str | None = None

    def look(self, partitions: Sequence[TopicPartition]) -> None:
        """After the topics of both clusters were looked at: `partitions` are those that are copied now."""
        cluster_id = self._source.cluster_id()
        before, self._cluster_id = self._cluster_id, cluster_id
        if before != cluster_id:  # it is not certain which cluster the topics were read from
            self._absences.look((), self._clock())
            return
        self._enter(partitions, cluster_id)
        mentioned: set[str] = set()
        missing = self._missing(partitions, cluster_id, mentioned)
        found = self._absences.look(missing, self._clock())
        for topic in found.gone:
            self._tell_gone(topic, missing[topic])
        for topic in found.back:
            log.info(
                "%s: topic %s is there again, or no longer ours; its copy stays.",
                self._label,
                topic,
            )
        self._delete({topic: missing[topic] for topic in found.due}, mentioned)
        self._news.keep(mentioned)

    def _enter(self, partitions: Sequence[TopicPartition], cluster_id: str) -> None:
        counts: dict[str, int] = {}
        for topic, number in partitions:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        known = self._ledger.entries()
        new: dict[str, Fields] = {
            topic: {_CLUSTER: cluster_id, _PARTITIONS: count} for topic, count in counts.items()
        }
        self._ledger.write({t: fields for t, fields in new.items() if known.get(t) != fields})

    # -- what is missing ----------------------------------------------------------------------

    def _missing(
        self, partitions: Sequence[TopicPartition], cluster_id: str, mentioned: set[str]
    ) -> dict[str, str]:
        """Topics that are gone from the source for certain, with their remote topics."""
        there = self._source.topics
        candidates = {
            topic: remote
            for topic, fields in self._ledger.entries().items()
            if topic not in there
            and fields.get(_CLUSTER) == cluster_id
            and (remote := self._remote(topic)) is not None
        }
        if not candidates:
            return {}
        if all(info.internal for info in there.values()):
            self._warn(
                "",
                f"{self._source.settings} has no topics at all; no remote topic is deleted.",
                mentioned,
            )
            return {}
        written = {self._settings.written_topic(topic) for topic, _ in partitions}
        if None in written:  # by transforms, record by record: any topic may still be written to
            return {}
        answers = admin.topic_errors(self._source, candidates)
        found = {}
        for topic, remote in candidates.items():
            code = answers.get(topic)
            if code == messages.UNKNOWN_TOPIC_OR_PARTITION and remote not in written:
                found[topic] = remote
            elif code not in (messages.NONE, messages.UNKNOWN_TOPIC_OR_PARTITION, None):
                said = messages.error_name(code)
                text = f"topic {topic} cannot be seen on {self._source.settings} any more ({said}); its copy {remote} stays."
                self._warn(topic, text, mentioned)
        return found

    def _remote(self, topic: str) -> str | None:
        """The topic that was written for a source topic, if this flow may delete it."""
        config = self._settings.config
        remote = self._settings.written_topic(topic)
        if remote is None or config.policy.is_internal_topic(remote):
            return None
        wanted = should_replicate_topic(
            config.policy,
            config.topic_filter(),
            config.heartbeats_replication,
            config.target_alias,
            topic,
        )
        info = self._target.topics.get(remote)
        return remote if wanted and (info is None or not info.internal) else None

    # -- deletion -----------------------------------------------------------------------------

    def _delete(self, due: Mapping[str, str], mentioned: set[str]) -> None:
        if not due:
            return
        self._home.refresh([self._settings.store.topic])
        self._store.catch_up()
        ours, done = [], []
        for topic, remote in due.items():
            if remote not in self._target.topics:
                done.append(topic)  # by somebody else, or before a restart
            elif self._is_ours(topic, remote):
                ours.append(topic)
            else:
                text = f"topic {remote} is not deleted: no stored position says that this flow has written it as it is now."
                log.warning("%s: %s", self._label, text)
                self._strike_out([topic])
        outcomes = admin.delete_topics(self._target, [due[topic] for topic in ours])
        for topic in ours:
            error = outcomes.get(due[topic])
            if error is None:
                done.append(topic)
                log.warning(
                    "%s: deleted topic %s on %s: its source topic %s is gone.",
                    self._label,
                    due[topic],
                    self._target.settings,
                    topic,
                )
            else:
                self._warn(topic, str(error), mentioned)
        # A source topic that is created again under the name is copied from its beginning.
        self._store.write((key, Entry(None)) for topic in done for key in self._keys(topic))
        self._strike_out(done)

    def _is_ours(self, topic: str, remote: str) -> bool:
        topic_id = hex_id(self._target.topics[remote].topic_id)
        return any(
            position is not None and topic_id in _target_ids(position)
            for position in (self._store.get(key) for key in self._keys(topic))
        )

    def _strike_out(self, topics: Collection[str]) -> None:
        self._ledger.write(dict.fromkeys(topics))
        self._absences.forget(topics)

    def _keys(self, topic: str) -> list[TopicPartition]:
        count = self._ledger.entries().get(topic, {}).get(_PARTITIONS, 0)
        return [(topic, number) for number in range(int(count))]

    # -- words --------------------------------------------------------------------------------

    def _tell_gone(self, topic: str, remote: str) -> None:
        at = datetime.now(UTC) + timedelta(seconds=self._grace)
        log.warning(
            "%s: topic %s is gone from %s. Its copy %s will be deleted at %s (sync.topic.deletes.grace.ms) unless it comes back.",
            self._label,
            topic,
            self._source.settings,
            remote,
            at.isoformat(timespec="seconds"),
        )

    def _warn(self, thing: str, text: str, mentioned: set[str]) -> None:
        mentioned.add(thing)
        if self._news.is_new(thing, text):
            log.warning("%s: %s", self._label, text)


def _target_ids(position: Position) -> set[str]:
    """The ids of the topics that a position of ours speaks of; none for one that another program has written."""
    if position.numbering is None:
        return set()
    return {position.target_id, *(target.target_id for target in position.targets)}
