"""Retries that an operator should know of."""

from __future__ import annotations

import logging

import pytest

from sparkmirror.dataplane.retries import Cause, RetryLog
from sparkmirror.kafka.cluster import QUIET_TRIES

FULL = Cause("writing to cluster B", "NOT_ENOUGH_REPLICAS")
GONE = Cause("reading from cluster A", "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparkmirror.dataplane.retries")


def test_a_few_tries_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    retries = RetryLog("A->B")
    for tries in range(1, QUIET_TRIES + 1):
        retries.failed("t-0", FULL, tries, 0.1)
    retries.tell(0.0)
    retries.passed("t-0")
    retries.tell(1.0)
    assert caplog.messages == []


def test_what_is_tried_more_often_is_told_with_its_cause_and_the_next_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retries = RetryLog("A->B")
    retries.failed("t-0", FULL, QUIET_TRIES + 1, 0.8)
    retries.tell(0.0)
    expected = (
        "Flow A->B: retrying t-0: writing to cluster B: NOT_ENOUGH_REPLICAS; 4 tries so far, "
        "next try in 0.8 s."
    )
    assert caplog.messages == [expected]


def test_one_line_for_a_cause_however_many_partitions_and_tries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retries = RetryLog("A->B")
    for second in range(35):
        for partition in range(7):
            retries.failed(f"t-{partition}", FULL, 4 + second, 1.0)
        retries.tell(float(second))
    assert len(caplog.messages) == 2
    assert all("t-0, t-1, t-2, t-3, t-4 and 2 more" in line for line in caplog.messages)
    assert "34 tries so far" in caplog.messages[1]


def test_each_cause_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    retries = RetryLog("A->B")
    retries.failed("t-0", FULL, 4, 1.0)
    retries.failed("u-0", GONE, 4, 1.0)
    retries.tell(0.0)
    assert len(caplog.messages) == 2


def test_only_what_was_told_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retries = RetryLog("A->B")
    retries.failed("t-0", FULL, 4, 1.0)
    retries.tell(0.0)
    retries.failed("t-0", FULL, 9, 1.0)
    retries.passed("t-0")
    retries.passed("t-1")
    retries.tell(1.0)
    retries.tell(2.0)
    retries.tell(40.0)  # when the cause would have its next line
    assert caplog.messages[1:] == ["Flow A->B: t-0 recovered after 9 tries."]


def test_what_has_recovered_before_the_line_is_due_has_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retries = RetryLog("A->B")
    retries.failed("t-0", FULL, 4, 1.0)
    retries.failed("t-1", FULL, 4, 1.0)
    retries.passed("t-0")
    retries.tell(0.0)
    (line,) = caplog.messages
    assert "retrying t-1: " in line


def test_a_cause_that_came_back_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    retries = RetryLog("A->B")
    retries.failed("t-0", FULL, 4, 1.0)
    retries.tell(0.0)
    retries.tell(40.0)
    retries.failed("t-0", FULL, 4, 1.0)
    retries.tell(41.0)
    assert len(caplog.messages) == 2
