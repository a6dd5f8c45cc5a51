"""Slots of a job on a cluster: waited for, used, and counted again when executors come and go. A clock stands for the time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.control.job_slots import JobSlots, RunningJob
from sparkmirror.spark.executors import Executors
from sparkmirror.spark.job import Launched
from sparkmirror.spark.session import SparkSession
from sparkmirror.spark.slots import Slots


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
        self.has_queries = False
        self.promised: int | None = None
        self.slots = Slots()
        self.demands: list[Demand] = []

    def executors(self) -> Executors:
        at = self._clock.now - self._began
        count = max((time, count) for time, count in self._script if time <= at)[1]
        return Executors(count, frozenset(map(str, range(count))))

    def width(self, slots: int) -> int:
        return max(1, slots - max(1, slots // 4) * self.has_queries)

    def described(self) -> str:
        return f"{self.executors().slots} executors"

    def demand(self, slots: int) -> Demand:
        self.demands.append(Demand(slots))
        return self.demands[-1]

    @property
    def asked(self) -> int:
        """How many slots Spark is asked for beside those of copy tasks."""
        return sum(demand.slots for demand in self.demands if not demand.is_closed)


class Local(Spark):
    """On a local master, whose executors nobody asks for."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, (0, 4))

    def executors(self) -> Executors:
        return cast(Executors, None)

    def width(self, slots: int) -> int:
        return 4


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

    def __init__(
        self, waiting: int = 0, *, of: int = 4, starting: int = 0, completed: int = 0
    ) -> None:
        self.waiting: list[Any] = [SimpleNamespace(index=index) for index in range(waiting)]
        self.launched = Launched(of - waiting + starting, completed)


class Sharer:
    def share_changed(self, share: int) -> None: ...


def slots_of(spark: Spark) -> JobSlots:
    return JobSlots(cast(SparkSession, spark), Sharer())


def planned(slots: JobSlots, wanted: int, clock: Clock) -> int:
    """How many Spark tasks are planned and submitted."""
    assert slots.wait(wanted, clock.now, Ticking(clock), lambda _: None)
    tasks = slots.plan()
    slots.submitted(tasks)
    return tasks


def due_after(slots: JobSlots, job: Job, clock: Clock, most: float = 600.0) -> float:
    """How long until the job is planned again, looked at each second."""
    began = clock.now
    while not slots.is_plan_due(cast(RunningJob, job)):
        slots.late(cast(RunningJob, job))
        assert clock.now - began < most, "it is not planned again"
        clock.now += 1
    return clock.now - began


def test_executors_that_register_one_after_the_other_are_waited_for(clock: Clock) -> None:
    spark = Spark(clock, (0, 0), (1, 1), (3, 2), (5, 3))
    assert planned(slots_of(spark), 8, clock) == 3
    assert clock.now - 1000 == pytest.approx(8, abs=1)


def test_what_was_promised_is_enough(clock: Clock) -> None:
    spark = Spark(clock, (0, 0), (2, 2), (100, 9))
    spark.promised = 2
    assert planned(slots_of(spark), 8, clock) == 2
    assert clock.now - 1000 < 3


@pytest.mark.parametrize(("start", "told_at"), [(0, 15), (12, 17), (60, 65)])
def test_a_cluster_without_executors_is_told_of_within_20_s(
    clock: Clock, start: float, told_at: float
) -> None:
    """Unless Spark takes long to start."""
    told: list[tuple[float, str]] = []
    changed = Ticking(clock)

    def late(reason: str) -> None:
        told.append((clock.now - 1000, reason))
        changed.set()

    slots = slots_of(Spark(clock, (0, 0)))
    clock.now += start
    assert not slots.wait(1, 1000, changed, late)
    ((at, reason),) = told
    assert at == pytest.approx(told_at, abs=0.5)
    assert reason == "No Spark task can run: 0 executors."


def test_a_lost_executor_is_planned_for_without_waiting(clock: Clock) -> None:
    spark = Spark(clock, (0, 2), (10, 1))
    slots = slots_of(spark)
    assert planned(slots, 2, clock) == 2
    assert not slots.is_plan_due(Job())
    clock.now += 10
    assert slots.is_plan_due(Job())
    began = clock.now
    assert planned(slots, 2, clock) == 1
    assert clock.now == began


def test_slots_that_others_have_taken_are_not_counted_on(clock: Clock) -> None:
    spark = Spark(clock, (0, 4))
    slots = slots_of(spark)
    assert planned(slots, 4, clock) == 4
    clock.now += 14
    assert slots.late(Job(1)) == ([], "")
    assert not slots.is_plan_due(Job(1))
    clock.now += 1
    assert slots.late(Job(1))[1] == "1 of 4 Spark tasks wait for a slot: 4 executors."
    assert slots.is_plan_due(Job(1))
    assert planned(slots, 4, clock) == 3


def test_a_job_none_of_whose_tasks_has_begun_waits_on(clock: Clock) -> None:
    slots = slots_of(Spark(clock, (0, 2)))
    planned(slots, 2, clock)
    clock.now += 60
    assert slots.late(Job(2, of=2))[1]
    assert not slots.is_plan_due(Job(2, of=2)), "planning again would not help"


def test_a_task_whose_python_starts_slowly_does_not_wait_for_a_slot(clock: Clock) -> None:
    slots = slots_of(Spark(clock, (0, 4)))
    planned(slots, 4, clock)
    clock.now += 15
    late, reason = slots.late(Job(1, starting=1))
    assert len(late) == 1
    assert reason.startswith("1 of 4 Spark tasks have a slot and have not begun: Python is slow")
    assert not slots.is_plan_due(Job(1, starting=1)), "a smaller job would begin anew"
    both = Job(2, starting=1)
    assert slots.late(both)[1] == "1 of 4 Spark tasks wait for a slot: 4 executors."
    assert slots.is_plan_due(both)
    assert planned(slots, 4, clock) == 3


def test_a_task_that_lost_its_slot_later_on_waits_like_one_that_has_not_begun(
    clock: Clock,
) -> None:
    slots = slots_of(Spark(clock, (0, 4)))
    planned(slots, 4, clock)
    clock.now += 300
    assert slots.late(Job()) == ([], "")
    for _ in range(14):
        clock.now += 1
        assert slots.late(Job(1)) == ([], ""), "Spark may start it again at once"
    clock.now += 2
    assert slots.late(Job(1))[1] == "1 of 4 Spark tasks wait for a slot: 4 executors."
    assert slots.is_plan_due(Job(1))
    assert planned(slots, 4, clock) == 3


def test_tasks_that_end_one_after_the_other_do_not_wait(clock: Clock) -> None:
    slots = slots_of(Spark(clock, (0, 4)))
    planned(slots, 4, clock)
    clock.now += 600
    assert slots.late(Job()) == ([], "")
    for _ in range(14):
        clock.now += 1
        assert slots.late(Job(3, completed=3)) == ([], "")
        assert not slots.is_plan_due(Job(3, completed=3))


@pytest.mark.parametrize("is_local", [False, True])
def test_what_a_task_copied_that_ended_long_before_the_others_is_planned_again(
    clock: Clock, is_local: bool
) -> None:
    """Its driver link broke, or the others began later: each attempt of a task takes a whole epoch."""
    spark = Local(clock) if is_local else Spark(clock, (0, 4))
    slots = slots_of(spark)
    planned(slots, 4, clock)
    clock.now += 300
    assert slots.late(Job()) == ([], "")
    assert due_after(slots, Job(1, completed=1), clock) == 15
    assert slots.late(Job(1, completed=1)) == ([], "")


def test_partitions_with_a_query_have_tasks_beside_the_share_on_a_local_master(
    clock: Clock,
) -> None:
    slots = slots_of(Local(clock))
    assert slots.wait(4, clock.now, Ticking(clock), lambda _: None)
    slots.submitted(2 * slots.plan())
    for _ in range(60):
        clock.now += 1
        assert not slots.is_plan_due(Job(of=8))


def test_slots_that_others_held_are_tried_again_after_ever_longer_times(clock: Clock) -> None:
    slots = slots_of(Spark(clock, (0, 4)))
    assert planned(slots, 4, clock) == 4
    tried = []
    for _ in range(6):
        assert due_after(slots, Job(1), clock) == 15
        assert planned(slots, 4, clock) == 3
        tried.append(due_after(slots, Job(of=3), clock))
        assert planned(slots, 4, clock) == 4
    assert tried == [pytest.approx(each + 3, abs=1) for each in (30, 60, 120, 240, 300, 300)]
    clock.now += 1
    assert not slots.is_plan_due(Job()), "they were given back"
    assert due_after(slots, Job(1), clock) <= 15
    planned(slots, 4, clock)
    assert due_after(slots, Job(of=3), clock) < 40, "that begins again"


def test_jobs_share_by_what_they_want_and_both_shrink_at_once(clock: Clock) -> None:
    spark = Spark(clock, (0, 8), (100, 4))
    one, other = slots_of(spark), slots_of(spark)
    assert planned(one, 7, clock) == 7
    assert planned(other, 1, clock) == 1
    assert not one.is_plan_due(Job(of=7))
    assert planned(other, 4, clock) == 4, "it has more to copy now"
    assert one.is_plan_due(Job(of=7))
    assert planned(one, 7, clock) == 4
    clock.now = 1100
    assert one.is_plan_due(Job())
    assert other.is_plan_due(Job())
    assert (planned(one, 7, clock), planned(other, 4, clock)) == (2, 2)
    other.leave()
    assert due_after(one, Job(of=2), clock) < 60
    assert planned(one, 7, clock) == 4, "what another job leaves is used"


def dynamic(clock: Clock, *script: tuple[float, int]) -> Spark:
    spark = Spark(clock, *script)
    spark.is_dynamic = True
    return spark


def test_without_an_executor_dynamic_allocation_gets_all_tasks_that_are_wanted(
    clock: Clock,
) -> None:
    spark = dynamic(clock, (0, 0), (5, 1))
    slots = slots_of(spark)
    assert planned(slots, 6, clock) == 6
    clock.now += 6
    assert not slots.is_plan_due(Job(5, of=6))
    assert due_after(slots, Job(5, of=6), clock) == 9, "those that do not come are not waited for"
    assert planned(slots, 6, clock) == 1
    (demand,) = spark.demands
    assert (demand.slots, demand.is_closed) == (5, False), "but still asked for"
    assert not slots.is_plan_due(Job(of=1))
    assert demand.renewed == 1, "also if slots were free for a moment"
    slots.ended()
    assert demand.is_closed


def test_dynamic_allocation_is_asked_again_after_all_executors_have_gone(clock: Clock) -> None:
    spark = dynamic(clock, (0, 0), (5, 1), (100, 0), (1000, 2), (1010, 4))
    slots = slots_of(spark)
    assert planned(slots, 4, clock) == 4
    due_after(slots, Job(3), clock)
    assert planned(slots, 4, clock) == 1
    slots.ended()
    clock.now = 1100
    assert planned(slots, 4, clock) == 4, "tasks that wait ask for executors"
    for _ in range(899):
        clock.now += 1
        assert not slots.is_plan_due(Job(4))
    assert slots.late(Job(4))[1] == "4 of 4 Spark tasks wait for a slot: 0 executors."
    clock.now = 2011
    assert not slots.is_plan_due(Job())
    assert spark.asked == 0


def test_a_packed_job_that_loses_its_last_executor_asks_for_new_ones(clock: Clock) -> None:
    spark = dynamic(clock, (0, 1), (100, 0))
    slots = slots_of(spark)
    assert planned(slots, 4, clock) == 1
    clock.now = 1100
    assert due_after(slots, Job(1, of=1), clock) < 10
    assert planned(slots, 4, clock) == 4


def test_dynamic_allocation_is_asked_for_the_slots_of_all_connectors(clock: Clock) -> None:
    spark = dynamic(clock, (0, 0), (5, 9), (100, 6))
    flow, reverse = slots_of(spark), slots_of(spark)
    assert (planned(flow, 8, clock), planned(reverse, 1, clock)) == (8, 1)
    clock.now += 20
    assert not flow.is_plan_due(Job(of=8))
    clock.now = 1100
    assert flow.is_plan_due(Job(2, of=8))
    assert planned(flow, 8, clock) == 5
    assert spark.asked == 3
    assert not reverse.is_plan_due(Job(of=1))


def test_dynamic_allocation_leaves_slots_to_queries_once_no_more_executors_come(
    clock: Clock,
) -> None:
    """While some are free, Spark would not ask for more."""
    spark = dynamic(clock, (0, 4), (100, 8))
    spark.has_queries = True
    slots = slots_of(spark)
    assert planned(slots, 6, clock) == 4
    assert spark.asked == 2
    assert due_after(slots, Job(), clock) == 15
    assert planned(slots, 6, clock) == 3
    clock.now = 1100
    assert due_after(slots, Job(of=3), clock) <= 10
    assert planned(slots, 6, clock) == 6
    clock.now += 30
    assert not slots.is_plan_due(Job(of=6)), "two slots are free for queries"


def test_queries_get_slots_only_when_executors_have_stayed_away_for_15_s_after_the_first(
    clock: Clock,
) -> None:
    """While the first tasks wait, executors come one after the other."""
    spark = dynamic(clock, (0, 0), (5, 1), (14, 2), (25, 4))
    spark.has_queries = True
    slots = slots_of(spark)
    assert planned(slots, 6, clock) == 6
    clock.now += 5
    assert not slots.is_plan_due(Job(5, of=6))
    due_after(slots, Job(4, of=6), clock)
    assert planned(slots, 6, clock) == 2, "more are on their way"
    assert spark.asked == 4


def test_executors_that_come_and_go_cost_ever_fewer_plannings(clock: Clock) -> None:
    script = [(float(5 * number), 4 + number % 2) for number in range(200)]
    spark = Spark(clock, *script)
    slots = slots_of(spark)
    plannings = 0
    while clock.now < 1000 + 600:
        planned(slots, 2, clock)
        plannings += 1
        while clock.now < 1000 + 600 and not slots.is_plan_due(Job()):
            clock.now += 1
    assert plannings < 20
