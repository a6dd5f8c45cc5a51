"""One partition on its way: whatever the target answers, its log gets every record once and in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.dataplane.addressing import Sent
from sparkmirror.dataplane.partition import Budget, PartitionCopy
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.stream import SMALL_BATCH
from sparkmirror.errors import CorruptBatch, RecordTooLarge
from sparkmirror.formats.position import Fingerprint, Numbering, Position
from sparkmirror.kafka import messages
from sparkmirror.kafka.batches import HEADER_SIZE, LOG_APPEND_TIME, Batch, crc_of
from sparkmirror.kafka.cluster import NO_TOPIC_ID
from sparkmirror.kafka.fetch import FetchLimits
from sparkmirror.kafka.records import NewRecord
from tests.unit.making import (
    Content,
    batch,
    content,
    fetched,
    independent,
    marker,
    record,
    sealed,
)

NETWORK_EXCEPTION = 13
LAST_SEQUENCE = (1 << 31) - 1


@dataclass
class Listener:
    """Remembers what a partition told."""

    acks: list[tuple[int, int, int]] = field(default_factory=list)
    changes: int = 0
    moves: int = 0

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        self.acks.append((sent.first_offset, sent.last_offset, base_offset))

    def moved(self, copy: PartitionCopy) -> None:
        self.moves += 1

    def changed(self, copy: PartitionCopy) -> None:
        self.changes += 1


class TargetLog:
    """A leader's rules for one partition: sizes, gapless batches, sequence numbers, five batches remembered."""

    def __init__(self, limit: int = 1 << 30, first_sequence: int = 0, end: int = 1000) -> None:
        self.limit = limit
        self._start = end
        self.records: list[Content] = []
        self.batches: list[int] = []
        self._next = first_sequence
        self._last: deque[tuple[int, int, int]] = deque(maxlen=5)

    def produce(self, buffer: bytearray | memoryview, numbering: Numbering) -> tuple[int, int]:
        view = memoryview(bytes(buffer))
        header = Batch(view)
        rows = [content(row) for row in independent(view)]
        assert (header.producer_id, header.producer_epoch) == (
            numbering.producer_id,
            numbering.epoch,
        )
        assert header.base_offset == 0
        assert header.is_verbatim
        assert len(rows) == header.count
        if len(view) > self.limit:
            return messages.MESSAGE_TOO_LARGE, -1
        for sequence, count, base in self._last:
            if (sequence, count) == (header.base_sequence, header.count):
                return messages.NONE, base
        if header.base_sequence != self._next:
            return messages.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = self._start + len(self.records)
        self._last.append((header.base_sequence, header.count, base))
        self._next = (self._next + header.count) % (1 << 31)
        self.records += rows
        self.batches.append(header.count)
        return messages.NONE, base


NUMBERING = Numbering(7, 2)


def new_copy(
    start: int = 0,
    sequence: int = 0,
    budget: Budget | None = None,
    listener: Listener | None = None,
    **options: int,
) -> PartitionCopy:
    copy = PartitionCopy(
        PartitionPlan("t", 0, "A.t"),
        CopySettings(fetch=FetchLimits(), **options),  # type: ignore[arg-type]
        budget or Budget(1 << 30),
        listener or Listener(),
    )
    copy.restart(Position(start - 1, NUMBERING, sequence, target_offset=1000))
    return copy


def drain(copy: PartitionCopy, log: TargetLog) -> list[Sent]:
    """Send everything, one batch after the other."""
    found = []
    while (sent := copy.next_batch()) is not None:
        found.append(sent)
        copy.result(sent, *log.produce(sent.buffer, NUMBERING), None)
    return found


def contents(count: int, start: int = 0, size: int = 0) -> list[Content]:
    return [content(record(start + i, size)) for i in range(count)]


def singles(count: int, size: int = 0, codec: int = 0) -> list[memoryview]:
    return [batch([record(i, size)], base=i, codec=codec) for i in range(count)]


def test_a_whole_batch_goes_out_as_the_same_bytes() -> None:
    copy, log = new_copy(), TargetLog()
    view = batch([record(i, 2000) for i in range(5)], codec=4, producer=(99, 9, 9))
    crc = crc_of(view)
    copy.feed(fetched([view]))
    (sent,) = drain(copy, log)
    assert sent.buffer[HEADER_SIZE:] == view[HEADER_SIZE:]
    assert log.records == contents(5, size=2000)
    assert copy.position == Position(4, NUMBERING, 5, 1005, Fingerprint(0, crc))
    assert (copy.records, copy.is_idle, copy.has_work) == (5, True, False)


def test_small_batches_are_merged_when_several_wait() -> None:
    copy, log = new_copy(merge_bytes=10_000), TargetLog()
    copy.feed(fetched(singles(1000)))
    sent = drain(copy, log)
    assert log.records == contents(1000)
    assert len(sent) < 20
    assert all(len(one.buffer) < 10_000 + SMALL_BATCH for one in sent)
    assert [one.sequence for one in sent] == [sum(log.batches[:i]) for i in range(len(sent))]


def test_a_single_small_batch_is_not_rebuilt() -> None:
    copy, log = new_copy(), TargetLog()
    for view in singles(3):
        copy.feed(fetched([view]))
        (sent,) = drain(copy, log)
        assert sent.buffer is sent.pieces[0].view
    assert log.batches == [1, 1, 1]


def test_only_batches_of_one_codec_are_merged_and_large_ones_stay_whole() -> None:
    copy, log = new_copy(), TargetLog()
    small = [batch([record(i)], base=i, codec=4 if i >= 10 else 0) for i in range(20)]
    large = batch([record(20, SMALL_BATCH)], base=20)
    copy.feed(fetched([*small, large, batch([record(21)], base=21)]))
    sent = drain(copy, log)
    assert log.batches == [10, 10, 1, 1]
    assert [Batch(memoryview(one.buffer)).codec for one in sent] == [0, 4, 0, 0]
    assert log.records == [*contents(20), *contents(1, 20, SMALL_BATCH), *contents(1, 21)]


def test_a_batch_that_cannot_be_opened_is_not_merged_but_copied_as_it_is() -> None:
    """Also its neighbours arrive, one of which had to be opened before."""
    odd = bytearray(batch([NewRecord(1, 1, b"k", b"v", [("name", b"x")])], base=1))
    odd[odd.find(b"name")] = 0xFF
    copy = new_copy(sequence=5)
    copy.feed(fetched([batch([record(0)]), sealed(odd), batch([record(3)], base=2)]))
    sent = []
    while (one := copy.next_batch()) is not None:
        sent.append(one)
        copy.result(one, messages.NONE, 1000 + len(sent), None)
    assert [(one.first_offset, one.sequence) for one in sent] == [(0, 5), (1, 6), (3, 7)]
    assert sent[1].buffer[HEADER_SIZE:] == memoryview(odd)[HEADER_SIZE:]


def sending(count: int, max_in_flight: int = 5) -> tuple[PartitionCopy, list[Sent]]:
    """A partition whose first batch was acknowledged, with as many of `count` more under way as may be."""
    copy = new_copy(max_in_flight=max_in_flight)
    copy.feed(fetched(singles(count + 1, SMALL_BATCH)))
    first = copy.next_batch()
    assert first is not None
    copy.result(first, messages.NONE, 1000, None)
    sent = []
    while (one := copy.next_batch()) is not None:
        sent.append(one)
    return copy, sent


def test_no_more_than_the_allowed_batches_are_outstanding() -> None:
    copy, sent = sending(10, max_in_flight=3)
    assert len(sent) == copy.outstanding == 3
    copy.result(sent[0], messages.NONE, 1001, None)
    assert copy.next_batch() is not None
    assert copy.next_batch() is None


def test_a_leader_that_may_not_know_us_gets_one_batch_first() -> None:
    """From a producer that it does not know it takes any number, also that of a batch which overtook another."""
    copy = new_copy()
    copy.feed(fetched(singles(3, SMALL_BATCH)))
    first = copy.next_batch()
    assert first is not None
    assert copy.next_batch() is None
    copy.result(first, messages.NONE, 1000, None)
    assert copy.next_batch() is not None
    assert copy.next_batch() is not None


def test_after_trouble_the_same_bytes_go_out_under_the_same_numbers() -> None:
    copy, sent = sending(3)
    before = [(one.sequence, bytes(one.buffer)) for one in sent]
    copy.result(sent[0], messages.NOT_LEADER_OR_FOLLOWER, -1, None)
    assert copy.trouble == messages.NOT_LEADER_OR_FOLLOWER
    assert copy.next_batch() is None
    copy.result(sent[1], messages.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, None)
    copy.result(sent[2], messages.NONE, 1003, None)
    assert copy.trouble == messages.NOT_LEADER_OR_FOLLOWER
    assert copy.outstanding == 0
    assert copy.position.offset == 0
    copy.resend()
    again = []
    while (one := copy.next_batch()) is not None:
        again.append((one.sequence, bytes(one.buffer)))
        copy.result(one, messages.NONE, 1000 + len(again), None)
    assert again == before
    assert copy.position.offset == 3


def test_an_acknowledgement_before_what_was_acknowledged_is_a_log_that_was_cut_back() -> None:
    copy, sent = sending(2)
    copy.result(sent[0], messages.NONE, 900, None)
    assert copy.trouble == messages.DUPLICATE_SEQUENCE_NUMBER
    assert copy.position.offset == 0


def test_an_acknowledgement_without_an_offset_is_not_believed() -> None:
    copy = new_copy()
    copy.feed(fetched(singles(1)))
    sent = copy.next_batch()
    assert sent is not None
    copy.result(sent, messages.NONE, -1, None)
    assert copy.trouble == messages.DUPLICATE_SEQUENCE_NUMBER
    assert copy.position.offset == -1


@pytest.mark.parametrize("codec", [0, 4])
def test_what_is_too_large_is_split_under_the_same_numbers(codec: int) -> None:
    copy, log = new_copy(), TargetLog(limit=2000)
    rows = [NewRecord(i, i, b"k", bytes((i * j) % 251 for j in range(400)), []) for i in range(40)]
    copy.feed(fetched([batch(rows[:20], codec=codec), batch(rows[20:], base=20, codec=codec)]))
    _converge(copy, log)
    assert log.records == [content(row) for row in rows]
    assert copy.position.offset == 39
    assert copy.position.sequence == 40


def test_a_limit_that_is_known_is_not_run_into_again() -> None:
    copy, log = new_copy(), TargetLog(limit=5000)
    copy.feed(fetched([batch([record(i, 400) for i in range(20)])]))
    _converge(copy, log)
    refused = 0
    copy.feed(fetched([batch([record(20 + i, 400) for i in range(20)], base=20)]))
    while (sent := copy.next_batch()) is not None:
        code, base = log.produce(sent.buffer, NUMBERING)
        refused += code != messages.NONE
        copy.result(sent, code, base, None)
    assert refused == 0
    assert log.records == contents(40, size=400)


def test_one_record_too_large_says_which_and_what_to_do() -> None:
    copy, log = new_copy(), TargetLog(limit=3000)
    copy.feed(fetched([batch([record(0), record(1, 5000), record(2)])]))
    with pytest.raises(RecordTooLarge) as caught:
        _converge(copy, log)
    assert "t-0: the record at offset 1 " in caught.value.message
    assert "A.t" in caught.value.message
    assert "max.message.bytes" in caught.value.remedy
    assert log.records == contents(1)
    log.limit = 1 << 20
    copy.restart(copy.position)
    assert copy.fetch_offset == 1
    copy.feed(fetched([batch([record(0), record(1, 5000), record(2)])]))
    drain(copy, log)
    assert log.records == [*contents(1), *contents(1, 1, 5000), *contents(1, 2)]


def test_a_batch_refused_as_invalid_is_written_anew_once() -> None:
    copy = new_copy()
    copy.feed(fetched([batch([record(0), record(1)])]))
    sent = copy.next_batch()
    assert sent is not None
    copy.result(sent, messages.INVALID_RECORD, -1, "no")
    assert copy.trouble_text == "no"
    assert copy.reclose_head()
    copy.resend()
    again = copy.next_batch()
    assert again is not None
    assert (again.sequence, again.count) == (sent.sequence, sent.count)
    copy.result(again, messages.INVALID_RECORD, -1, None)
    assert not copy.reclose_head()


def test_sequence_numbers_start_over() -> None:
    start = LAST_SEQUENCE - 2
    copy, log = new_copy(sequence=start), TargetLog(first_sequence=start)
    copy.feed(fetched([batch([record(i, SMALL_BATCH) for i in range(5)]),
                       *[batch([record(5 + i, SMALL_BATCH)], base=5 + i) for i in range(2)]]))  # fmt: skip
    sent = drain(copy, log)
    assert [one.sequence for one in sent] == [start, 2, 3]
    assert copy.position.sequence == 4


def test_room_is_counted_and_given_back() -> None:
    budget = Budget(10_000)
    one, other = new_copy(budget=budget), new_copy(budget=budget)
    views = singles(4, SMALL_BATCH)
    one.feed(fetched(views))
    other.feed(fetched(views[:1]))
    assert not budget.has_room()
    assert one.ready_bytes == sum(len(view) for view in views)
    assert budget.used == one.ready_bytes + other.ready_bytes
    one.suspend()
    assert one.ready_bytes == 0
    assert budget.used == other.ready_bytes
    assert one.next_batch() is None
    drain(other, TargetLog())
    assert budget.used == 0


def test_lag_counts_what_is_not_acknowledged() -> None:
    copy = new_copy()
    assert copy.lag == -1
    copy.feed(fetched(singles(3, SMALL_BATCH), high_watermark=10))
    assert copy.lag == 10
    sent = copy.next_batch()
    assert sent is not None
    copy.result(sent, 0, 1000, None)
    assert copy.lag == 9
    drain(copy, TargetLog(first_sequence=1, end=1001))
    assert copy.lag == 7
    copy.feed(fetched([marker(i, 1, 1) for i in range(3, 10)], high_watermark=10))
    assert copy.lag == 0  # nothing but markers was left
    assert copy.position.offset == 9


def test_damage_stops_reading_after_what_is_whole() -> None:
    copy, log = new_copy(), TargetLog()
    bad = bytearray(batch([record(1)], base=1))
    bad[-1] ^= 1
    views: list[memoryview | bytes] = [batch([record(0)]), bytes(bad)]
    copy.feed(fetched(views))
    assert copy.fetch_trouble == messages.NONE
    drain(copy, log)
    copy.feed(fetched(views[1:]))
    assert copy.fetch_trouble == messages.CORRUPT_MESSAGE
    assert isinstance(copy.fetch_error, CorruptBatch)
    assert "t-0: from offset 1 on " in str(copy.fetch_error)
    assert log.records == contents(1)
    copy.restart(copy.position)
    assert copy.fetch_trouble == messages.NONE
    assert copy.fetch_error is None


def test_what_was_opened_counts_as_what_it_takes_in_memory() -> None:
    """Records of a topic with LogAppendTime are opened when they are read."""
    zeros = NewRecord(0, 1_700_000_000_000, b"k", bytes(1 << 20), [])
    view = batch([zeros], codec=4, attributes=LOG_APPEND_TIME)
    budget = Budget(1 << 30)
    copy, log = new_copy(budget=budget), TargetLog()
    copy.feed(fetched([view]))
    assert len(view) < 1000
    assert budget.used == copy.ready_bytes > 1 << 20
    drain(copy, log)
    assert (budget.used, copy.ready_bytes) == (0, 0)


def test_the_epoch_for_the_next_fetch_is_that_of_the_last_batch_read() -> None:
    copy = new_copy()
    copy.restart(Position(4, NUMBERING, 5, 1005, Fingerprint(2)))
    assert (copy.fetch_offset, copy.last_epoch) == (5, 2)
    copy.feed(fetched([batch([record(5)], base=5, leader_epoch=3)]))
    commit = marker(6, 1, 1, leader_epoch=4)
    copy.feed(fetched([commit]))
    assert (copy.fetch_offset, copy.last_epoch) == (7, 4)
    drain(copy, TargetLog(first_sequence=5, end=1005))
    fingerprint = Fingerprint(4, crc_of(commit))
    assert copy.position == Position(6, NUMBERING, 6, 1006, fingerprint)  # behind the marker


def test_a_cluster_without_ids_does_not_contradict_the_ids_of_a_position() -> None:
    """Else reading stops with UNKNOWN_TOPIC_ID, resuming finds the position right, and so on for ever."""
    copy = new_copy()
    copy.restart(Position(9, NUMBERING, 10, source_id="ab" * 16, target_id="cd" * 16))
    assert copy.is_source(NO_TOPIC_ID) and copy.is_target(NO_TOPIC_ID)
    assert copy.is_source(b"\xab" * 16) and copy.is_target(b"\xcd" * 16)
    assert not copy.is_source(b"\xcd" * 16) and not copy.is_target(b"\xab" * 16)


def test_the_position_moves_over_what_is_not_copied_when_all_before_it_is_acknowledged() -> None:
    copy = new_copy()
    log = TargetLog()
    copy.feed(fetched([batch([record(0)]), marker(1, 1, 1)]))
    assert copy.position.next_offset == 0
    drain(copy, log)
    assert copy.position.next_offset == 2
    copy.feed(fetched([marker(2, 1, 1)]))
    assert copy.position.next_offset == 3
    copy.feed(fetched([batch([record(3)], base=3)]))
    copy.feed(fetched([marker(4, 1, 1)]))
    assert copy.position.next_offset == 3
    copy.suspend()  # what was fetched is gone: it must be fetched again
    assert copy.position.next_offset == 3


def _converge(copy: PartitionCopy, log: TargetLog) -> None:
    """Send, and deal with what is refused as the copy task does, until nothing is left."""
    for _ in range(200):
        drain(copy, log)
        if copy.trouble and copy.outstanding == 0:
            assert copy.trouble == messages.MESSAGE_TOO_LARGE
            copy.split_head()
            copy.resend()
        elif copy.is_idle:
            return
    raise AssertionError("it does not converge")


_shapes = st.lists(
    st.tuples(
        st.integers(1, 6),  # records
        st.sampled_from([0, 50, 900]),  # their size
        st.sampled_from([0, 0, 0, 4]),  # codec
        st.integers(0, 2),  # offsets that compaction took at the end
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=150)
@given(
    _shapes,
    st.sampled_from([1 << 20, 3000, 1500]),
    st.integers(1, 5),
    st.sampled_from([0, LAST_SEQUENCE - 3]),
    st.lists(
        st.tuples(st.sampled_from(["feed", "send", "send", "answer", "lose"]), st.integers(0, 5)),
        max_size=50,
    ),
)
def test_every_record_arrives_once_and_in_order_whatever_happens_on_the_way(
    shapes: list[tuple[int, int, int, int]],
    limit: int,
    in_flight: int,
    first_sequence: int,
    script: list[tuple[str, int]],
) -> None:
    views, expected = _source(shapes)
    end = Batch(views[-1]).last_offset + 1
    listener, budget = Listener(), Budget(1 << 20)
    copy = new_copy(
        sequence=first_sequence, listener=listener, budget=budget, max_in_flight=in_flight
    )
    log = TargetLog(limit, first_sequence)
    _play(script, copy, log, views)
    copy.feed(fetched(views))
    _converge(copy, log)
    assert log.records == [content(row) for row in expected]
    assert copy.position.next_offset == end
    assert copy.position.sequence == (first_sequence + len(expected)) % (1 << 31)
    assert copy.position.target_offset == 1000 + len(expected)
    assert copy.records == len(expected)
    assert budget.used == 0
    assert copy.outstanding == 0
    firsts = [first for first, _, _ in listener.acks]
    assert firsts == sorted(set(firsts))
    places = {row.offset: index for index, row in enumerate(expected)}
    assert all(base == 1000 + places[first] for first, _, base in listener.acks)


def _source(
    shapes: list[tuple[int, int, int, int]],
) -> tuple[list[memoryview], list[NewRecord]]:
    views, expected, offset = [], [], 0
    for count, size, codec, gone in shapes:
        rows = [record(offset + i, size) for i in range(count)]
        last = offset + count - 1 + gone
        views.append(batch(rows, base=offset, last=last, codec=codec))
        expected += rows
        offset = last + 1
    return views, expected


def _play(
    script: list[tuple[str, int]], copy: PartitionCopy, log: TargetLog, views: list[memoryview]
) -> None:
    """What may happen between source and target, in any order; at the end nothing is under way."""
    wire: deque[Sent] = deque()
    for action, number in [*script, ("lose", 0)]:
        match action:
            case "feed" if views:
                copy.feed(fetched([views.pop(0)]))
            case "send" if (sent := copy.next_batch()) is not None:
                wire.append(sent)
            case "answer" if wire:
                sent = wire.popleft()
                copy.result(sent, *log.produce(sent.buffer, NUMBERING), None)
            case "lose":  # the connection breaks: the first few were written, none is answered
                for sent in list(wire)[:number]:
                    log.produce(sent.buffer, NUMBERING)
                while wire:
                    copy.result(wire.popleft(), NETWORK_EXCEPTION, -1, None)
        if copy.trouble and copy.outstanding == 0:
            if copy.trouble == messages.MESSAGE_TOO_LARGE:
                copy.split_head()
            copy.resend()
