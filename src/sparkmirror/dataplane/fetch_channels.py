"""Fetching from the brokers of one cluster: sessions that say what is wanted in, answers handed to whoever reads out.

One outstanding fetch per broker, in an incremental session. What to want, and what to do with what comes, is the reader's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from sparkmirror.errors import ConnectionFailed, KafkaError
from sparkmirror.kafka.api_versions import FETCH
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import LONGEST_FETCH, Connection
from sparkmirror.kafka.fetch import (
    FetchAnswer,
    FetchLimits,
    FetchSession,
    compares_epochs,
)
from sparkmirror.kafka.messages import error_name

from .poller import Poller, tell_once

log = logging.getLogger(__name__)
_REDIAL_S = 0.5


@dataclass(slots=True)
class _Channel:
    """One broker: its connection and session."""

    node: int
    session: FetchSession
    connection: Connection | None = None
    redial_at: float = 0.0
    told_at: float = 0.0


class FetchChannels:
    """Connections and sessions of one reader.

    Invariants: at most one fetch is outstanding per broker, and none is sent to one that nothing is wanted of; a session begins
    anew with each connection. `answered` and `lost` are called from the poller's loop.
    """

    def __init__(
        self,
        cluster: Cluster,
        poller: Poller,
        limits: FetchLimits,
        answered: Callable[[int, FetchAnswer], None],
        lost: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._poller = poller
        self._limits = limits
        self._answered = answered
        self._lost_node = lost
        self._channels: dict[int, _Channel] = {}
        self._versions: dict[int, int] = {}

    @property
    def compares_epochs(self) -> bool:
        """Whether Fetch carries the last fetched epoch to every broker dialed so far, so that each reports a diverging log."""
        versions = self._versions.values()
        return bool(versions) and all(map(compares_epochs, versions))

    def session(self, node: int) -> FetchSession:
        """What is wanted of a broker."""
        channel = self._channels.get(node)
        if channel is None:
            channel = self._channels[node] = _Channel(node, FetchSession(self._limits, FETCH.most))
        return channel.session

    @property
    def ready(self) -> int:
        """How many brokers a fetch could be sent to: something is wanted of them, and none is outstanding."""
        now = time.monotonic()
        return sum(
            len(channel.session) > 0
            and (
                channel.connection is None
                or (not channel.connection.in_flight and channel.connection.muted_until <= now)
            )
            for channel in self._channels.values()
        )

    def limit(self, max_bytes: int) -> None:
        """The most that each of the next answers may bring."""
        for channel in self._channels.values():
            channel.session.max_bytes = min(self._limits.max_bytes, max_bytes)

    def pump(self, room: Callable[[], bool] = lambda: True) -> None:
        """Send a fetch to every broker that has none outstanding and something to be read, as long as there is room."""
        for channel in list(self._channels.values()):
            connection = channel.connection
            if connection is not None and not connection.is_open:
                self._lost(channel, connection.failure)
                connection = None
            if len(channel.session) == 0 or not room():
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
                connection.submit([frame], correlation, None, LONGEST_FETCH)
            except KafkaError as error:
                self._lost(channel, error)

    def _dial(self, channel: _Channel) -> Connection | None:
        if channel.redial_at > time.monotonic():
            return None
        try:
            connection = self._cluster.dial(channel.node, FETCH)
        except KafkaError as error:
            self._lost(channel, error)
            return None
        channel.connection = connection
        version = self._versions[channel.node] = connection.version_of(FETCH)
        channel.session.begin(version)
        self._poller.watch(connection, lambda: self._receive(channel))
        return connection

    def _lost(self, channel: _Channel, error: KafkaError) -> None:
        channel.told_at = tell_once(log, channel.told_at, error)
        if channel.connection is not None:
            channel.connection.close()
        channel.connection = None
        channel.redial_at = time.monotonic() + _REDIAL_S
        channel.session.reset()
        self._lost_node(channel.node)

    def expire(self) -> None:
        """Give up connections whose fetch has waited too long."""
        timeout = self._cluster.settings.request_timeout
        now = time.monotonic()
        for channel in self._channels.values():
            connection = channel.connection
            if connection is None or connection.oldest_sent is None:
                continue
            if now - connection.oldest_sent > timeout:
                where = f"Broker {connection.host}:{connection.port} of {self._cluster.settings}"
                self._lost(
                    channel,
                    ConnectionFailed(f"{where} did not answer a read within {timeout:.0f} s."),
                )

    def _receive(self, channel: _Channel) -> None:
        connection = channel.connection
        if connection is None:
            return
        try:
            frames = connection.receive()
        except KafkaError as error:
            self._lost(channel, error)
            return
        for _, payload in frames:
            answer = channel.session.answer(payload)
            pause = min(answer.throttle_ms / 1000, self._cluster.settings.request_timeout)
            if answer.error:
                log.info(
                    "Fetch session with broker %d: %s.", channel.node, error_name(answer.error)
                )
                pause = max(pause, self._cluster.settings.retry_backoff)
            if pause > 0:
                connection.muted_until = time.monotonic() + pause
            self._answered(channel.node, answer)

    def mute(self, node: int, seconds: float) -> None:
        """Ask a broker nothing for a while."""
        connection = self._channels[node].connection
        if connection is not None:
            connection.muted_until = time.monotonic() + seconds

    def close(self) -> None:
        for channel in self._channels.values():
            if channel.connection is not None:
                channel.connection.close()
        self._channels.clear()
