"""The codec: records survive a way out and back, by our own reading and by an independent one."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import CorruptBatch
from sparkmirror.kafka.batches import HEADER_SIZE, Batch, crc_matches
from sparkmirror.kafka.records import (
    NewRecord,
    RecordColumns,
    control_batch,
    decode,
    encode,
    same_content,
)
from tests.unit.making import batch, content, independent, new_records, record, sealed


@given(
    st.lists(new_records, min_size=1, max_size=8),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(0, 1 << 40),
    st.integers(0, (1 << 31) - 1),
)
def test_records_come_back_as_they_were(
    rows: list[NewRecord], codec: int, pid: int, sequence: int
) -> None:
    built = encode(rows, codec, pid, 3, sequence)
    expected = [content(row) for row in rows]
    assert [content(row) for row in decode(memoryview(built))] == expected
    assert [content(row) for row in independent(built)] == expected
    header = Batch(memoryview(built))
    assert header.is_verbatim
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (pid, 3, sequence)
    assert header.base_timestamp == rows[0].timestamp
    assert header.max_timestamp == max(row.timestamp for row in rows)
    assert [row.offset for row in decode(memoryview(built))] == list(range(len(rows)))
    assert header.codec == codec


@pytest.mark.parametrize(
    "times", [[-1], [-1, -1], [-1, 100, 50], [100, -1], [-1, -1, 0], [0, -1], [5, 1 << 60, 0]]
)
def test_missing_and_unordered_times_are_kept(times: list[int]) -> None:
    built = encode([NewRecord(0, time, b"k", b"v", []) for time in times], 0)
    assert [row.timestamp for row in decode(memoryview(built))] == times
    assert Batch(memoryview(built)).max_timestamp == max(times)
    assert crc_matches(memoryview(built))


@given(st.lists(new_records, min_size=1, max_size=8), st.sampled_from([0, 3, 4]))
def test_records_by_columns_are_written_as_others(rows: list[NewRecord], codec: int) -> None:
    columns = RecordColumns(*map(list, zip(*rows, strict=True)))
    assert list(columns) == rows
    assert columns[-1] == rows[-1]
    assert list(columns[1:3]) == rows[1:3]
    assert encode(columns, codec, 5, 6, 7) == encode(rows, codec, 5, 6, 7)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_are_written_as_they_are_read(number: int) -> None:
    """The difference of any two times: one that has no room wraps around, and does so again when it is read."""
    built = encode([NewRecord(0, 0, None, b"", []), NewRecord(0, number, None, None, [])], 0)
    assert [row.timestamp for row in decode(memoryview(built))] == [0, number]
    lowest = encode([NewRecord(0, -(1 << 63), b"", b"", []), NewRecord(0, number, b"", b"", [])], 0)
    assert [row.timestamp for row in decode(memoryview(lowest))] == [-(1 << 63), number]


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 16383, 16384, 70_000, 2_100_000])
def test_keys_values_and_headers_of_any_size_come_back(size: int) -> None:
    rows = [
        NewRecord(0, 5, b"k" * size, b"v", [("h", b"x" * size), ("e", None)]),
        NewRecord(1, 6, None, b"v" * size, [("n" * size, b"")]),
    ]
    built = encode(rows, 0)
    assert [content(row) for row in decode(memoryview(built))] == [content(row) for row in rows]
    assert [content(row) for row in independent(built)] == [content(row) for row in rows]


def test_many_records_come_back() -> None:
    rows = [NewRecord(n, n * n, None, b"%d" % n, []) for n in range(20_000)]
    built = encode(rows, 3)
    assert [content(row) for row in decode(memoryview(built))] == [content(row) for row in rows]


def test_log_append_time_is_every_records_time() -> None:
    view = batch([record(0), record(5)], attributes=0x08)
    struct.pack_into(">q", view, 35, 1234)
    assert [row.timestamp for row in decode(view)] == [1234, 1234]


def test_a_delete_horizon_is_where_times_count_from() -> None:
    view = batch([record(0), record(5)], attributes=0x40)
    assert [content(row) for row in decode(view)] == [content(record(0)), content(record(5))]


@given(st.lists(new_records, min_size=1, max_size=8))
def test_records_without_a_time_get_the_one_that_is_given(rows: list[NewRecord]) -> None:
    wanted = [row._replace(timestamp=99) if row.timestamp == -1 else row for row in rows]
    columns = RecordColumns(*(list(column) for column in zip(*rows, strict=True)))
    for given_rows in (rows, columns):
        built = memoryview(encode(given_rows, 0, now=99))
        assert [content(row) for row in decode(built)] == [content(row) for row in wanted]
        assert Batch(built).max_timestamp == max(row.timestamp for row in wanted)


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_what_cannot_be_decompressed_is_corrupt(codec: int) -> None:
    view = bytearray(batch([record(0, 500)], codec=codec))
    view[HEADER_SIZE:] = bytes(len(view) - HEADER_SIZE)
    with pytest.raises(CorruptBatch):
        decode(sealed(view))


def test_a_batch_that_says_more_records_than_it_holds_is_corrupt() -> None:
    view = bytearray(batch([record(0), record(1)]))
    struct.pack_into(">i", view, 57, 3)
    with pytest.raises(CorruptBatch):
        decode(sealed(view))


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        decode(batch([record(0)], attributes=0x07))


def test_a_header_key_that_is_no_text_is_corrupt() -> None:
    view = bytearray(batch([NewRecord(0, 1, b"k", b"v", [("name", b"x")])]))
    view[view.find(b"name")] = 0xFF
    with pytest.raises(CorruptBatch):
        decode(sealed(view))


@given(st.binary(min_size=1, max_size=80), st.integers(1, 100))
def test_garbage_behind_a_header_is_corrupt_or_records_but_never_a_crash(
    garbage: bytes, count: int
) -> None:
    view = bytearray(batch([record(0)]))[:HEADER_SIZE] + garbage
    struct.pack_into(">i", view, 8, len(view) - 12)
    struct.pack_into(">i", view, 57, count)
    with contextlib.suppress(CorruptBatch):
        assert len(decode(sealed(view))) == count


def test_our_own_records_make_one_plain_batch() -> None:
    view = memoryview(control_batch([(b"a", b"1"), (b"b", None)], 99))
    assert [content(row) for row in decode(view)] == [(99, b"a", b"1", []), (99, b"b", None, [])]
    assert Batch(view).producer_id == -1
    assert Batch(view).attributes == 0


def test_content_is_key_value_and_headers() -> None:
    one = NewRecord(1, 5, b"k", b"v", [("a", b"1"), ("a", None)])
    assert same_content(one, one._replace(offset=2, timestamp=6))
    assert not same_content(one, one._replace(key=None))
    assert not same_content(one, one._replace(value=b""))
    assert not same_content(one, one._replace(headers=[("a", None), ("a", b"1")]))
