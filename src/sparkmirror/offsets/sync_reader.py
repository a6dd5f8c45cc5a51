"""Translation by MirrorMaker 2's offset syncs: their topic in, downstream offsets out."""

from __future__ import annotations

import logging

from sparkmirror.formats.mirror import MalformedRecord, decode_offset_sync
from sparkmirror.kafka.cluster import Cluster

from .internal_topic import InternalTopic
from .sync_store import OffsetSyncStore

log = logging.getLogger(__name__)
_LOADING_WAIT = 0.1


class OffsetSyncReader:
    """A `Translator` that follows an offset-syncs topic.

    Invariant: every sync of the log goes into the store once, in order; the store is loaded when everything that was in the
    log at the first look has been added.
    """

    def __init__(self, cluster: Cluster, topic: str, *, must_read_to_end: bool) -> None:
        self._topic = InternalTopic(cluster, topic)
        self._store = OffsetSyncStore(must_read_to_end=must_read_to_end)
        self._load_to: int | None = None

    @property
    def is_ready(self) -> bool:
        return self._store.is_loaded

    def follow(self, wait: float) -> None:
        if self._load_to is None:
            self._load_to = self._topic.end()
        for record in self._topic.poll(wait if self.is_ready else min(wait, _LOADING_WAIT)):
            try:
                self._store.add(decode_offset_sync(record.key, record.value))
            except MalformedRecord as error:
                log.warning("Offset %d of %s: %s", record.offset, self._topic.name, error)
        if not self.is_ready and self._topic.position >= self._load_to:
            self._store.finish_loading()

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        return self._store.translate(topic, partition, offset)
