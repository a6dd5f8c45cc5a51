"""Executors that come and go: when a job is planned again, and how many slots the settings promise."""

from __future__ import annotations

import pytest

from sparkmirror.spark.executors import Executors, ExecutorWatch, is_dynamic, promised


def of(slots: int, *ids: str) -> Executors:
    return Executors(slots, frozenset(ids))


ONE, TWO = of(4, "0"), of(8, "0", "1")


def watching(planned: Executors, tasks: int) -> ExecutorWatch:
    return ExecutorWatch(planned, tasks, planned.slots, steady=30)


def test_nothing_is_due_while_nothing_changes() -> None:
    watch = watching(TWO, 6)
    assert not any(watch.is_due(TWO, 8, at) for at in range(100))


def test_a_share_that_is_too_small_for_the_tasks_is_due_at_once() -> None:
    assert watching(TWO, 6).is_due(ONE, 4, 0.0)
    assert watching(TWO, 4).is_due(ONE, 2, 0.0), "another job has the other half"
    assert watching(TWO, 4).is_due(TWO, 3, 0.0)
    assert watching(ONE, 4).is_due(of(0), 0, 0.0)


def test_executors_that_join_one_after_the_other_are_due_once_they_are_all_there() -> None:
    watch, three = watching(ONE, 4), of(12, "0", "1", "2")
    assert not watch.is_due(TWO, 8, 100.0)
    assert not watch.is_due(three, 12, 120.0)
    assert not watch.is_due(three, 12, 149.0)
    assert watch.is_due(three, 12, 150.0)


def test_a_share_that_has_grown_is_due_once_it_stays() -> None:
    watch = ExecutorWatch(TWO, 4, 4, steady=30)
    assert not watch.is_due(TWO, 8, 100.0)
    assert not watch.is_due(TWO, 8, 129.0)
    assert watch.is_due(TWO, 8, 130.0)


def test_one_that_was_away_for_a_moment_is_not_due() -> None:
    watch = watching(TWO, 2)
    assert not watch.is_due(ONE, 4, 10.0)
    assert not watch.is_due(TWO, 8, 11.0)
    assert not watch.is_due(TWO, 8, 200.0)


def test_a_lost_executor_is_due_within_10_s_however_often_they_change() -> None:
    watch = watching(TWO, 2)
    assert not watch.is_due(ONE, 4, 100.0)
    assert not watch.is_due(ONE, 4, 102.0)
    assert watch.is_due(ONE, 4, 103.0)
    watch = watching(TWO, 2)
    due = [watch.is_due(of(4, "0", str(at)), 4, float(at)) for at in range(100, 108)]
    assert due == [False] * 7 + [True]


def test_an_executor_that_was_replaced_is_due() -> None:
    watch = watching(ONE, 1)
    assert not watch.is_due(of(4, "7"), 4, 10.0)
    assert watch.is_due(of(4, "7"), 4, 13.0)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*, 2]"])
def test_local_masters_are_never_dynamic(master: str) -> None:
    """Spark ignores the setting there, which may come from a `spark-defaults.conf` for all."""
    settings = {"spark.dynamicAllocation.enabled": "true"}
    assert is_dynamic({**settings, "spark.master": "spark://m:7077"})
    assert not is_dynamic({**settings, "spark.master": master})
    assert not is_dynamic(settings)


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({}, None),
        ({"spark.cores.max": "6"}, 6),
        ({"spark.cores.max": "6", "spark.task.cpus": "2"}, 3),
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4", "spark.cores.max": "8"}, 8),
        (
            {
                "spark.master": "spark://host:7077",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "5",
                "spark.executor.instances": "1",
                "spark.executor.cores": "2",
            },
            10,
        ),
        (
            {
                "spark.master": "spark://host:7077",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "infinity",
            },
            None,
        ),
        ({"spark.cores.max": "1", "spark.task.cpus": "2"}, 1),
        ({"spark.master": "yarn"}, 2),
        ({"spark.master": "yarn", "spark.cores.max": "1"}, 2),
        ({"spark.master": "k8s://https://host:6443", "spark.executor.cores": "3"}, 6),
        ({"spark.master": "yarn", "spark.executor.instances": "5"}, 5),
        ({"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}, None),
        ({"spark.master": "spark://host:7077"}, None),
    ],
)
def test_what_is_promised(settings: dict[str, str], slots: int | None) -> None:
    assert promised(settings) == slots
