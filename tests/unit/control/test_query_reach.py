"""From which offsets on a query applies, as people are told."""

from __future__ import annotations

from sparkmirror.control.query_reach import QueryReach
from sparkmirror.formats.progress import PartitionProgress


def row(partition: int, since: int, until: int = -1, topic: str = "orders") -> PartitionProgress:
    name = f"A.{topic}"
    return PartitionProgress(topic, partition, name, 0, 0, 0, 0, 0, -1, since=since, until=until)


def test_nothing_to_tell() -> None:
    reach = QueryReach()
    assert not reach.take([row(0, -1)])
    assert reach.note == ""


def test_in_order_of_topic_and_partition() -> None:
    reach = QueryReach()
    assert reach.take([row(10, 990), row(2, 1234), row(0, 0, topic="clicks")])
    assert reach.note == (
        "The query applies from clicks-0 offset 0, orders-2 offset 1234, orders-10 offset 990 on."
    )
    assert not reach.take([row(2, 1234)])
    assert reach.take([row(2, 1300), row(0, -1, topic="clicks")])
    assert reach.note == "The query applies from orders-2 offset 1300, orders-10 offset 990 on."


def test_not_all_of_very_many() -> None:
    reach = QueryReach()
    reach.take([row(partition, 7) for partition in range(50)])
    assert "orders-19 offset 7 and 30 more on." in reach.note
    assert "orders-20" not in reach.note


def test_what_was_set_before_is_not_taken_for_what_is_set_now() -> None:
    reach = QueryReach()
    reach.take([row(0, 5), row(1, 5, until=80), row(2, -1, until=90)])
    assert reach.note == (
        "The query applies from orders-0 offset 5 on. What was set before still applies up to orders-1 offset 80, "
        "orders-2 offset 90."
    )
    reach.take([row(1, 81), row(2, -1)])
    assert reach.note == "The query applies from orders-0 offset 5, orders-1 offset 81 on."
