"""When the offset map is known to be written, so that a position may follow."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.mapping import MapSender
from sparkmirror.errors import KafkaError
from sparkmirror.formats.offset_map import Place, Run, TopicIds
from sparkmirror.kafka import messages
from sparkmirror.offsets import map_writer
from tests.unit.dataplane.side_sender import FakeSender

TOPIC = "mm2-offset-map.A.internal"
PLACE, OTHER = Place("orders", 0, "A.orders", 0), Place("orders", 1, "A.orders", 1)


class Told(list[bool]):
    """What `flush_then` was answered with."""


def made(*topics: str) -> tuple[MapSender, FakeSender]:
    mapping, sender, _ = on_cluster(*topics)
    return mapping, sender


def on_cluster(*topics: str) -> tuple[MapSender, FakeSender, SimpleNamespace]:
    sender = FakeSender()
    hidden: set[str] = set()
    cluster = SimpleNamespace(
        topics=dict.fromkeys(topics),
        hidden=hidden,
        is_hidden=hidden.__contains__,
        settings=sender.settings,
    )
    return MapSender(TOPIC, cast(Any, cluster), cast(Any, sender)), sender, cluster


def test_a_position_follows_what_was_acknowledged_so_far() -> None:
    mapping, sender = made(TOPIC)
    told = Told()
    mapping.flush_then(told.append)
    assert told == [True], "there is nothing to write"
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    mapping.flush_then(told.append)
    assert told == [True], "not yet"
    mapping.found(OTHER, TopicIds(), [Run(0, 0, 3)])
    sender.answer()
    assert told == [True, True], "what came later does not matter"


def test_all_targets_of_a_partition_begin_a_segment_when_it_was_aligned() -> None:
    """What a query sent elsewhere may have been overtaken just as well."""
    mapping, _ = made(TOPIC)
    elsewhere = Place("orders", 0, "elsewhere", 3)
    for place in (PLACE, elsewhere, OTHER):
        mapping.found(place, TopicIds(), [Run(0, 0, 10)])
    mapping.interrupt({("orders", 0)})
    for place in (PLACE, elsewhere, OTHER):  # another copy wrote 10..20 in between
        mapping.found(place, TopicIds(), [Run(20, 20, 10)])
    found = [(s.place, s.target_start, s.target_end) for s in mapping._writer.take()]
    assert sorted(found) == sorted(
        [(PLACE, 0, 10), (PLACE, 20, 30), (elsewhere, 0, 10), (elsewhere, 20, 30), (OTHER, 0, 30)]
    )


def test_it_does_not_follow_a_write_that_failed() -> None:
    mapping, sender = made(TOPIC)
    told = Told()
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    mapping.flush_then(told.append)
    sender.answer(messages.UNKNOWN_TOPIC_OR_PARTITION)
    assert told == [False]
    mapping.flush_then(told.append)
    assert len(sender.writes) == 1, "it is written again"
    sender.answer()
    assert told == [False, True]


def test_it_does_not_follow_a_write_that_is_still_under_way() -> None:
    mapping, sender = made(TOPIC)
    told = Told()
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    mapping.flush()
    mapping.found(PLACE, TopicIds(), [Run(3, 3, 3)])
    mapping.flush_then(told.append)
    assert told == [False]
    sender.answer()
    assert told == [False], "only what is told later counts"


def test_without_a_map_nothing_is_waited_for() -> None:
    """A topic that may never be there, or that we may not see, keeps no position back."""
    mapping, sender, cluster = on_cluster()
    told = Told()
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    mapping.flush_then(told.append)
    assert told == [True]
    assert not sender.writes
    cluster.hidden.add(TOPIC)
    mapping.flush()
    assert not sender.writes
    assert mapping._writer.is_idle, "nothing piles up"


def test_a_topic_that_is_deleted_meanwhile_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    mapping, sender, cluster = on_cluster(TOPIC)
    told = Told()
    mapping.flush_then(told.append)
    assert told.pop(), "there is nothing to write"
    del cluster.topics[TOPIC]
    sender.takes = False
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    for _ in range(2):
        mapping.flush_then(told.append)
        assert not told.pop(), "the map does not have it"
    for _ in range(8):
        mapping._retry_at = 0.0
        mapping.flush()
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert TOPIC in warning
    assert str(sender.settings) in warning
    assert "group offsets are translated without them" in warning
    assert "create it yourself, compacted and with one partition" in warning
    with pytest.raises(KafkaError, match="was deleted"):
        mapping.finish()
    cluster.topics[TOPIC] = None
    sender.takes = True
    mapping.flush_then(told.append)
    sender.answer()
    assert told == [True]


def test_a_topic_that_may_not_be_seen_any_more_is_not_taken_for_written() -> None:
    mapping, sender, cluster = on_cluster(TOPIC)
    told = Told()
    mapping.flush()
    del cluster.topics[TOPIC]
    cluster.hidden.add(TOPIC)
    sender.takes = False
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    for _ in range(2):
        mapping.flush()
        mapping.flush_then(told.append)
    assert told == [False, False]


def test_a_missing_topic_is_not_tried_at_every_flush() -> None:
    mapping, sender, cluster = on_cluster(TOPIC)
    mapping.flush()
    del cluster.topics[TOPIC]
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    for _ in range(3):
        mapping.flush()
        sender.answer(messages.UNKNOWN_TOPIC_OR_PARTITION)
    assert mapping._retry_at > time.monotonic()
    mapping.flush()
    assert not sender.writes


def test_what_a_missing_topic_is_tried_with_does_not_grow_with_the_partitions() -> None:
    mapping, sender, cluster = on_cluster(TOPIC)
    mapping.flush()
    del cluster.topics[TOPIC]
    for number in range(100):
        mapping.found(PLACE._replace(partition=number), TopicIds(), [Run(0, 0, 3)])
    mapping.flush()
    sender.answer(messages.UNKNOWN_TOPIC_OR_PARTITION)
    assert mapping._under_way <= 1
    cluster.topics[TOPIC] = None
    mapping.flush()
    assert mapping._under_way == 100, "none is lost"


def test_what_cannot_be_written_is_bounded_and_never_taken_for_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(map_writer, "MOST_CLOSED", 10)
    mapping, sender = made(TOPIC)
    told = Told()
    for number in range(50):  # none follows the other
        mapping.interrupt({PLACE[:2]})
        mapping.found(PLACE, TopicIds(), [Run(10 * number, 5 * number, 3)])
        mapping.flush()
        sender.answer(messages.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(mapping._writer.take()) <= 11
    mapping.flush_then(told.append)
    assert told == [False], "some of it is not in the map"


def test_a_sender_that_takes_nothing() -> None:
    mapping, sender = made(TOPIC)
    sender.takes = False
    told = Told()
    mapping.found(PLACE, TopicIds(), [Run(0, 0, 3)])
    mapping.flush_then(told.append)
    assert told == [False]


def test_a_map_that_is_refused_as_too_large_is_written_in_smaller_batches() -> None:
    mapping, sender = made(TOPIC)
    told = Told()
    places = [Place("orders", number, "A.orders", number) for number in range(40)]
    for place in places:
        mapping.found(place, TopicIds(), [Run(0, 0, 3)])
    mapping.flush_then(told.append)
    (whole,) = sender.writes
    most = len(whole.batch) // 6
    rounds = 0
    while sender.writes:
        sender.answer_up_to(most)
        rounds += 1
    assert told == [False], "the position waits for the next flush"
    assert rounds == 4, "it is halved without waiting for the next report"
    mapping.flush_then(told.append)
    assert told == [False, True], "all of it is written"
