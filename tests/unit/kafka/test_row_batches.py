"""How rows of our own topics are put into batches, and what happens to those that a broker refuses as too large."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.control.topic_log import by_partition
from sparkmirror.errors import BrokerError
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka import messages
from sparkmirror.kafka.row_batches import BATCH_BYTES, Row, append_in_batches, cut, row_size

ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.binary(max_size=5), st.binary(max_size=200) | st.none()), max_size=30
)


class Topic:
    """Takes batches up to a size."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.batches: list[list[Row]] = []
        self.refused = 0

    def append(self, rows: Sequence[Row]) -> None:
        if sum(map(row_size, rows)) > self.most:
            self.refused += 1
            raise messages.broker_error(messages.MESSAGE_TOO_LARGE, "Writing to t")
        self.batches.append(list(rows))

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]


@given(ROWS, st.integers(1, 5))
def test_every_row_goes_to_its_partition_and_rows_of_one_partition_keep_their_order(
    rows: list[Row], partitions: int
) -> None:
    found = by_partition(rows, partitions)
    assert sorted(row for part in found.values() for row in part if row[1]) == sorted(
        row for row in rows if row[1]
    )
    for partition, part in found.items():
        assert part == [row for row in rows if default_partition(row[0], partitions) == partition]


@given(ROWS, st.integers(1, 500))
def test_parts_keep_the_order_and_are_no_larger_than_asked_unless_a_row_is(
    rows: list[Row], most: int
) -> None:
    parts = list(cut(rows, row_size, most))
    assert [row for part in parts for row in part] == rows
    assert all(part for part in parts)
    assert all(len(part) == 1 or sum(map(row_size, part)) <= most for part in parts)
    for one, following in pairwise(parts):
        assert sum(map(row_size, one)) + row_size(following[0]) > most, "it had room"


@given(ROWS, st.integers(240, 1000))
def test_a_batch_that_is_refused_as_too_large_is_halved(rows: list[Row], most: int) -> None:
    topic = Topic(most)
    append_in_batches("t", rows, topic.append)
    assert topic.rows == rows


def test_batches_stay_below_what_topics_take_by_default_and_a_small_limit_is_learned_once() -> None:
    rows: list[Row] = [(b"%d" % number, bytes(400)) for number in range(10_000)]
    topic = Topic(1 << 20)
    append_in_batches("t", rows, topic.append)
    assert (topic.rows, topic.refused) == (rows, 0)
    assert max(sum(map(row_size, batch)) for batch in topic.batches) <= BATCH_BYTES
    small = Topic(2000)
    append_in_batches("t", rows, small.append)
    assert small.rows == rows
    assert small.refused < 10


def test_a_single_row_that_is_too_large_is_an_error_that_names_the_topic() -> None:
    rows: list[Row] = [(b"a", b"x"), (b"b", bytes(3000)), (b"c", b"y")]
    topic = Topic(2000)
    with pytest.raises(BrokerError, match=r"Raise max\.message\.bytes of topic t\."):
        append_in_batches("t", rows, topic.append)
    assert topic.rows == rows[:1]


def test_another_refusal_is_not_tried_in_smaller_batches() -> None:
    tries: list[int] = []

    def append(rows: Sequence[Row]) -> None:
        tries.append(len(rows))
        raise messages.broker_error(messages.TOPIC_AUTHORIZATION_FAILED, "Writing to t")

    with pytest.raises(BrokerError):
        append_in_batches("t", [(b"a", b""), (b"b", b"")], append)
    assert tries == [2]
