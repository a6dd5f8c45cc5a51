"""A group's coordinator: who asks comes in, the broker that coordinates and its answers go out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkmirror.errors import ConnectionFailed
from sparkmirror.kafka import messages
from sparkmirror.kafka.api_versions import APIS
from sparkmirror.kafka.cluster import Broker, Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.denials import Access, needs
from sparkmirror.kafka.settings import ClientSettings

NO_GENERATION = -1
_GROUP_KEY = 0
_MOST_REASON = 255


@dataclass(frozen=True, slots=True)
class Member:
    """Who a member is: without an id it has not been let in yet, without a generation it has no say."""

    group: str
    id: str = ""
    generation: int = NO_GENERATION


def join_request(
    member: Member,
    protocol_type: str,
    protocols: Sequence[tuple[str, bytes]],
    session_timeout: float,
    rebalance_timeout: float,
    reason: str,
) -> Any:
    """Enter the group, or a new generation of it; `protocols` with their metadata, the preferred one first."""
    request = messages.JoinGroupRequest
    return request(
        group_id=member.group,
        session_timeout_ms=int(session_timeout * 1000),
        rebalance_timeout_ms=int(rebalance_timeout * 1000),
        member_id=member.id,
        group_instance_id=None,
        protocol_type=protocol_type,
        protocols=[
            request.JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in protocols
        ],
        reason=reason[:_MOST_REASON],
    )


def sync_request(
    member: Member, protocol_type: str, protocol: str, assignments: Mapping[str, bytes]
) -> Any:
    """Fetch this member's assignment; the leader brings everybody's with it."""
    request = messages.SyncGroupRequest
    return request(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=None,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            request.SyncGroupRequestAssignment(member_id=name, assignment=assignment)
            for name, assignment in assignments.items()
        ],
    )


def heartbeat_request(member: Member) -> Any:
    return messages.HeartbeatRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=None,
    )


def leave_request(member: Member, reason: str) -> Any:
    request = messages.LeaveGroupRequest
    return request(
        group_id=member.group,
        member_id=member.id,
        members=[
            request.MemberIdentity(
                member_id=member.id, group_instance_id=None, reason=reason[:_MOST_REASON]
            )
        ],
    )


class PendingCall:
    """A request that is under way; its answer is asked for, never waited for."""

    def __init__(self, connection: Connection, request: Any, client_id: str, patience: float):
        version = connection.version_of(APIS[request.API_KEY])
        self.connection = connection
        self._request = request
        self._patience = patience
        self._deadline = time.monotonic() + patience
        correlation = connection.next_correlation()
        frame = messages.encode(request, version, correlation, client_id)
        connection.submit([frame], correlation, None)

    def answer(self) -> Any | None:
        """The answer, or None if it has not come yet; ConnectionFailed if it never will."""
        if self.connection.wants_write:
            self.connection.flush()
        for _, payload in self.connection.receive():
            try:
                return messages.decode(self._request, payload)[1]
            except ValueError as error:
                raise self._failed(f"its answer to {self._request.name} cannot be read") from error
        if time.monotonic() > self._deadline:
            raise self._failed(f"no answer to {self._request.name} within {self._patience:g} s")
        return None

    def _failed(self, cause: str) -> ConnectionFailed:
        self.connection.close()
        where = f"{self.connection.host}:{self.connection.port}"
        return ConnectionFailed(f"The connection to broker {where} broke: {cause}.")


class CoordinatorLink:
    """One thread's way to the coordinator of a group.

    Invariants: belongs to one thread; the connection kept open leads to the broker that was asked last.
    """

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._cluster = Cluster(settings)
        self._connection: Connection | None = None
        self._broker: Broker | None = None

    @property
    def access(self) -> Access:
        """What being a member takes; the coordinator is told to whoever may describe the group, which Read includes."""
        return needs("Read", "group", self._group, self._settings.security)

    def find(self) -> Broker:
        """The broker that coordinates the group; an error that may be retriable if there is none right now."""
        request = messages.FindCoordinatorRequest(
            key=self._group, key_type=_GROUP_KEY, coordinator_keys=[]
        )
        answer = self._cluster.call_any(request, most=3)
        if answer.error_code != messages.NONE:
            raise messages.broker_error(
                answer.error_code,
                f"Finding the coordinator of group {self._group} on {self._settings}",
                access=self.access,
            )
        # Whoever is known now can be asked when the bootstrap addresses are gone.
        self._cluster.refresh([])
        return Broker(answer.node_id, answer.host, answer.port)

    def begin(self, coordinator: Broker, request: Any, patience: float) -> PendingCall:
        """Send a request whose answer may take long; asking anything else meanwhile gives it up."""
        return PendingCall(
            self._connected(coordinator), request, self._settings.client_id, patience
        )

    def call(self, coordinator: Broker, request: Any) -> Any:
        """Send a request and wait for its answer."""
        return self._connected(coordinator).call(request)

    def close(self) -> None:
        self.hang_up()
        self._cluster.close()

    def hang_up(self) -> None:
        """Close the connection to the coordinator; whatever was under way on it is given up."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._broker = None

    def _connected(self, coordinator: Broker) -> Connection:
        connection = self._connection
        is_usable = (
            connection is not None
            and connection.is_open
            and connection.in_flight == 0
            and self._broker == coordinator
        )
        if connection is not None and is_usable:
            return connection
        self.hang_up()
        self._connection = Connection(coordinator.host, coordinator.port, self._settings)
        self._connection.open()
        self._broker = coordinator
        return self._connection
