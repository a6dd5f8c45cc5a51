"""Slots of a job on a cluster: waited for, used, and counted again when executors come and go. A clock stands for the time."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from sparkmirror.control.job_slots import JobSlots
from sparkmirror.spark.executors import Executors
from sparkmirror.spark.session import SparkSession


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("sparkmirror.control.job_slots.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Spark:
    """A session whose executors change as the script says: at which time how many with one slot each."""

    def __init__(self, clock: Clock, *script: tuple[float, int]) -> None:
        self._clock, self._script, self._began = clock, script, clock.now
        self.is_dynamic = False
        self.promised: int | None = None
        self.demands: list[Demand] = []

    def executors(self) -> Executors:
        at = self._clock.now - self._began
        count = max((time, count) for time, count in self._script if time <= at)[1]
        return Executors(count, frozenset(map(str, range(count))))

    def described(self) -> str:
        return f"{self.executors().slots} executors"

    def demand(self, slots: int) -> Demand:
        self.demands.append(Demand(slots))
        return self.demands[-1]


class Demand:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.is_closed = False
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.is_closed = True


class Ticking(threading.Event):
    """Nothing changes; waiting for it lets the time pass."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0.0
        return self.is_set()


class Job:
    """Of four tasks, if not said otherwise; those that have not begun have no slot, if not said otherwise."""

    def __init__(self, waiting: int = 0, *, of: int = 4, starting: int = 0) -> None:
        self.waiting: list[Any] = [None] * waiting
        self.launched = of - waiting + starting


def slots_of(spark: Spark) -> JobSlots:
    return JobSlots(cast(SparkSession, spark))


def test_executors_that_register_one_after_the_other_are_waited_for(clock: Clock) -> None:
    spark = Spark(clock, (0, 0), (1, 1), (3, 2), (5, 3))
    assert slots_of(spark).wait(8, Ticking(clock), lambda _: None) == 3
    assert clock.now - 1000 == pytest.approx(8, abs=1)


def test_what_was_promised_is_enough(clock: Clock) -> None:
    spark = Spark(clock, (0, 0), (2, 2), (100, 9))
    spark.promised = 2
    assert slots_of(spark).wait(8, Ticking(clock), lambda _: None) == 2
    assert clock.now - 1000 < 3


def test_a_cluster_without_executors_is_told_of_within_20_s(clock: Clock) -> None:
    told: list[tuple[float, str]] = []
    changed = Ticking(clock)

    def late(reason: str) -> None:
        told.append((clock.now - 1000, reason))
        changed.set()

    assert slots_of(Spark(clock, (0, 0))).wait(1, changed, late) is None
    ((at, reason),) = told
    assert 15 <= at < 20
    assert reason == "No Spark task can run: 0 executors."


def test_a_lost_executor_is_planned_for_without_waiting(clock: Clock) -> None:
    spark = Spark(clock, (0, 2), (10, 1))
    slots = slots_of(spark)
    assert slots.wait(2, Ticking(clock), lambda _: None) == 2
    slots.submitted(2, 2)
    assert not slots.is_plan_due(Job())
    clock.now += 10
    assert slots.is_plan_due(Job())
    began = clock.now
    assert slots.wait(2, Ticking(clock), lambda _: None) == 1
    assert clock.now == began


def test_slots_that_others_have_taken_are_not_counted_on(clock: Clock) -> None:
    spark = Spark(clock, (0, 4))
    slots = slots_of(spark)
    assert slots.wait(4, Ticking(clock), lambda _: None) == 4
    slots.submitted(4, 4)
    clock.now += 14
    assert slots.late(Job(1)) == ([], "")
    assert not slots.is_plan_due(Job(1))
    clock.now += 1
    assert slots.late(Job(1))[1] == "1 of 4 Spark tasks wait for a slot: 4 executors."
    assert slots.is_plan_due(Job(1))
    assert slots.wait(4, Ticking(clock), lambda _: None) == 3


def test_a_job_none_of_whose_tasks_has_begun_waits_on(clock: Clock) -> None:
    slots = slots_of(Spark(clock, (0, 2)))
    slots.wait(2, Ticking(clock), lambda _: None)
    slots.submitted(2, 2)
    clock.now += 60
    assert slots.late(Job(2, of=2))[1]
    assert not slots.is_plan_due(Job(2, of=2)), "planning again would not help"


def test_a_task_whose_python_starts_slowly_does_not_wait_for_a_slot(clock: Clock) -> None:
    slots = slots_of(Spark(clock, (0, 4)))
    slots.wait(4, Ticking(clock), lambda _: None)
    slots.submitted(4, 4)
    clock.now += 15
    late, reason = slots.late(Job(1, starting=1))
    assert len(late) == 1
    assert reason.startswith("1 of 4 Spark tasks have a slot and have not begun: Python is slow")
    assert not slots.is_plan_due(Job(1, starting=1)), "a smaller job would begin anew"
    both = Job(2, starting=1)
    assert slots.late(both)[1] == "1 of 4 Spark tasks wait for a slot: 4 executors."
    assert slots.is_plan_due(both)
    assert slots.wait(4, Ticking(clock), lambda _: None) == 3


def test_with_dynamic_allocation_as_many_tasks_are_submitted_as_are_wanted(clock: Clock) -> None:
    spark = Spark(clock, (0, 0), (5, 1))
    spark.is_dynamic = True
    slots = slots_of(spark)
    assert slots.wait(6, Ticking(clock), lambda _: None) == 6
    slots.submitted(6, 6)
    clock.now += 6
    assert not slots.is_plan_due(Job(5, of=6))
    clock.now += 10
    assert slots.is_plan_due(Job(5, of=6)), "executors that do not come are not waited for"
    assert slots.wait(6, Ticking(clock), lambda _: None) == 1
    slots.submitted(1, 6)
    (demand,) = spark.demands
    assert (demand.slots, demand.is_closed) == (5, False), "but still asked for"
    assert not slots.is_plan_due(Job(of=1))
    assert demand.renewed == 1, "also if slots were free for a moment"
    slots.ended()
    assert demand.is_closed


def test_executors_that_come_and_go_cost_ever_fewer_plannings(clock: Clock) -> None:
    script = [(float(5 * number), 4 + number % 2) for number in range(200)]
    spark = Spark(clock, *script)
    slots = slots_of(spark)
    plannings = 0
    while clock.now < 1000 + 600:
        slots.wait(2, Ticking(clock), lambda _: None)
        slots.submitted(2, 2)
        plannings += 1
        while clock.now < 1000 + 600 and not slots.is_plan_due(Job()):
            clock.now += 1
    assert plannings < 20
