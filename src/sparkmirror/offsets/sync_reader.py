"""Translation by MirrorMaker 2's offset syncs: their topic in, downstream offsets out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sparkmirror.formats.mirror import MalformedRecord, OffsetSync, decode_offset_sync
from sparkmirror.kafka.cluster import Cluster

from .internal_topic import InternalTopic
from .sync_store import OffsetSyncStore

log = logging.getLogger(__name__)
_LOADING_WAIT = 0.1


class OffsetSyncReader:
    """A `Translator` that follows an offset-syncs topic.

    Invariants: every sync of the log goes into the store once, in order, and stays there if the topic is created again (a sync
    that contradicts it comes later, and counts); the store is loaded when everything that was in the log at the first look has
    been added. `_written_at` holds the time of each partition's last sync, `_began_at` when (monotonic)
    the first one was read that goes back on either side, so that all before it are void.
    """

    def __init__(self, cluster: Cluster, topic: str, *, must_read_to_end: bool) -> None:
        self._topic = InternalTopic(cluster, topic)
        self._topic.on_restart = self._restart
        self._store = OffsetSyncStore(must_read_to_end=must_read_to_end)
        self._load_to: int | None = None
        self._written_at: dict[tuple[str, int], int] = {}
        self._began_at: dict[tuple[str, int], float] = {}

    @property
    def is_ready(self) -> bool:
        return self._store.is_loaded

    def follow(self, wait: float) -> None:
        if self._load_to is None:
            self._load_to = self._topic.end()
        for record in self._topic.poll(wait if self.is_ready else min(wait, _LOADING_WAIT)):
            try:
                self._take(decode_offset_sync(record.key, record.value), record.timestamp)
            except MalformedRecord as error:
                log.warning("Offset %d of %s: %s", record.offset, self._topic.name, error)
        if not self.is_ready and self._is_at_end:
            self._store.finish_loading()

    @property
    def _is_at_end(self) -> bool:
        return self._load_to is not None and self._topic.position >= self._load_to

    def _restart(self) -> None:
        """The topic was created again: its log has another end."""
        self._load_to = None

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        return self._store.translate(topic, partition, offset)

    def _take(self, sync: OffsetSync, written_at: int) -> None:
        key = sync.topic, sync.partition
        last = self._store.newest(*key)
        if last is None or sync.upstream_offset < last.upstream_offset:
            self._began_at[key] = time.monotonic()
        elif sync.downstream_offset < last.downstream_offset:
            # The target was created again, or cut back: what was there before is gone.
            self._store.forget(*key)
            self._began_at[key] = time.monotonic()
        self._store.add(sync)
        self._written_at[key] = written_at

    def written_at(self, topic: str, partition: int) -> int:
        """When the last sync of a partition was written (ms); -1 if none is known."""
        return self._written_at.get((topic, partition), -1)

    def forget(self, before: Callable[[str], float]) -> None:
        """Forget the syncs of partitions of which none began a new series since the moment (monotonic) for their source topic."""
        for topic, partition in [key for key, at in self._began_at.items() if at < before(key[0])]:
            self._store.forget(topic, partition)
            del self._began_at[topic, partition]
