"""Where partitions are copied: their loads and where they were in, the partitions of each Spark task out.

No task gets more than 1.25 times the mean where partitions can be shared out like that, and as few as possible move: a partition
that moves is aligned again, and its new Python worker has to connect to its brokers.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.kafka.fetch import TopicPartition

Key = TypeVar("Key", bound=Hashable)
MOST_OF_MEAN = 1.25
_COUNTS_AS = 0.1
"""A partition costs something by being there: a tenth of what the mean partition costs, or so."""
_WORTH_MOVING = 0.9
"""Where no placing keeps to the limit, the old one stays unless the new one is better by a tenth."""
_ROUNDS = 3


def pack(
    tasks: Sequence[Sequence[PartitionPlan]],
    slots: int,
    *,
    is_roomy: bool,
    loads: Mapping[TopicPartition, float] | None = None,
    before: Mapping[TopicPartition, int] | None = None,
) -> list[list[PartitionPlan]]:
    """The partitions of connector tasks in as many Spark tasks, at most as many as there are slots.

    Partitions with a query get Spark tasks of their own, which take time that others should not wait for: as many again where
    that is possible (`is_roomy`), else some of the slots. `before`: where partitions were, see `where`.
    """
    plain = [[part for part in parts if not part.queried] for parts in tasks]
    queried = [[part for part in parts if part.queried] for parts in tasks]
    count, others = sum(map(len, queried)), sum(map(len, plain))
    loads, before = loads or {}, before or {}
    if not count or not others or (slots < 2 and not is_roomy):
        return _packed(tasks, slots, loads, before)
    if is_roomy:
        return [*_packed(plain, slots, loads, before), *_packed(queried, slots, loads, before)]
    own = min(slots - 1, max(1, slots * count // (count + others)))
    return [*_packed(plain, slots - own, loads, before), *_packed(queried, own, loads, before)]


def where(packed: Sequence[Sequence[PartitionPlan]]) -> dict[TopicPartition, int]:
    """The number of the Spark task of each partition, counted among those of its kind."""
    plain = [parts for parts in packed if not all(part.queried for part in parts)]
    queried = [parts for parts in packed if all(part.queried for part in parts)]
    return {
        part.key: number
        for kind in (plain, queried)
        for number, parts in enumerate(kind)
        for part in parts
    }


def _packed(
    tasks: Sequence[Sequence[PartitionPlan]],
    slots: int,
    loads: Mapping[TopicPartition, float],
    before: Mapping[TopicPartition, int],
) -> list[list[PartitionPlan]]:
    """Partitions that were nowhere yet go with the others of their connector task, as far as the loads allow it."""
    filled = [parts for parts in tasks if parts]
    count = max(1, min(slots, len(filled)))
    parts = {part.key: part for partitions in filled for part in partitions}
    best = {
        part.key: number % count for number, partitions in enumerate(filled) for part in partitions
    }
    placed = place(list(parts), loads, count, best | {k: n for k, n in before.items() if k in best})
    return [[parts[key] for key in keys] for keys in placed if keys]


def weights(keys: Sequence[Key], loads: Mapping[Key, float]) -> dict[Key, float]:
    """What each partition costs, from its bytes per second; without loads all cost the same."""
    mean = sum(loads.get(key, 0.0) for key in keys) / max(1, len(keys))
    return {key: loads.get(key, 0.0) + mean * _COUNTS_AS + 1.0 for key in keys}


def place(
    keys: Sequence[Key], loads: Mapping[Key, float], tasks: int, before: Mapping[Key, int]
) -> list[list[Key]]:
    """The partitions of each of `tasks` tasks; `before` has the tasks where they were, or would best be."""
    weight = weights(keys, loads)
    limit = MOST_OF_MEAN * sum(weight.values()) / max(1, tasks)
    kept = _kept(keys, weight, tasks, before)
    for _ in range(_ROUNDS):  # what was moved to a task may be too much together with what it had
        if _most(kept, weight) <= limit:
            return _spread(kept, weight)
        kept = _kept(keys, weight, tasks, _numbers(kept))
    fresh = _filled([[] for _ in range(tasks)], sorted(keys, key=weight.__getitem__)[::-1], weight)
    most = _most(fresh, weight)
    is_better = most <= limit or most < _most(kept, weight) * _WORTH_MOVING
    return _spread(fresh if is_better else kept, weight)


def _spread(placed: list[list[Key]], weight: Mapping[Key, float]) -> list[list[Key]]:
    """A task without partitions gets about half of the heaviest one that has several: no slot is idle beside a shared one."""
    shared: list[tuple[float, int]] = []

    def offer(number: int) -> None:
        if len(placed[number]) > 1:
            heapq.heappush(shared, (-sum(weight[key] for key in placed[number]), number))

    for number in range(len(placed)):
        offer(number)
    for number, task in enumerate(placed):
        if task or not shared:
            continue
        total, donor = heapq.heappop(shared)
        placed[donor], placed[number] = _halves(placed[donor], weight, -total)
        offer(donor)
        offer(number)
    return placed


def _halves(
    keys: Sequence[Key], weight: Mapping[Key, float], total: float
) -> tuple[list[Key], list[Key]]:
    """Two parts of several partitions: the first has at least half of the load, the second at least one partition."""
    ordered = sorted(keys, key=weight.__getitem__)
    given, left = {ordered[0]}, total / 2 - weight[ordered[0]]
    for key in ordered[1:-1]:
        if weight[key] <= left:
            given.add(key)
            left -= weight[key]
    return [key for key in keys if key not in given], [key for key in keys if key in given]


def _numbers(placed: Sequence[Sequence[Key]]) -> dict[Key, int]:
    return {key: number for number, task in enumerate(placed) for key in task}


def _kept(
    keys: Sequence[Key], weight: Mapping[Key, float], tasks: int, before: Mapping[Key, int]
) -> list[list[Key]]:
    """All where they were, but for those that make a task too heavy, and new ones."""
    placed: list[list[Key]] = [[] for _ in range(tasks)]
    moving: list[Key] = []
    for key in keys:
        number = before.get(key, -1)
        if 0 <= number < tasks:
            placed[number].append(key)
        else:
            moving.append(key)
    mean = sum(weight.values()) / max(1, tasks)
    for task in placed:
        moving += _taken_off(task, weight, mean)
    moving.sort(key=weight.__getitem__, reverse=True)
    return _filled(placed, moving, weight)


def _taken_off(task: list[Key], weight: Mapping[Key, float], mean: float) -> list[Key]:
    """Take from a task that is too heavy what it has above the mean, the heaviest first, but never its only partition."""
    total = sum(weight[key] for key in task)
    if total <= MOST_OF_MEAN * mean:
        return []
    taken: list[Key] = []
    for key in sorted(task, key=weight.__getitem__, reverse=True):
        if len(task) - len(taken) > 1 and weight[key] <= total - mean:
            taken.append(key)
            total -= weight[key]
    for key in taken:
        task.remove(key)
    return taken


def _filled(
    placed: list[list[Key]], moving: Sequence[Key], weight: Mapping[Key, float]
) -> list[list[Key]]:
    """Each of the moving ones, the heaviest first, where there is least."""
    heap = [(sum(weight[key] for key in task), number) for number, task in enumerate(placed)]
    heapq.heapify(heap)
    for key in moving:
        total, number = heapq.heappop(heap)
        placed[number].append(key)
        heapq.heappush(heap, (total + weight[key], number))
    return placed


def _most(placed: Sequence[Sequence[Key]], weight: Mapping[Key, float]) -> float:
    return max((sum(weight[key] for key in task) for task in placed), default=0.0)
