"""The topics of a source connector: both clusters' topics in, remote topics created and widened, partitions to copy out."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from sparkmirror.formats.progress import progress_topic
from sparkmirror.kafka import messages
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.property_support import PropertySupport
from sparkmirror.policy.filters import should_replicate_topic

from . import metadata
from .remote_topics import RemoteTopics
from .source_settings import SourceSettings

log = logging.getLogger(__name__)
_PROGRESS_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "segment.ms": "600000",
}


class SourceTopics:
    """Keeps the list of source partitions and the remote topics in step.

    Invariant: `partitions` names only partitions whose remote partition (or the topic whose partitions their records are placed
    on by key) existed at the last refresh.
    """

    def __init__(
        self,
        settings: SourceSettings,
        source: Cluster,
        target: Cluster,
        stopping: threading.Event,
        support: PropertySupport,
    ) -> None:
        self._settings = settings
        self._config = settings.config
        self._source = source
        self._target = target
        self._partitions: list[tuple[str, int]] = []
        self._remotes = RemoteTopics(settings, source, target, stopping, support)
        self._placed: dict[str, int] = {}
        self._told_reserved: set[str] = set()
        self._asked: set[str] = set()
        """Internal topics that were created, or may not be, and were not seen since."""

    def start(self) -> None:
        """Look for the first time, and create what is missing."""
        self.refresh()

    def refresh(self) -> bool:
        """Look at both clusters, create and widen what is missing; True if the tasks are not what they were.

        Where much is missing this does not create all of it (`is_complete`): what is there can be copied meanwhile.
        """
        self._source.refresh(None)
        self._target.refresh(None)
        self._create_internal()
        wanted = sorted(self._wanted_topics())
        self._remotes.provide(wanted)
        self._tell_placed(wanted)
        partitions = [
            (name, partition)
            for name in wanted
            for partition in sorted(self._source.topics[name].partitions)
            if self._has_remote(name, partition)
        ]
        changed = partitions != self._partitions
        if changed:
            self._tell_change(partitions)
        self._partitions = partitions
        return changed

    @property
    def is_complete(self) -> bool:
        """Whether the last refresh has come to all remote topics that were missing."""
        return self._remotes.is_complete

    def partitions(self) -> list[TopicPartition]:
        """The source partitions to be copied, in the order in which they are dealt to tasks."""
        return list(self._partitions)

    def remotes(self) -> dict[str, str]:
        """The source topics to be copied, by the remote topic that is kept like each; where several go to one, the first."""
        found: dict[str, str] = {}
        for topic in sorted({topic for topic, _ in self._partitions}):
            name = self._settings.written_topic(topic)
            if name is not None:
                found.setdefault(name, topic)
        return found

    # -- topics -------------------------------------------------------------------------------

    def _wanted_topics(self) -> list[str]:
        config = self._config
        chosen = config.topic_filter()
        wanted = [
            name
            for name, info in self._source.topics.items()
            if not info.internal
            and should_replicate_topic(
                config.policy, chosen, config.heartbeats_replication, config.target_alias, name
            )
        ]
        return [name for name in wanted if not self._is_reserved(name)]

    def _is_reserved(self, topic: str) -> bool:
        """Whether the copy of a topic would be one in which the worker keeps its state."""
        reserved = self._settings.copy.reserved
        names = {self._settings.remote(topic), self._settings.written_topic(topic)} & reserved
        for name in names - self._told_reserved:
            log.warning(
                "Connector %s: topic %s of %s is not copied: on %s, %s is where this worker keeps its state. Leave it out with "
                "topics.exclude, or use a replication policy that gives the copy another name.",
                self._settings.config.name,
                topic,
                self._source.settings,
                self._target.settings,
                name,
            )
            self._told_reserved.add(str(name))
        return bool(names)

    def _has_remote(self, topic: str, partition: int) -> bool:
        name = self._settings.written_topic(topic)
        if name is None:  # the task creates what it finds it needs
            return True
        info = self._target.topics.get(name)
        if info is None:
            return False
        return partition in info.partitions or bool(self._placed.get(topic))

    def _create_internal(self) -> None:
        """Create the topics that replication itself needs, also those that were deleted since.

        Each is asked for once before it was seen: it may be hidden from us, and brokers log each try that they refuse.
        """
        for cluster, topic, may_lower_factor in self._internal():
            if topic.name in cluster.topics:
                self._asked.discard(topic.name)
            elif topic.name not in self._asked:
                found = metadata.create(cluster, [topic], may_lower_factor=may_lower_factor)
                error = found.get(topic.name)
                if error is not None:
                    log.warning("%s", error)
                if error is None or not (error.retriable or error.code == messages.NOT_CONTROLLER):
                    self._asked.add(topic.name)

    def _internal(self) -> list[tuple[Cluster, NewTopic, bool]]:
        """The topics that replication itself needs, each with its cluster and whether its replication factor may be lowered."""
        config, settings = self._config, self._settings
        progress = NewTopic(
            progress_topic(config.source_alias),
            1,
            settings.progress_replication_factor,
            _PROGRESS_CONFIGS,
        )
        wanted = [(self._target, progress, settings.may_lower_progress_factor)]
        if config.emit_offset_syncs:
            at_source = config.offset_syncs_location == "source"
            syncs = NewTopic(
                config.offset_syncs_topic,
                1,
                config.offset_syncs_replication_factor,
                {"cleanup.policy": "compact"},
            )
            may_lower = not config.offset_syncs_replication_factor_explicit
            wanted.append((self._source if at_source else self._target, syncs, may_lower))
            offset_map = replace(syncs, name=settings.copy.offset_map_topic)
            wanted.append((self._target, offset_map, may_lower))
        return wanted

    def _tell_placed(self, topics: list[str]) -> None:
        """Topics that are not copied partition by partition; each once, and again when their numbers have changed."""
        placed = {t: self._settings.places(t, self._source, self._target) for t in topics}
        placed = {topic: count for topic, count in placed.items() if count}
        for topic, count in placed.items():
            if self._placed.get(topic) != count:
                log.info(
                    "Topic %s has %d partition(s), and its copy %d: records are placed by their keys, and offsets of groups are "
                    "translated by time only.",
                    topic,
                    len(self._source.topics[topic].partitions),
                    count,
                )
        self._placed = placed

    def _tell_change(self, partitions: list[tuple[str, int]]) -> None:
        before, after = set(self._partitions), set(partitions)
        topics = {topic for topic, _ in after}
        log.info(
            "Flow %s->%s: %d partition(s) of %d topic(s), %d new, %d gone.",
            self._config.source_alias,
            self._config.target_alias,
            len(after),
            len(topics),
            len(after - before),
            len(before - after),
        )
