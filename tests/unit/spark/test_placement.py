"""Partitions are shared out over Spark tasks by their loads, and stay where they are as far as that is possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.spark.placement import MOST_OF_MEAN, pack, place, weights, where

LOADS = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)


def most_of_mean(placed: list[list[int]], loads: dict[int, float]) -> float:
    weight = weights([key for task in placed for key in task], loads)
    sums = [sum(weight[key] for key in task) for task in placed]
    return max(sums) / (sum(sums) / len(sums))


@given(LOADS, st.integers(1, 12), st.integers(0, 12))
def test_every_partition_has_one_task(loads: list[float], tasks: int, shift: int) -> None:
    keys = list(range(len(loads)))
    before = {key: (key + shift) % 13 for key in keys if key % 3}
    placed = place(keys, dict(enumerate(loads)), tasks, before)
    assert len(placed) == tasks
    assert sorted(key for task in placed for key in task) == keys


@given(LOADS, st.integers(1, 12))
def test_no_task_has_much_more_than_the_mean_where_partitions_are_small_enough(
    loads: list[float], tasks: int
) -> None:
    keys = list(range(len(loads)))
    known = dict(enumerate(loads))
    weight = weights(keys, known)
    mean = sum(weight.values()) / tasks
    placed = place(keys, known, tasks, {})
    largest = max(weight.values())
    assert most_of_mean(placed, known) <= max(MOST_OF_MEAN, 1 + largest / mean) + 1e-6
    if largest <= mean * 0.25:
        assert most_of_mean(placed, known) <= MOST_OF_MEAN + 1e-6


@given(LOADS, st.integers(1, 12))
def test_what_is_well_placed_stays(loads: list[float], tasks: int) -> None:
    keys = list(range(len(loads)))
    known = dict(enumerate(loads))
    first = place(keys, known, tasks, {})
    before = {key: number for number, task in enumerate(first) for key in task}
    if most_of_mean(first, known) <= MOST_OF_MEAN:
        again = place(keys, known, tasks, before)
        assert [set(task) for task in again] == [set(task) for task in first]


@given(LOADS, st.integers(1, 12), st.integers(1, 12))
def test_no_task_is_without_partitions_while_another_has_two(
    loads: list[float], earlier: int, tasks: int
) -> None:
    keys = list(range(len(loads)))
    known = dict(enumerate(loads))
    first = place(keys, known, earlier, {})
    before = {key: number for number, task in enumerate(first) for key in task}
    placed = place(keys, known, tasks, before)
    assert sum(map(bool, placed)) == min(tasks, len(keys))


def test_without_loads_partitions_stay_with_their_connector_task() -> None:
    before = {key: key % 3 for key in range(9)}
    placed = place(range(9), {}, 3, before)
    assert placed == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_one_heavy_partition_gets_a_task_of_its_own() -> None:
    loads = {0: 900.0, **dict.fromkeys(range(1, 8), 10.0)}
    placed = place(range(8), loads, 2, {key: key % 2 for key in range(8)})
    assert placed[0] == [0]


@pytest.mark.parametrize(
    ("loads", "tasks", "before"),
    [
        ([7.0, 10.0, 8.0], 2, [0, 0, 1]),
        ([4.0, 6.0, 7.0, 9.0], 3, [1, 0, 1, 1]),
        ([5.0, 4.0, 10.0, 2.0, 6.0, 1.0], 4, [0, 0, 0, 3, 1, 3]),
    ],
)
def test_the_limit_is_met_where_only_a_placing_that_moves_more_meets_it(
    loads: list[float], tasks: int, before: list[int]
) -> None:
    known = dict(enumerate(loads))
    placed = place(list(known), known, tasks, dict(enumerate(before)))
    assert most_of_mean(placed, known) <= MOST_OF_MEAN


def test_a_new_partition_moves_no_other() -> None:
    before = {key: key % 2 for key in range(6)}
    placed = place(range(7), dict.fromkeys(range(6), 1e6), 2, before)
    assert {0, 2, 4} <= set(placed[0])
    assert {1, 3, 5} <= set(placed[1])


def test_a_lost_task_moves_its_partitions_only() -> None:
    before = {key: key % 3 for key in range(12)}
    placed = place(range(12), dict.fromkeys(range(12), 1e6), 2, before)
    assert {0, 3, 6, 9} <= set(placed[0])
    assert {1, 4, 7, 10} <= set(placed[1])


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
        # Those with a query are among themselves, if there is room for it.
        assert len({part.queried for part in parts}) == 1 or (slots < 2 and not is_roomy)
    assert where(packed).keys() == {part.key for part in found}


@pytest.mark.parametrize(
    ("slots", "is_roomy", "sizes"),
    [
        (2, True, ([3, 3], [2, 1])),
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
        return PartitionPlan("t", 10 * task + number, "A.t", task=task, queried=number == 0)

    tasks = [[part(task, number) for number in range(3)] for task in range(3)]
    packed = pack(tasks, slots, is_roomy=is_roomy)
    plain = [len(parts) for parts in packed if not all(each.queried for each in parts)]
    queried = [len(parts) for parts in packed if all(each.queried for each in parts)]
    assert (sorted(plain), sorted(queried)) == (sorted(sizes[0]), sorted(sizes[1]))


def test_partitions_stay_in_their_spark_task_when_it_is_planned_again() -> None:
    tasks = [
        [PartitionPlan("t", 3 * task + n, "A.t", task=task) for n in range(3)] for task in range(4)
    ]
    loads = {("t", 0): 8e6, ("t", 1): 8e6, ("t", 2): 8e6, ("t", 3): 1e6}
    first = pack(tasks, 4, is_roomy=False, loads=loads)
    again = pack(tasks, 4, is_roomy=False, loads=loads, before=where(first))
    assert where(again) == where(first)
    heavy = {number for number, parts in enumerate(first) for part in parts if part.partition < 3}
    assert len(heavy) == 3, "each of the heavy ones has a task of its own"
