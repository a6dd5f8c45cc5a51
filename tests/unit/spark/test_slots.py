"""Spark's slots are shared: nobody waits for one that another job keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.spark.slots import Slots, shares


class Job:
    def __init__(self) -> None:
        self.told: list[int] = []

    def share_changed(self, share: int) -> None:
        self.told.append(share)


def test_jobs_that_want_the_same_share_equally_and_hear_of_it() -> None:
    slots, one, other = Slots(), Job(), Job()
    slots.enter(one, 8, 8)
    assert slots.share(one, 8) == 8
    slots.enter(other, 8, 8)
    slots.enter(other, 8, 8)
    assert slots.share(one, 8) == slots.share(other, 8) == 4
    assert (one.told, other.told) == ([4], [])
    slots.leave(one, 8)
    slots.leave(one, 8)
    assert slots.share(other, 8) == 8
    assert other.told == [8]


def test_a_job_that_can_use_one_slot_leaves_the_rest_to_the_others() -> None:
    slots, flow, reverse = Slots(), Job(), Job()
    slots.enter(flow, 8, 8)
    slots.enter(reverse, 1, 8)
    assert flow.told == [7]
    assert (slots.share(flow, 8), slots.share(reverse, 8)) == (7, 1)
    slots.enter(reverse, 3, 8)
    assert flow.told == [7, 5], "it wants more now"


@pytest.mark.parametrize(
    ("total", "wanted", "found"),
    [
        (8, [8, 1], [7, 1]),
        (8, [5, 5, 5], [2, 3, 3]),
        (8, [2, 9, 3], [2, 3, 3]),
        (2, [4] * 5, [1] * 5),
        (0, [3], [1]),
        (9, [8, 1], [8, 1]),
        (100, [8, 1], [8, 1]),
    ],
)
def test_shares(total: int, wanted: list[int], found: list[int]) -> None:
    assert shares(total, wanted) == found


@given(st.integers(0, 50), st.lists(st.integers(1, 20), min_size=1, max_size=10))
def test_no_slot_is_idle_while_a_job_wants_it(total: int, wanted: list[int]) -> None:
    found = shares(total, wanted)
    assert all(1 <= share <= want for share, want in zip(found, wanted, strict=True))
    if total >= len(wanted):
        assert sum(found) == min(total, sum(wanted))
        short = [share for share, want in zip(found, wanted, strict=True) if share < want]
        assert not short or max(found) - min(short) <= 1
