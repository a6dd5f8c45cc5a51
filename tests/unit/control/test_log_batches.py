"""How rows are put into batches of a compacted topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.control.topic_log import Row, batches
from sparkmirror.formats.connect import default_partition

ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.binary(max_size=5), st.binary(max_size=20) | st.none()), max_size=30
)


@given(ROWS, st.integers(1, 5))
def test_every_row_goes_to_its_partition_and_rows_of_one_partition_keep_their_order(
    rows: list[Row], partitions: int
) -> None:
    found: dict[int, list[Row]] = {}
    for partition, batch in batches(rows, partitions):
        found.setdefault(partition, []).extend(batch)
    expected: dict[int, list[Row]] = {}
    for row in rows:
        expected.setdefault(default_partition(row[0], partitions), []).append(row)
    assert found == expected


def test_large_rows_are_spread_over_batches_that_a_broker_takes() -> None:
    rows: list[Row] = [(b"%d" % i, bytes(200_000)) for i in range(7)]
    made = batches(rows, 1)
    assert [len(batch) for _, batch in made] == [2, 2, 2, 1]
    assert [row for _, batch in made for row in batch] == rows


def test_a_row_larger_than_a_batch_goes_alone() -> None:
    rows: list[Row] = [(b"a", b"x"), (b"b", bytes(2_000_000)), (b"c", b"y")]
    assert [[key for key, _ in batch] for _, batch in batches(rows, 1)] == [[b"a"], [b"b"], [b"c"]]
