"""A topic followed from its beginning on: a cluster and a topic's name in, each record, in the order of its partition, out.

One outstanding fetch per broker, in an incremental session. Only what is committed is given out: Java's workers may write in
transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from sparkmirror.dataplane.poller import Poller, tell_once
from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.errors import ConnectionFailed, CorruptBatch, KafkaError
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.fetch import (
    READ_COMMITTED,
    Fetched,
    FetchLimits,
    FetchSession,
    Wanted,
    fetch_version,
)

log = logging.getLogger(__name__)

OnRecord = Callable[[int, int, bytes | None, bytes | None, int], None]
"""Takes partition, offset, key, value and timestamp of a record."""

_LIMITS = FetchLimits(max_wait_ms=500, isolation=READ_COMMITTED)
_REDIAL_S = 0.2
_WORDY_S = 10.0


@dataclass(slots=True)
class _Channel:
    """One broker: its connection and session."""

    node: int
    session: FetchSession
    connection: Connection | None = None
    redial_at: float = 0.0
    told_at: float = 0.0


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
        self._channels: dict[int, _Channel] = {}
        self._homes: dict[int, int] = {}
        self._restarts: set[int] = set()
        self._topic_id: bytes | None = None
        self._is_stale = True
        self._refreshed_at = float("-inf")
        self._told_at = -_WORDY_S
        self.positions: dict[int, int] = {}

    def close(self) -> None:
        for channel in self._channels.values():
            if channel.connection is not None:
                channel.connection.close()
        self._channels.clear()
        self._poller.close()
        self._cluster.close()

    def step(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for records and deliver them. An error leaves everything fit for the next step."""
        if self._is_refresh_due():
            self._refreshed_at = time.monotonic()
            self._locate()
        self._expire()
        self._pump()
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
            self._channels[home].session.forget(key)
        if part is None or node < 0:
            return False
        stream = self._streams[partition]
        self._homes[partition] = node
        self._channel(node).session.want(
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

    def _channel(self, node: int) -> _Channel:
        channel = self._channels.get(node)
        if channel is None:
            # The version is settled when the broker is dialled; a session begins anew then.
            channel = self._channels[node] = _Channel(node, FetchSession(_LIMITS, 13))
        return channel

    # -- requests -----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send a fetch to every broker that leads a partition and has none outstanding."""
        for channel in list(self._channels.values()):
            connection = channel.connection
            if connection is not None and not connection.is_open:
                self._lost(channel, connection.failure)
                connection = None
            if len(channel.session) == 0:
                continue
            connection = connection or self._dial(channel)
            if connection is None or connection.in_flight:
                continue
            if connection.muted_until > time.monotonic():
                continue
            correlation = connection.next_correlation()
            frame = channel.session.request(correlation, self._cluster.settings.client_id)
            try:
                connection.submit([frame], correlation, None)
            except ConnectionFailed as error:
                self._lost(channel, error)

    def _dial(self, channel: _Channel) -> Connection | None:
        if channel.redial_at > time.monotonic():
            return None
        try:
            connection = self._cluster.dial(channel.node)
        except ConnectionFailed as error:
            self._lost(channel, error)
            return None
        channel.connection = connection
        channel.session.begin(fetch_version(connection.versions))
        self._poller.watch(connection, lambda: self._receive(channel))
        return connection

    def _lost(self, channel: _Channel, error: ConnectionFailed) -> None:
        channel.told_at = tell_once(log, channel.told_at, error)
        if channel.connection is not None:
            channel.connection.close()
        channel.connection = None
        channel.redial_at = time.monotonic() + _REDIAL_S
        channel.session.reset()
        self._is_stale = True

    def _expire(self) -> None:
        """Give up connections whose fetch has waited too long."""
        patience = self._cluster.settings.request_timeout
        now = time.monotonic()
        for channel in self._channels.values():
            connection = channel.connection
            if connection is None or connection.oldest_sent is None:
                continue
            if now - connection.oldest_sent > patience:
                where = f"Broker {connection.host}:{connection.port} of {self._cluster.settings}"
                self._lost(
                    channel,
                    ConnectionFailed(f"{where} did not answer a read within {patience:.0f} s."),
                )

    # -- answers ------------------------------------------------------------------------------

    def _receive(self, channel: _Channel) -> None:
        connection = channel.connection
        if connection is None:
            return
        try:
            frames = connection.receive()
        except ConnectionFailed as error:
            self._lost(channel, error)
            return
        for _, payload in frames:
            answer = channel.session.answer(payload)
            pause = answer.throttle_ms / 1000
            if answer.error:
                pause = max(pause, self._cluster.settings.retry_backoff)
                self._is_stale = True
            connection.muted_until = time.monotonic() + pause
            for fetched in answer.partitions:
                if self._homes.get(fetched.partition) == channel.node:
                    self._take(channel, fetched)

    def _take(self, channel: _Channel, fetched: Fetched) -> None:
        if fetched.error or fetched.diverging is not None:
            self._refused(channel, fetched)
            return
        partition = fetched.partition
        stream = self._streams[partition]
        before = stream.next_offset
        for piece in stream.feed(fetched):
            self._deliver(partition, piece)
        if stream.next_offset != before:
            self.positions[partition] = stream.next_offset
            self._want(partition)

    def _deliver(self, partition: int, piece: Piece) -> None:
        try:
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

    def _refused(self, channel: _Channel, fetched: Fetched) -> None:
        """A partition cannot be read: it moved, or its log is not the one that was read so far."""
        partition, code = fetched.partition, fetched.error or messages.OFFSET_OUT_OF_RANGE
        self._is_stale = True
        if channel.connection is not None:
            channel.connection.muted_until = time.monotonic() + self._cluster.settings.retry_backoff
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
            code, f"Reading {self._topic}-{partition} on {self._cluster.settings}"
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
