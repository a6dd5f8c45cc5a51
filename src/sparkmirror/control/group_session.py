"""A worker's place in its group: what the coordinator answers comes in, where the worker stands goes out.

Two threads share it: the herder's joins and syncs, another one sends heartbeats (`group_heartbeats`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sparkmirror.errors import ConfigError, KafkaError
from sparkmirror.formats.membership import Subprotocol
from sparkmirror.kafka.cluster import Broker
from sparkmirror.kafka.coordination import Member

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a worker takes part, from the worker's properties of nearly the same names; times in seconds."""

    url: str
    """Where other workers reach this one: the advertised URL."""
    session_timeout: float = 10.0
    rebalance_timeout: float = 60.0
    heartbeat_interval: float = 3.0
    scheduled_rebalance_max_delay: float = 300.0
    protocol: str = "sessioned"
    retry_backoff: float = 0.1

    @property
    def subprotocol(self) -> Subprotocol:
        try:
            return Subprotocol[self.protocol.upper()]
        except KeyError:
            raise ConfigError(
                f"connect.protocol={self.protocol} is not known.",
                "Use eager, compatible or sessioned.",
            ) from None


class Phase(Enum):
    OUT = "not in the group"
    JOINING = "waiting for the other members"
    SYNCING = "waiting for its assignment"
    STABLE = "in the group"

    @property
    def has_generation(self) -> bool:
        return self in (Phase.SYNCING, Phase.STABLE)


class GroupSession:
    """Where one worker stands, for both threads.

    Invariants: all fields are read and written under the lock; without a generation the phase is OUT or JOINING; an answer
    to what was asked as somebody else (another generation or id) changes nothing; `on_change` is called without the lock.
    """

    def __init__(self, group: str, where: str, on_change: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._where = where
        self._on_change = on_change
        self._member = Member(group)
        self._phase = Phase.OUT
        self._coordinator: Broker | None = None
        self._lost_since: float | None = None
        self._reason = "first join"
        self._must_join = True
        self._must_join_again = False
        self._failure: KafkaError | None = None
        self._heard = time.monotonic()
        self._polled = time.monotonic()

    # -- where we stand -------------------------------------------------------------------------------

    @property
    def member(self) -> Member:
        with self._lock:
            return self._member

    @property
    def stable_member(self) -> Member | None:
        """Who we are, if nothing is being shared out."""
        with self._lock:
            return self._member if self._phase is Phase.STABLE else None

    @property
    def phase(self) -> Phase:
        with self._lock:
            return self._phase

    @property
    def coordinator(self) -> Broker | None:
        with self._lock:
            return self._coordinator

    @property
    def join_reason(self) -> str | None:
        """Why the worker has to join (again); None if it need not."""
        with self._lock:
            return self._reason if self._must_join else None

    def is_over(self, timeout: float) -> bool:
        """Whether the coordinator is lost and has not taken us for a member for so long that it has thrown us out."""
        with self._lock:
            return self._lost_since is not None and time.monotonic() - self._heard > timeout

    def absence(self) -> float:
        """Seconds since the herder last came by."""
        with self._lock:
            return time.monotonic() - self._polled

    # -- what the herder's thread does ------------------------------------------------------------------

    def come_by(self) -> None:
        """The herder is alive. Raises what the heartbeat thread could not go on with, once."""
        with self._lock:
            self._polled = time.monotonic()
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def start_joining(self) -> Member:
        with self._lock:
            self._phase = Phase.JOINING
            self._must_join_again = False
            return self._member

    def joined(self, member: Member) -> None:
        """The coordinator has made a generation with us in it."""
        with self._lock:
            self._phase = Phase.SYNCING
            self._member = member
            self._polled = time.monotonic()
        self.hear()

    def synced(self, member: Member) -> bool:
        """Our assignment has come; False if we have been thrown out since it was asked for."""
        with self._lock:
            if self._member != member or self._phase is not Phase.SYNCING:
                return False
            self._phase = Phase.STABLE
            self._must_join = self._must_join_again
        self.hear()
        return True

    # -- what either thread finds out -------------------------------------------------------------------

    def hear(self) -> None:
        """The coordinator takes us for a member."""
        with self._lock:
            self._heard = now = time.monotonic()
            since, self._lost_since = self._lost_since, None
        if since is not None:
            log.info("The coordinator of %s answers again, after %.1f s.", self._where, now - since)

    def linger(self) -> None:
        """A join is under way and its connection holds: the coordinator keeps our place without heartbeats."""
        with self._lock:
            self._heard = time.monotonic()

    def ask_to_join(self, reason: str) -> None:
        """Join (again). While a join is under way this asks for another: what we said of ourselves in that one is old."""
        with self._lock:
            self._must_join, self._reason = True, reason
            self._must_join_again = True
        self._on_change()

    def rebalance_seen(self, member: Member) -> None:
        """The others are joining: so must we, unless we are at it already."""
        self.hear()
        with self._lock:
            is_news = self._member == member and self._phase is Phase.STABLE
            if is_news and not self._must_join:
                self._must_join, self._reason = True, "group is already rebalancing"
        if is_news:
            self._on_change()

    def thrown_out(self, member: Member, reason: str, *, keeps_id: bool = False) -> None:
        """The coordinator does not know us as this member (any more)."""
        with self._lock:
            if self._member != member:
                return
            self._member = Member(member.group, member.id if keeps_id else "")
            self._phase = Phase.OUT
            self._must_join, self._reason = True, reason
        self._on_change()

    def given_id(self, member_id: str) -> None:
        with self._lock:
            self._member = Member(self._member.group, member_id)

    def leaving(self, reason: str) -> tuple[Broker, Member] | None:
        """Forget our place; whom to tell, and as whom, if there is anybody to tell."""
        with self._lock:
            coordinator, member = self._coordinator, self._member
            is_in = self._phase is not Phase.OUT and bool(member.id)
            self._member = Member(member.group)
            self._phase = Phase.OUT
            self._must_join, self._reason = True, reason
        return (coordinator, member) if coordinator is not None and is_in else None

    def found(self, coordinator: Broker) -> None:
        with self._lock:
            if self._coordinator is not None:
                return
            self._coordinator = coordinator
        at = f"{coordinator.host}:{coordinator.port}"
        log.debug("The coordinator of %s is broker %s (%s).", self._where, coordinator.node, at)
        self._on_change()

    def lost(self, coordinator: Broker | None, cause: str) -> None:
        """The coordinator cannot be reached, is another one, or (None) cannot be found; told once an outage."""
        with self._lock:
            if self._coordinator != coordinator:
                return
            self._coordinator = None
            is_news = self._lost_since is None
            if is_news:
                self._lost_since = time.monotonic()
        if is_news:
            log.warning(
                "The coordinator of %s is out of reach, looking for it: %s", self._where, cause
            )
        self._on_change()

    def fail(self, failure: KafkaError) -> None:
        """The heartbeat thread cannot go on; the herder is told at its next poll."""
        with self._lock:
            self._failure = failure
        self._on_change()
