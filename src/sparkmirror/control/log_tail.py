"""A topic followed from its beginning on: a cluster and a topic's name in, each record, in the order of its partition, out.

One outstanding fetch per broker, in an incremental session. Only what is committed is given out: Java's workers may write in
transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sparkmirror.dataplane.fetch_channels import FetchChannels
from sparkmirror.dataplane.poller import Poller
from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.errors import CorruptBatch, KafkaError
from sparkmirror.kafka import admin, messages, records
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.fetch import (
    READ_COMMITTED,
    FetchAnswer,
    Fetched,
    FetchLimits,
    Wanted,
)

log = logging.getLogger(__name__)

OnRecord = Callable[[int, int, bytes | None, bytes | None, int], None]
"""Takes partition, offset, key, value and timestamp of a record."""

_LIMITS = FetchLimits(max_wait_ms=500, isolation=READ_COMMITTED)
_WORDY_S = 10.0


class LogTail:
    """Follows all partitions of one topic, for one thread.

    Invariants: `positions` holds, per partition, the offset after the last record that was delivered or need not be; it never
    runs ahead of what was delivered. A partition is wanted in the session of its leader alone.
    """

    def __init__(self, cluster: Cluster, topic: str, on_record: OnRecord) -> None:
        self._cluster = cluster
        self._topic = topic
        self._on_record = on_record
        self._poller = Poller()
        self._streams: dict[int, Stream] = {}
        self._channels = FetchChannels(
            cluster, self._poller, _LIMITS, self._answered, lambda node: self._relocate()
        )
        self._homes: dict[int, int] = {}
        self._restarts: set[int] = set()
        self._topic_id: bytes | None = None
        self._is_stale = True
        self._refreshed_at = float("-inf")
        self._told_at = -_WORDY_S
        self.positions: dict[int, int] = {}

    def close(self) -> None:
        self._channels.close()
        self._poller.close()
        self._cluster.close()

    @property
    def is_stale(self) -> bool:
        """Whether it is not known (any more) who leads some partition."""
        return self._is_stale

    def step(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for records and deliver them. An error leaves everything fit for the next step."""
        if self._is_refresh_due():
            self._refreshed_at = time.monotonic()
            self._locate()
        self._channels.expire()
        self._channels.pump()
        self._poller.wait(timeout)

    # -- where to read ------------------------------------------------------------------------

    def _is_refresh_due(self) -> bool:
        settings = self._cluster.settings
        age = time.monotonic() - self._refreshed_at
        return age > (settings.retry_backoff if self._is_stale else settings.metadata_max_age)

    def _locate(self) -> None:
        """Read the metadata anew and ask every partition's leader for it."""
        self._cluster.refresh([self._topic])
        info = self._cluster.topic(self._topic)
        if self._topic_id not in (None, info.topic_id):
            log.warning(
                "Topic %s on %s was deleted and created again: reading it from its beginning.",
                self._topic,
                self._cluster.settings,
            )
            self._restarts |= set(self._streams)
        self._topic_id = info.topic_id
        self._begin(self._restarts | (info.partitions.keys() - self._streams.keys()))
        leaderless = [partition for partition in self._streams if not self._want(partition)]
        self._is_stale = bool(leaderless)

    def _begin(self, partitions: set[int]) -> None:
        keys = [(self._topic, partition) for partition in partitions]
        if not keys:
            return
        for (_, partition), start in admin.list_offsets(
            self._cluster, keys, admin.EARLIEST
        ).items():
            self._streams[partition] = Stream(start, READ_COMMITTED)
            self.positions[partition] = start
            self._restarts.discard(partition)

    def _want(self, partition: int) -> bool:
        """(Again) read a partition from where it stands; False while it has no leader."""
        info = self._cluster.topic(self._topic)
        part = info.partitions.get(partition)
        node = -1 if part is None or part.leader not in self._cluster.brokers else part.leader
        home = self._homes.pop(partition, None)
        key = (self._topic, partition)
        if home is not None and home != node:
            self._channels.session(home).forget(key)
        if part is None or node < 0:
            return False
        stream = self._streams[partition]
        self._homes[partition] = node
        self._channels.session(node).want(
            key,
            Wanted(
                info.topic_id,
                stream.next_offset,
                part.leader_epoch,
                stream.leader_epoch,
                _LIMITS.partition_max_bytes,
            ),
        )
        return True

    def _relocate(self) -> None:
        self._is_stale = True

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, node: int, answer: FetchAnswer) -> None:
        if answer.error:
            self._relocate()
        for fetched in answer.partitions:
            if self._homes.get(fetched.partition) == node:
                self._take(node, fetched)

    def _take(self, node: int, fetched: Fetched) -> None:
        if fetched.error or fetched.diverging is not None:
            self._refused(node, fetched)
            return
        partition = fetched.partition
        stream = self._streams[partition]
        before = stream.next_offset
        try:
            for piece in stream.feed(fetched):
                self._deliver(partition, piece)
        except CorruptBatch as error:
            skipped = stream.skip(fetched)
            if skipped is None:
                raise
            first, end = skipped
            log.error(
                "Topic %s-%d, offsets %d to %d: %s They are skipped.",
                self._topic,
                partition,
                first,
                end - 1,
                error,
            )
        if stream.next_offset != before:
            self.positions[partition] = stream.next_offset
            self._want(partition)

    def _deliver(self, partition: int, piece: Piece) -> None:
        try:
            if piece.opened is None:
                view = piece.view if piece.original is None else piece.original
                found = [(row.offset, row) for row in records.decode_internal(view)]
            else:  # it had to be opened to be cut
                found = piece.records_with_offsets()
        except CorruptBatch as error:
            log.error(
                "Topic %s-%d, offsets %d to %d: %s They are skipped.",
                self._topic,
                partition,
                piece.first_offset,
                piece.last_offset,
                error,
            )
            return
        for offset, record in found:
            self._on_record(partition, offset, record.key, record.value, record.timestamp)

    def _refused(self, node: int, fetched: Fetched) -> None:
        """A partition cannot be read: it moved, or its log is not the one that was read so far."""
        partition, code = fetched.partition, fetched.error or messages.OFFSET_OUT_OF_RANGE
        self._is_stale = True
        self._channels.mute(node, self._cluster.settings.retry_backoff)
        if code == messages.OFFSET_OUT_OF_RANGE:
            log.warning(
                "The log of %s-%d on %s was cut back, or its records are gone: reading it from its beginning.",
                self._topic,
                partition,
                self._cluster.settings,
            )
            self._restarts.add(partition)
            return
        error = messages.broker_error(
            code,
            f"Reading {self._topic}-{partition} on {self._cluster.settings}",
            access=needs("Read", "topic", self._topic, self._cluster.settings.security),
        )
        if not error.retriable:
            raise error
        self._tell(error)

    def _tell(self, error: KafkaError) -> None:
        """One line for all partitions that have just moved."""
        now = time.monotonic()
        level = logging.DEBUG if now - self._told_at < _WORDY_S else logging.WARNING
        if level == logging.WARNING:
            self._told_at = now
        log.log(level, "%s", error)
