"""The table `lag`: positions, ends of the source's logs and the tasks' last reports in, a row for each source partition out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.formats.position import Position
from sparkmirror.formats.progress import PartitionProgress, Progress
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import TopicInfo
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.offsets.target_topics import same_topic
from sparkmirror.policy.filters import should_replicate_topic

from .asking import has_topic, log_offsets
from .columns import Columns, Row
from .flows import Flow
from .positions import read_positions

COLUMNS: Columns = (
    ("flow", "STRING"),
    ("connector", "STRING"),
    ("task", "INT"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("remote_topic", "STRING"),
    ("next_offset", "BIGINT"),
    ("source_end_offset", "BIGINT"),
    ("lag", "BIGINT"),
    ("record_age_ms", "BIGINT"),
    ("state", "STRING"),
    ("reason", "STRING"),
    ("reported_at", "TIMESTAMP"),
    ("host", "STRING"),
)
_REPORTS_MS = 90_000
"""Reports older than that say nothing of now: a task that runs reports each partition every 30 s."""
_WAITING = "WAITING"


class _Report(NamedTuple):
    """The last report of a partition, and whose it is."""

    task: int
    host: str
    at: int
    progress: PartitionProgress


def rows(flow: Flow) -> Iterator[Row]:
    """A row for each source partition that the flow copies, as far as positions and reports tell; what is unknown is NULL."""
    # Positions before ends: what is copied meanwhile does not look like a log that was cut back.
    positions = read_positions(flow) if flow.has_positions else {}
    reports = _reports(flow)
    is_copied = cache(_copied_topics(flow))
    keys = sorted(key for key in positions.keys() | reports.keys() if is_copied(key[0]))
    with flow.source() as source:
        ends = log_offsets(source, keys, admin.LATEST)
        topics = source.topics
    for key in keys:
        position = positions.get(key)
        end = ends.get(key) if _is_current(position, topics.get(key[0])) else None
        yield _row(flow, key, position, reports.get(key), end)


def _copied_topics(flow: Flow) -> Callable[[str], bool]:
    """Which source topics the settings of the flow name now; positions are kept of others, too."""
    config = flow.settings.config
    chosen = config.topic_filter()

    def is_copied(topic: str) -> bool:
        heartbeats, target = config.heartbeats_replication, config.target_alias
        return should_replicate_topic(config.policy, chosen, heartbeats, target, topic)

    return is_copied


def _reports(flow: Flow) -> dict[TopicPartition, _Report]:
    found: dict[TopicPartition, _Report] = {}
    topic, since = flow.settings.copy.progress_topic, time.time_ns() // 1_000_000 - _REPORTS_MS
    with flow.target() as target:
        if not has_topic(target, topic):
            return found
        for report in ProgressReader(target, topic, since=since).reports():
            if report.connector == flow.settings.store.connector:
                found.update(_by_partition(report))
    return found


def _by_partition(report: Progress) -> Iterator[tuple[TopicPartition, _Report]]:
    for row in report.partitions:
        key = row.topic, row.partition
        yield key, _Report(report.task, report.runs_on.host, report.time, row)


def _is_current(position: Position | None, topic: TopicInfo | None) -> bool:
    """Whether a source topic may be the one that a position is of."""
    if position is None or topic is None or not position.source_id:
        return True
    return same_topic(bytes.fromhex(position.source_id), topic.topic_id)


def _row(
    flow: Flow,
    key: TopicPartition,
    position: Position | None,
    report: _Report | None,
    end: int | None,
) -> Row:
    next_offset = _next_offset(position, report)
    lag = _lag(next_offset, end)
    name = flow.settings.store.connector
    if report is None:
        remote = flow.settings.written_topic(key[0])
        return (flow.name, name, None, *key, remote, next_offset, end, lag, *[None] * 5)
    seen = report.progress
    age = seen.age_ms if seen.age_ms >= 0 else None
    told = seen.state, seen.error or None, report.at, report.host or None
    return (flow.name, name, report.task, *key, seen.remote, next_offset, end, lag, age, *told)


def _next_offset(position: Position | None, report: _Report | None) -> int | None:
    """The position counts, which is kept; without one a report, unless it is of a task that has not begun."""
    if position is not None:
        return position.next_offset
    if report is None or report.progress.state == _WAITING:
        return None
    return report.progress.offset


def _lag(next_offset: int | None, end: int | None) -> int | None:
    """How many offsets are left; None also where the log ends before the position, and so is not the one that was copied."""
    if next_offset is None or end is None or end < next_offset:
        return None
    return end - next_offset
