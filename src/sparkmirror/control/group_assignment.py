"""What a worker gets out of a rebalance, and who wants to know; to and from what is written in the group protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkmirror.formats.membership import NO_ERROR, Work, WorkerAssignment

from .restarts import Item
from .states import Assignment, TaskId

NO_WORK = Assignment()


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The outcome of a rebalance for one worker: all it has to run from now on, and what it has just given back."""

    leader: str
    leader_url: str
    config_offset: int
    """What the config topic said up to here was shared out: a worker that is not there yet reads on before it starts work."""
    assigned: Assignment = NO_WORK
    revoked: Assignment = NO_WORK
    error: int = NO_ERROR
    delay_ms: int = 0

    @property
    def failed(self) -> bool:
        """The leader was behind on the config topic: read it to its end; the group joins again by itself."""
        return self.error != NO_ERROR


class Group(Protocol):
    """How this worker takes part in its group, or in none."""

    @property
    def generation(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...
    @property
    def leader_url(self) -> str | None: ...
    @property
    def owned(self) -> Assignment: ...
    @property
    def protocol_version(self) -> int: ...
    def owner_url(self, item: Item) -> str | None: ...
    def poll(self, timeout: float) -> None: ...
    def wakeup(self) -> None: ...
    def request_rejoin(self, reason: str) -> None: ...
    def leave(self, reason: str) -> None: ...
    def close(self, timeout: float = ...) -> None: ...


class RebalanceListener(Protocol):
    """The herder, as its group sees it. Called from the thread that polls."""

    def on_revoked(self, leader: str, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        """Stop these; when this returns, others may start them."""

    def on_assigned(self, assignment: GroupAssignment, generation: int) -> None:
        """A rebalance is over; `assignment.assigned` is everything this worker has now."""


def merged(added: Assignment, owned: Assignment, revoked: Assignment) -> Assignment:
    """What was added and what was kept, each once."""
    connectors = [c for c in owned.connectors if c not in revoked.connectors]
    gone = frozenset(revoked.tasks)
    tasks = [task for task in owned.tasks if task not in gone]
    return Assignment(
        tuple(dict.fromkeys((*added.connectors, *connectors))),
        tuple(dict.fromkeys((*added.tasks, *tasks))),
    )


def for_wire(assignment: GroupAssignment | None) -> WorkerAssignment | None:
    """What a worker tells of its last assignment when it joins."""
    if assignment is None:
        return None
    return WorkerAssignment(
        leader=assignment.leader,
        leader_url=assignment.leader_url,
        config_offset=assignment.config_offset,
        assigned=as_work(assignment.assigned),
        error=assignment.error,
        delay_ms=assignment.delay_ms,
    )


def as_work(assignment: Assignment) -> Work:
    """Connectors and tasks as they are written."""
    tasks = tuple((task.connector, task.task) for task in assignment.tasks)
    return Work(assignment.connectors, tasks)


def as_assignment(work: Work) -> Assignment:
    """Connectors and tasks as they were read."""
    return Assignment(work.connectors, tuple(TaskId(name, task) for name, task in work.tasks))
