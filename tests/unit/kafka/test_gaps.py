"""Batches that compaction left gaps in become ones that a broker takes, with the same records."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import CorruptBatch
from sparkmirror.kafka.batches import DELETE_HORIZON, HEADER_SIZE, Batch, crc_matches
from sparkmirror.kafka.gaps import close_gaps
from sparkmirror.kafka.records import NewRecord, decode
from tests.unit.making import batch, content, independent, new_records, record, sealed

BASE = 50


def check(placed: list[NewRecord], view: memoryview) -> None:
    gapless = close_gaps(Batch(view))
    assert gapless is not None
    assert (gapless.first_offset, gapless.last_offset) == (placed[0].offset, placed[-1].offset)
    before = [row.offset for row in placed]
    assert gapless.stretches == [
        (number, offset)
        for number, offset in enumerate(before)
        if number == 0 or offset != before[number - 1] + 1
    ]
    closed = memoryview(gapless.batch)
    header = Batch(closed)
    assert header.is_verbatim
    assert crc_matches(closed)
    assert header.codec == Batch(view).codec
    assert header.max_timestamp == Batch(view).max_timestamp
    expected = [content(row) for row in placed]
    assert [content(row) for row in decode(closed)] == expected
    assert [content(row) for row in independent(gapless.batch)] == expected
    assert [row.offset for row in decode(closed)] == list(range(len(placed)))


@given(
    st.lists(
        st.tuples(new_records, st.sampled_from([1, 2, 40, 63, 64, 70, 9000, 3_000_000])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([0, DELETE_HORIZON]),
)
def test_records_are_as_they_were_and_count_up(
    rows: list[tuple[NewRecord, int]], codec: int, attributes: int
) -> None:
    offset, placed = BASE - 1, []
    for row, step in rows:
        offset += step
        placed.append(row._replace(offset=offset))
    check(placed, batch(placed, base=BASE, last=offset + 7, codec=codec, attributes=attributes))


@pytest.mark.parametrize("step", [1, 2, 3, 64, 200])
def test_many_records_need_longer_numbers(step: int) -> None:
    placed = [record(BASE + index * step) for index in range(20_000)]
    check(placed, batch(placed, base=BASE))


def test_an_empty_batch_gives_nothing() -> None:
    assert close_gaps(Batch(batch([], base=10, last=19))) is None


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_wrong_count_is_corrupt(count: int) -> None:
    view = bytearray(batch([record(0), record(5)]))
    struct.pack_into(">i", view, 57, count)
    with pytest.raises(CorruptBatch):
        close_gaps(Batch(sealed(view)))


def test_offsets_that_do_not_go_up_are_corrupt() -> None:
    view = batch([record(3), record(0), record(0)], base=0, last=9)
    with pytest.raises(CorruptBatch):
        close_gaps(Batch(view))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_cannot_be_decompressed_is_corrupt(codec: int) -> None:
    view = bytearray(batch([record(0, 500), record(4)], codec=codec))
    view[HEADER_SIZE:] = bytes(len(view) - HEADER_SIZE)
    with pytest.raises(CorruptBatch):
        close_gaps(Batch(sealed(view)))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    view = bytearray(batch([record(0), record(5)]))
    view[HEADER_SIZE:] = body
    try:
        close_gaps(Batch(sealed(view)))
    except CorruptBatch:
        return
