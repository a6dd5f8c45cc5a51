"""The target side of a copy task: partitions with something to send in, produce requests out, answers back to the owners.

Also carries the small writes of the task itself (positions, offset syncs, progress), to either cluster.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from sparkmirror.errors import ConnectionFailed, KafkaError
from sparkmirror.kafka import messages, produce
from sparkmirror.kafka.api_versions import PRODUCE
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.settings import ClientSettings

from .partition import PartitionCopy
from .poller import Poller, tell_once

log = logging.getLogger(__name__)
NETWORK_EXCEPTION = 13
_REDIAL_S = 0.5
_QUICK_S = 0.01


class Owner(Protocol):
    """Who wants to hear what became of a batch. Called from the copy loop, once per batch."""

    def result(self, sent: Any, code: int, base_offset: int, text: str | None) -> None: ...


class SideWrite(NamedTuple):
    """A small write beside the data."""

    topic: str
    partition: int
    batch: bytearray
    owner: Owner
    token: Any


@dataclass(slots=True)
class _Channel:
    """One broker: its connection and who waits to be sent."""

    node: int
    connection: Connection | None = None
    version: int = 0
    ready: dict[PartitionCopy, None] = field(default_factory=dict)
    side: deque[SideWrite] = field(default_factory=deque)
    redial_at: float = 0.0
    told_at: float = 0.0


_Context = tuple[int, dict[bytes, str], dict[tuple[str, int], tuple[Owner, Any]]]


class Sender:
    """Sends to one cluster.

    Invariants: at most `max_in_flight` requests a connection; of one partition at most one batch a request; batches of a
    partition leave in window order on one connection, and after trouble not before all answers are in.
    """

    def __init__(
        self, cluster: Cluster, poller: Poller, max_in_flight: int, max_bytes: int
    ) -> None:
        self._cluster = cluster
        self._poller = poller
        self._max_in_flight = max_in_flight
        self._max_bytes = max_bytes
        self._channels: dict[int, _Channel] = {}
        self._homes: dict[PartitionCopy, _Channel] = {}
        self.stale = False
        """Set when something was to be sent whose leader we do not know, or not any more."""

    @property
    def settings(self) -> ClientSettings:
        """Of the cluster that it sends to."""
        return self._cluster.settings

    def offer(self, copy: PartitionCopy) -> None:
        """This partition may have something to send."""
        channel = self._homes.get(copy)
        if channel is not None:
            channel.ready[copy] = None
            return
        info = self._cluster.topics.get(copy.plan.remote)
        part = info.partitions.get(copy.plan.at) if info is not None else None
        if part is None:
            self.stale = True
            copy.stalled(messages.UNKNOWN_TOPIC_OR_PARTITION, "it is not in the metadata")
        elif part.leader not in self._cluster.brokers:
            self.stale = True
            copy.stalled(messages.LEADER_NOT_AVAILABLE, "it has no leader")
        else:
            self._homes[copy] = channel = self._channel(part.leader)
            channel.ready[copy] = None

    def refreshed(self) -> None:
        """The metadata was read anew: leaders may be others now."""
        self.stale = False
        self._homes.clear()

    def write(self, side: SideWrite) -> bool:
        """Queue a small write; False if the partition has no leader known right now."""
        info = self._cluster.topics.get(side.topic)
        part = info.partitions.get(side.partition) if info is not None else None
        if part is None or part.leader not in self._cluster.brokers:
            self.stale = True
            return False
        self._channel(part.leader).side.append(side)
        return True

    def _channel(self, node: int) -> _Channel:
        channel = self._channels.get(node)
        if channel is None:
            channel = self._channels[node] = _Channel(node)
        return channel

    @property
    def in_flight(self) -> int:
        return sum(c.connection.in_flight for c in self._channels.values() if c.connection)

    def pump(self) -> None:
        """Send whatever may be sent now."""
        for channel in list(self._channels.values()):
            connection = channel.connection
            if connection is not None and not connection.is_open:
                self._lost(channel, connection.failure, connection.lost_contexts)
            while (channel.ready or channel.side) and self._send_one(channel):
                pass

    def _send_one(self, channel: _Channel) -> bool:
        connection = channel.connection
        if connection is not None and connection.in_flight >= self._most_in_flight(connection):
            return False
        if connection is None:
            connection = self._dial(channel)
            if connection is None:
                return False
        if connection.muted_until > time.monotonic():
            return False
        if connection.in_flight and connection.is_renewal_due:
            return False  # what is sent when all answers are in renews the login first
        batches, owners = self._gather(channel)
        if not batches:
            return False
        topics = {batch.topic_id: batch.topic for batch in batches}
        version = produce.version_for(channel.version, batches)
        correlation = connection.next_correlation()
        chunks = produce.request(
            version,
            correlation,
            self._cluster.settings.client_id,
            int(self._cluster.settings.request_timeout * 1000),
            batches,
        )
        try:
            connection.submit(chunks, correlation, (version, topics, owners))
        except KafkaError as error:
            self._lost(channel, error, connection.lost_contexts)
            return False
        return True

    def _most_in_flight(self, connection: Connection) -> int:
        """Where answers come quickly, two requests keep the broker busy, and each carries batches of more partitions."""
        return (
            min(2, self._max_in_flight) if connection.round_trip < _QUICK_S else self._max_in_flight
        )

    def _gather(
        self, channel: _Channel
    ) -> tuple[list[produce.Outgoing], dict[tuple[str, int], tuple[Owner, Any]]]:
        """One batch of each partition that has one, up to the size of a request; small writes first."""
        batches: list[produce.Outgoing] = []
        owners: dict[tuple[str, int], tuple[Owner, Any]] = {}
        if channel.side:
            self._gather_small(channel, batches, owners)
        size = 0
        for copy in list(channel.ready):
            if size >= self._max_bytes:
                break
            del channel.ready[copy]
            info = self._cluster.topics.get(copy.plan.remote)
            if info is None:
                self.stale = True
                copy.stalled(messages.UNKNOWN_TOPIC_OR_PARTITION, "it is not in the metadata")
                continue
            key = (info.name, copy.plan.at)
            if key in owners:  # transforms may send records of several partitions to one
                channel.ready[copy] = None
                continue
            if not copy.is_target(info.topic_id):
                copy.stalled(messages.UNKNOWN_TOPIC_ID, "it was created again")
                continue
            sent = copy.next_batch()
            if sent is None:
                continue  # it is offered again when an answer makes room
            if copy.has_work:
                channel.ready[copy] = None  # to the end: everybody gets a turn
            owners[key] = (copy, sent)
            batches.append(produce.Outgoing(info.name, info.topic_id, key[1], sent.buffer))
            size += len(sent.buffer)
        return batches, owners

    def _gather_small(
        self,
        channel: _Channel,
        batches: list[produce.Outgoing],
        owners: dict[tuple[str, int], tuple[Owner, Any]],
    ) -> None:
        held: list[SideWrite] = []
        while channel.side:
            side = channel.side.popleft()
            key = (side.topic, side.partition)
            info = self._cluster.topics.get(side.topic)
            if key in owners:
                held.append(side)
                continue
            if info is None:
                side.owner.result(side.token, messages.UNKNOWN_TOPIC_OR_PARTITION, -1, None)
                continue
            owners[key] = (side.owner, side.token)
            batches.append(produce.Outgoing(side.topic, info.topic_id, side.partition, side.batch))
        channel.side.extend(held)

    def _dial(self, channel: _Channel) -> Connection | None:
        if channel.redial_at > time.monotonic():
            return None
        try:
            connection = self._cluster.dial(channel.node, PRODUCE)
        except KafkaError as error:
            self._lost(channel, error, [])
            return None
        channel.connection = connection
        channel.version = connection.version_of(PRODUCE)
        self._poller.watch(connection, lambda: self._receive(channel))
        return connection

    def _receive(self, channel: _Channel) -> None:
        connection = channel.connection
        if connection is None:
            return
        try:
            frames = connection.receive()
        except KafkaError as error:
            self._lost(channel, error, connection.lost_contexts)
            return
        for (version, topics, owners), payload in frames:
            answer = produce.answer(version, payload, topics)
            if answer.throttle_ms > 0:
                pause = min(answer.throttle_ms / 1000, self._cluster.settings.request_timeout)
                connection.muted_until = time.monotonic() + pause
            for result in answer.partitions:
                if result.error:
                    self.stale |= messages.is_stale_metadata(result.error)
                owner, token = owners.pop((result.topic, result.partition))
                owner.result(token, result.error, result.base_offset, result.message)

    def expire(self) -> None:
        """Give up connections whose oldest request has waited too long, and tell owners of a node that cannot be dialled."""
        timeout = self._cluster.settings.request_timeout
        now = time.monotonic()
        for channel in self._channels.values():
            connection = channel.connection
            if connection is None or connection.oldest_sent is None:
                continue
            if now - connection.oldest_sent > timeout:
                contexts = connection.abandon()
                error = ConnectionFailed(
                    f"Broker {connection.host}:{connection.port} of {self._cluster.settings} did not answer a write within "
                    f"{timeout:.0f} s."
                )
                self._lost(channel, error, contexts)

    def _lost(self, channel: _Channel, error: KafkaError, contexts: list[_Context]) -> None:
        """The broker is gone: owners of what was in flight hear of a network error; the rest is offered anew later."""
        channel.told_at = tell_once(log, channel.told_at, error)
        if channel.connection is not None:
            channel.connection.close()
        channel.connection = None
        channel.redial_at = time.monotonic() + _REDIAL_S
        self.stale = True
        for _, _, owners in contexts:
            for owner, token in owners.values():
                owner.result(token, NETWORK_EXCEPTION, -1, None)
        for side in channel.side:
            side.owner.result(side.token, NETWORK_EXCEPTION, -1, None)
        channel.side.clear()
        waiting = list(channel.ready)
        channel.ready.clear()
        for copy in waiting:
            copy.stalled(NETWORK_EXCEPTION, str(error))

    def close(self) -> None:
        for channel in self._channels.values():
            if channel.connection is not None:
                channel.connection.close()
        self._channels.clear()
