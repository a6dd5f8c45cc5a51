"""What a worker runs: the seam between the control room and the three connectors.

A connector finds out what there is to do and splits it into task configs; a task does it. Source tasks run together as a Spark
job (see `dataplane`); the others are threads of the worker.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from sparkmirror.errors import SparkMirrorError


class ConnectorContext(Protocol):
    """The worker, as a connector sees it. May be called from any thread."""

    def request_task_reconfiguration(self) -> None:
        """What `task_configs` gives has changed."""

    def fail(self, error: SparkMirrorError) -> None:
        """The connector cannot go on: it is shown as FAILED with this error."""

    def note(self, text: str) -> None:
        """What people should know of a connector that runs, shown with its state; empty if there is nothing (any more)."""


class Connector(Protocol):
    """One connector on one worker. `start` is called once, from a thread of its own; it may take long and may raise."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        """The config of each task: the connector's own, with `task.class`, `task.index` and what the task is to do."""


class TaskContext(Protocol):
    """The worker, as a task in a thread sees it. May be called from any thread."""

    def wrote(self, topic: str) -> None:
        """Records were written to this topic (topic tracking)."""

    def store_offsets(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Keys and values for the worker's offsets topic; written before this returns."""

    def load_offsets(self) -> Mapping[bytes, bytes]:
        """What the worker's offsets topic holds of this connector, by key."""


class ThreadTask(Protocol):
    """A task that is a thread of the worker: `run` works until `stopping` is set; an error it raises fails the task."""

    def run(self, stopping: threading.Event) -> None: ...
