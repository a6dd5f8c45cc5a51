"""The checkpoint task: what its groups have committed on the source in; checkpoints and moved groups on the target out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from sparkmirror.config.checkpoint import CheckpointTaskConfig
from sparkmirror.config.clients import Kind, Side
from sparkmirror.errors import CorruptBatch, KafkaError
from sparkmirror.formats.connect import checkpoint_offset_key
from sparkmirror.formats.mirror import Checkpoint, encode_checkpoint
from sparkmirror.formats.offset_map import offset_map_topic
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.offsets.by_time import TimeTranslator
from sparkmirror.offsets.checkpoint_news import CheckpointNews, News
from sparkmirror.offsets.checkpoints import CheckpointStore, Dated, Naming, translated
from sparkmirror.offsets.groups import Groups, Offsets
from sparkmirror.offsets.homecoming import Echoes, Homecoming, Moves
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.offsets.map_reader import MapReader, WayBack
from sparkmirror.offsets.placed_groups import PlacedGroups
from sparkmirror.offsets.sync_reader import OffsetSyncReader
from sparkmirror.offsets.target_topics import TargetTopics, same_topic

from .clients import cluster_for, record_writer
from .connector import TaskContext
from .group_moves import GroupMoves, some, tell_failed
from .patience import Job, patiently
from .restoring import LastCheckpoints

log = logging.getLogger(__name__)
ZERO_OFFSET = b'{"offset":0}'
_LEAST_INTERVAL = 0.1
_LONGEST_WAIT = 0.5  # for new offset syncs, so that a stop is noticed
_GROUPS_AT_ONCE = 2000  # about a second, if all of them are to be moved


class CheckpointTask:
    """Follows the groups that it was given.

    Invariants: nothing is emitted, and no group is moved, before the last checkpoints and all offset syncs have been read; a
    checkpoint is in the store only after it is in the topic.
    """

    def __init__(self, props: Mapping[str, str], context: TaskContext) -> None:
        self._props = dict(props)
        self._context = context
        self._task = task = CheckpointTaskConfig.parse(props)
        self._config = config = task.connector
        self._label = f"Task {config.name}-{task.index}"
        # Each asked of every offset of every group: their rules are expressions to match and names to take apart.
        self._is_wanted = cache(config.topic_filter().matches)
        self._naming = Naming(config.policy, config.source_alias, config.target_alias)
        self._downstream = cache(self._naming.downstream)
        self._clusters: list[Cluster] = []
        self._source_groups = Groups(self._cluster("source", "admin", "checkpoint-source-admin"))
        target = self._cluster("target", "admin", "checkpoint-target-admin")
        self._topics = TargetTopics(target)
        writer = record_writer(props, task.index)
        self._clusters.append(writer)
        self._topic = InternalTopic(writer, config.checkpoints_topic)
        self._store = CheckpointStore(task.groups)
        self._news = CheckpointNews(self._store, self._topics)
        self._moves = GroupMoves(
            Groups(target, "Read"), self._topics, self._is_current, self._label
        )
        echoes = self._cluster("source", "consumer", "checkpoints-source-consumer")
        opposite = InternalTopic(echoes, config.policy.checkpoints_topic(config.target_alias))
        self._homecoming = Homecoming(self._naming, Echoes(opposite, task.groups))
        self._placed = PlacedGroups(
            cache(config.may_be_placed),
            self._downstream,
            self._store,
            TimeTranslator(
                self._cluster("source", "consumer", "times-source-consumer"),
                self._cluster("target", "admin", "times-target-admin"),
                self._downstream,
            ),
        )
        self._is_copied = cache(self._copied)
        self._reader: MapReader | None = None
        self._stored_keys: set[bytes] = set()
        self._unstored_keys: dict[bytes, None] = {}

    def run(self, stopping: threading.Event) -> None:
        try:
            translator = self._translator(stopping)
            if translator is not None:
                self._work(translator, stopping)
        finally:
            for cluster in self._clusters:
                cluster.close()

    def _cluster(self, side: Side, kind: Kind, role: str) -> Cluster:
        cluster = cluster_for(self._props, side, kind, role, self._task.index)
        self._clusters.append(cluster)
        return cluster

    # -- start ----------------------------------------------------------------------------------

    def _translator(self, stopping: threading.Event) -> MapReader | None:
        """Who translates, once the last checkpoints are known or it is known that they cannot be; None if told to stop."""
        is_restored = self._restore(stopping)
        if stopping.is_set():
            return None
        side = self._config.offset_syncs_location
        cluster = self._cluster(side, "consumer", f"offset-syncs-{side}-consumer")
        topic = self._config.offset_syncs_topic
        syncs = OffsetSyncReader(cluster, topic, must_read_to_end=not is_restored)
        naming = self._naming
        back = WayBack(
            self._cluster("source", "consumer", "offset-map-source-consumer"),
            offset_map_topic(naming.target_alias),
            cache(naming.comes_from_target),
        )
        target = self._cluster("target", "consumer", "offset-map-target-consumer")
        self._reader = MapReader(
            target, offset_map_topic(naming.source_alias), self._downstream, syncs, back
        )
        return self._reader

    def _restore(self, stopping: threading.Event) -> bool:
        """Read the last checkpoints from their topic; False if that is not possible."""
        config = self._config
        cluster = self._cluster("target", "consumer", "checkpoints-target-consumer")
        reader = LastCheckpoints(
            InternalTopic(cluster, config.checkpoints_topic),
            self._task.groups,
            config.admin_timeout_ms / 1000,
        )
        try:
            patiently(lambda: reader.read(stopping), stopping, self._label)
        except (KafkaError, CorruptBatch) as error:
            log.warning(
                "%s: %s Without the last checkpoints, only what is copied from now on can be translated.",
                self._label,
                error,
            )
            return False
        finally:
            cluster.close()
        for checkpoint in reader.checkpoints:
            self._store.put(checkpoint)
        return True

    # -- loop -----------------------------------------------------------------------------------

    def _work(self, translator: MapReader, stopping: threading.Event) -> None:
        config = self._config
        interval = max(_LEAST_INTERVAL, config.emit_checkpoints_interval_seconds)
        emit = Job(self._label, interval, lambda: self._emit(translator))
        jobs = [emit]
        if config.sync_group_offsets_enabled:
            seconds = config.sync_group_offsets_interval_seconds
            jobs.append(Job(self._label, seconds, lambda: self._sync_group_offsets(goes_on)))

        def goes_on() -> bool:
            """Asked in the midst of long work: checkpoints leave in time meanwhile, and a stop is noticed."""
            if not emit.left:
                emit.run()
            return not stopping.is_set()

        def idle() -> float:
            """How long nothing is to be done but to follow."""
            lefts = [job.left for job in jobs if translator.is_ready]
            return min(lefts, default=_LONGEST_WAIT)

        follow = Job(self._label, 0.0, lambda: translator.follow(min(idle(), _LONGEST_WAIT)))
        while not stopping.is_set():
            for job in jobs:
                if not job.left and translator.is_ready:
                    job.run()
            if follow.left:
                stopping.wait(min(idle(), follow.left, _LONGEST_WAIT))
            else:
                follow.run()

    # -- checkpoints ----------------------------------------------------------------------------

    def _emit(self, translator: MapReader) -> None:
        """Write the checkpoints that say something new."""
        now = time.time_ns() // 1_000_000
        answers = some(self._source_groups.committed(self._task.groups))
        tell_failed(self._label, answers.failed)
        self._look_at_new_topics(answers.found)
        placed = self._placed
        placed.look(answers.found, self._is_copied, translator)
        found = (
            checkpoint
            for group, offsets in answers.found.items()
            for checkpoint in self._checkpoints(group, placed.by_map(group, offsets), translator)
        )
        times = [*placed.news(), *placed.same]
        by_time = [Dated(checkpoint, placed.target_id(checkpoint.topic)) for checkpoint in times]
        due = self._corrected(self._news.of(found, by_time, translator))
        news = [one.checkpoint for one in due]
        is_syncing = self._config.sync_group_offsets_enabled
        is_homeward = is_syncing and self._homecoming.take(news, answers.found)
        if news:
            self._topic.append([encode_checkpoint(checkpoint) for checkpoint in news], now)
            for one in due:
                self._store.put(one.checkpoint, one.topic_id)
            self._context.wrote(self._topic.name)
        placed.written()
        self._store_offsets(news)
        if is_homeward:
            # At once: a task that comes after this one takes what it finds written for done.
            self._move(self._homecoming.pending)

    def _look_at_new_topics(self, groups: Mapping[str, Offsets]) -> None:
        """See the ids of all remote topics once, so that one that is created again is noticed whenever it is written of."""
        topics = {topic for offsets in groups.values() for topic, _ in offsets}
        self._topics.look_once({self._downstream(t) for t in topics if self._is_wanted(t)})

    def _corrected(self, due: list[News]) -> list[News]:
        """Bring groups back from where outdated checkpoints had led them; gives what may be written now."""
        outdated = [
            one
            for one in due
            if one.outdated >= 0 and not self._homecoming.is_home(one.checkpoint.topic)
        ]
        if not outdated or not self._config.sync_group_offsets_enabled:
            return due
        failed = self._moves.correct(outdated)
        return [one for one in due if one.checkpoint.group not in failed]

    def _is_current(self, group: str, key: TopicPartition) -> bool:
        """Whether a group's last checkpoint is of the topic that was on the target at the last look.

        One that an earlier task wrote is taken for it if nobody can tell better: where the offset map knows nothing. Where no
        id tells, one that contradicts the map is not: the topic was created again, and filled to beyond the checkpoint.
        """
        dated, current = self._store.dated(group, key), self._topics.id_of(key[0])
        if dated is None or current is None:
            return False
        is_sure = NO_TOPIC_ID not in (dated.topic_id, current)
        if not is_sure and self._reader is not None and self._reader.is_too_far(dated.checkpoint):
            return False
        if dated.topic_id is not None:
            return same_topic(dated.topic_id, current)
        is_unknown = self._reader is not None and self._reader.target_id(*key) == NO_TOPIC_ID
        return is_unknown and key[0] not in self._topics.recreated

    def _copied(self, topic: str) -> bool:
        """Whether this flow copies a topic: it is wanted, and does not come from the target."""
        return self._is_wanted(topic) and not self._naming.comes_from_target(topic)

    def _checkpoints(
        self, group: str, offsets: Offsets, translator: MapReader
    ) -> Iterator[Checkpoint]:
        own = {key: offset for key, offset in offsets.items() if not translator.is_shared(*key)}
        yield from translated(group, own, self._is_wanted, self._downstream, translator)
        yield from self._elsewhere(group, offsets, translator)

    def _elsewhere(
        self, group: str, offsets: Offsets, translator: MapReader
    ) -> Iterator[Checkpoint]:
        """Checkpoints of partitions that a query sends records to."""
        there = {k: o for k, o in offsets.items() if o is not None and self._is_wanted(k[0])}
        for way in translator.elsewhere({key: offset.offset for key, offset in there.items()}):
            committed = there[way.source]
            yield Checkpoint(
                group,
                way.remote,
                way.partition,
                committed.offset,
                way.offset,
                committed.metadata,
            )

    def _store_offsets(self, news: Sequence[Checkpoint]) -> None:
        """Connect's offset of each partition: always zero, so once in a task's life is enough."""
        for c in news:
            key = checkpoint_offset_key(self._config.name, c.group, c.topic, c.partition)
            if key not in self._stored_keys:
                self._unstored_keys[key] = None
        if self._unstored_keys:
            self._context.store_offsets([(key, ZERO_OFFSET) for key in self._unstored_keys])
            self._stored_keys |= self._unstored_keys.keys()
            self._unstored_keys.clear()

    # -- groups on the target -------------------------------------------------------------------

    def _sync_group_offsets(self, goes_on: Callable[[], bool]) -> None:
        """Move the groups that have no members on the target forward to where their checkpoints are."""
        # The map tells that checkpoints are of a topic that is gone. The source is not asked: it may be what was lost.
        if self._reader is not None and not self._reader.follow_map():
            return
        groups = self._store.groups
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            if start and not goes_on():
                return
            onward = self._store.downstream_offsets(groups[start : start + _GROUPS_AT_ONCE])
            wanted = self._homecoming.joined(onward)
            self._move({group: wanted[group] for group in onward if group in wanted})

    def _move(self, wanted: Moves) -> None:
        self._homecoming.settle(self._moves.move(wanted))
