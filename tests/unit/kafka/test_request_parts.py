"""How requests are cut: nothing is left out or asked twice, and a broker that refuses a part gets smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.kafka.request_parts import Bound, ask_in_parts, cut, is_too_large

BATCH = "Unable to perform excessively large batch operation."
PARTITIONS = "Excessively large number of partitions per request."
BOUNDS = st.builds(Bound, st.integers(1, 20), st.integers(1, 100))
WEIGHTS = st.lists(st.integers(0, 60), max_size=60)


@dataclass(frozen=True, slots=True)
class Row:
    error_code: int
    error_message: str | None = None


class Controller:
    """Takes so much weight in one request, and refuses whatever is more as a whole."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: list[int] = []
        self.refusals = 0

    def ask(self, part: Sequence[int]) -> list[Row]:
        if sum(part) > self.most:
            self.refusals += 1
            return [Row(44, BATCH)] * len(part)
        self.taken.extend(part)
        return [Row(0)] * len(part)


@given(WEIGHTS, BOUNDS)
def test_parts_keep_every_item_and_the_bound(weights: list[int], bound: Bound) -> None:
    parts = list(cut(weights, bound, int))
    assert [weight for part in parts for weight in part] == weights
    for part in parts:
        assert 1 <= len(part) <= bound.items
        assert len(part) == 1 or sum(part) <= bound.weight


@given(WEIGHTS, BOUNDS)
def test_parts_are_as_large_as_the_bound_allows(weights: list[int], bound: Bound) -> None:
    parts = list(cut(weights, bound, int))
    for part, following in pairwise(parts):
        assert len(part) == bound.items or sum(part) + following[0] > bound.weight


@given(WEIGHTS, BOUNDS, st.integers(0, 80))
def test_a_refused_part_is_halved_until_the_controller_takes_it(
    weights: list[int], bound: Bound, most: int
) -> None:
    controller = Controller(most)
    answers = list(ask_in_parts(weights, bound, controller.ask, int))
    assert [weight for part, _ in answers for weight in part] == weights
    # Each once, but for those that are too heavy by themselves, which come with their refusal.
    assert controller.taken == [weight for weight in weights if weight <= most]
    for part, rows in answers:
        refused = [row for row in rows if row.error_code]
        assert not refused or (len(part) == 1 and part[0] > most)


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_a_refusal_makes_all_parts_after_it_smaller(count: int, most: int) -> None:
    controller = Controller(most)
    for _ in ask_in_parts([1] * count, Bound(2000, 2000), controller.ask, int):
        pass
    assert controller.refusals <= 11  # the logarithm of the bound, and not one for each part


def test_no_items_are_no_request() -> None:
    assert list(cut([], Bound(5))) == []
    assert list(ask_in_parts([], Bound(5), Controller(1).ask)) == []


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row(44, BATCH), True),
        (Row(44, PARTITIONS), True),
        (Row(44, "retention.ms is above the limit"), False),
        (Row(44), False),
        (Row(10), True),
        (Row(18), True),
        (Row(28), True),
        (Row(0), False),
        (Row(36, "Topic 'orders' already exists."), False),
    ],
)
def test_which_refusals_are_about_the_size(row: Row, expected: bool) -> None:
    assert is_too_large(row) == expected


def test_a_bound_that_lets_nothing_through_is_refused() -> None:
    with pytest.raises(ValueError, match="0 items"):
        Bound(0)
    with pytest.raises(ValueError, match="weight 0"):
        Bound(1, 0)
