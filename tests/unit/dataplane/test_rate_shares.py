"""How Spark tasks share a rate limit: never more than the cap in all, and what is not needed goes where it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import FLOW, PartitionPlan, RateLimit
from sparkmirror.dataplane.rate_shares import (
    SharedLimit,
    fair_shares,
    limits_of_tasks,
    part_of_cap,
)

CAP = 1_000_000.0
amounts = st.floats(0, 3 * CAP)


@given(st.lists(amounts, min_size=1, max_size=30))
def test_fair_shares_give_the_cap_and_nobody_less_than_it_wants_while_another_has_more(
    wants: list[float],
) -> None:
    shares = fair_shares(CAP, wants)
    assert sum(shares) == pytest.approx(CAP)
    unmet = [s for s, w in zip(shares, wants, strict=True) if s < w - 1]
    if unmet:
        assert all(share <= min(unmet) + 1 for share in shares)


class Exchanges:
    """Tasks that ask for shares, and use what they want of them."""

    def __init__(self, count: int) -> None:
        self.limit = SharedLimit(CAP, range(count))
        self.in_force = [CAP / count] * count
        """Of each task: what it is using at most."""
        self.on_the_way: list[float | None] = [None] * count

    def asks(self, task: int, wanted: float, now: float = 0.0) -> None:
        answer = self.on_the_way[task]
        if answer is not None:
            self.in_force[task] = answer
        used = min(wanted, self.in_force[task])
        self.limit.take(task, used, is_starved=used < wanted, now=now)
        self.on_the_way[task] = self.limit.answer(task)

    def check(self) -> None:
        worst = [
            max(force, answer or 0.0)
            for force, answer in zip(self.in_force, self.on_the_way, strict=True)
        ]
        assert sum(worst) <= CAP * (1 + 1e-9)
        assert self.limit.promised <= CAP * (1 + 1e-9)

    def round(self, wants: list[float]) -> None:
        for task, wanted in enumerate(wants):
            self.asks(task, wanted)
            self.check()


@given(st.data(), st.integers(2, 9))
def test_shares_never_add_up_to_more_than_the_cap_whoever_asks_or_is_silent(
    data: st.DataObject, count: int
) -> None:
    """Answers that a task has not heard of yet count with those that it had before."""
    exchanges = Exchanges(count)
    for task, wanted in data.draw(
        st.lists(st.tuples(st.integers(0, count - 1), amounts), max_size=60)
    ):
        exchanges.asks(task, wanted)
        exchanges.check()


@given(st.integers(2, 12), st.integers(0, 11), st.floats(0, CAP * 0.005))
def test_one_task_with_nearly_all_the_bytes_gets_the_cap_within_three_seconds(
    count: int, busy: int, others: float
) -> None:
    busy %= count
    exchanges = Exchanges(count)
    wants = [10 * CAP if task == busy else others for task in range(count)]
    for _ in range(6):  # two a second
        exchanges.round(wants)
    assert exchanges.in_force[busy] >= 0.8 * CAP


@given(st.integers(2, 12))
def test_the_cap_follows_the_load_when_it_moves_to_another_task(count: int) -> None:
    exchanges = Exchanges(count)
    for _ in range(20):
        exchanges.round([10 * CAP, *[0.0] * (count - 1)])
    for _ in range(16):
        exchanges.round([*[0.0] * (count - 1), 10 * CAP])
    assert exchanges.in_force[-1] >= 0.8 * CAP


def test_tasks_that_all_want_more_get_the_same() -> None:
    exchanges = Exchanges(4)
    for _ in range(20):
        exchanges.round([10 * CAP, 0.0, 0.0, 0.0])
    for _ in range(20):
        exchanges.round([10 * CAP] * 4)
    assert exchanges.in_force == [pytest.approx(CAP / 4)] * 4


def test_a_task_that_is_silent_keeps_its_share_and_nobody_else_gets_it() -> None:
    exchanges = Exchanges(2)
    for _ in range(20):
        exchanges.round([10 * CAP, 0.0])
    kept = exchanges.in_force[0]
    for _ in range(20):
        exchanges.asks(1, 10 * CAP)
    assert exchanges.in_force[1] <= CAP - kept


def test_a_task_has_the_limits_of_its_topics_and_what_it_does_not_share_is_its_own() -> None:
    parts = [PartitionPlan(t, n, t) for t, n in (("a", 0), ("a", 1), ("b", 0), ("c", 0))]
    packed = [[parts[0], parts[2]], [parts[1], parts[3]]]
    assert limits_of_tasks(packed, 100, {"a": 10, "b": 20, "c": 0}) == [
        (RateLimit(FLOW, 100, 2), RateLimit("a", 10, 2), RateLimit("b", 20, 1)),
        (RateLimit(FLOW, 100, 2), RateLimit("a", 10, 2)),
    ]
    assert limits_of_tasks(packed, 0, {}) == [(), ()]


@given(st.integers(0, 10**12), st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_workers_together_have_at_most_the_cap(cap: int, held: list[int]) -> None:
    parts = [part_of_cap(cap, each, sum(held)) for each in held]
    few = len(held) if cap < sum(held) else 0  # a cap of a few bytes is rounded up
    assert sum(parts) <= cap + few
    assert all(part > 0 for part in parts) == (cap > 0)
    assert part_of_cap(cap, 3, 0) == cap
