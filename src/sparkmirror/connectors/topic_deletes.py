"""Remote topics whose source topic was deleted: both clusters and the ledger in, deletions after a grace time out.

A wrong deletion cannot be undone, so everything must speak for it. See `TopicDeletes`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.resume import hex_id
from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.formats.position import Entry, Position
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.policy.filters import should_replicate_topic
from sparkmirror.policy.naming import ReplicationPolicy

from .absences import Absences
from .ledger import Fields, Ledger
from .news import News
from .source_settings import SourceSettings

log = logging.getLogger(__name__)
_MOST_PARTITIONS = 100_000
_CLUSTER, _PARTITIONS = "source_cluster", "partitions"
_MOST_NAMED = 5
# What there is to say of no topic in particular; no topic is called so.
_EMPTY, _NAMES, _BROKERS = "", "the names", "the brokers"


class TopicDeletes:
    """Deletes a remote topic only if
    - this flow has seen its source topic on the cluster with the id that the source has now (the ledger says so),
    - that cluster, asked for the topic by name, says that there is none, at every look for the whole grace time; "not allowed to
      see it" is another answer, and so is any error; at the end every broker of it says so,
    - the source has other topics, and none of those that are copied goes to the same remote topic,
    - the topic would still be replicated by the settings of now, and is nobody's internal topic,
    - the remote topic's name can only be that of a copy from this source (see `names_source`),
    - the stored positions name the remote topic by its id: it is the one that this flow has written,
    - the target's brokers, if they can tell, know of no producer to it but those of the positions.

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
        self._delete(without_shared(missing, found.due), mentioned)
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
                _EMPTY,
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
        return self._deletable(without_shared(candidates, found), mentioned)

    def _deletable(self, gone: Mapping[str, str], mentioned: set[str]) -> dict[str, str]:
        """Without those whose copies cannot be told from what others write."""
        config = self._settings.config
        found, unnamed = {}, []
        for topic, remote in gone.items():
            info = self._target.topics.get(remote)
            if info is None:
                found[topic] = remote  # nothing to delete, only positions
            elif not names_source(config.policy, config.source_alias, config.target_alias, remote):
                unnamed.append(topic)
            elif not hex_id(info.topic_id):
                where = self._target.settings
                text = f"topic {topic} is gone; its copy {remote} stays, since it has no id on {where}."
                self._warn(topic, text, mentioned)
            else:
                found[topic] = remote
        if unnamed:
            text = (
                f"gone from {self._source.settings}: {_listed(unnamed)}. What is copied stays: the name of a copy does not tell "
                f"that it comes from {config.source_alias} alone (replication.policy.class), so others may write to it, too."
            )
            self._warn(_NAMES, text, mentioned)
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
        due = self._agreed(due, mentioned)
        if not due:
            return
        self._home.refresh([self._settings.store.topic])
        self._store.catch_up()
        self._target.refresh(set(due.values()))
        there = self._target.topics
        done = [t for t, remote in due.items() if remote not in there]  # by somebody else
        ours = [t for t in due if t not in done and self._is_proven(t, due, mentioned)]
        outcomes = admin.delete_topics(self._target, sorted({due[topic] for topic in ours}))
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

    def _agreed(self, due: Mapping[str, str], mentioned: set[str]) -> dict[str, str]:
        """Those of which every broker of the source says that there is no such topic; one alone may be behind."""
        if not due:
            return {}
        try:
            answers = admin.topic_errors_by_broker(self._source, due)
        except KafkaError as error:
            where, what = self._source.settings, _listed(due)
            text = (
                f"copies are not deleted yet ({what}): a broker of {where} cannot be asked. {error}"
            )
            self._warn(_BROKERS, text, mentioned)
            return {}
        found = {}
        for topic, remote in due.items():
            others = dissenters(answers, topic)
            if others or not answers:
                text = f"topic {remote} is not deleted yet: {'; '.join(others) or 'no broker is known'}."
                self._warn(topic, text, mentioned)
            else:
                found[topic] = remote
        return found

    def _is_proven(self, topic: str, due: Mapping[str, str], mentioned: set[str]) -> bool:
        remote = due[topic]
        if not self._is_ours(topic, remote):
            text = f"topic {remote} is not deleted: no stored position says that this flow has written it as it is now."
            log.warning("%s: %s", self._label, text)
            self._strike_out([topic])
            return False
        text = self._objection(remote, [other for other in due if due[other] == remote])
        if text:
            self._warn(topic, f"topic {remote} is not deleted yet: {text}", mentioned)
        return not text

    def _is_ours(self, topic: str, remote: str) -> bool:
        topic_id = hex_id(self._target.topics[remote].topic_id)
        return any(topic_id in _target_ids(position) for position in self._positions([topic]))

    def _objection(self, remote: str, topics: Collection[str]) -> str:
        """What the target's brokers know of producers that are not those of these topics; empty if nothing, or nothing can be."""
        keys = [(remote, number) for number in self._target.topics[remote].partitions]
        try:
            producers = admin.active_producers(self._target, keys)
        except KafkaError as error:
            is_old = isinstance(error, BrokerError) and error.code == messages.UNSUPPORTED_VERSION
            return "" if is_old else f"it cannot be seen who has written to it: {error}"
        own = {p.numbering.producer_id for p in self._positions(topics) if p.numbering is not None}
        others = {producer for states in producers.values() for producer in states} - own
        if not others:
            return ""
        ids = ", ".join(map(str, sorted(others)[:_MOST_NAMED]))
        return f"somebody else has written to it, too (producer ids: {ids})."

    def _positions(self, topics: Collection[str]) -> Iterator[Position]:
        for topic in topics:
            for key in self._keys(topic):
                position = self._store.get(key)
                if position is not None:
                    yield position

    def _strike_out(self, topics: Collection[str]) -> None:
        self._ledger.write(dict.fromkeys(topics))
        self._absences.forget(topics)

    def _keys(self, topic: str) -> list[TopicPartition]:
        count = self._ledger.entries().get(topic, {}).get(_PARTITIONS, 0)
        # No topic has more: the number is what somebody has written into the offsets topic.
        return [(topic, number) for number in range(min(int(count), _MOST_PARTITIONS))]

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


def names_source(policy: ReplicationPolicy, source: str, other: str, remote: str) -> bool:
    """Whether a topic of this name can only be a copy from `source`.

    The policy must say so, and give another name to a copy from `other`: one that keeps names says of every topic that it comes
    from its source.
    """
    upstream = policy.upstream_topic(remote)
    return (
        upstream is not None
        and policy.topic_source(remote) == source
        and policy.format_remote_topic(source, upstream) == remote
        and policy.format_remote_topic(other, upstream) != remote
    )


def without_shared(remotes: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
    """These topics with their remote topics, but for those that a topic which is not among them was copied to as well."""
    others = {remote for topic, remote in remotes.items() if topic not in topics}
    return {topic: remotes[topic] for topic in topics if remotes[topic] not in others}


def dissenters(answers: Mapping[int, Mapping[str, int]], topic: str) -> list[str]:
    """What brokers, by node, say of a topic, but that there is none."""
    found = []
    for node, codes in sorted(answers.items()):
        code = codes.get(topic)
        if code == messages.NONE:
            found.append(f"broker {node} still knows {topic}")
        elif code != messages.UNKNOWN_TOPIC_OR_PARTITION:
            said = "nothing" if code is None else messages.error_name(code)
            found.append(f"broker {node} says {said} of {topic}")
    return found


def _listed(topics: Collection[str]) -> str:
    shown = sorted(topics)[:_MOST_NAMED]
    more = len(topics) - len(shown)
    return f"topic(s) {', '.join(shown)}{f' and {more} more' if more else ''}"


def _target_ids(position: Position) -> set[str]:
    """The ids of the topics that a position of ours speaks of; none for one that another program has written."""
    if position.numbering is None:
        return set()
    ids = {position.target_id, *(target.target_id for target in position.targets)}
    return ids - {""}  # of a target without topic ids, where a name is all there is
