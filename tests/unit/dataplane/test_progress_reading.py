"""How the driver follows the progress topic."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.formats import progress
from sparkmirror.formats.progress import Progress
from sparkmirror.kafka import admin, log, records

TOPIC = "mm2-progress.a.internal"


class Target:
    """A cluster with the progress topic, one report a batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = {TOPIC: None}
        self.batches: list[bytes] = []
        monkeypatch.setattr(admin, "list_offsets", self.list_offsets)
        monkeypatch.setattr(log, "read", self.read)

    def report(self, time: int) -> None:
        batch = records.control_batch([progress.encode(Progress("msc", 0, 0, time, ()))], time)
        batch[:8] = len(self.batches).to_bytes(8, "big")
        self.batches.append(bytes(batch))

    def list_offsets(self, cluster: Any, keys: Any, timestamp: int) -> dict[Any, int]:
        return {(TOPIC, 0): 0 if timestamp == admin.EARLIEST else len(self.batches)}

    def read(
        self, cluster: Any, topic: str, partition: int, start: int, end: int, limits: Any
    ) -> Iterator[Any]:
        for batch in self.batches[start:end]:
            yield SimpleNamespace(records=memoryview(batch))


def test_reports_of_a_topic_that_was_created_again_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = Target(monkeypatch)
    reader = ProgressReader(cast(Any, target), TOPIC, back=50)
    for time in range(10):
        target.report(time)
    assert [report.time for report in reader.poll()] == list(range(10))
    assert reader.poll() == []
    target.batches.clear()
    for time in (20, 21):
        target.report(time)
    assert [report.time for report in reader.poll()] == [20, 21]
    assert reader.poll() == []
