"""A worker in its group: polls come in, revocations and assignments go out to the herder.

Membership is Kafka's group protocol of type `connect`, so that Java workers and ours can share one group. One of the workers
leads: it works out who runs what (`assignor`) and is the one that writes configs.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.formats.membership import (
    PROTOCOL_TYPE,
    MalformedMembership,
    Subprotocol,
    WorkerAssignment,
    WorkerMetadata,
    decode_assignment,
    encode_metadata,
)
from sparkmirror.kafka import messages
from sparkmirror.kafka.coordination import (
    NO_GENERATION,
    CoordinatorLink,
    Member,
    PendingCall,
    join_request,
    sync_request,
)
from sparkmirror.kafka.settings import ClientSettings

from .assignor import Item
from .group_assignment import (
    NO_WORK,
    GroupAssignment,
    RebalanceListener,
    as_assignment,
    for_wire,
    merged,
)
from .group_heartbeats import COORDINATOR_MOVED, Heartbeats, tell_leaving
from .group_session import GroupSession, GroupSettings
from .leadership import Leadership
from .states import Assignment, ClusterConfig

__all__ = ["GroupAssignment", "GroupSettings", "RebalanceListener", "WorkerGroup"]

log = logging.getLogger(__name__)
_TOLD_AGAIN = 10  # tries
_JOIN_LAPSE = 5.0
_CLOSE_S = 5.0
_REMEDIES = {
    messages.INCONSISTENT_GROUP_PROTOCOL: "Another kind of client uses this group: set another group.id.",
    messages.INVALID_SESSION_TIMEOUT: "Set session.timeout.ms between the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms.",
    messages.GROUP_MAX_SIZE_REACHED: "Raise group.max.size on the brokers, or run fewer workers.",
}


class _Turn(Enum):
    AGAIN = "there is more to do at once"
    WAIT = "nothing to do until something comes"
    DONE = "a rebalance is over"


class WorkerGroup:
    """One worker's membership.

    Invariants: the listener hears of a revocation before the work is counted as given back, and of nothing after `close`;
    work is kept through rebalances and broker outages until it is revoked by the leader, or until the coordinator has
    been out of reach for longer than the session lasts. `poll`, `leave` and `close` belong to the herder's thread, the rest
    to any.

    The group joins again by itself after a revocation (so that others get the work), when a scheduled delay is over,
    and after a failed assignment.
    """

    def __init__(
        self,
        client: ClientSettings,
        group: str,
        settings: GroupSettings,
        snapshot: Callable[[], ClusterConfig],
        listener: RebalanceListener,
    ) -> None:
        # A request that is not answered within the session is of no use to it.
        client = replace(
            client,
            request_timeout=min(client.request_timeout, settings.session_timeout),
            connect_timeout=min(client.connect_timeout, settings.session_timeout),
        )
        self._group = group
        self._settings = settings
        self._offered = settings.subprotocol.offered
        self._snapshot = snapshot
        self._listener = listener
        self._wakeup_in, self._wakeup_out = socket.socketpair()
        for end in (self._wakeup_in, self._wakeup_out):
            end.setblocking(False)
        self._woken = threading.Event()
        self._closed = False
        where = f"group {group} on {client}"
        self._session = GroupSession(group, where, self._nudge)
        self._link = CoordinatorLink(client, group)
        self._heartbeats = Heartbeats(self._session, CoordinatorLink(client, group), settings)
        max_delay_ms = int(settings.scheduled_rebalance_max_delay * 1000)
        self._leadership = Leadership(snapshot, max_delay_ms)
        self._pending: PendingCall | None = None
        self._on_answer: Callable[[Any], _Turn] = self._on_joined
        self._retry_at = 0.0
        self._rejoin_at: float | None = None
        self._is_prepared = False
        self._config = ClusterConfig()
        self._protocol = settings.subprotocol
        self._assignment: GroupAssignment | None = None
        self._unassigned = 0
        """How often in a row an assignment could not be read."""
        self._last_generation = NO_GENERATION

    # -- what the herder asks -------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._session.member.id

    @property
    def generation(self) -> int:
        """The generation of the last assignment; -1 before the first."""
        return self._last_generation

    @property
    def protocol_version(self) -> int:
        """2 if all workers are sessioned: only then are internal requests signed."""
        return self._protocol.version

    @property
    def is_leader(self) -> bool:
        assignment, member = self._assignment, self._session.stable_member
        return assignment is not None and member is not None and assignment.leader == member.id

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being shared out, nor about to be."""
        session = self._session
        return session.stable_member is not None and session.join_reason is None

    @property
    def leader_url(self) -> str | None:
        assignment = self._assignment
        return None if assignment is None else assignment.leader_url

    @property
    def owned(self) -> Assignment:
        assignment = self._assignment
        return NO_WORK if assignment is None else assignment.assigned

    def owner_url(self, item: Item) -> str | None:
        """Where a connector or a task runs; only the leader knows, and only while nothing is being shared out."""
        if self._session.join_reason is not None or not self.is_leader:
            return None
        return self._leadership.owner_url(item)

    def wakeup(self) -> None:
        """Let the poll that is under way, or else the next one, return at once."""
        self._woken.set()
        self._nudge()

    def request_rejoin(self, reason: str) -> None:
        """Have the work shared out anew, e.g. because connectors were added."""
        self._session.ask_to_join(reason)

    def leave(self, reason: str) -> None:
        """Leave the group at once; the next poll joins it again. Work is kept until then."""
        self._hang_up()
        tell_leaving(self._session, self._link, reason)

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Leave the group for good. Nothing is revoked: stop all work before, or whoever gets it finds it running.

        A coordinator that does not answer within `timeout` seconds will notice by itself that we are gone.
        """
        if self._closed:
            return
        self._closed = True
        leaving = threading.Thread(target=self._leave_for_good, name="leaving", daemon=True)
        leaving.start()
        leaving.join(timeout)
        self._wakeup_in.close()
        self._wakeup_out.close()

    def _leave_for_good(self) -> None:
        self._heartbeats.close()
        self.leave("worker is being closed")
        self._link.close()

    def poll(self, timeout: float) -> None:
        """Take part in the group for `timeout` seconds; less after a wake-up, or when an assignment has come."""
        deadline = time.monotonic() + timeout
        while not self._closed:
            self._session.come_by()
            turn = self._take_turn()
            if turn is _Turn.DONE or self._woken.is_set():
                self._woken.clear()
                return
            if turn is _Turn.WAIT:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._wait(left)

    # -- turns ----------------------------------------------------------------------------------------

    def _take_turn(self) -> _Turn:
        """Do what can be done without waiting."""
        if self._assignment is not None and self._session.is_over(self._settings.session_timeout):
            self._revoke_all("the coordinator has been lost for longer than session.timeout.ms")
        if self._session.coordinator is None:
            return self._look_for_coordinator()
        if self._pending is not None:
            return self._look_for_answer(self._pending)
        now = time.monotonic()
        if self._rejoin_at is not None and now >= self._rejoin_at:
            self._rejoin_at = None
            self._session.ask_to_join("scheduled rebalance delay has passed")
        if self._session.join_reason is not None and now >= self._retry_at:
            return self._join(self._session.join_reason)
        return _Turn.WAIT

    def _look_for_coordinator(self) -> _Turn:
        self._hang_up()
        if time.monotonic() < self._retry_at:
            return _Turn.WAIT
        try:
            self._session.found(self._link.find())
        except KafkaError as error:
            return self._cope(error)
        return _Turn.AGAIN

    def _look_for_answer(self, pending: PendingCall) -> _Turn:
        try:
            answer = pending.answer()
        except KafkaError as error:
            self._pending = None
            return self._cope(error)
        if answer is None:
            self._session.linger()
            return _Turn.WAIT
        self._pending = None
        return self._on_answer(answer)

    def _begin(self, request: Any, patience: float, on_answer: Callable[[Any], _Turn]) -> _Turn:
        coordinator = self._session.coordinator
        if coordinator is None:
            return _Turn.AGAIN
        try:
            self._pending = self._link.begin(coordinator, request, patience)
        except KafkaError as error:
            return self._cope(error)
        self._on_answer = on_answer
        return _Turn.WAIT

    def _cope(self, error: KafkaError) -> _Turn:
        """Go on after what may pass; raise what does not."""
        if isinstance(error, BrokerError) and not error.retriable:
            raise error
        self._session.lost(self._session.coordinator, error.message)
        return self._pause()

    def _pause(self) -> _Turn:
        self._retry_at = time.monotonic() + self._settings.retry_backoff
        return _Turn.WAIT

    def _wait(self, left: float) -> None:
        """Until something comes, something is due, or it is time to show the heartbeat thread that we are alive."""
        now = time.monotonic()
        times = [now + left, now + self._settings.heartbeat_interval]
        times += [at for at in (self._retry_at, self._rejoin_at) if at is not None and at > now]
        poll = select.poll()
        poll.register(self._wakeup_in, select.POLLIN)
        if self._pending is not None and self._pending.connection.is_open:
            is_sending = self._pending.connection.wants_write
            events = select.POLLIN | (select.POLLOUT if is_sending else 0)
            poll.register(self._pending.connection.fileno(), events)
        poll.poll(max(1, int((min(times) - now) * 1000) + 1))
        with contextlib.suppress(BlockingIOError):
            self._wakeup_in.recv(4096)

    def _nudge(self) -> None:
        """Let the herder's thread look again, without ending its poll."""
        with contextlib.suppress(OSError):  # full: it looks anyway; closed: nobody looks any more
            self._wakeup_out.send(b"\0")

    def _hang_up(self) -> None:
        if self._pending is not None:
            self._pending = None
            self._link.hang_up()

    # -- joining ------------------------------------------------------------------------------------------

    def _join(self, reason: str) -> _Turn:
        if not self._is_prepared:
            self._is_prepared = True
            self._prepare(reason)
        self._config = self._snapshot()
        metadata = WorkerMetadata(
            self._settings.url, self._config.offset, for_wire(self._assignment)
        )
        offers = [(str(offer), encode_metadata(metadata, offer)) for offer in self._offered]
        settings = self._settings
        request = join_request(
            self._session.start_joining(),
            PROTOCOL_TYPE,
            offers,
            settings.session_timeout,
            settings.rebalance_timeout,
            reason,
        )
        # The answer comes when all members have joined, or the time they have for it is over.
        return self._begin(request, settings.rebalance_timeout + _JOIN_LAPSE, self._on_joined)

    def _prepare(self, reason: str) -> None:
        log.info("Joining group %s: %s.", self._group, reason)
        self._leadership.forget()
        assignment = self._assignment
        if self._protocol is Subprotocol.EAGER and assignment is not None and not assignment.failed:
            self._give_back(assignment.leader, assignment.assigned)
            self._assignment = replace(assignment, assigned=NO_WORK)

    def _on_joined(self, answer: Any) -> _Turn:
        code = answer.error_code
        if code == messages.NONE:
            member = Member(self._group, answer.member_id, answer.generation_id)
            self._session.joined(member)
            self._heartbeats.start()
            return self._sync(answer, member, Subprotocol(answer.protocol_name))
        if code == messages.MEMBER_ID_REQUIRED:
            self._session.given_id(answer.member_id)
            return _Turn.AGAIN
        return self._on_refused("Joining", code, self._session.member)

    def _sync(self, joined: Any, me: Member, protocol: Subprotocol) -> _Turn:
        """Ask for our assignment; as leader, bring everybody's."""
        shares: dict[str, bytes] = {}
        if joined.leader == me.id:
            shares = self._leadership.share_out(
                {member.member_id: bytes(member.metadata) for member in joined.members},
                me,
                protocol,
                self._config,
                self._last_generation,
                int(time.monotonic() * 1000),
            )

        def on_answer(answer: Any) -> _Turn:
            return self._on_synced(answer, me, protocol)

        request = sync_request(me, PROTOCOL_TYPE, protocol, shares)
        return self._begin(request, self._settings.rebalance_timeout, on_answer)

    def _on_refused(self, what: str, code: int, member: Member) -> _Turn:
        """Begin again where that helps; raise where it does not."""
        name = messages.error_name(code)
        if code in (messages.UNKNOWN_MEMBER_ID, messages.ILLEGAL_GENERATION):
            keeps_id = code == messages.ILLEGAL_GENERATION
            self._session.thrown_out(member, f"{what} was answered with {name}", keeps_id=keeps_id)
            return _Turn.AGAIN
        if code == messages.REBALANCE_IN_PROGRESS:
            return _Turn.AGAIN
        if code in COORDINATOR_MOVED:
            self._session.lost(self._session.coordinator, f"it answers {name}.")
            return self._pause()
        if messages.is_retriable(code):
            return self._pause()
        self._pause()
        raise messages.broker_error(
            code, f"{what} group {self._group}", None, _REMEDIES.get(code, ""), self._link.access
        )

    # -- being assigned ---------------------------------------------------------------------------------

    def _on_synced(self, answer: Any, member: Member, protocol: Subprotocol) -> _Turn:
        if answer.error_code != messages.NONE:
            return self._on_refused("Syncing with", answer.error_code, member)
        try:
            given = decode_assignment(bytes(answer.assignment))
        except MalformedMembership as error:
            return self._on_unassigned(member, error)
        self._unassigned = 0
        if not self._session.synced(member):
            return _Turn.AGAIN
        try:
            self._take_on(given, member, protocol)
        except BaseException:
            # Whatever the listener has not done is to be shared out again.
            self._session.ask_to_join("the last assignment was not taken on")
            raise
        return _Turn.DONE

    def _on_unassigned(self, member: Member, error: MalformedMembership) -> _Turn:
        """Join again after a while: the leader that should have shared out the work may be gone."""
        self._unassigned += 1
        log.log(
            logging.WARNING if self._unassigned in (1, _TOLD_AGAIN) else logging.DEBUG,
            "Group %s gave this worker no assignment that can be read (%s): the group's leader may be gone. Joining again "
            "(try %d).",
            self._group,
            error.message,
            self._unassigned,
        )
        self._session.thrown_out(member, "its assignment cannot be read", keeps_id=True)
        return self._pause()

    def _take_on(self, given: WorkerAssignment, member: Member, protocol: Subprotocol) -> None:
        revoked = as_assignment(given.revoked)
        assigned = as_assignment(given.assigned)
        if protocol is Subprotocol.EAGER:
            # All has been given back by now, unless the group was incremental until this round.
            self._give_back(given.leader, merged(NO_WORK, self.owned, assigned))
        else:
            self._give_back(given.leader, revoked)
            assigned = merged(assigned, self.owned, revoked)
        assignment = GroupAssignment(
            leader=given.leader,
            leader_url=given.leader_url,
            config_offset=given.config_offset,
            assigned=assigned,
            revoked=revoked,
            error=given.error,
            delay_ms=given.delay_ms,
        )
        self._assignment = assignment
        self._protocol = protocol
        self._last_generation = member.generation
        self._is_prepared = False
        delay = given.delay_ms / 1000
        self._rejoin_at = time.monotonic() + delay if delay > 0 else None
        if assignment.failed:
            self._pause()
            self._session.ask_to_join("the leader was behind on the config topic")
        elif revoked != NO_WORK:
            self._session.ask_to_join("revoked work is to be shared out")
        self._listener.on_assigned(assignment, member.generation)

    def _give_back(self, leader: str, work: Assignment) -> None:
        if work != NO_WORK:
            self._listener.on_revoked(leader, work.connectors, work.tasks)

    def _revoke_all(self, reason: str) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        work = assignment.assigned
        log.warning(
            "Stopping %s connectors and %s tasks: %s.",
            len(work.connectors),
            len(work.tasks),
            reason,
        )
        self._give_back(assignment.leader, work)
        self._assignment = None
        self._leadership.forget()
        self._session.ask_to_join(reason)
