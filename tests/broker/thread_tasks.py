"""The worker, as the heartbeat and checkpoint connectors and tasks see it: keeps what it is told, and runs tasks in threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from kafka_tools import consume

from sparkmirror.connectors.connector import ThreadTask
from sparkmirror.errors import SparkMirrorError
from sparkmirror.formats.mirror import Checkpoint, decode_checkpoint


class ConnectorWatch:
    """A `ConnectorContext` that keeps what a connector says."""

    def __init__(self) -> None:
        self.reconfigured = threading.Event()
        self.errors: list[SparkMirrorError] = []
        self.notes: list[str] = []

    def request_task_reconfiguration(self) -> None:
        self.reconfigured.set()

    def fail(self, error: SparkMirrorError) -> None:
        self.errors.append(error)

    def note(self, text: str) -> None:
        self.notes.append(text)


class TaskWatch:
    """A `TaskContext` that keeps what a task says."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.offsets: list[tuple[bytes, bytes | None]] = []

    def wrote(self, topic: str) -> None:
        self.topics.add(topic)

    def store_offsets(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.offsets += offsets

    def load_offsets(self) -> Mapping[bytes, bytes]:
        return {key: value for key, value in self.offsets if value is not None}


class Running:
    """A task at work: `with Running(task): ...`; leaving the block stops it and raises what it failed with."""

    def __init__(self, task: ThreadTask) -> None:
        self._task = task
        self._stopping = threading.Event()
        self.error: SparkMirrorError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._task.run(self._stopping)
        except SparkMirrorError as error:
            self.error = error

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, patience_s: float = 30.0) -> None:
        self._stopping.set()
        self._thread.join(patience_s)
        assert not self._thread.is_alive(), "the task does not end"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self.error is not None and error is None:
            raise self.error


def checkpoints(bootstrap: str, topic: str, group: str = "") -> list[Checkpoint]:
    """Everything that a checkpoints topic holds (of one group), in the order of the log."""
    found = [decode_checkpoint(record.key, record.value) for record in consume(bootstrap, topic)]
    return [checkpoint for checkpoint in found if not group or checkpoint.group == group]
