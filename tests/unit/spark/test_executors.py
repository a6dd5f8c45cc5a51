"""Executors that come and go: when a job is planned again, and how many slots the settings promise."""

from __future__ import annotations

import pytest

from sparkmirror.spark.executors import Executors, ExecutorWatch, promised


def of(slots: int, *ids: str) -> Executors:
    return Executors(slots, frozenset(ids))


ONE, TWO = of(4, "0"), of(8, "0", "1")


def test_nothing_is_due_while_nothing_changes() -> None:
    watch = ExecutorWatch(TWO, 6, steady=3)
    assert not any(watch.is_due(TWO, at) for at in range(100))


def test_a_lost_slot_that_a_task_needs_is_due_at_once() -> None:
    assert ExecutorWatch(TWO, 6, steady=3).is_due(ONE, 0.0)
    assert ExecutorWatch(ONE, 4, steady=3).is_due(of(0), 0.0)


def test_executors_that_join_one_after_the_other_are_due_once_they_are_all_there() -> None:
    watch = ExecutorWatch(ONE, 4, steady=3)
    assert not watch.is_due(TWO, 10.0)
    assert not watch.is_due(of(12, "0", "1", "2"), 12.0)
    assert not watch.is_due(of(12, "0", "1", "2"), 14.0)
    assert watch.is_due(of(12, "0", "1", "2"), 15.0)


def test_one_that_was_away_for_a_moment_is_not_due() -> None:
    watch = ExecutorWatch(TWO, 2, steady=3)
    assert not watch.is_due(ONE, 10.0)
    assert not watch.is_due(TWO, 11.0)
    assert not watch.is_due(TWO, 20.0)


def test_an_executor_that_was_replaced_is_due() -> None:
    watch = ExecutorWatch(ONE, 1, steady=3)
    assert not watch.is_due(of(4, "7"), 10.0)
    assert watch.is_due(of(4, "7"), 13.0)


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
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "5",
                "spark.executor.instances": "1",
                "spark.executor.cores": "2",
            },
            10,
        ),
        (
            {
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
