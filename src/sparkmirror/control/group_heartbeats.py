"""Heartbeats of a worker in its group: the session comes in, what the coordinator says of it goes back into it.

They have a thread of their own, so that a herder that is busy is not thrown out. A herder that does not come back within
the rebalance time-out is taken out of the group by that thread.
"""

from __future__ import annotations

import logging
import threading
import time

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Broker
from sparkmirror.kafka.coordination import (
    CoordinatorLink,
    Member,
    heartbeat_request,
    leave_request,
)

from .group_session import GroupSession, GroupSettings

log = logging.getLogger(__name__)

COORDINATOR_MOVED = (messages.COORDINATOR_NOT_AVAILABLE, messages.NOT_COORDINATOR)
_PATIENCE_AT_END = 2.0


class Heartbeats:
    """The thread that nods to the coordinator while the worker has a generation."""

    def __init__(
        self, session: GroupSession, link: CoordinatorLink, settings: GroupSettings
    ) -> None:
        self._session = session
        self._link = link
        self._settings = settings
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._due = 0.0
        name = f"heartbeats of {session.member.group}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """The worker has a generation from now on. Again and again is fine."""
        if self._thread.ident is None and not self._stop.is_set():
            self._thread.start()
        self._wake.set()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE_AT_END)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                wait = self._step()
                self._wake.wait(wait)
                self._wake.clear()
        finally:
            self._link.close()

    def _step(self) -> float:
        """Do what is due; the seconds until something else may be."""
        if not self._session.phase.has_generation:
            self._due = 0.0
            return self._settings.heartbeat_interval
        if self._session.absence() > self._settings.rebalance_timeout:
            self._leave_for_herder()
            return self._settings.heartbeat_interval
        coordinator = self._session.coordinator
        if coordinator is None:
            self._look_for_coordinator()
            return self._settings.retry_backoff
        left = self._due - time.monotonic()
        if left > 0:
            return left
        return self._nod(coordinator)

    def _look_for_coordinator(self) -> None:
        """The herder looks too, but it may be busy, and the session does not wait."""
        try:
            self._session.found(self._link.find())
        except KafkaError as error:
            self._report(None, error)

    def _nod(self, coordinator: Broker) -> float:
        member = self._session.member
        try:
            answer = self._link.call(coordinator, heartbeat_request(member))
        except KafkaError as error:
            self._report(coordinator, error)
            return self._settings.retry_backoff
        self._due = time.monotonic() + self._settings.heartbeat_interval
        self._react(coordinator, member, answer.error_code)
        return self._due - time.monotonic()

    def _react(self, coordinator: Broker, member: Member, code: int) -> None:
        session, name = self._session, messages.error_name(code)
        if code == messages.NONE:
            session.hear()
        elif code == messages.REBALANCE_IN_PROGRESS:
            session.rebalance_seen(member)
        elif code in COORDINATOR_MOVED:
            session.lost(coordinator, f"it answers {name}.")
        elif code == messages.ILLEGAL_GENERATION:
            session.thrown_out(member, f"heartbeat answered with {name}", keeps_id=True)
        elif code in (messages.UNKNOWN_MEMBER_ID, messages.FENCED_INSTANCE_ID):
            log.warning("This worker is no longer in the group (%s): it joins again.", name)
            session.thrown_out(member, f"heartbeat answered with {name}")
        elif messages.is_retriable(code):
            self._due = time.monotonic() + self._settings.retry_backoff
        else:
            what = f"Heartbeat in group {member.group}"
            session.fail(messages.broker_error(code, what, access=self._link.access))

    def _report(self, coordinator: Broker | None, error: KafkaError) -> None:
        if isinstance(error, BrokerError) and not error.retriable:
            self._session.fail(error)
        else:
            self._session.lost(coordinator, error.message)

    def _leave_for_herder(self) -> None:
        seconds = self._settings.rebalance_timeout
        log.warning(
            "The herder has been busy for more than rebalance.timeout.ms (%g s): this worker leaves its "
            "group until the herder is back.",
            seconds,
        )
        tell_leaving(self._session, self._link, "worker poll timeout has expired")


def tell_leaving(session: GroupSession, link: CoordinatorLink, reason: str) -> None:
    """Leave the group; the coordinator is told, but whether it has heard does not matter."""
    to_tell = session.leaving(reason)
    if to_tell is None:
        return
    coordinator, member = to_tell
    log.info("Member %s leaves group %s: %s.", member.id, member.group, reason)
    try:
        link.call(coordinator, leave_request(member, reason))
    except KafkaError as error:
        log.info("The coordinator may not have heard that: %s", error.message)
