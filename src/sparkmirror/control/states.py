"""The words of Connect: connectors, tasks and the states they can be in. Data only; everybody in this room speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import total_ordering

VERSION = "4.3.1"
"""The version of Connect and of MirrorMaker's connectors that we stand in for."""
COMMIT = "26b251a451ce941d"


class TargetState(StrEnum):
    """What a connector is wanted to be."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """What a connector or task is. DESTROYED is never shown: it is written as a tombstone."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


@total_ordering
@dataclass(frozen=True, slots=True)
class TaskId:
    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"

    def __lt__(self, other: TaskId) -> bool:
        return (self.connector, self.task) < (other.connector, other.task)


@dataclass(frozen=True, slots=True)
class Status:
    """What one worker last said of a connector or task."""

    state: State
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None
    restarts: int = 0
    """How often it was started again by itself, in a row."""
    note: str = ""
    """What people should know of it while it runs."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task in the answer to a status request."""

    id: int
    state: State
    worker_id: str
    trace: str | None = None
    version: str | None = None
    restarts: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """A connector with its tasks in the answer to a status request."""

    name: str
    state: State
    worker_id: str
    tasks: tuple[TaskState, ...]
    type: str = "source"
    trace: str | None = None
    version: str | None = None
    restarts: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    name: str
    config: Mapping[str, str]
    tasks: tuple[TaskId, ...]
    type: str = "source"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    id: TaskId
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RestartRequest:
    connector: str
    only_failed: bool
    include_tasks: bool

    @property
    def impact(self) -> int:
        """Of two requests for one connector the one with the greater impact counts."""
        return 2 * (not self.only_failed) + self.include_tasks


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The secret with which workers sign what they ask of each other."""

    key: bytes
    algorithm: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What the config topic says up to an offset: an immutable snapshot."""

    offset: int = -1
    session_key: SessionKey | None = None
    connectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    target_states: Mapping[str, TargetState] = field(default_factory=dict)
    task_counts: Mapping[str, int] = field(default_factory=dict)
    """Of connectors whose tasks are complete; a connector that is not here has no tasks (yet)."""
    tasks: Mapping[TaskId, Mapping[str, str]] = field(default_factory=dict)
    inconsistent: frozenset[str] = frozenset()
    """Connectors whose task configs are not complete: their tasks must be made anew."""
    task_count_records: Mapping[str, int] = field(default_factory=dict)
    """Exactly once in Java: how many tasks of a connector had their producers fenced last."""
    pending_fencing: frozenset[str] = frozenset()
    """Connectors with task configs newer than that."""

    def tasks_of(self, connector: str) -> tuple[TaskId, ...]:
        return tuple(TaskId(connector, i) for i in range(self.task_counts.get(connector, 0)))

    def target_state(self, connector: str) -> TargetState:
        return self.target_states.get(connector, TargetState.STARTED)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one worker is to run."""

    connectors: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerInfo:
    version: str
    commit: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Health:
    """`status` is healthy, starting or unhealthy."""

    status: str
    message: str
