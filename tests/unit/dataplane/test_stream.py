"""The mirrored stream: the source log without markers, aborted transactions, gaps and damage."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.errors import CorruptBatch
from sparkmirror.formats.position import Fingerprint
from sparkmirror.kafka.batches import LOG_APPEND_TIME, crc_of
from sparkmirror.kafka.fetch import READ_COMMITTED, READ_UNCOMMITTED
from sparkmirror.kafka.records import NewRecord
from tests.unit.making import (
    ABORT,
    COMMIT,
    Content,
    batch,
    content,
    fetched,
    marker,
    message_set,
    record,
    sealed,
)

TRANSACTIONAL = 0x10


def txn(producer_id: int, *offsets: int, leader_epoch: int = 0) -> memoryview:
    return batch(
        [record(offset) for offset in offsets],
        base=offsets[0],
        producer=(producer_id, 0, 0),
        attributes=TRANSACTIONAL,
        leader_epoch=leader_epoch,
    )


def plain(*offsets: int, base: int | None = None, last: int | None = None) -> memoryview:
    first = offsets[0] if base is None else base
    return batch([record(offset) for offset in offsets], base=first, last=last)


def offsets_of(pieces: list[Piece]) -> list[int]:
    found = []
    for piece in pieces:
        offsets = [offset for offset, _ in piece.records_with_offsets()]
        assert (piece.first_offset, piece.last_offset) == (offsets[0], offsets[-1])
        assert piece.count == len(offsets)
        assert piece.is_contiguous == (offsets == list(range(offsets[0], offsets[-1] + 1)))
        assert [content(row) for row in piece.records()] == [content(record(o)) for o in offsets]
        assert [row.offset for row in piece.records()] == offsets
        assert spread(piece.offset_runs()) == offsets
        found += offsets
    return found


def spread(runs: list[tuple[int, int]]) -> list[int]:
    for (first, count), (later, _) in pairwise(runs):
        assert later > first + count, "two runs that are one"
    return [offset for first, count in runs for offset in range(first, first + count)]


def test_whole_batches_pass_verbatim() -> None:
    stream = Stream(0, READ_COMMITTED)
    pieces = stream.feed(fetched([plain(0, 1, 2), plain(3)]))
    assert offsets_of(pieces) == [0, 1, 2, 3]
    assert all(piece.batch is not None for piece in pieces)
    assert stream.next_offset == 4


def test_a_batch_that_begins_too_early_is_cut() -> None:
    stream = Stream(2, READ_COMMITTED)
    pieces = stream.feed(fetched([plain(0, 1, 2, 3), plain(4)]))
    assert offsets_of(pieces) == [2, 3, 4]
    assert pieces[0].batch is None
    assert pieces[1].batch is not None


def test_what_lies_before_the_offset_is_passed_over() -> None:
    stream = Stream(5, READ_COMMITTED)
    assert offsets_of(stream.feed(fetched([plain(0, 1), plain(2, 3, 4), plain(5)]))) == [5]


def test_gaps_of_compaction_are_closed() -> None:
    stream = Stream(0, READ_COMMITTED)
    log = [
        plain(2, 5, base=0, last=9),  # records lost at the start, in between, and at the end
        batch([], base=10, last=19),  # nothing left
        plain(20),
        batch([], base=30, last=39),
    ]
    pieces = stream.feed(fetched(log))
    assert offsets_of(pieces) == [2, 5, 20]
    assert all(piece.batch is not None and piece.batch.is_verbatim for piece in pieces)
    assert stream.next_offset == 40


@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_a_batch_that_cannot_be_opened_may_be_passed(attributes: int) -> None:
    """Whoever may write to an internal topic must not stop those who read it: here the key of a header is no text."""
    rows = [NewRecord(0, -1, b"k", b"v", [("name", b"x")])]
    bad = bytearray(batch(rows, attributes=attributes, leader_epoch=3))
    bad[bad.index(b"name")] = 0xFF
    views: list[memoryview | bytes] = [bytes(sealed(bad)), batch([record(1)], base=1)]
    stream = Stream(0, READ_COMMITTED)
    with pytest.raises(CorruptBatch):
        stream.feed(fetched(views))
    assert stream.skip(fetched(views)) == (0, 1)
    assert (stream.next_offset, stream.leader_epoch) == (1, 3)
    assert [piece.first_offset for piece in stream.feed(fetched(views))] == [1]
    assert stream.skip(fetched(views)) is None


def test_a_damaged_batch_is_not_passed() -> None:
    """Another replica may have it whole."""
    bad = bytearray(batch([record(0)]))
    bad[-1] ^= 1
    stream = Stream(0, READ_COMMITTED)
    assert stream.skip(fetched([bytes(bad)])) is None
    assert stream.next_offset == 0


def test_a_wanted_offset_in_a_gap() -> None:
    stream = Stream(6, READ_COMMITTED)
    assert offsets_of(stream.feed(fetched([plain(2, 5, base=0, last=9), plain(12)]))) == [12]
    assert stream.next_offset == 13


def test_aborted_transactions_are_left_out_and_committed_ones_kept() -> None:
    log = [
        txn(1, 0, 1),
        txn(2, 2),
        plain(3),
        marker(4, 1, ABORT),
        txn(2, 5),
        txn(1, 6),  # the same producer's next transaction
        marker(7, 2, COMMIT),
        marker(8, 1, COMMIT),
    ]
    stream = Stream(0, READ_COMMITTED)
    assert offsets_of(stream.feed(fetched(log, aborted=[(1, 0)]))) == [2, 3, 5, 6]
    assert stream.next_offset == 9
    everything = Stream(0, READ_UNCOMMITTED)
    assert offsets_of(everything.feed(fetched(log, aborted=[(1, 0)]))) == [0, 1, 2, 3, 5, 6]


def test_two_aborts_of_one_producer_given_in_any_order() -> None:
    log = [
        txn(1, 0),
        marker(1, 1, ABORT),
        txn(1, 2),
        marker(3, 1, COMMIT),
        txn(1, 4),
        marker(5, 1, ABORT),
        txn(1, 6),
        marker(7, 1, COMMIT),
    ]
    for aborted in ([(1, 0), (1, 4)], [(1, 4), (1, 0)]):
        stream = Stream(0, READ_COMMITTED)
        assert offsets_of(stream.feed(fetched(log, aborted=aborted))) == [2, 6]


def test_a_fetch_that_begins_inside_an_aborted_transaction() -> None:
    stream = Stream(3, READ_COMMITTED)
    log = [txn(1, 2, 3), txn(2, 4), marker(5, 1, ABORT), txn(1, 6)]
    assert offsets_of(stream.feed(fetched(log, aborted=[(1, 0)]))) == [4, 6]


def test_a_transaction_over_several_fetches() -> None:
    stream = Stream(0, READ_COMMITTED)
    assert offsets_of(stream.feed(fetched([txn(1, 0), txn(2, 1)], aborted=[(1, 0)]))) == [1]
    assert stream.next_offset == 2
    assert offsets_of(stream.feed(fetched([txn(1, 2), txn(2, 3)], aborted=[(1, 0)]))) == [3]
    last = [marker(4, 1, ABORT), marker(5, 2, COMMIT), txn(1, 6)]
    assert offsets_of(stream.feed(fetched(last, aborted=[(1, 0)]))) == [6]


def test_a_producers_batches_outside_of_transactions_are_not_aborted() -> None:
    log = [txn(1, 0), batch([record(1)], base=1, producer=(1, 0, 1)), marker(2, 1, ABORT)]
    stream = Stream(0, READ_COMMITTED)
    assert offsets_of(stream.feed(fetched(log, aborted=[(1, 0)]))) == [1]


def test_a_marker_that_compaction_emptied_ends_nothing_and_is_passed_over() -> None:
    stream = Stream(0, READ_COMMITTED)
    log = [batch([], base=0, last=0, producer=(1, 0, -1), attributes=0x30), plain(1)]
    assert offsets_of(stream.feed(fetched(log))) == [1]


def test_the_checksum_is_that_of_the_batch_before_the_next_offset() -> None:
    stream = Stream(5, READ_COMMITTED, Fingerprint(2, 77))
    sets = [message_set([record(offset)], 1) for offset in (3, 4)]
    stream.feed(fetched(sets))  # all of it before the offset to begin with
    assert (stream.leader_epoch, stream.crc) == (2, 77)
    old = message_set([record(5)], 1)
    stream.feed(fetched([*sets, old]))
    assert stream.crc == crc_of(old)
    last = batch([record(6), record(7)], base=6)
    stream.feed(fetched([last]))
    assert (stream.leader_epoch, stream.crc) == (0, crc_of(last))


def test_the_leader_epoch_is_that_of_the_last_batch_passed_copied_or_not() -> None:
    stream = Stream(0, READ_COMMITTED, Fingerprint(3))
    assert stream.leader_epoch == 3
    stream.feed(fetched([batch([record(0)], leader_epoch=5)]))
    assert stream.leader_epoch == 5
    stream.feed(fetched([marker(1, 1, COMMIT, leader_epoch=6)]))
    assert (stream.next_offset, stream.leader_epoch) == (2, 6)
    stream.feed(fetched([txn(1, 2, leader_epoch=7)], aborted=[(1, 2)]))
    assert (stream.next_offset, stream.leader_epoch) == (3, 7)
    stream.feed(fetched([batch([], base=3, last=4, leader_epoch=8)]))
    assert (stream.next_offset, stream.leader_epoch) == (5, 8)


def test_a_partial_batch_at_the_end_waits_for_the_next_fetch() -> None:
    stream = Stream(0, READ_COMMITTED)
    whole = plain(1, 2, 3)
    assert offsets_of(stream.feed(fetched([plain(0), whole[:-1]]))) == [0]
    assert stream.next_offset == 1
    assert offsets_of(stream.feed(fetched([whole]))) == [1, 2, 3]


def test_log_append_time_is_rebuilt_with_the_append_time() -> None:
    view = batch([record(0), record(1)], attributes=0x08)
    struct.pack_into(">q", view, 35, 1234)
    (piece,) = Stream(0, READ_COMMITTED).feed(fetched([sealed(bytearray(view))]))
    assert piece.batch is None
    assert piece.max_timestamp == 1234
    assert [row.timestamp for row in piece.records()] == [1234, 1234]


@pytest.mark.parametrize("offsets", [[4, 5], [4, 9]])
@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL])
def test_records_without_a_time_are_opened_to_be_given_one(
    offsets: list[int], attributes: int
) -> None:
    """Also in batches of the current format: a broker makes them of what old producers send."""
    rows = [record(offset)._replace(timestamp=-1) for offset in offsets]
    views = [batch(rows, base=4, attributes=attributes, producer=(7, 0, 0)), plain(10)]
    stream = Stream(0, READ_COMMITTED)
    timeless, timed = stream.feed(fetched(views))
    assert timeless.batch is None
    assert [row.timestamp for row in timeless.records()] == [-1, -1], "not before it is written"
    assert [row.offset for row in timeless.records()] == offsets
    assert timed.batch is not None
    assert stream.next_offset == 11


@pytest.mark.parametrize("codec", [0, 1])
def test_message_sets_of_old_brokers(codec: int) -> None:
    rows = [record(4), record(5), record(6)]
    sets = [message_set(rows, 1, codec)] if codec else [message_set([r], 1) for r in rows]
    stream = Stream(5, READ_COMMITTED)
    pieces = stream.feed(fetched([*sets, plain(7)]))
    assert offsets_of(pieces) == [5, 6, 7]
    assert stream.next_offset == 8
    assert pieces[0].fingerprint == (-1, crc_of(sets[0 if codec else 1]))
    assert pieces[0].codec == 0


def damaged(view: memoryview) -> memoryview:
    copy = bytearray(view)
    copy[-1] ^= 0xFF
    return memoryview(copy)


def test_damage_stops_the_stream_before_it() -> None:
    """Re-addressing writes a new checksum: whatever was wrong before would be right after it."""
    stream = Stream(0, READ_COMMITTED)
    log = [plain(0), plain(1, 2), damaged(plain(3)), plain(4)]
    assert offsets_of(stream.feed(fetched(log))) == [0, 1, 2]
    assert stream.next_offset == 3
    with pytest.raises(CorruptBatch, match="offset 3"):
        stream.feed(fetched(log[2:]))
    assert stream.next_offset == 3
    assert offsets_of(stream.feed(fetched([plain(3), plain(4)]))) == [3, 4]  # read again, whole


def test_damage_in_what_is_not_copied_stops_the_stream_too() -> None:
    with pytest.raises(CorruptBatch):
        Stream(0, READ_COMMITTED).feed(fetched([damaged(marker(0, 1, ABORT))]))


@given(st.data())
def test_the_stream_is_the_same_however_it_is_fetched(data: st.DataObject) -> None:
    """A log of transactions, plain and compacted batches, read from any offset in fetches of any size."""
    log, kept, aborted = _random_log(data)
    start = data.draw(st.integers(0, log[-1][1]))
    expected = [row for offset, row in kept if offset >= start]
    stream = Stream(start, READ_COMMITTED)
    got: list[Content] = []
    while stream.next_offset <= log[-1][1]:
        first = next(i for i, (_, last, _) in enumerate(log) if last >= stream.next_offset)
        size = data.draw(st.integers(1, 4))
        views = [view for _, _, view in log[first : first + size]]
        overlapping = [(pid, begin) for pid, begin, end in aborted if end >= log[first][0]]
        pieces = stream.feed(fetched(views, aborted=overlapping))
        got += [content(row) for piece in pieces for row in piece.records()]
        for piece in pieces:
            assert spread(piece.offset_runs()) == [row.offset for row in piece.records()]
    assert got == expected


_Log = list[tuple[int, int, memoryview]]
_Open = dict[int, tuple[int, list[tuple[int, NewRecord]]]]


def _random_log(
    data: st.DataObject,
) -> tuple[_Log, list[tuple[int, Content]], list[tuple[int, int, int]]]:
    """Batches with first and last offset; the committed records; aborted (producer, first, last)."""
    log: _Log = []
    kept: list[tuple[int, Content]] = []
    aborted: list[tuple[int, int, int]] = []
    open_txns: _Open = {}
    offset = 0
    steps = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1))
    for kind, count in [*steps, (3, 1), (3, 1), (3, 1)]:
        if kind == 3:
            if not open_txns:
                continue
            pid = data.draw(st.sampled_from(sorted(open_txns)))
            begin, rows = open_txns.pop(pid)
            commit = data.draw(st.booleans())
            log.append((offset, offset, marker(offset, pid, COMMIT if commit else ABORT)))
            if commit:
                kept += [(at, content(row)) for at, row in rows]
            else:
                aborted.append((pid, begin, offset))
            offset += 1
            continue
        rows_here = [record(offset + i) for i in range(count)]
        last = offset + count - 1 + data.draw(st.integers(0, 2)) * (kind == 2)
        if kind == 1:
            pid = data.draw(st.integers(1, 2))
            view = txn(pid, *range(offset, offset + count))
            found = open_txns.setdefault(pid, (offset, []))[1]
            found += [(row.offset, row) for row in rows_here]
        else:
            view = batch(rows_here, base=offset, last=last)
            kept += [(row.offset, content(row)) for row in rows_here]
        log.append((offset, last, view))
        offset = last + 1
    # Whatever is still open at the end is beyond the last stable offset and not fetched.
    stable = min((begin for begin, _ in open_txns.values()), default=offset)
    log = [row for row in log if row[0] < stable] or [(0, 0, plain(0))]
    if stable == 0:
        return log, [(0, content(record(0)))], []
    kept = sorted(row for row in kept if row[0] < stable)
    return log, kept, aborted
