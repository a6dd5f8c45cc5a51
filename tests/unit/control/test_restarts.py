"""When what has failed is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.worker import RestartConfig
from sparkmirror.control.restarts import Restarts
from sparkmirror.control.states import TaskId

TASK = TaskId("c", 0)


def policy(**changes: int | bool) -> RestartConfig:
    fields = {
        "enabled": True,
        "max_attempts": -1,
        "backoff_ms": 1000,
        "backoff_max_ms": 8000,
        "reset_ms": 60_000,
    }
    fields.update(changes)
    return RestartConfig(**fields)  # type: ignore[arg-type]


def waits(restarts: Restarts, config: RestartConfig, times: int) -> list[float]:
    """How long each of these failures in a row takes to be tried again."""
    now, found = 100.0, []
    for _ in range(times):
        due = restarts.failed(TASK, config, now)
        if due is None:
            break
        found.append(due - now)
        now = due
        assert restarts.take_due(now) == [TASK]
    return found


def test_waits_double_up_to_the_most() -> None:
    assert waits(Restarts(), policy(), 6) == [1, 2, 4, 8, 8, 8]


def test_after_so_many_attempts_it_stays_failed() -> None:
    restarts = Restarts()
    assert waits(restarts, policy(max_attempts=2), 5) == [1, 2]
    assert restarts.attempts(TASK) == 2


def test_nothing_is_restarted_where_that_is_switched_off() -> None:
    restarts = Restarts()
    assert restarts.failed("c", policy(enabled=False), 0.0) is None
    assert restarts.next_due() is None


def test_who_has_run_long_enough_begins_anew() -> None:
    restarts = Restarts()
    assert waits(restarts, policy(), 3) == [1, 2, 4]
    assert restarts.failed(TASK, policy(), 1000.0) == 1001.0


def test_a_person_who_takes_care_of_it_ends_the_series() -> None:
    restarts = Restarts()
    waits(restarts, policy(), 3)
    restarts.forget(TASK)
    assert restarts.attempts(TASK) == 0
    assert waits(restarts, policy(), 1) == [1]


@given(st.lists(st.sampled_from(["a", "b", TASK]), max_size=20), st.floats(0, 100))
def test_two_failures_before_a_restart_are_one(items: list[str | TaskId], now: float) -> None:
    restarts = Restarts()
    for item in items:
        assert restarts.failed(item, policy(), now) == now + 1
    assert sorted(map(str, restarts.take_due(now + 1))) == sorted({str(item) for item in items})
    assert restarts.take_due(now + 1) == []


def test_who_has_run_long_enough_since_its_restart_is_settled_once() -> None:
    restarts = Restarts()
    due = restarts.failed(TASK, policy(), 100.0)
    assert due is not None
    assert restarts.take_settled(1000.0) == [], "it was not even started again"
    restarts.take_due(due)
    assert restarts.take_settled(due + 60.0) == []
    assert restarts.attempts(TASK) == 1
    assert restarts.take_settled(due + 60.1) == [TASK]
    assert restarts.take_settled(due + 60.2) == []
    assert restarts.attempts(TASK) == 0


def test_who_has_failed_again_is_not_settled() -> None:
    restarts = Restarts()
    due = restarts.failed(TASK, policy(max_attempts=1), 100.0)
    assert due is not None
    restarts.take_due(due)
    assert restarts.failed(TASK, policy(max_attempts=1), due + 1) is None
    assert restarts.take_settled(due + 1000.0) == []
    assert restarts.attempts(TASK) == 1
