"""What the copy tasks of one Spark job report: the progress topic in, their reports out.

Also writes reports for tasks that have not begun, which cannot do it themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from sparkmirror.connectors.source_settings import SourceSettings
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.errors import AccessFailed, KafkaError
from sparkmirror.formats import progress
from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka import records
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.row_batches import Row, append_in_batches

log = logging.getLogger(__name__)
_LOOK_BACK = 50


class TaskReports:
    """What the tasks of one job report."""

    def __init__(self, target: Cluster, settings: SourceSettings) -> None:
        self._reader = ProgressReader(target, settings.copy.progress_topic, _LOOK_BACK)
        self._connector = settings.store.connector
        self._began = int(time.time() * 1000)
        self._is_told = False
        self._target = target
        self._topic = settings.copy.progress_topic
        self.refused: AccessFailed | None = None
        """Why the target did not let us in, if it did not when it was asked last."""

    def new(self) -> list[Progress]:
        """Since the last call; nothing while the target cannot be asked."""
        try:
            reports = self._reader.poll()
        except KafkaError as error:
            level = logging.DEBUG if error.retriable or self._is_told else logging.WARNING
            log.log(level, "Connector %s: progress could not be read: %s", self._connector, error)
            self._is_told |= level == logging.WARNING
            self.refused = error if isinstance(error, AccessFailed) else None
            return []
        self.refused = None
        return [
            report
            for report in reports
            if report.connector == self._connector and report.time >= self._began
        ]

    def tell_waiting(self, plans: Sequence[TaskPlan], reason: str) -> None:
        """Report for tasks that have not begun, and cannot do it themselves."""
        rows: dict[int, list[PartitionProgress]] = {}
        for plan in plans:
            positions = dict(plan.positions)
            for part in plan.partitions:
                position = positions.get(part.key)
                offset = 0 if position is None else position.next_offset
                row = PartitionProgress(
                    part.topic,
                    part.partition,
                    part.remote,
                    offset,
                    -1,
                    0,
                    0,
                    -1,
                    -1,
                    "WAITING",
                    reason,
                )
                rows.setdefault(part.task, []).append(row)
        now = int(time.time() * 1000)
        reports = [
            progress.encode(Progress(self._connector, task, now, now, tuple(found)))
            for task, found in rows.items()
        ]

        def append(batch: Sequence[Row]) -> None:
            kafka_log.append(self._target, self._topic, 0, records.control_batch(batch, now))

        try:
            append_in_batches(self._topic, reports, append)
        except KafkaError as error:
            log.debug("Connector %s: progress could not be written: %s", self._connector, error)
