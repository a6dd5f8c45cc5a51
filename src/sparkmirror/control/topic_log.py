"""A compacted topic as a worker's memory: rows appended in; every row of every worker, from the first one on, out.

Three of them carry a Connect worker (configs, offsets, status). `TopicLog` keeps one on a cluster.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sparkmirror.errors import ConnectError, KafkaError, SparkMirrorError
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka import admin, records
from sparkmirror.kafka import log as partition_log
from sparkmirror.kafka.cluster import Cluster, back_off
from sparkmirror.kafka.row_batches import Row, append_in_batches
from sparkmirror.kafka.settings import ClientSettings

from . import storage_topic
from .log_tail import LogTail, OnRecord
from .storage_topic import StorageTopicSettings

__all__ = ["LogFactory", "OnRecord", "RecordLog", "Row", "StorageTopicSettings", "TopicLog"]

log = logging.getLogger(__name__)

_STEP_S = 0.25
_RETRY_S = 2.0
_ASK_S = 5.0
_TELL_AGAIN_S = 30.0
STOP_S = 5.0


class RecordLog(Protocol):
    """What the stores need of a log."""

    @property
    def is_ready(self) -> bool: ...
    @property
    def is_answering(self) -> bool:
        """False while it is known that nothing can be read or written."""

    def start(self) -> None: ...
    def stop(self, timeout: float = STOP_S) -> None: ...
    def append(self, rows: Sequence[Row], timeout: float | None = None) -> Mapping[int, int]: ...
    def await_delivery(self, ends: Mapping[int, int], timeout: float) -> None: ...
    def read_to_end(self, timeout: float) -> None: ...


LogFactory = Callable[[OnRecord], RecordLog]
"""Makes the log of a store, e.g. `partial(TopicLog, settings, topic)`."""


class TopicLog:
    """One topic on one cluster.

    Invariants: `on_record` is called by one thread, for each committed record of a partition once and in its order (again from
    the beginning only if the topic was cut back or created anew); that thread must not wait for this log. `append` and
    `read_to_end` may be called by any other thread. Reader, writer and asker have a client each, so that none waits for another.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: StorageTopicSettings,
        on_record: OnRecord,
        *,
        patience: float = 60.0,
        awaits_cluster: bool = False,
    ) -> None:
        self.topic = topic
        self._patience = patience
        self._awaits_cluster = awaits_cluster
        self._writer = Cluster(settings)
        self._asker = Cluster(
            replace(settings, request_timeout=min(_ASK_S, settings.request_timeout))
        )
        self._tail = LogTail(Cluster(settings), topic.name, on_record)
        self._writing = threading.Lock()
        self._asking = threading.Lock()
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._trouble: SparkMirrorError | None = None
        self._is_ready = False
        self._thread = threading.Thread(target=self._follow, name=f"tail-{topic.name}", daemon=True)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Create the topic if it is missing, check it, and read it to its end; from then on it is followed."""
        try:
            with self._writing:
                storage_topic.prepare(
                    self._writer,
                    self.topic,
                    self._patience,
                    self._stopping,
                    awaits_cluster=self._awaits_cluster,
                )
            self._thread.start()
            self._read_first()
        except BaseException:
            self.stop()
            raise
        self._is_ready = True

    def _read_first(self) -> None:
        """Read to the end, however long it takes, as long as nothing but time or open transactions is in the way."""
        for wait in back_off(1.0, _TELL_AGAIN_S):
            try:
                return self.read_to_end(wait)
            except ConnectError as error:
                if self._is_over():
                    raise
                for cause in (error.__cause__, self._trouble):
                    if isinstance(cause, KafkaError) and not cause.retriable:
                        raise cause from error
                log.log(logging.WARNING if wait > _STEP_S * 10 else logging.DEBUG, "%s", error)
                self._stopping.wait(_STEP_S)

    def stop(self, timeout: float = STOP_S) -> None:
        """Stop following; what waits for this log is told so. Threads that a broker keeps for longer end by themselves."""
        deadline = time.monotonic() + timeout
        self._stopping.set()
        self._is_ready = False
        with self._moved:
            self._moved.notify_all()
        if self._thread.ident is None:
            self._tail.close()
        else:
            self._thread.join(timeout)
        for client, lock in ((self._writer, self._writing), (self._asker, self._asking)):
            _close(client, lock, max(0.0, deadline - time.monotonic()))

    @property
    def is_ready(self) -> bool:
        """Whether everything that was there at the start has been delivered, and more will be."""
        return self._is_ready and self._thread.is_alive()

    @property
    def is_answering(self) -> bool:
        return self._trouble is None

    # -- following ----------------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            self._tail_until_stopped()
        finally:
            self._tail.close()
            with self._moved:
                self._moved.notify_all()

    def _tail_until_stopped(self) -> None:
        first = self._writer.settings.retry_backoff
        waits = back_off(first, _RETRY_S)
        told_at = -_TELL_AGAIN_S
        while not self._stopping.is_set():
            try:
                self._tail.step(_STEP_S)
            except SparkMirrorError as error:
                self._trouble = error
                is_news = time.monotonic() - told_at > _TELL_AGAIN_S
                log.log(logging.WARNING if is_news else logging.DEBUG, "%s Trying again.", error)
                told_at = time.monotonic() if is_news else told_at
                self._stopping.wait(next(waits))
                continue
            if self._trouble is not None and not self._tail.is_stale:
                self._trouble = None
                waits = back_off(first, _RETRY_S)
            with self._moved:
                self._moved.notify_all()

    def read_to_end(self, timeout: float) -> None:
        """Wait until everything that is in the log now has been delivered; ConnectError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.await_delivery(self._ends(deadline), deadline - time.monotonic())

    def _ends(self, deadline: float) -> dict[int, int]:
        name, asker = self.topic.name, self._asker

        def ask() -> dict[int, int]:
            if self._stopping.is_set():
                raise KafkaError(f"Topic {name} is not read any more.")
            if name not in asker.topics:
                asker.refresh([name])
            keys = [(name, partition) for partition in asker.topic(name).partitions]
            found = admin.list_offsets(asker, keys, admin.LATEST)
            return {partition: end for (_, partition), end in found.items()}

        try:
            with self._asking:
                return asker.retrying(ask, deadline)
        except KafkaError as error:
            raise ConnectError(
                f"The end of topic {name} could not be found out: {error.message}", error.remedy
            ) from error

    def await_delivery(self, ends: Mapping[int, int], timeout: float) -> None:
        """Wait until every record before these offsets has been delivered; ConnectError after `timeout` seconds."""

        def late() -> list[int]:
            reached = self._tail.positions
            return [p for p, end in ends.items() if reached.get(p, -1) < end]

        with self._moved:
            self._moved.wait_for(lambda: not late() or self._is_over(), max(0.0, timeout))
        if left := late():
            raise self._not_read(left[0], ends)

    def _is_over(self) -> bool:
        return self._stopping.is_set() or not self._thread.is_alive()

    def _not_read(self, partition: int, ends: Mapping[int, int]) -> ConnectError:
        if self._is_over():
            return ConnectError(f"Topic {self.topic.name} is not being read any more.")
        at = self._tail.positions.get(partition, 0)
        cause = "" if self._trouble is None else f" {self._trouble}"
        return ConnectError(
            f"Topic {self.topic.name} was not read to its end in time: partition {partition} is at offset {at} of "
            f"{ends[partition]}.{cause}",
            "Check the brokers and, if Java workers write to it in transactions, for hanging transactions.",
        )

    # -- writing ------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], timeout: float | None = None) -> dict[int, int]:
        """Write rows in their order and wait until all replicas in sync have them.

        Gives, per partition, the offset after its last row: `await_delivery` waits until they have been read back.
        """
        patience = self._writer.settings.request_timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        ends: dict[int, int] = {}
        with self._writing:
            count = self._writer.retrying(self._partition_count, deadline)
            for partition, found in by_partition(rows, count).items():

                def append(part: Sequence[Row], partition: int = partition) -> None:
                    ends[partition] = self._append(partition, part, deadline) + len(part)

                append_in_batches(self.topic.name, found, append)
        return ends

    def _partition_count(self) -> int:
        if self.topic.name not in self._writer.topics:
            self._writer.refresh([self.topic.name])
        return len(self._writer.topic(self.topic.name).partitions)

    def _append(self, partition: int, rows: Sequence[Row], deadline: float) -> int:
        batch = records.control_batch(rows, int(time.time() * 1000))

        def attempt() -> int:
            if self._stopping.is_set():
                raise KafkaError(f"Topic {self.topic.name} is not written to any more.")
            try:
                return partition_log.append(self._writer, self.topic.name, partition, batch)
            except KafkaError as error:
                if error.retriable:
                    self._writer.refresh([self.topic.name])
                raise

        return self._writer.retrying(attempt, deadline)


def _close(cluster: Cluster, lock: threading.Lock, timeout: float) -> None:
    """Close a client, unless a thread is using it that does not come back: it ends with the process."""
    if lock.acquire(timeout=timeout):
        try:
            cluster.close()
        finally:
            lock.release()


def by_partition(rows: Iterable[Row], partitions: int) -> dict[int, list[Row]]:
    """Rows by the partition that their keys belong to, in their order."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(default_partition(row[0], partitions), []).append(row)
    return found
