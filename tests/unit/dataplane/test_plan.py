"""Who copies what: MM2's distribution over tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import PartitionPlan, assign, positions_of
from sparkmirror.formats.position import Position


def test_partitions_go_round_robin() -> None:
    partitions = [("t", i) for i in range(5)]
    assert assign(partitions, 2) == [[("t", 0), ("t", 2), ("t", 4)], [("t", 1), ("t", 3)]]


def test_no_more_tasks_than_partitions() -> None:
    assert assign([("t", 0)], 8) == [[("t", 0)]]
    assert assign([], 8) == []


@given(st.integers(0, 60), st.integers(1, 20))
def test_every_partition_has_one_task_and_tasks_are_even(count: int, tasks_max: int) -> None:
    partitions = [("t", i) for i in range(count)]
    tasks = assign(partitions, tasks_max)
    assert sorted(key for task in tasks for key in task) == partitions
    assert len(tasks) == min(count, tasks_max)
    sizes = [len(task) for task in tasks]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_positions_follow_their_partitions() -> None:
    parts = [PartitionPlan("t", 0, "A.t"), PartitionPlan("t", 1, "A.t")]
    found = positions_of(parts, {("t", 1): Position(5), ("x", 0): Position(6)})
    assert found == ((("t", 0), None), (("t", 1), Position(5)))
