"""Retried requests: what lasts is logged, what passes soon is not."""

from __future__ import annotations

import time

import pytest

from sparkmirror.errors import BrokerError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings

SETTINGS = {
    "bootstrap.servers": "localhost:1",
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "1",
}


class Action:
    """Fails a number of times."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    def __call__(self) -> str:
        self._failures -= 1
        if self._failures >= 0:
            raise BrokerError(19, "NOT_ENOUGH_REPLICAS", "Writing to topic t", retriable=True)
        return "done"


@pytest.mark.parametrize(("failures", "lines"), [(0, 0), (3, 0), (4, 1), (20, 1)])
def test_more_than_three_tries_are_logged_once(
    caplog: pytest.LogCaptureFixture, failures: int, lines: int
) -> None:
    cluster = Cluster(client_settings("B", SETTINGS))
    assert cluster.retrying(Action(failures), time.monotonic() + 60) == "done"
    found = [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]
    assert len(found) == lines
    assert all("Writing to topic t" in line and "next try in" in line for line in found)


def test_an_error_is_raised_when_the_time_is_over() -> None:
    cluster = Cluster(client_settings("B", SETTINGS))
    with pytest.raises(BrokerError):
        cluster.retrying(Action(1), time.monotonic() - 1)
