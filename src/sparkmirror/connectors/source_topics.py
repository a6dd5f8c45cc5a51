"""The topics of a source connector: both clusters' topics in, remote topics created and widened, partitions to copy out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from sparkmirror.errors import KafkaError
from sparkmirror.formats.progress import progress_topic
from sparkmirror.kafka import admin, topic_configs
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.policy.filters import should_replicate_topic

from . import metadata
from .news import News
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

    def __init__(self, settings: SourceSettings, source: Cluster, target: Cluster) -> None:
        self._settings = settings
        self._config = settings.config
        self._source = source
        self._target = target
        self._partitions: list[tuple[str, int]] = []
        self._reported: set[str] = set()
        self._news = News()
        self._placed: dict[str, int] = {}

    def start(self) -> None:
        """Create the topics that replication itself needs, then look for the first time."""
        self._source.refresh(None)
        self._target.refresh(None)
        self._create_internal()
        self.refresh()

    def refresh(self) -> bool:
        """Look at both clusters, create and widen what is missing; True if the tasks are not what they were."""
        self._source.refresh(None)
        self._target.refresh(None)
        wanted = sorted(self._wanted_topics())
        described = topic_configs.describe(
            self._source, [topic for topic in wanted if self._lacks_remote(topic)]
        )
        self._tell(described.errors)
        self._provide([t for t in wanted if t not in described.errors], described.configs)
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
        return [
            name
            for name, info in self._source.topics.items()
            if not info.internal
            and should_replicate_topic(
                config.policy, chosen, config.heartbeats_replication, config.target_alias, name
            )
        ]

    def _has_remote(self, topic: str, partition: int) -> bool:
        name = self._settings.written_topic(topic)
        if name is None:  # the task creates what it finds it needs
            return True
        info = self._target.topics.get(name)
        if info is None:
            return False
        return partition in info.partitions or bool(self._placed.get(topic))

    def _lacks_remote(self, topic: str) -> bool:
        name = self._settings.written_topic(topic)
        return name is not None and name not in self._target.topics

    def _tell(self, errors: Mapping[str, KafkaError]) -> None:
        """Topics that cannot be created because it is not known how."""
        for topic, error in errors.items():
            if self._news.is_new(topic, str(error)):
                log.error("%s", error)
        self._news.keep(errors)

    def _create_internal(self) -> None:
        config, settings = self._config, self._settings
        progress = NewTopic(
            progress_topic(config.source_alias),
            1,
            settings.progress_replication_factor,
            _PROGRESS_CONFIGS,
        )
        wanted = [(self._target, progress, not settings.may_lower_progress_factor)]
        if config.emit_offset_syncs:
            at_source = config.offset_syncs_location == "source"
            syncs = NewTopic(
                config.offset_syncs_topic,
                1,
                config.offset_syncs_replication_factor,
                {"cleanup.policy": "compact"},
            )
            explicit = config.offset_syncs_replication_factor_explicit
            wanted.append((self._source if at_source else self._target, syncs, explicit))
            offset_map = replace(syncs, name=settings.copy.offset_map_topic)
            wanted.append((self._target, offset_map, explicit))
        for cluster, topic, explicit in wanted:
            if topic.name in cluster.topics:
                continue
            for error in metadata.create(cluster, [topic], may_lower_factor=not explicit).values():
                log.warning("%s", error)

    def _provide(self, wanted: list[str], configs: dict[str, list[admin.ConfigEntry]]) -> None:
        """Create and widen the remote topics; one that cannot be is told and left out."""
        counts: dict[str, int] = {}
        originals: dict[str, str] = {}
        for topic in wanted:
            name = self._settings.written_topic(topic)
            if name is not None:  # several topics may be routed to one
                count = self._config.wanted_partitions(topic)
                if count is None:
                    count = len(self._source.topics[topic].partitions)
                counts[name] = max(count, counts.get(name, 0))
                originals.setdefault(name, topic)
        existing = {name: len(info.partitions) for name, info in self._target.topics.items()}
        create, widen = metadata.missing_topics(counts, existing)
        config = self._config
        new = [
            NewTopic(
                name,
                count,
                config.replication_factor,
                metadata.creation_configs(
                    configs.get(originals[name], ()),
                    config.config_property_filter(),
                    with_defaults=config.use_defaults_from == "source",
                ),
            )
            for name, count in create.items()
        ]
        errors: dict[str, KafkaError] = dict(
            metadata.create(
                self._target, new, may_lower_factor=not config.replication_factor_explicit
            )
        )
        for name, error in admin.create_partitions(self._target, widen).items():
            if error is None:
                log.info("Widened topic %s to %d partitions.", name, widen[name])
            else:
                errors[name] = error
        for name, failure in errors.items():
            if name not in self._reported:  # once, not at every refresh
                log.error("%s", failure)
        self._reported = set(errors)
        made = {name: count for name, count in counts.items() if name in create or name in widen}
        self._wait_for({name: count for name, count in made.items() if name not in errors})

    def _wait_for(self, counts: dict[str, int]) -> None:
        """Until the target tells of the partitions it has just made: brokers hear of them one after the other."""
        deadline = time.monotonic() + self._config.admin_timeout_ms / 1000
        while counts and time.monotonic() < deadline:
            self._target.refresh(None)
            if all(self._has_all(name, count) for name, count in counts.items()):
                return
            time.sleep(0.05)

    def _has_all(self, remote: str, count: int) -> bool:
        info = self._target.topics.get(remote)
        return info is not None and len(info.partitions) >= count

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
