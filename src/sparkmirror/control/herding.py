"""What REST, the command line and dedicated mode ask of a herder: the seam between who asks and who decides.

Every call blocks until it is decided (or the request time-out has passed) and may be made from any thread. Errors are those of
`sparkmirror.errors` below `ConnectError`; each has the HTTP status that Connect answers with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from .states import (
    ConnectorInfo,
    ConnectorState,
    Health,
    RestartRequest,
    ServerInfo,
    TargetState,
    TaskId,
    TaskInfo,
    TaskState,
)

SourcePartition = Mapping[str, Any]
SourceOffset = Mapping[str, Any] | None
"""None removes the position."""


class Created(NamedTuple):
    is_new: bool
    info: ConnectorInfo


class Signature(NamedTuple):
    """How an internal request was signed: both headers as they came, and the body that was signed."""

    signature: str | None
    algorithm: str | None
    body: bytes


class Herder(Protocol):
    """One worker of a Connect cluster, or a standalone one."""

    # -- served from what this worker knows, at once ----------------------------------------------
    def server_info(self) -> ServerInfo: ...
    def connectors(self) -> list[str]: ...
    def connector_status(self, name: str) -> ConnectorState: ...
    def task_status(self, task: TaskId) -> TaskState: ...
    def active_topics(self, name: str) -> list[str]: ...

    # -- through the decision loop ------------------------------------------------------------------
    def health(self) -> Health: ...
    def connector_info(self, name: str) -> ConnectorInfo: ...
    def connector_config(self, name: str) -> Mapping[str, str]: ...
    def task_configs(self, name: str) -> list[TaskInfo]: ...
    def put_connector(
        self,
        name: str,
        config: Mapping[str, str | None],
        initial_state: TargetState | None,
        *,
        may_replace: bool,
    ) -> Created: ...
    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo: ...
    def delete_connector(self, name: str) -> None: ...
    def pause(self, name: str) -> None: ...
    def resume(self, name: str) -> None: ...
    def stop_connector(self, name: str) -> None: ...
    def restart_connector(self, name: str) -> None:
        """The connector alone; waits until it is done."""

    def restart(self, request: RestartRequest) -> ConnectorState:
        """Connector and tasks as asked; gives the plan."""

    def restart_task(self, task: TaskId) -> None: ...
    def reset_active_topics(self, name: str) -> None: ...
    def offsets(self, name: str) -> list[tuple[SourcePartition, Mapping[str, Any]]]: ...
    def alter_offsets(
        self, name: str, offsets: Sequence[tuple[SourcePartition | None, SourceOffset]]
    ) -> str:
        """Gives the message for the user."""

    def reset_offsets(self, name: str) -> str: ...
    def set_cluster_logger(self, logger: str, level: str) -> None: ...

    # -- from other workers -------------------------------------------------------------------------
    def require_signed(self, signature: Signature) -> None:
        """An error unless a worker of the group has sent this, as far as its protocol tells."""

    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: Signature
    ) -> None: ...
    def fence_zombies(self, name: str, signature: Signature) -> None: ...
