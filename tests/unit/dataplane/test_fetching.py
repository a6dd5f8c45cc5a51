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

    def __init__(self, limits: Any = None) -> None:
        self.there = {"t": TopicInfo("t", NO_TOPIC_ID, False, {0: PartitionInfo(0, 1, 0)})}
        self.cluster = SimpleNamespace(topics=self.there, brokers={1: None})
        self.fetcher = Fetcher(
            cast(Any, self.cluster),
            cast(Any, None),
            SETTINGS,
            lambda: True,
            lambda copy: None,
            limits,
        )
        self.copy: Any = SimpleNamespace(
            key=("t", 0),
            active=True,
            fetch_trouble=messages.NONE,
            ready_bytes=0,
            fetch_offset=1000,
            last_epoch=-1,
            source_epoch=-1,
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


class Limits:
    """A cap that holds back when it is told to."""

    def __init__(self) -> None:
        self.is_holding = False
        self.free: list[tuple[str, int]] = []

    def holds(self, key: tuple[str, int], now: float) -> bool:
        return self.is_holding

    def partition_bytes(self, topic: str, most: int) -> int:
        return most

    def released(self, now: float) -> list[tuple[str, int]]:
        free, self.free = self.free, []
        return free

    def fetch_bytes(self, brokers: int, now: float) -> int:
        return 0


def test_a_partition_that_a_cap_holds_back_is_left_out_of_the_session_until_it_is_released() -> (
    None
):
    limits = Limits()
    source = Source(limits)
    source.want()
    limits.is_holding = True
    source.want()
    assert not source.fetcher.is_wanted(source.copy)
    assert source.copy.fetch_trouble == messages.NONE
    limits.is_holding, limits.free = False, [("t", 0)]
    source.fetcher.pump()
    assert source.fetcher.is_wanted(source.copy)


def test_a_partition_that_failed_while_a_cap_held_it_back_is_not_read_when_it_is_released() -> None:
    limits = Limits()
    source = Source(limits)
    source.want()
    source.copy.active, limits.free = False, [("t", 0)]
    source.fetcher.pump()
    assert not source.fetcher.is_wanted(source.copy)


SOME_ID = bytes([7] * 16)


@pytest.mark.parametrize(
    ("version", "topic_id", "epoch", "must_validate"),
    [
        (11, SOME_ID, 5, False),
        (11, SOME_ID, 6, True),
        (11, SOME_ID, 4, False),  # a broker that is behind
        (11, NO_TOPIC_ID, 4, True),  # or a topic that was created again
        (13, SOME_ID, 6, False),  # the broker compares the last fetched epoch
        (None, SOME_ID, 6, True),
    ],
)
def test_a_new_leader_epoch_is_validated_where_fetch_does_not_tell_of_a_diverging_log(
    version: int | None, topic_id: bytes, epoch: int, must_validate: bool
) -> None:
    """An unclean election may have cut the log back, and the log may have grown past the position again since."""
    source = Source()
    source.fetcher._channels._versions = {} if version is None else {1: version}
    source.copy.source_epoch = 5
    source.there["t"] = TopicInfo("t", topic_id, False, {0: PartitionInfo(0, 1, epoch)})
    source.want()
    assert source.fetcher.is_wanted(source.copy) is not must_validate
    assert source.copy.fetch_trouble == (messages.FENCED_LEADER_EPOCH if must_validate else 0)


def test_a_partition_without_a_leader_is_waited_for_before_its_position_is_validated() -> None:
    """The controller of ZooKeeper clusters gives it a new epoch, and no leader: there is nobody to ask."""
    source = Source()
    source.fetcher._channels._versions = {1: 11}
    source.copy.source_epoch = 5
    source.there["t"] = TopicInfo("t", SOME_ID, False, {0: PartitionInfo(0, -1, 6)})
    source.want()
    assert source.copy.fetch_trouble == messages.LEADER_NOT_AVAILABLE
    assert not source.fetcher.must_validate(source.copy)
    source.there["t"] = TopicInfo("t", SOME_ID, False, {0: PartitionInfo(0, 1, 6)})
    source.copy.fetch_trouble = messages.NONE
    source.want()
    assert source.copy.fetch_trouble == messages.FENCED_LEADER_EPOCH


def test_an_answer_of_a_broker_that_is_behind_does_not_make_the_next_epoch_a_new_one() -> None:
    source = Source()
    for epoch in (5, 4, 5):
        source.there["t"] = TopicInfo("t", SOME_ID, False, {0: PartitionInfo(0, 1, epoch)})
        source.want()
    assert source.fetcher.is_wanted(source.copy)
