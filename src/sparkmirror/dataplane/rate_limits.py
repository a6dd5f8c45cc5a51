"""Rate limits of a copy task: bytes that were fetched in; how much may be fetched next, and which topics are held back, out.

A limit is a token bucket that is filled with this task's share of the cap. The flow's limit sets how much the next fetch may
bring. A topic that has used up its limit is held back: its partitions are left out of the fetch session until it has tokens
again, as a broker mutes a client that is over its quota. Tokens may go below zero, since a broker never cuts a batch: the debt is
waited out.
"""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from sparkmirror.kafka.fetch import Fetched, TopicPartition

from .plan import FLOW, RateLimit, TaskPlan

log = logging.getLogger(__name__)
_BURST_S = 0.5
"""Unused tokens of this time are kept. A fetch brings no more, so the cap is not reached where an answer takes longer."""
_LEAST_S = 0.1
"""A fetch waits for the tokens of this time, so that fetches do not become tiny."""
_CHUNK_S = 0.25
_LEAST_CHUNK, _USUAL_BATCH = 1 << 10, 32 << 10
_NEARLY_ALL = 0.5
"""A task that reads this part of its share may want more."""
_PERIOD_S = 0.5
_EXCHANGE_S = 0.5
_SHOWN_S = 2.0
_KEYS = {True: "mirror.rate.limit.bytes", False: "mirror.rate.limit.topic.bytes"}


class TokenBucket:
    """Bytes that may be read, `rate` more each second.

    Invariant: never more than what comes in half a second, or one. Begins with just enough for a first fetch.
    """

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = max(1.0, rate * _LEAST_S)
        self._at = now

    def tokens(self, now: float) -> float:
        if now > self._at:
            self._tokens = min(self._most, self._tokens + (now - self._at) * self.rate)
            self._at = now
        return self._tokens

    def take(self, count: int, now: float) -> None:
        self._tokens = self.tokens(now) - count

    def set_rate(self, rate: float, now: float) -> None:
        self._tokens = self.tokens(now)
        self.rate = rate
        self._tokens = min(self._tokens, self._most)

    @property
    def _most(self) -> float:
        return max(1.0, self.rate * _BURST_S)

    def has(self, seconds: float, now: float) -> bool:
        """Whether it holds the tokens of so many seconds, and at least one."""
        return self.tokens(now) >= max(1.0, self.rate * seconds)

    def wait(self, seconds: float, now: float) -> float:
        """For how long it will not hold the tokens of so many seconds."""
        if self.rate <= 0:
            return _PERIOD_S
        return max(0.0, (max(1.0, self.rate * seconds) - self.tokens(now)) / self.rate)


class LimitShare:
    """This task's share of one limit.

    Invariant: `_spread` is between 1 and the number of partitions that were read in a period. It is doubled after each period in
    which the share was used up, so that many partitions get some of it, and halved after others, so that few get enough.
    """

    __slots__ = (
        "_active",
        "_is_used_up",
        "_least_chunk",
        "_period_ends",
        "_spread",
        "bucket",
        "held_at",
        "is_starved",
        "limit",
        "used",
    )

    def __init__(self, limit: RateLimit, partitions: int, now: float) -> None:
        self.limit = limit
        self.bucket = TokenBucket(limit.bytes / limit.tasks, now)
        self.used = 0
        """Bytes since the driver was told last."""
        self.is_starved = False
        """Whether more would have been read since then."""
        self.held_at = -_SHOWN_S
        """When it held something back last."""
        # A fetch of the flow's is limited as a whole; of a topic, all partitions may come at once.
        fitting = (
            _USUAL_BATCH if limit.topic == FLOW else int(self.bucket.rate) // max(1, partitions)
        )
        self._least_chunk = max(_LEAST_CHUNK, min(_USUAL_BATCH, fitting))
        self._spread = max(1, partitions)
        self._active: set[TopicPartition] = set()
        self._is_used_up = False
        self._period_ends = now + _PERIOD_S

    def took(self, key: TopicPartition, count: int, now: float) -> None:
        self.bucket.take(count, now)
        self.used += count
        if now >= self._period_ends:
            self._begin_period(now)
        self._active.add(key)

    def _begin_period(self, now: float) -> None:
        most = max(1, len(self._active))
        wanted = self._spread * 2 if self._is_used_up else self._spread // 2
        self._spread = max(1, min(most, wanted))
        self._active.clear()
        self._is_used_up = False
        self._period_ends = now + _PERIOD_S

    def holds_back(self, now: float) -> None:
        self.is_starved = self._is_used_up = True
        self.held_at = now

    def chunk(self) -> int:
        """How much one partition may have of the next answer."""
        return max(self._least_chunk, int(self.bucket.rate * _CHUNK_S / self._spread))


class TaskLimits:
    """All limits that count for the partitions of a task.

    Invariants: `_held` has the partitions of each topic that is held back which would be read otherwise; each such topic is in
    `_releases`, perhaps more than once. Nothing here is done for partitions that nothing comes of.
    """

    def __init__(self, plan: TaskPlan, now: float) -> None:
        counts: dict[str, int] = {FLOW: len(plan.partitions)}
        for part in plan.partitions:
            counts[part.topic] = counts.get(part.topic, 0) + 1
        shares = {
            limit.topic: LimitShare(limit, counts.get(limit.topic, 1), now) for limit in plan.limits
        }
        self._shared = [share for share in shares.values() if share.limit.tasks > 1]
        self._shares = shares
        self._flow = shares.get(FLOW)
        self._topics = {topic: share for topic, share in shares.items() if topic != FLOW}
        self._held: dict[str, set[TopicPartition]] = {}
        self._releases: list[tuple[float, str]] = []
        self._label = f"Flow {plan.flow}, task {plan.index}"
        self._is_told = {True: False, False: False}

    # -- fetching -------------------------------------------------------------------------------

    def fetch_bytes(self, brokers: int, now: float) -> int | None:
        """How much each of so many brokers may be asked for now; None: as much as usual."""
        flow = self._flow
        if flow is None or brokers == 0:
            return None
        if flow.bucket.has(_LEAST_S, now):
            return max(1, int(flow.bucket.tokens(now)) // brokers)
        self._hold_back(flow, now)
        return 0

    def partition_bytes(self, topic: str, most: int) -> int:
        """How much of an answer a partition may take."""
        if self._flow is not None:
            most = min(most, self._flow.chunk())
        share = self._topics.get(topic)
        return most if share is None else min(most, share.chunk())

    def took(self, partitions: Iterable[Fetched], now: float) -> None:
        """These were fetched."""
        for fetched in partitions:
            count = len(fetched.records)
            if not count:
                continue
            key = (fetched.topic, fetched.partition)
            if self._flow is not None:
                self._flow.took(key, count, now)
            share = self._topics.get(fetched.topic)
            if share is not None:
                share.took(key, count, now)

    def holds(self, key: TopicPartition, now: float) -> bool:
        """Whether the partition's topic is held back; if so, it is among the next `released`."""
        topic = key[0]
        held = self._held.get(topic)
        if held is None:
            share = self._topics.get(topic)
            if share is None or share.bucket.tokens(now) > 0:
                return False
            held = self._held[topic] = set()
            self._release_later(share, now)
            self._hold_back(share, now)
        held.add(key)
        return True

    def released(self, now: float) -> list[TopicPartition]:
        """Partitions that may be read again."""
        found: list[TopicPartition] = []
        while self._releases and self._releases[0][0] <= now:
            _, topic = heapq.heappop(self._releases)
            share = self._topics[topic]
            if topic not in self._held:
                continue
            if share.bucket.has(_CHUNK_S, now):
                found += self._held.pop(topic)
            else:
                self._release_later(share, now)
                self._hold_back(share, now)
        return found

    def _release_later(self, share: LimitShare, now: float) -> None:
        # A moment more than it takes, since sums of floats may come out a little short.
        wait = share.bucket.wait(_CHUNK_S, now) + 0.001
        heapq.heappush(self._releases, (now + wait, share.limit.topic))

    def _hold_back(self, share: LimitShare, now: float) -> None:
        share.holds_back(now)
        is_flow = share.limit.topic == FLOW
        if not self._is_told[is_flow]:
            self._is_told[is_flow] = True
            log.info(
                "%s: %s holds back %s: this task may read %.0f of %d bytes/s. Lag may grow. Logged once for a job.",
                self._label,
                _KEYS[is_flow],
                "all topics" if is_flow else f"topic {share.limit.topic}",
                share.bucket.rate,
                share.limit.bytes,
            )

    def holding_back(self, topic: str, now: float) -> str:
        """The key of the limit that a topic was held back by in the last seconds; empty if there was none."""
        for share in (self._topics.get(topic), self._flow):
            if share is not None and now - share.held_at < _SHOWN_S:
                return _KEYS[share.limit.topic == FLOW]
        return ""

    # -- shares -----------------------------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether other tasks have shares of any of these limits."""
        return bool(self._shared)

    def usage(self, seconds: float) -> dict[str, tuple[float, bool]]:
        """Bytes per second of each shared limit since the last call, and whether more would have been read."""
        found: dict[str, tuple[float, bool]] = {}
        for share in self._shared:
            topic = share.limit.topic
            rate = share.used / max(seconds, 0.001)
            # On a long way the share may be used up by what is on it, and no fetch be held back.
            is_starved = share.is_starved or rate >= share.bucket.rate * _NEARLY_ALL
            if share.used or is_starved:
                found[topic] = (rate, is_starved)
            # What is held back for long is starved all the time.
            share.used, share.is_starved = 0, topic in self._held
        return found

    def set_shares(self, shares: Mapping[str, float], now: float) -> None:
        for topic, rate in shares.items():
            share = self._shares[topic]
            share.bucket.set_rate(rate, now)
            if topic in self._held:
                self._release_later(share, now)


class MessageLink(Protocol):
    """The task's end of the driver link. Never blocks."""

    def send(self, message: bytes) -> None: ...
    def received(self) -> list[bytes]: ...


class ShareExchange:
    """Tells the driver every half second what was read, and takes the shares that it answers with.

    Invariant: a message is sent only after the last one was answered, so it says that the answer is in force. While the driver is
    silent the last shares are.
    """

    def __init__(self, limits: TaskLimits, link: MessageLink, now: float) -> None:
        self._limits = limits
        self._link = link
        self._sent_at = now
        self._due_at = now
        self._is_answered = True

    def turn(self, now: float) -> None:
        for message in self._link.received():
            self._limits.set_shares(json.loads(message), now)
            self._is_answered = True
        if self._is_answered and now >= self._due_at:
            usage = self._limits.usage(now - self._sent_at)
            self._is_answered, self._sent_at, self._due_at = False, now, now + _EXCHANGE_S
            self._link.send(json.dumps(usage).encode())
