"""Who copies what: MM2's distribution over tasks, and tasks over Spark's slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import PartitionPlan, assign, pack, positions_of
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


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=12), st.integers(0, 8), st.booleans())
def test_packing_keeps_everything_and_needs_no_more_slots_than_there_are(
    kinds: list[list[bool]], slots: int, is_roomy: bool
) -> None:
    tasks = [
        [
            PartitionPlan("t", 10 * task + i, "A.t", task=task, queried=queried)
            for i, queried in enumerate(parts)
        ]
        for task, parts in enumerate(kinds)
    ]
    packed = pack(tasks, slots, is_roomy=is_roomy)
    plain = [parts for parts in packed if not parts[0].queried]
    queried = [parts for parts in packed if parts[0].queried]
    if is_roomy:
        assert max(len(plain), len(queried)) <= max(1, slots)
    else:
        assert len(packed) <= max(1, slots)
    assert all(packed)
    found = [part for parts in packed for part in parts]
    assert sorted(found, key=lambda p: p.partition) == [part for task in tasks for part in task]
    for parts in packed:
        # Those with a query are among themselves, if there is room for it; of each kind, a connector task stays whole.
        assert len({part.queried for part in parts}) == 1 or (slots < 2 and not is_roomy)
        for part in parts:
            alike = [other for other in tasks[part.task] if other.queried == part.queried]
            assert all(other in parts for other in alike)


@pytest.mark.parametrize(
    ("slots", "is_roomy", "sizes"),
    [
        (2, True, ([4, 2], [2, 1])),
        (1, True, ([6], [3])),
        (4, False, ([2, 2, 2], [3])),
        (2, False, ([6], [3])),
        (1, False, ([9], [])),
    ],
)
def test_partitions_with_a_query_have_tasks_of_their_own(
    slots: int, is_roomy: bool, sizes: tuple[list[int], list[int]]
) -> None:
    def part(task: int, number: int) -> PartitionPlan:
        return PartitionPlan("t", number, "A.t", task=task, queried=number == 0)

    tasks = [[part(task, number) for number in range(3)] for task in range(3)]
    packed = pack(tasks, slots, is_roomy=is_roomy)
    plain = [len(parts) for parts in packed if not all(each.queried for each in parts)]
    queried = [len(parts) for parts in packed if all(each.queried for each in parts)]
    assert (sorted(plain), sorted(queried)) == (sorted(sizes[0]), sorted(sizes[1]))


def test_positions_follow_their_partitions() -> None:
    parts = [PartitionPlan("t", 0, "A.t"), PartitionPlan("t", 1, "A.t")]
    found = positions_of(parts, {("t", 1): Position(5), ("x", 0): Position(6)})
    assert found == ((("t", 0), None), (("t", 1), Position(5)))
