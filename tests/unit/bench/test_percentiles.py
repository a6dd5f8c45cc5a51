"""Percentiles and the warm-up cut of measured ages."""

from __future__ import annotations

import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.latency import Aged, after_warm_up, parse_topics, percentile, read

SECOND = 1_000_000_000


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 99) == 7.0


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="No values"):
        percentile([], 50)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=50),
    st.floats(min_value=0.1, max_value=100),
)
def test_percentile_is_the_smallest_value_with_enough_below(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-9
    below = [value for value in values if value < found]
    assert len(below) < len(values) * percent / 100


def test_warm_up_counts_from_the_first_stamp_whatever_the_order_of_arrival() -> None:
    records = [
        Aged(stamp=14 * SECOND, age=3_000_000),
        Aged(stamp=4 * SECOND, age=90_000_000),
        Aged(stamp=13 * SECOND, age=80_000_000),
        Aged(stamp=15 * SECOND, age=2_500_000),
    ]
    assert after_warm_up(records, 10) == [3.0, 2.5]
    assert after_warm_up([], 10) == []


def test_ages_are_read_back_from_the_consumers_file(tmp_path: Path) -> None:
    file = tmp_path / "ages"
    file.write_bytes(array.array("Q", [5, 1, 6, 2]).tobytes())
    assert read(file) == [Aged(5, 1), Aged(6, 2)]


def test_topic_names_may_hold_colons_before_the_last_one() -> None:
    assert parse_topics(["a:b:8", "c:1"]) == {"a:b": 8, "c": 1}
