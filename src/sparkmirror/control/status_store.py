"""The state of all connectors and tasks, and the topics they write to: what one worker says in, what all of them said last out.

Kept in the status topic, byte for byte as Java's workers keep it. What is put is written by a thread, in order, however long the
brokers take; what is shown is what was read back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sparkmirror.errors import AccessFailed, KafkaError
from sparkmirror.formats import status_log
from sparkmirror.formats.status_log import (
    ConnectorStatusRecord,
    StatusFields,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
    TopicUse,
)
from sparkmirror.kafka.cluster import back_off

from .states import State, Status, TaskId
from .topic_log import STOP_S, LogFactory

log = logging.getLogger(__name__)
_ATTEMPT_S = 10.0
_BRIEF_S = 0.5
_MOST_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class _Write:
    record: StatusRecord
    is_wanted: Callable[[], bool] | None = None
    """Asked when its turn has come, and at every new try; None: always."""


class StatusStore:
    """One worker's view of the status topic. Every call may come from any thread.

    Invariants: what is put is written in that order, and nothing overtakes a write that has to be tried again. The caches hold
    what was read, never what is only on its way; `_tracked` holds the topics that were put by this worker and not taken away
    since, so that each is written once.
    """

    def __init__(self, log_factory: LogFactory) -> None:
        self._log = log_factory(self._read)
        self._connectors: dict[str, Status] = {}
        self._tasks: dict[str, dict[int, Status]] = {}
        self._topics: dict[str, set[str]] = {}
        self._tracked: set[tuple[str, str]] = set()
        self._caching = threading.Lock()
        self._queue: deque[_Write] = deque()
        self._queued = threading.Condition()
        self._in_flight = 0
        self.on_status: Callable[[str | TaskId], None] = lambda item: None
        """Called with what a status was read of, after it can be seen, from the thread that reads."""
        self._stopping = threading.Event()
        self._writer = threading.Thread(target=self._write, name="status-writer", daemon=True)

    def start(self) -> None:
        self._log.start()
        self._writer.start()

    def stop(self, timeout: float = STOP_S) -> None:
        """Write what is queued, if the brokers take it by then, and end."""
        deadline = time.monotonic() + timeout
        if not self.flush(timeout if self._log.is_answering else 0.0):
            count = len(self._queue) + self._in_flight
            log.warning("%d records of the status topic could not be written.", count)
        self._stopping.set()
        with self._queued:
            self._queued.notify_all()
        self._log.stop(max(0.0, deadline - time.monotonic()))
        if self._writer.ident is not None:
            self._writer.join(max(0.0, deadline - time.monotonic()))

    @property
    def is_ready(self) -> bool:
        return self._log.is_ready

    # -- what is known ------------------------------------------------------------------------

    def connector(self, name: str) -> Status | None:
        with self._caching:
            return self._connectors.get(name)

    def task(self, task: TaskId) -> Status | None:
        with self._caching:
            return self._tasks.get(task.connector, {}).get(task.task)

    def tasks(self, name: str) -> dict[int, Status]:
        """The tasks of a connector, by their numbers, in order."""
        with self._caching:
            return dict(sorted(self._tasks.get(name, {}).items()))

    def everything(self) -> dict[str | TaskId, Status]:
        """All that is known, by connector and by task. A status that was read again is another object, also if it is equal."""
        with self._caching:
            found: dict[str | TaskId, Status] = dict(self._connectors.items())
            for name, known in self._tasks.items():
                found |= {TaskId(name, number): status for number, status in known.items()}
            return found

    def topics(self, name: str) -> list[str]:
        """The topics to which a connector has written since they were last reset."""
        with self._caching:
            return sorted(self._topics.get(name, ()))

    def refresh(self, timeout: float) -> None:
        """Read everything that is in the topic now; ConnectError if that takes longer."""
        self._log.read_to_end(timeout)

    # -- what is said -------------------------------------------------------------------------

    def put_connector(self, name: str, status: Status) -> None:
        self._put(_Write(ConnectorStatusRecord(name, _fields(status))))

    def put_connector_safe(self, name: str, status: Status) -> None:
        """Put, unless another worker of a newer generation has spoken by then."""
        record = ConnectorStatusRecord(name, _fields(status))
        self._put(_Write(record, lambda: is_safe(self.connector(name), status)))

    def put_task(self, task: TaskId, status: Status) -> None:
        self._put(_Write(TaskStatusRecord(task.connector, task.task, _fields(status))))

    def put_task_safe(self, task: TaskId, status: Status) -> None:
        """Put, unless another worker of a newer generation has spoken by then."""
        record = TaskStatusRecord(task.connector, task.task, _fields(status))
        self._put(_Write(record, lambda: is_safe(self.task(task), status)))

    def delete_connector(self, name: str) -> None:
        """Take a connector away, with every task that is known of it."""
        for number in self.tasks(name):
            self.delete_task(TaskId(name, number))
        self._put(_Write(ConnectorStatusRecord(name, None)))

    def delete_task(self, task: TaskId) -> None:
        self._put(_Write(TaskStatusRecord(task.connector, task.task, None)))

    def put_topic(self, connector: str, topic: str, task: int, now_ms: int) -> None:
        """A task has written to a topic. Cheap if that is known already."""
        with self._caching:
            if topic in self._topics.get(connector, ()) or (connector, topic) in self._tracked:
                return
            self._tracked.add((connector, topic))
        self._put(_Write(TopicStatusRecord(connector, topic, TopicUse(task, now_ms))))

    def delete_topics(self, connector: str) -> None:
        """Forget the topics of a connector, until it writes to them again."""
        with self._caching:
            tracked = {row for row in self._tracked if row[0] == connector}
            self._tracked -= tracked
            topics = self._topics.get(connector, set()) | {topic for _, topic in tracked}
        for topic in sorted(topics):
            self._put(_Write(TopicStatusRecord(connector, topic, None)))

    def flush(self, timeout: float) -> bool:
        """Wait until everything put so far is in the topic; False if that takes longer, or if no broker answers."""
        if not self._log.is_answering:
            timeout = min(timeout, _BRIEF_S)
        with self._queued:
            self._queued.wait_for(lambda: self._is_written or self._stopping.is_set(), timeout)
            return self._is_written

    @property
    def _is_written(self) -> bool:
        return not self._queue and not self._in_flight

    # -- writing ------------------------------------------------------------------------------

    def _put(self, write: _Write) -> None:
        with self._queued:
            self._queue.append(write)
            self._queued.notify_all()

    def _write(self) -> None:
        while not self._stopping.is_set():
            with self._queued:
                self._queued.wait_for(lambda: self._queue or self._stopping.is_set())
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), _MOST_AT_ONCE))]
                self._in_flight = len(batch)
            self._append(batch)
            with self._queued:
                self._in_flight = 0
                self._queued.notify_all()

    def _append(self, batch: list[_Write]) -> None:
        """Write until it is written, or nobody waits for it any more."""
        for wait in back_off(0.2, 5.0):
            wanted = [row for row in batch if row.is_wanted is None or row.is_wanted()]
            if not wanted or self._stopping.is_set():
                return
            try:
                self._log.append([status_log.encode(row.record) for row in wanted], _ATTEMPT_S)
                return
            except KafkaError as error:
                if self._stopping.is_set():
                    return
                if not error.retriable and not isinstance(error, AccessFailed):
                    log.error("%d status records are lost: %s", len(wanted), error)
                    return
                log.warning(
                    "The status topic cannot be written: %s Trying again in %.1f s.", error, wait
                )
            self._stopping.wait(wait)

    # -- reading ------------------------------------------------------------------------------

    def _read(
        self, _partition: int, offset: int, key: bytes | None, value: bytes | None, _time: int
    ) -> None:
        try:
            record = status_log.decode(key, value)
        except ValueError as reason:
            log.warning("Status record %r at offset %d is skipped: %s.", key, offset, reason)
            return
        with self._caching:
            match record:
                case ConnectorStatusRecord(name, fields):
                    self._cache_connector(name, _status(fields))
                case TaskStatusRecord(name, task, fields):
                    self._cache_task(name, task, _status(fields))
                case TopicStatusRecord(name, topic, use):
                    self._cache_topic(name, topic, is_used=use is not None)
        match record:
            case ConnectorStatusRecord(name, StatusFields()):
                self.on_status(name)
            case TaskStatusRecord(name, task, StatusFields()):
                self.on_status(TaskId(name, task))

    def _cache_connector(self, name: str, status: Status | None) -> None:
        if status is None:
            self._connectors.pop(name, None)
        else:
            self._connectors[name] = status

    def _cache_task(self, name: str, task: int, status: Status | None) -> None:
        known = self._tasks.setdefault(name, {})
        if status is None:
            known.pop(task, None)
        elif not is_stale(known.get(task), status):
            known[task] = status
        if not known:
            del self._tasks[name]

    def _cache_topic(self, name: str, topic: str, *, is_used: bool) -> None:
        topics = self._topics.setdefault(name, set())
        if is_used:
            topics.add(topic)
        else:
            topics.discard(topic)
            self._tracked.discard((name, topic))
        if not topics:
            del self._topics[name]


def is_safe(known: Status | None, new: Status) -> bool:
    """Whether a "safe" status may be written over what is known: not over that of another worker of a newer generation."""
    return known is None or known.worker_id == new.worker_id or known.generation <= new.generation


def is_stale(known: Status | None, new: Status) -> bool:
    """Whether a task's status tells of the past: a worker gave it up after another one had started it."""
    return (
        known is not None
        and new.state == State.UNASSIGNED
        and known.state == State.RUNNING
        and known.generation >= new.generation
    )


def _fields(status: Status) -> StatusFields | None:
    if status.state == State.DESTROYED:
        return None
    return StatusFields(
        status.state.value,
        status.worker_id,
        status.generation,
        status.trace,
        status.version,
        status.restarts,
        status.note,
    )


def _status(fields: StatusFields | None) -> Status | None:
    if fields is None:
        return None
    return Status(
        State(fields.state),
        fields.worker_id,
        fields.generation,
        fields.trace,
        fields.version,
        fields.restarts,
        fields.note,
    )
