"""A topic of the worker that is followed: what somebody has put there keeps nobody from reading on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkmirror.control.log_tail import LogTail
from sparkmirror.dataplane.stream import Stream
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_COMMITTED, Fetched
from sparkmirror.kafka.settings import ClientSettings
from tests.unit.offsets.bombed_log import bombed


def test_a_batch_that_cannot_be_opened_is_passed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(ClientSettings("B", (("127.0.0.1", 1),)))
    read: list[bytes | None] = []
    tail = LogTail(cluster, "configs", lambda _, offset, key, value, time: read.append(key))
    tail._streams[0] = Stream(0, READ_COMMITTED)
    monkeypatch.setattr(tail, "_want", lambda partition: True)
    answer = Fetched("configs", 0, 0, 3, 3, 0, [], -1, memoryview(bombed()), None)
    for _ in range(3):  # what is left of an answer is read again
        tail._take(1, cast(Any, answer))
    assert read == [b"before", b"behind"]
    assert tail.positions[0] == 3
    assert "They are skipped" in caplog.text
    tail.close()
