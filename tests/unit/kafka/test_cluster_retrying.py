"""What a cluster makes of answers: retried requests, of which what lasts is logged; and topics."""

from __future__ import annotations

import time
import uuid

import pytest
from kafka.protocol.metadata import MetadataResponse

from sparkmirror.errors import BrokerError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings, client_settings

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


def test_names_that_no_topic_can_have_are_not_taken() -> None:
    """A broker that a config names may answer anything; long names cost time in every rule that looks at names."""
    cluster = Cluster(ClientSettings("A", (("127.0.0.1", 1),)))
    names = ["t", "a." * 100_000 + "b", "x" * 249, "x" * 250]
    topics = [
        MetadataResponse.MetadataResponseTopic(
            error_code=0, name=name, topic_id=uuid.uuid4(), is_internal=False, partitions=[]
        )
        for name in names
    ]
    answer = MetadataResponse(brokers=[], controller_id=0, topics=topics)
    cluster._take(answer, is_whole=True)
    assert cluster.topics.keys() == {"t", "x" * 249}
