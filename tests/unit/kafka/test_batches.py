"""Headers read and rewritten without touching the records; fetch answers cut at batch borders."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.kafka.batches import (
    HEADER_SIZE,
    Batch,
    crc_matches,
    end_offset,
    leader_epoch_of,
    readdress,
    whole_batches,
)
from sparkmirror.kafka.records import NewRecord
from tests.unit.making import batch, header_fields, independent, message_set, new_records, record

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


@given(
    st.lists(new_records, min_size=1, max_size=5),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.integers(0, 32767),
    st.integers(0, (1 << 31) - 1),
    st.booleans(),
)
def test_a_readdressed_batch_is_ours_and_its_records_are_the_same_bytes(
    rows: list[NewRecord], codec: int, base: int, pid: int, epoch: int, sequence: int, txn: bool
) -> None:
    placed = [row._replace(offset=base + index) for index, row in enumerate(rows)]
    view = batch(placed, base=base, codec=codec, producer=(77, 3, 5), leader_epoch=9,
                 attributes=TRANSACTIONAL if txn else 0)  # fmt: skip
    before = bytes(view)
    found = Batch(view)
    assert found.is_verbatim
    readdress(found, pid, epoch, sequence)
    assert view[HEADER_SIZE:] == before[HEADER_SIZE:]
    assert crc_matches(view)
    oracle = independent(view)
    assert oracle.base_offset == 0
    assert (oracle.producer_id, oracle.producer_epoch, oracle.base_sequence) == (
        pid,
        epoch,
        sequence,
    )
    assert not oracle.is_transactional
    assert Batch(view).attributes == codec
    assert header_fields(view)[6:9] == header_fields(memoryview(before))[6:9]
    assert oracle.records_count == len(rows)


@pytest.mark.parametrize(
    ("attributes", "verbatim"),
    [(0, True), (TRANSACTIONAL, True), (LOG_APPEND_TIME, False), (DELETE_HORIZON, False)],
)
def test_what_a_target_would_misread_is_not_verbatim(attributes: int, verbatim: bool) -> None:
    assert Batch(batch([record(0), record(1)], attributes=attributes)).is_verbatim is verbatim


def test_gaps_are_not_verbatim() -> None:
    assert not Batch(batch([record(0), record(2)])).is_verbatim
    assert not Batch(batch([record(1)], base=0)).is_verbatim
    assert not Batch(batch([record(0)], last=3)).is_verbatim
    assert not Batch(batch([], base=5, last=9)).is_verbatim


def test_a_header_is_read() -> None:
    view = batch([record(7), record(9)], base=7, codec=3, producer=(5, 6, 8), leader_epoch=4,
                 attributes=TRANSACTIONAL | CONTROL)  # fmt: skip
    found = Batch(view)
    assert (found.base_offset, found.last_offset, found.count) == (7, 9, 2)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (5, 6, 8)
    assert (found.leader_epoch, found.codec, found.magic) == (4, 3, 2)
    assert found.is_transactional
    assert found.is_control
    assert (found.base_timestamp, found.max_timestamp) == (1_700_000_000_007, 1_700_000_000_009)
    assert end_offset(view) == 10
    assert leader_epoch_of(view) == 4


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 1 << 30), st.data())
def test_a_fetch_is_cut_into_its_whole_batches_wherever_it_ends(
    counts: list[int], first: int, data: st.DataObject
) -> None:
    views, offset = [], first
    for count in counts:
        views.append(batch([record(offset + i) for i in range(count)], base=offset))
        offset += count
    joined = b"".join(views)
    end = data.draw(st.integers(0, len(joined)))
    expected, size = [], 0
    for view in views:
        size += len(view)
        if size <= end:
            expected.append(bytes(view))
    assert [bytes(view) for view in whole_batches(memoryview(joined)[:end])] == expected


@given(st.binary(max_size=200))
def test_garbage_is_cut_without_running_off_its_end(garbage: bytes) -> None:
    assert sum(len(view) for view in whole_batches(memoryview(garbage))) <= len(garbage)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_message_sets_end_at_their_own_offset_and_know_no_leader_epoch(
    magic: int, codec: int
) -> None:
    view = message_set([record(5), record(6)] if codec else [record(6)], magic, codec)
    assert [end_offset(view) for view in whole_batches(view)] == [7]
    assert leader_epoch_of(view) == -1
    assert struct.unpack_from(">i", view, 12) != (-1,)  # what stands there is a checksum
