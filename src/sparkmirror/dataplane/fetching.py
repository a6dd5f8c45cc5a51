"""The source side of a copy task: partitions and their offsets in, fetched records handed to them.

One outstanding fetch per broker, in an incremental session; the next one leaves while the last is being produced, as long as
there is room for what it may bring.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster, PartitionInfo, TopicInfo
from sparkmirror.kafka.fetch import FetchAnswer, Fetched, Wanted

from .fetch_channels import FetchChannels
from .partition import PartitionCopy
from .plan import CopySettings
from .poller import Poller
from .rate_limits import TaskLimits

_FOLLOWER_S = 300.0


def _no_room() -> bool:
    return False


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
        limits: TaskLimits | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._room = room
        self._fetched = fetched
        self._limits = limits
        self._copies: dict[tuple[str, int], PartitionCopy] = {}
        self._channels = FetchChannels(cluster, poller, settings.fetch, self._answered, self._lost)
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
        info = self._cluster.topics.get(copy.key[0])
        part = info.partitions.get(copy.key[1]) if info is not None else None
        if info is None or part is None:  # deleted: when it is there again, it may be another
            return self._stop(copy, messages.UNKNOWN_TOPIC_OR_PARTITION)
        if copy.ready_bytes >= self._settings.partition_buffer_bytes:
            return self.forget(copy)
        code = self._hindrance(copy, info, part)
        if code:
            return self._stop(copy, code)
        most = self._settings.fetch.partition_max_bytes
        if self._limits is not None:
            if self._limits.holds(copy.key, time.monotonic()):
                return self.forget(copy)
            most = self._limits.partition_bytes(copy.key[0], most)
        node = self._reader_node(copy.key, part.leader)
        home = self._home.get(copy.key)
        if home is not None and home != node:
            self._channels.session(home).forget(copy.key)
        self._home[copy.key] = node
        epoch = part.leader_epoch if node == part.leader else -1
        self._channels.session(node).want(
            copy.key,
            Wanted(
                info.topic_id,
                copy.fetch_offset,
                epoch,
                copy.last_epoch,
                most,
            ),
        )
        return None

    def _hindrance(self, copy: PartitionCopy, info: TopicInfo, part: PartitionInfo) -> int:
        """The error for which this partition cannot be read from its leader now; NONE if it can."""
        if part.leader not in self._cluster.brokers:
            self.stale = True
            return messages.LEADER_NOT_AVAILABLE
        if not copy.is_source(info.topic_id):
            return messages.UNKNOWN_TOPIC_ID
        if copy.source_epoch != part.leader_epoch:
            if self.must_validate(copy):
                return messages.FENCED_LEADER_EPOCH
            copy.source_epoch = max(copy.source_epoch, part.leader_epoch)
        return messages.NONE

    def must_validate(self, copy: PartitionCopy) -> bool:
        """Whether the position must be resumed before it is read on: its leader epoch is another than when it was resumed.

        Brokers before Fetch 12 do not report that the log of the new leader diverges, so OffsetForLeaderEpoch must be asked. A
        lower epoch is one of a broker that is behind, or, where topics have no ids, of a topic that was created again.
        """
        info = self._cluster.topics.get(copy.key[0])
        part = info.partitions.get(copy.key[1]) if info is not None else None
        if info is None or part is None or min(copy.source_epoch, part.leader_epoch) < 0:
            return False
        if (
            part.leader not in self._cluster.brokers
        ):  # there is nobody to ask, and nobody to read from
            return False
        is_other = part.leader_epoch > copy.source_epoch or (
            part.leader_epoch < copy.source_epoch and info.topic_id == NO_TOPIC_ID
        )
        return is_other and not self._channels.compares_epochs

    def forget(self, copy: PartitionCopy) -> None:
        """Stop reading this partition for now."""
        home = self._home.pop(copy.key, None)
        if home is not None:
            self._channels.session(home).forget(copy.key)

    def is_wanted(self, copy: PartitionCopy) -> bool:
        return copy.key in self._home

    def _reader_node(self, key: tuple[str, int], leader: int) -> int:
        follower, until = self._followers.get(key, (-1, 0.0))
        if follower in self._cluster.brokers and time.monotonic() < until:
            return follower
        self._followers.pop(key, None)
        return leader

    def pump(self) -> None:
        """Send a fetch to every broker that has none outstanding and something to be read."""
        may_fetch = self._limits is None or self._limit_fetches(self._limits)
        self._channels.pump(self._room if may_fetch else _no_room)

    def _limit_fetches(self, limits: TaskLimits) -> bool:
        """Whether something may be fetched now; if so, the next fetches bring no more than may be."""
        now = time.monotonic()
        for key in limits.released(now):
            self.want(self._copies[key])
        allowed = limits.fetch_bytes(self._channels.ready, now)
        if allowed is not None:
            self._channels.limit(allowed)
        return allowed != 0

    def expire(self) -> None:
        """Give up connections whose fetch has waited too long."""
        self._channels.expire()

    def _lost(self, node: int) -> None:
        for key in [key for key, (follower, _) in self._followers.items() if follower == node]:
            del self._followers[key]
        self.stale = True

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, node: int, answer: FetchAnswer) -> None:
        if answer.error:
            self.stale = True
        if self._limits is not None:
            self._limits.took((*answer.partitions, *answer.outdated), time.monotonic())
        for fetched in answer.partitions:
            copy = self._copies.get((fetched.topic, fetched.partition))
            if copy is not None and self._home.get(copy.key) == node:
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
        self._stop(copy, code)

    def _stop(self, copy: PartitionCopy, code: int) -> None:
        copy.fetch_trouble = code
        self.forget(copy)
        self._fetched(copy)

    def close(self) -> None:
        self._channels.close()
