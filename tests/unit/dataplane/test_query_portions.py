"""How much a job of a query takes."""

from __future__ import annotations

from itertools import pairwise

from sparkmirror.dataplane.query.running import next_portion


def grown(portion: int, seconds: float, jobs: int = 40) -> list[int]:
    found = [portion]
    for _ in range(jobs):
        found.append(next_portion(found[-1], seconds))
    return found


def test_a_quick_query_takes_more_and_more_up_to_a_limit() -> None:
    found = grown(1 << 20, 0.1)
    assert found[1] == 2 << 20
    assert found[-1] == found[-2] == 16 << 20


def test_a_slow_query_takes_less_and_less_but_never_nothing() -> None:
    found = grown(16 << 20, 5.0)
    assert all(after <= before for before, after in pairwise(found))
    assert found[-1] == 64 << 10


def test_one_that_takes_about_a_second_goes_on_so() -> None:
    assert grown(3 << 20, 1.0) == [3 << 20] * 41
