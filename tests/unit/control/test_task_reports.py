"""What the driver writes for tasks that wait, and what it says while the progress topic cannot be read."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkmirror.connectors.source_settings import source_settings
from sparkmirror.control.task_reports import TaskReports
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan, TaskPlan
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.errors import AccessFailed, KafkaError
from sparkmirror.formats import progress
from sparkmirror.formats.progress import PartitionProgress
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka import messages, records
from sparkmirror.kafka.cluster import Cluster
from tests.unit.control.test_source_job import TASK, WORKER

TOPIC = "mm2-progress.a.internal"
NOT_LEADER = 6


@dataclass
class Target:
    """The progress topic on the target, as far as it is there."""

    monkeypatch: pytest.MonkeyPatch
    most: int = 1 << 20
    rows: list[PartitionProgress] = field(default_factory=list)
    tasks: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        settings = source_settings(TASK, WORKER)
        self.cluster = Cluster(settings.target)
        self.reports = TaskReports(self.cluster, settings)
        self.monkeypatch.setattr(kafka_log, "append", self.append)
        self.monkeypatch.setattr(self.cluster, "refresh", self.refresh)

    def append(self, cluster: Cluster, topic: str, partition: int, batch: bytearray) -> int:
        assert (cluster, topic, partition) == (self.cluster, TOPIC, 0)
        if len(batch) > self.most:
            raise messages.broker_error(messages.MESSAGE_TOO_LARGE, f"Writing to {TOPIC}-0 on B")
        for record in records.decode(memoryview(batch)):
            report = progress.decode(record.value or b"")
            self.tasks.add(report.task)
            self.rows += report.partitions
        return 0

    def refresh(self, topics: object) -> None:
        """The topic is not there."""

    def reads(self, error: KafkaError | None) -> None:
        """What a read of the topic comes to from now on."""

        def poll() -> list[Any]:
            if error is not None:
                raise error
            return []

        self.monkeypatch.setattr(self.reports._reader, "poll", poll)
        self.monkeypatch.setattr(self.cluster, "topic", lambda name: None)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Target:
    caplog.set_level(logging.INFO)
    return Target(monkeypatch)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{row.levelname} {row.getMessage()}" for row in caplog.records]


def plans(count: int) -> list[TaskPlan]:
    """Two connector tasks in one Spark task."""
    reports = source_settings(TASK, WORKER)
    parts = [
        PartitionPlan(f"orders-{n // 10:04}", n % 10, f"a.orders-{n // 10:04}", task=n % 2)
        for n in range(count)
    ]
    store = StoreAddress("o", "msc", "a")
    return [
        TaskPlan("a->b", 0, 0, reports.source, reports.target, store, CopySettings(), tuple(parts))
    ]


@pytest.mark.parametrize(("count", "most"), [(10, 1 << 20), (10_000, 1 << 20), (60, 1500)])
def test_partitions_that_wait_are_reported_in_batches_that_the_topic_takes(
    target: Target, caplog: pytest.LogCaptureFixture, count: int, most: int
) -> None:
    target.most = most
    (plan,) = plans(count)
    target.reports.tell_waiting([plan], "Spark has no free slot.")
    assert sorted((row.topic, row.partition) for row in target.rows) == sorted(
        part.key for part in plan.partitions
    )
    assert {(row.state, row.error) for row in target.rows} == {
        ("WAITING", "Spark has no free slot.")
    }
    assert target.tasks == {0, 1}
    assert said(caplog) == []


def test_a_refused_report_is_said_with_its_topic_and_remedy(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    target.most = 10
    target.reports.tell_waiting(plans(20), "Spark has no free slot.")
    (line,) = said(caplog)
    assert line.startswith("WARNING Connector msc: the report that 20 partitions wait")
    assert f"Writing to {TOPIC}-0 on B: " in line
    assert f"Raise max.message.bytes of topic {TOPIC}." in line


def test_a_read_that_fails_for_long_is_said_once_and_its_end_too(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    target.reads(messages.broker_error(NOT_LEADER, f"ListOffsets of {TOPIC}"))
    for _ in range(3):
        assert target.reports.new() == []
    assert said(caplog) == []
    for _ in range(20):
        target.reports.new()
    (line,) = said(caplog)
    assert line.startswith(
        f"WARNING Connector msc: reading progress topic {TOPIC} failed on cluster b"
    )
    assert "NOT_LEADER_OR_FOLLOWER" in line or "NOT_LEADER_FOR_PARTITION" in line
    assert "4 tries so far, next try in a second" in line
    caplog.clear()
    target.reads(None)
    target.reports.new()
    target.reports.new()
    (line,) = said(caplog)
    assert line.startswith(f"INFO Connector msc: progress topic {TOPIC} on cluster b")
    assert line.endswith("can be read again after 23 tries.")


def test_a_read_that_recovers_soon_is_not_said(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        target.reads(messages.broker_error(NOT_LEADER, f"ListOffsets of {TOPIC}"))
        for _ in range(3):
            target.reports.new()
        target.reads(None)
        target.reports.new()
    assert said(caplog) == []


def test_a_topic_that_is_gone_is_said(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        assert target.reports.new() == []
    (line,) = said(caplog)
    assert f"Topic {TOPIC} is not on cluster b" in line


def test_a_login_that_is_refused_is_said_at_once_and_again_after_it_was_mended(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    refused = AccessFailed("The password is wrong.")
    for _ in range(2):
        seen: list[AccessFailed | None] = []
        for error in (refused, refused, None):
            target.reads(error)
            target.reports.new()
            seen.append(target.reports.refused)
        assert seen == [refused, refused, None]
        line, recovered = said(caplog)
        assert "The password is wrong." in line
        assert "can be read again" in recovered
        caplog.clear()
