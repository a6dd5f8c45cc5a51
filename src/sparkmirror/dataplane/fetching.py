"""The source side of a copy task: partitions and their offsets in, fetched records handed to them.

One outstanding fetch per broker, in an incremental session; the next one leaves while the last is being produced, as long as
there is room for what it may bring.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from sparkmirror.errors import ConnectionFailed
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.fetch import Fetched, FetchSession, Wanted, fetch_version
from sparkmirror.kafka.messages import error_name

from .partition import PartitionCopy
from .plan import CopySettings
from .poller import Poller, tell_once

log = logging.getLogger(__name__)
_REDIAL_S = 0.5
_FOLLOWER_S = 300.0


@dataclass(slots=True)
class _Channel:
    """One broker: its connection and session."""

    node: int
    session: FetchSession
    connection: Connection | None = None
    redial_at: float = 0.0
    told_at: float = 0.0
    version: int = 0


class Fetcher:
    """Reads from one cluster.

    Invariants: an active partition is wanted in the session of exactly one broker (its leader, or the follower that the leader
    recommended), unless it has enough waiting or is in trouble; `_home` says which.
    """

    def __init__(
        self,
        cluster: Cluster,
        poller: Poller,
        settings: CopySettings,
        room: Callable[[], bool],
        fetched: Callable[[PartitionCopy], None],
    ) -> None:
        self._cluster = cluster
        self._poller = poller
        self._settings = settings
        self._room = room
        self._fetched = fetched
        self._copies: dict[tuple[str, int], PartitionCopy] = {}
        self._channels: dict[int, _Channel] = {}
        self._home: dict[tuple[str, int], int] = {}
        self._followers: dict[tuple[str, int], tuple[int, float]] = {}
        self.stale = False
        """Set when an answer says that the metadata is out of date."""

    def refreshed(self) -> None:
        """The metadata was read anew."""
        self.stale = False

    # -- which partitions ---------------------------------------------------------------------

    def want(self, copy: PartitionCopy) -> None:
        """(Again) read this partition from its offset on, if it may take more."""
        self._copies[copy.key] = copy
        if not copy.active or copy.fetch_trouble:
            return self.forget(copy)
        if copy.ready_bytes >= self._settings.partition_buffer_bytes:
            return self.forget(copy)
        info = self._cluster.topics.get(copy.key[0])
        part = info.partitions.get(copy.key[1]) if info is not None else None
        if info is None or part is None or part.leader not in self._cluster.brokers:
            self.stale = True
            return self.forget(copy)
        if not copy.is_source(info.topic_id):
            copy.fetch_trouble = messages.UNKNOWN_TOPIC_ID
            self.forget(copy)
            return self._fetched(copy)
        node = self._reader_node(copy.key, part.leader)
        home = self._home.get(copy.key)
        if home is not None and home != node:
            self._channels[home].session.forget(copy.key)
        self._home[copy.key] = node
        epoch = part.leader_epoch if node == part.leader else -1
        self._channel(node).session.want(
            copy.key,
            Wanted(
                info.topic_id,
                copy.fetch_offset,
                epoch,
                copy.last_epoch,
                self._settings.fetch.partition_max_bytes,
            ),
        )
        return None

    def forget(self, copy: PartitionCopy) -> None:
        """Stop reading this partition for now."""
        home = self._home.pop(copy.key, None)
        if home is not None:
            self._channels[home].session.forget(copy.key)

    def is_wanted(self, copy: PartitionCopy) -> bool:
        return copy.key in self._home

    def _reader_node(self, key: tuple[str, int], leader: int) -> int:
        follower, until = self._followers.get(key, (-1, 0.0))
        if follower in self._cluster.brokers and time.monotonic() < until:
            return follower
        self._followers.pop(key, None)
        return leader

    def _channel(self, node: int) -> _Channel:
        channel = self._channels.get(node)
        if channel is None:
            # The version is settled when the broker is dialled; a session begins anew then.
            channel = _Channel(node, FetchSession(self._settings.fetch, 13))
            self._channels[node] = channel
        return channel

    # -- requests -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Send a fetch to every broker that has none outstanding and something to be read."""
        for channel in list(self._channels.values()):
            connection = channel.connection
            if connection is not None and not connection.is_open:
                self._lost(channel, connection.failure)
                connection = None
            if len(channel.session) == 0 or not self._room():
                continue
            if connection is None:
                connection = self._dial(channel)
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
        for key in [key for key, (node, _) in self._followers.items() if node == channel.node]:
            del self._followers[key]
        self.stale = True

    def expire(self) -> None:
        """Give up connections whose fetch has waited too long."""
        timeout = self._cluster.settings.request_timeout
        now = time.monotonic()
        for channel in self._channels.values():
            connection = channel.connection
            if connection is None or connection.oldest_sent is None:
                continue
            if now - connection.oldest_sent > timeout:
                connection.close()
                self._lost(
                    channel,
                    ConnectionFailed(
                        f"Broker {connection.host}:{connection.port} of {self._cluster.settings} did not answer a read within "
                        f"{timeout:.0f} s."
                    ),
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
                log.info(
                    "Fetch session with broker %d: %s.", channel.node, error_name(answer.error)
                )
                pause = max(pause, self._cluster.settings.retry_backoff)
                self.stale = True
            if pause > 0:
                connection.muted_until = time.monotonic() + pause
            for fetched in answer.partitions:
                copy = self._copies.get((fetched.topic, fetched.partition))
                if copy is not None and self._home.get(copy.key) == channel.node:
                    self._take(copy, fetched)
        self.pump()

    def _take(self, copy: PartitionCopy, fetched: Fetched) -> None:
        if fetched.error or fetched.diverging is not None:
            self._refused(copy, fetched)
            return
        if fetched.preferred_replica >= 0:
            until = time.monotonic() + min(_FOLLOWER_S, self._cluster.settings.metadata_max_age)
            self._followers[copy.key] = (fetched.preferred_replica, until)
            self.stale |= fetched.preferred_replica not in self._cluster.brokers
            self.want(copy)
            return
        before = copy.fetch_offset
        copy.feed(fetched)
        if copy.fetch_offset != before or copy.ready_bytes:
            self.want(copy)
        self._fetched(copy)

    def _refused(self, copy: PartitionCopy, fetched: Fetched) -> None:
        code = fetched.error or messages.OFFSET_OUT_OF_RANGE  # a diverging log is one cut back
        follower = self._followers.pop(copy.key, None)
        if follower is not None:  # ask the leader before believing a follower
            self.want(copy)
            return
        if messages.is_stale_metadata(code):
            self.stale = True
        copy.fetch_trouble = code
        self.forget(copy)
        self._fetched(copy)

    def close(self) -> None:
        for channel in self._channels.values():
            if channel.connection is not None:
                channel.connection.close()
        self._channels.clear()
