"""What the copy tasks of one Spark job report: the progress topic in, their reports out.

Also writes reports for tasks that have not begun, which cannot do it themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from sparkmirror.connectors.source_settings import SourceSettings
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.errors import AccessFailed, BrokerError, KafkaError
from sparkmirror.formats import progress
from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka import records
from sparkmirror.kafka.cluster import QUIET_TRIES, Cluster
from sparkmirror.kafka.row_batches import append_items

log = logging.getLogger(__name__)
_LOOK_BACK = 50
WAITING = "WAITING"
"""The state of partitions whose Spark task waits for a slot."""
_Row = tuple[int, bytes]
"""A task, and an encoded partition of it."""


class TaskReports:
    """What the tasks of one job report."""

    def __init__(self, target: Cluster, settings: SourceSettings) -> None:
        self._reader = ProgressReader(target, settings.copy.progress_topic, _LOOK_BACK)
        self._connector = settings.store.connector
        self._began = int(time.time() * 1000)
        self._target = target
        self._topic = settings.copy.progress_topic
        self._tries = 0
        """How many reads failed since the last that did not."""
        self._told = ""
        """The error of them that was logged last."""
        self.refused: AccessFailed | None = None
        """Why the target did not let us in, if it did not when it was asked last."""

    def new(self) -> list[Progress]:
        """Since the last call; nothing while the target cannot be asked."""
        try:
            reports = self._reader.poll()
            self._target.topic(self._topic)  # without the topic the reader gives no reports
        except KafkaError as error:
            self._note_failure(error)
            self.refused = error if isinstance(error, AccessFailed) else None
            return []
        self._note_success()
        self.refused = None
        return [
            report
            for report in reports
            if report.connector == self._connector and report.time >= self._began
        ]

    def _note_failure(self, error: KafkaError) -> None:
        """Errors that pass within three tries, and the same error again, are not worth a line."""
        self._tries += 1
        name = error.name if isinstance(error, BrokerError) else type(error).__name__
        if name == self._told or (error.retriable and self._tries <= QUIET_TRIES):
            log.debug("Connector %s: progress could not be read: %s", self._connector, error)
            return
        self._told = name
        log.warning(
            "Connector %s: reading progress topic %s failed on %s: %s %d tries so far, next try in a second. Until then the "
            "status of the tasks does not show which partitions fail or recover; copying continues.",
            self._connector,
            self._topic,
            self._target.settings,
            error,
            self._tries,
        )

    def _note_success(self) -> None:
        if self._told:
            log.info(
                "Connector %s: progress topic %s on %s can be read again after %d tries.",
                self._connector,
                self._topic,
                self._target.settings,
                self._tries,
            )
        self._tries, self._told = 0, ""

    def tell_waiting(self, plans: Sequence[TaskPlan], reason: str) -> None:
        """Report for tasks that have not begun, and cannot do it themselves."""
        rows = [row for plan in plans for row in _waiting(plan, reason)]
        now = int(time.time() * 1000)

        def append(some: Sequence[_Row]) -> None:
            reports = progress.encode_tasks(self._connector, self._began, now, some)
            kafka_log.append(self._target, self._topic, 0, records.control_batch(reports, now))

        try:
            append_items(self._topic, rows, _size, append)
        except KafkaError as error:
            log.warning(
                "Connector %s: the report that %d partitions wait for a Spark slot could not be written to topic %s: %s "
                "The status of their tasks says that they wait; next try in 30 s.",
                self._connector,
                len(rows),
                self._topic,
                error,
            )


def _waiting(plan: TaskPlan, reason: str) -> Iterator[_Row]:
    positions = dict(plan.positions)
    for part in plan.partitions:
        position = positions.get(part.key)
        offset = 0 if position is None else position.next_offset
        row = PartitionProgress(
            part.topic, part.partition, part.remote, offset, -1, 0, 0, -1, -1, WAITING, reason
        )
        yield part.task, progress.encode_partition(row)


def _size(row: _Row) -> int:
    return len(row[1]) + 1
