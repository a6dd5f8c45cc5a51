"""When offset syncs are due, and how they queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.formats.mirror import OffsetSync
from sparkmirror.offsets.syncs import MAX_IN_FLIGHT, OffsetSyncQueue, PartitionSyncs

T0 = ("topic", 0)


def sync(upstream: int, downstream: int, partition: int = 0) -> OffsetSync:
    return OffsetSync("topic", partition, upstream, downstream)


def test_the_sequence_of_the_contract() -> None:
    syncs = PartitionSyncs(50)
    expected = [
        ((0, 100), True),  # the first
        ((2, 102), True),  # a gap upstream
        ((3, 152), False),
        ((4, 153), True),  # too far from the last sync
        ((5, 154), False),
        ((6, 203), False),
        ((7, 204), True),
        ((2, 206), True),  # back upstream
        ((3, 207), False),
        ((4, 3), True),  # back downstream
        ((5, 4), False),
        ((7, 6), True),
    ]
    assert [(pair, syncs.update(*pair)) for pair, _ in expected] == expected


def test_with_no_lag_allowed_every_record_is_due() -> None:
    syncs = PartitionSyncs(0)
    pairs = [(0, 100), (2, 102), (3, 153), (4, 154), (5, 155), (6, 207), (2, 208), (3, 209), (4, 3)]
    assert all(syncs.update(*pair) for pair in pairs)


def test_a_batch_of_126_records_has_the_syncs_that_kafka_writes() -> None:
    assert PartitionSyncs(100).update_run(0, 0, 126) == [(0, 0), (101, 101)]


_OFFSET = st.integers(0, 400)
_RUNS = st.lists(st.tuples(_OFFSET, _OFFSET, st.integers(0, 120)), max_size=8)


@given(st.integers(-3, 60), _RUNS)
def test_a_run_is_what_its_records_are_one_by_one(
    max_lag: int, runs: list[tuple[int, int, int]]
) -> None:
    by_run, by_record = PartitionSyncs(max_lag), PartitionSyncs(max_lag)
    for upstream, downstream, count in runs:
        pairs = [(upstream + i, downstream + i) for i in range(count)]
        expected = [pair for pair in pairs if by_record.update(*pair)]
        assert by_run.update_run(upstream, downstream, count) == expected


@given(st.integers(0, 60), st.lists(st.integers(1, 200), min_size=1, max_size=10), _OFFSET, _OFFSET)
def test_where_a_stream_is_cut_into_runs_does_not_matter(
    max_lag: int, counts: list[int], upstream: int, downstream: int
) -> None:
    whole = PartitionSyncs(max_lag).update_run(upstream, downstream, sum(counts))
    cut = PartitionSyncs(max_lag)
    found: list[tuple[int, int]] = []
    for count in counts:
        found += cut.update_run(upstream, downstream, count)
        upstream, downstream = upstream + count, downstream + count
    assert found == whole


def test_a_huge_run_costs_nothing_in_the_queue() -> None:
    queue = OffsetSyncQueue(0)
    queue.acked(T0, 0, 0, 10**12)  # would never end if it took the records one by one
    assert queue.take_ready() == [sync(0, 0), sync(10**12 - 1, 10**12 - 1)]


def test_the_first_record_is_sent_at_once_and_the_next_waits_for_a_commit() -> None:
    queue = OffsetSyncQueue(50)
    queue.acked(T0, 0, 1, 1)
    assert queue.take_ready() == [sync(0, 1)]
    queue.acked(T0, 1, 2, 1)
    assert queue.take_ready() == []
    queue.promote()
    assert queue.take_ready() == [sync(1, 2)]
    queue.promote()
    assert queue.take_ready() == [], "sent once"


def test_a_delayed_sync_is_promoted_with_its_latest_value() -> None:
    queue = OffsetSyncQueue(50)
    queue.acked(T0, 0, 100, 1)
    queue.take_ready()
    queue.acked(T0, 1, 101, 4)
    queue.acked(T0, 5, 105, 2)
    queue.promote()
    assert queue.take_ready() == [sync(6, 106)]


def test_the_newest_sync_of_a_partition_wins() -> None:
    queue = OffsetSyncQueue(0)
    for upstream in range(3):
        queue.acked(T0, upstream, upstream, 1)
    assert queue.take_ready() == [sync(2, 2)]


def test_a_due_sync_replaces_the_delayed_one() -> None:
    queue = OffsetSyncQueue(10)
    queue.acked(T0, 0, 0, 2)
    queue.acked(T0, 20, 20, 1)
    assert queue.take_ready() == [sync(20, 20)]
    queue.promote()
    assert queue.take_ready() == []


def test_a_promoted_sync_replaces_a_pending_one() -> None:
    queue = OffsetSyncQueue(10)
    queue.acked(T0, 0, 0, 5)
    queue.promote()
    assert queue.take_ready() == [sync(4, 4)]


def test_a_run_keeps_its_first_and_its_last_due_sync_and_its_end() -> None:
    queue = OffsetSyncQueue(100)
    queue.acked(T0, 7, 1007, 1000)
    assert queue.take_ready() == [sync(7, 1007), sync(7 + 909, 1007 + 909)]
    queue.promote()
    assert queue.take_ready() == [sync(1006, 2006)]


def test_no_more_than_ten_are_in_flight() -> None:
    queue = OffsetSyncQueue(50)
    for partition in range(MAX_IN_FLIGHT + 5):
        queue.acked(("topic", partition), 0, 0, 1)
    first = queue.take_ready()
    assert first == [sync(0, 0, partition) for partition in range(MAX_IN_FLIGHT)]
    assert queue.in_flight == MAX_IN_FLIGHT
    assert queue.take_ready() == []
    queue.sent_done(3)
    assert [s.partition for s in queue.take_ready()] == [10, 11, 12]
    queue.sent_done(10)
    assert [s.partition for s in queue.take_ready()] == [13, 14]


def test_syncs_that_are_given_back_are_sent_again_unless_newer_ones_wait() -> None:
    queue = OffsetSyncQueue(100)
    queue.acked(("t", 0), 0, 0, 150)
    queue.acked(("t", 1), 0, 0, 1)
    taken = queue.take_ready()
    assert [(s.partition, s.upstream_offset) for s in taken] == [(0, 0), (0, 101), (1, 0)]
    queue.acked(("t", 1), 500, 1, 1)
    queue.give_back(taken)
    assert queue.in_flight == 0
    again = queue.take_ready()
    assert [(s.partition, s.upstream_offset) for s in again] == [(0, 0), (0, 101), (1, 500)]


def test_more_cannot_be_done_than_are_in_flight() -> None:
    with pytest.raises(ValueError, match="1 syncs done, but 0"):
        OffsetSyncQueue(1).sent_done()


def test_an_empty_run_changes_nothing() -> None:
    queue = OffsetSyncQueue(1)
    queue.acked(T0, 5, 5, 0)
    queue.promote()
    assert queue.take_ready() == []
    assert PartitionSyncs(1).update_run(0, 0, 0) == []


class JavaWriter:
    """The record-by-record rule of the contract, in the plainest words, as an oracle."""

    def __init__(self, max_lag: int) -> None:
        self.state: dict[int, PartitionSyncs] = {}
        self.max_lag = max_lag
        self.pending: dict[int, OffsetSync] = {}
        self.delayed: dict[int, OffsetSync] = {}
        self.in_flight = 0

    def acked(self, partition: int, upstream: int, downstream: int) -> None:
        state = self.state.setdefault(partition, PartitionSyncs(self.max_lag))
        if state.update(upstream, downstream):
            self.delayed.pop(partition, None)
            self.pending[partition] = sync(upstream, downstream, partition)
        else:
            self.delayed[partition] = sync(upstream, downstream, partition)

    def promote(self) -> None:
        self.pending |= self.delayed
        self.delayed.clear()

    def take_ready(self) -> list[OffsetSync]:
        ready = []
        while self.pending and self.in_flight < MAX_IN_FLIGHT:
            ready.append(self.pending.pop(next(iter(self.pending))))
            self.in_flight += 1
        return ready


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.integers(0, 14), _OFFSET, _OFFSET),
        st.tuples(st.just("promote"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("take"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("done"), st.integers(1, 4), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(st.integers(0, 30), _STEPS)
def test_single_records_queue_as_in_kafka(
    max_lag: int, steps: list[tuple[str, int, int, int]]
) -> None:
    queue, java = OffsetSyncQueue(max_lag), JavaWriter(max_lag)
    for what, number, upstream, downstream in steps:
        if what == "ack":
            queue.acked(("topic", number), upstream, downstream, 1)
            java.acked(number, upstream, downstream)
        elif what == "promote":
            queue.promote()
            java.promote()
        elif what == "take":
            assert queue.take_ready() == java.take_ready()
        else:
            done = min(number, java.in_flight)
            queue.sent_done(done)
            java.in_flight -= done
        assert queue.in_flight == java.in_flight <= MAX_IN_FLIGHT
