"""What is written beside the data: cut to what the topic takes, heard of once, and logged when it is refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.sending import NETWORK_EXCEPTION
from sparkmirror.dataplane.side_writes import Kind, Outcome, RefusalLog, SideWriter
from sparkmirror.kafka import messages, records
from sparkmirror.kafka.row_batches import Row
from tests.unit.dataplane.side_sender import FakeSender

KIND = Kind("positions", "They are written again.")
NOT_ENOUGH_REPLICAS = 19


class Writer:
    """Writes rows until all are written or none can be."""

    def __init__(self) -> None:
        self.sender = FakeSender()
        self.side: SideWriter[Row] = SideWriter(
            cast(Any, self.sender), "offsets", KIND, _size, list
        )
        self.again: list[Row] = []
        self.failed: list[Row] = []
        self.written: list[Row] = []

    def heard(self, rows: Sequence[Row], outcome: Outcome) -> None:
        kept = {
            Outcome.WRITTEN: self.written,
            Outcome.SPLIT: self.again,
            Outcome.FAILED: self.failed,
        }
        kept[outcome] += rows

    def write(self, rows: Sequence[Row]) -> None:
        self.side.write(0, rows, self.heard)


def _size(row: Row) -> int:
    return len(row[0]) + len(row[1] or b"") + 10


def sizes(writer: Writer) -> list[int]:
    return [len(side.batch) for side in writer.sender.writes]


def test_thousands_of_rows_go_in_batches_below_what_topics_take_by_default() -> None:
    writer = Writer()
    rows: list[Row] = [(b"%d" % number, bytes(400)) for number in range(10_000)]
    writer.write(rows)
    assert max(sizes(writer)) < 300 << 10
    sent = [
        (record.key, record.value)
        for side in writer.sender.writes
        for record in records.decode(memoryview(side.batch))
    ]
    assert sent == rows
    writer.sender.answer()
    assert writer.written == rows


@given(
    st.lists(st.integers(0, 600), min_size=1, max_size=40),
    st.integers(100, 1000),
)
def test_every_row_that_the_topic_takes_alone_is_written(lengths: list[int], most: int) -> None:
    writer = Writer()
    rows: list[Row] = [(b"%02d" % number, bytes(size)) for number, size in enumerate(lengths)]
    fitting = [row for row in rows if len(records.control_batch([row], 0)) <= most]
    writer.write(rows)
    for _ in range(12):
        writer.sender.answer_up_to(most)
        again, writer.again = writer.again, []
        if not again:
            break
        writer.write(again)
    assert not writer.again
    assert sorted(writer.written) == fitting
    assert sorted(writer.failed) == [row for row in rows if row not in fitting]


def test_what_has_no_leader_is_heard_of_as_failed() -> None:
    writer = Writer()
    writer.sender.takes = False
    writer.write([(b"a", b"")])
    assert writer.failed == [(b"a", b"")]


# -- log lines --------------------------------------------------------------------------------


class Refused:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.log = RefusalLog("offsets", KIND, FakeSender.settings)

    def says(self, code: int, now: float, outcome: Outcome = Outcome.FAILED) -> list[str]:
        self._caplog.clear()
        self.log.refused(0, code, None, outcome, now)
        return [f"{row.levelname} {row.getMessage()}" for row in self._caplog.records]


def test_a_refused_row_is_an_error_that_names_topic_cluster_cause_and_what_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = Refused(caplog).says(messages.MESSAGE_TOO_LARGE, 1.0)
    assert line.startswith("ERROR Writing positions to topic offsets on cluster B (b:9092): ")
    assert line.endswith(
        "TOO_LARGE. Raise max.message.bytes of topic offsets. They are written again."
    )


def test_a_missing_acl_is_named(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = Refused(caplog).says(messages.TOPIC_AUTHORIZATION_FAILED, 1.0)
    assert line.startswith("ERROR ")
    assert "Write" in line


def test_repeated_refusals_are_counted_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    refused = Refused(caplog)
    lines = [refused.says(messages.INVALID_RECORD, float(second)) for second in range(1201)]
    assert [second for second, found in enumerate(lines) if found] == [0, 600, 1200]
    assert lines[600][0].endswith("599 more refusals since the last such line.")


def test_that_batches_get_smaller_does_not_keep_an_error_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = Refused(caplog)
    (line,) = refused.says(messages.MESSAGE_TOO_LARGE, 1.0, Outcome.SPLIT)
    assert line.startswith("WARNING ")
    assert line.endswith("Smaller batches follow.")
    assert refused.says(messages.MESSAGE_TOO_LARGE, 2.0, Outcome.SPLIT) == []
    assert len(refused.says(messages.MESSAGE_TOO_LARGE, 3.0)) == 1


def test_one_error_does_not_keep_another_back(caplog: pytest.LogCaptureFixture) -> None:
    refused = Refused(caplog)
    for second, code in enumerate(
        [messages.MESSAGE_TOO_LARGE, messages.TOPIC_AUTHORIZATION_FAILED, messages.INVALID_RECORD]
    ):
        (line,) = refused.says(code, float(second))
        assert messages.error_name(code) in line
    lines = [refused.says(messages.MESSAGE_TOO_LARGE, 10.0 + number) for number in range(5)]
    assert lines == [[]] * 5
    (line,) = refused.says(messages.TOPIC_AUTHORIZATION_FAILED, 601.0)
    assert line.endswith("They are written again."), "refusals for another reason are not counted"
    (line,) = refused.says(messages.MESSAGE_TOO_LARGE, 602.0)
    assert line.endswith("5 more refusals since the last such line.")


def test_an_error_that_may_pass_is_logged_after_three_tries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = Refused(caplog)
    for second in range(3):
        assert refused.says(NOT_ENOUGH_REPLICAS, float(second)) == []
    refused.log.passed(0)
    for second in range(3):
        assert refused.says(NOT_ENOUGH_REPLICAS, 10.0 + second) == []
    (line,) = refused.says(NOT_ENOUGH_REPLICAS, 13.0)
    assert line.startswith("WARNING ")
    assert "NOT_ENOUGH_REPLICAS" in line
    assert "topic offsets" in line
    assert line.endswith("They are written again.")


def test_a_broken_connection_is_not_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    refused = Refused(caplog)
    assert [refused.says(NETWORK_EXCEPTION, float(second)) for second in (0, 100, 1000)] == [[]] * 3
