"""Records to Arrow and back: what a query is shown is what was read, and what it gives is what is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.query.columns import NUMBER, TYPES, Feed, Prepared, first_number
from sparkmirror.dataplane.query.feeding import Feeder, schema_of
from sparkmirror.dataplane.query.slices import from_arrow
from sparkmirror.transforms.record import ConnectRecord

ALL = frozenset(TYPES)
data = st.one_of(st.none(), st.binary(max_size=20))
rows = st.lists(
    st.builds(
        ConnectRecord,
        st.sampled_from(["t", "a.b-c_d", "x" * 249]),
        st.integers(0, (1 << 31) - 1),
        st.integers(0, 1 << 62),
        st.one_of(st.just(-1), st.integers(0, 1 << 52)),
        data,
        data,
        st.lists(st.tuples(st.text(max_size=5), data), max_size=3),
    ),
    max_size=20,
)
FIRST = first_number(7, 9)


def batch_of(found: list[ConnectRecord], needs: frozenset[str] = ALL) -> pa.RecordBatch:
    feed = Feed(needs)
    arrow = Feeder(Prepared(1, needs, needs, feed)).fed(found).arrow(FIRST)
    batch = pa.ipc.read_record_batch(pa.py_buffer(arrow), schema_of(feed))
    batch.validate(full=True)
    return batch


def column(batch: pa.RecordBatch, name: str) -> list[Any]:
    found = batch.column(name)
    return list((found.cast(pa.int64()) if name == "timestamp" else found).to_pylist())


@given(rows)
def test_a_query_is_shown_what_was_read(found: list[ConnectRecord]) -> None:
    batch = batch_of(found)
    assert batch.schema == schema_of(Feed(ALL))
    assert column(batch, NUMBER) == list(range(FIRST, FIRST + len(found)))
    for name in ("topic", "partition", "offset", "key", "value"):
        assert column(batch, name) == [getattr(row, name) for row in found]
    assert column(batch, "timestamp") == [row.timestamp * 1000 for row in found]
    headers = [[(h["key"], h["value"]) for h in row] for row in column(batch, "headers")]
    assert headers == [row.headers for row in found]


@given(rows)
def test_rows_come_back_as_they_went(found: list[ConnectRecord]) -> None:
    given_back = from_arrow([batch_of(found)])
    assert given_back.rows == list(range(len(found)))
    for name in TYPES:
        assert list(given_back.columns[name]) == [getattr(row, name) for row in found]


@given(rows, st.frozensets(st.sampled_from(sorted(ALL))))
def test_what_is_not_needed_is_not_sent(found: list[ConnectRecord], needs: frozenset[str]) -> None:
    batch, whole = batch_of(found, needs), batch_of(found)
    assert batch.schema.names == [NUMBER, *(name for name in TYPES if name in needs)]
    for name in needs:
        assert column(batch, name) == column(whole, name)


@given(rows, st.data())
def test_rows_that_were_dropped_are_missing_and_batches_are_joined(
    found: list[ConnectRecord], data: st.DataObject
) -> None:
    kept = [at for at in range(len(found)) if data.draw(st.booleans())]
    cut = data.draw(st.integers(0, len(kept)))
    whole = batch_of(found).select([NUMBER, "value"])
    parts = [whole.take(pa.array(part, pa.int64())) for part in (kept[:cut], kept[cut:])]
    back = from_arrow(parts)
    assert back.rows == kept
    assert list(back.columns["value"]) == [found[at].value for at in kept]
    assert back.columns.keys() == {"value"}
    assert bool(back) == bool(kept)


def test_nothing_given_is_nothing() -> None:
    assert not from_arrow([])
    assert from_arrow([]).rows == []
    assert not from_arrow([batch_of([])])


@pytest.mark.parametrize(
    "time", [0, -1, -1_000, 253_402_300_800_000, 1 << 53, 9_223_372_036_854_775]
)
def test_times_before_1970_and_after_the_year_9999(time: int) -> None:
    row = ConnectRecord("t", 0, 0, time, None, None, [])
    assert list(from_arrow([batch_of([row])]).columns["timestamp"]) == [time]


def test_times_are_cut_to_milliseconds_downwards() -> None:
    fields = [schema_of(Feed(ALL)).field(NUMBER), schema_of(Feed(ALL)).field("timestamp")]
    values = [pa.array([FIRST, FIRST + 1, FIRST + 2]), pa.array([1_999, -1, None], fields[1].type)]
    batch = pa.RecordBatch.from_arrays(values, schema=pa.schema(fields))
    assert list(from_arrow([batch]).columns["timestamp"]) == [1, -1, None]


def test_headers_may_be_null_or_have_null_parts() -> None:
    fields = [schema_of(Feed(ALL)).field(NUMBER), schema_of(Feed(ALL)).field("headers")]
    headers = [None, [], [{"key": "a", "value": None}, {"key": None, "value": b"x"}, None]]
    values = [pa.array([FIRST, FIRST + 1, FIRST + 2]), pa.array(headers, fields[1].type)]
    batch = pa.RecordBatch.from_arrays(values, schema=pa.schema(fields))
    back = list(from_arrow([batch]).columns["headers"])
    assert back == [None, [], [("a", None), (None, b"x"), (None, None)]]
