"""Which partitions are read: with clusters that are tables and nobody on the wire."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.fetching import Fetcher
from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import NO_TOPIC_ID, PartitionInfo, TopicInfo

SETTINGS = CopySettings()


class Source:
    """A source with one topic without an id, and its fetcher."""

    def __init__(self) -> None:
        self.there = {"t": TopicInfo("t", NO_TOPIC_ID, False, {0: PartitionInfo(0, 1, 0)})}
        self.cluster = SimpleNamespace(topics=self.there, brokers={1: None})
        self.fetcher = Fetcher(
            cast(Any, self.cluster), cast(Any, None), SETTINGS, lambda: True, lambda copy: None
        )
        self.copy: Any = SimpleNamespace(
            key=("t", 0),
            active=True,
            fetch_trouble=messages.NONE,
            ready_bytes=0,
            fetch_offset=1000,
            last_epoch=-1,
            is_source=lambda topic_id: True,
        )

    def want(self) -> None:
        self.fetcher.want(self.copy)


@pytest.mark.parametrize("buffered", [0, SETTINGS.partition_buffer_bytes])
def test_a_topic_that_is_gone_is_noticed_also_while_the_buffer_is_full(buffered: int) -> None:
    """When it is there again, it may be another one, which only its records tell before Kafka 2.8."""
    source = Source()
    source.want()
    assert source.fetcher.is_wanted(source.copy)
    source.cluster.topics, source.copy.ready_bytes = {}, buffered
    source.want()
    source.cluster.topics, source.copy.ready_bytes = source.there, 0
    source.want()
    assert source.copy.fetch_trouble == messages.UNKNOWN_TOPIC_OR_PARTITION
    assert not source.fetcher.is_wanted(source.copy)
