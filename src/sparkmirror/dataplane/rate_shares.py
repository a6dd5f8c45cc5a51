"""How the Spark tasks of a job share its rate limits: what each has read in, what each may read out.

Tasks ask every half second (`rate_limits.ShareExchange`). When a share is lowered, the old one counts until its task asks again,
and so is known to have the new one. Another task gets no more than what is free by then, so shares never add up to more than the
cap, whatever is lost on the way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from .plan import FLOW, PartitionPlan, RateLimit, TaskPlan

_FLOOR = 0.1
"""Of a task's equal part: what it keeps while it reads nothing, so that it notices when there is more."""
_ROOM = 1.25
_FIRST = 0.25
"""Of its equal part: what a task asks for at first when its share does not do."""
_GROWTH = 4.0
"""Of its share: what it asks for then. Not all at once, so that a short burst does not take much from others."""
_CONTENDED_S = 5.0
"""Shares stay as they are once nobody has wanted more for so long."""


def fair_shares(cap: float, wants: Sequence[float]) -> list[float]:
    """Max-min fair: nobody gets more than it wants while another gets less; what nobody wants is divided equally."""
    shares, left = [0.0] * len(wants), cap
    for place, number in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        shares[number] = min(wants[number], left / (len(wants) - place))
        left -= shares[number]
    return [share + max(0.0, left) / len(wants) for share in shares]


class SharedLimit:
    """One limit and its tasks.

    Invariants: `_promised` is the most that each task may be using, and its sum is at most the cap; `_answered` is what each was
    told last.
    """

    def __init__(self, cap: float, tasks: Iterable[int]) -> None:
        self._cap = cap
        self._numbers = {task: number for number, task in enumerate(tasks)}
        self._equal = cap / len(self._numbers)
        self._promised = [self._equal] * len(self._numbers)
        self._answered = list(self._promised)
        self._demand = [0.0] * len(self._numbers)
        self._starved = [False] * len(self._numbers)
        self._contended_until = 0.0

    @property
    def promised(self) -> float:
        return sum(self._promised)

    def of(self, task: int) -> float:
        """What a task was told last."""
        return self._answered[self._numbers[task]]

    def is_contended(self, now: float) -> bool:
        return now < self._contended_until

    def take(self, task: int, used: float, *, is_starved: bool, now: float) -> None:
        """What a task has used, in bytes per second. It asks, so its last answer is in force."""
        number = self._numbers[task]
        self._promised[number] = self._answered[number]
        self._demand[number] = max(used, self._demand[number] / 2)  # bursts are remembered a little
        self._starved[number] = is_starved
        if is_starved:
            self._contended_until = now + _CONTENDED_S

    def answer(self, task: int) -> float:
        number = self._numbers[task]
        target = fair_shares(self._cap, [self._wanted(each) for each in self._numbers.values()])
        free = self._cap - (sum(self._promised) - self._promised[number])
        share = max(0.0, min(target[number], free))
        self._answered[number] = share
        self._promised[number] = max(self._promised[number], share)
        return share

    def _wanted(self, number: int) -> float:
        wanted = max(_FLOOR * self._equal, _ROOM * self._demand[number])
        if self._starved[number]:
            wanted = max(wanted, _GROWTH * self._answered[number], _FIRST * self._equal)
        return min(wanted, self._cap)


class RateShares:
    """The limits that several Spark tasks of a job share. Called from the threads of their driver links."""

    def __init__(self, plans: Iterable[TaskPlan]) -> None:
        holders: dict[RateLimit, list[int]] = {}
        for plan in plans:
            for limit in plan.limits:
                if limit.tasks > 1:
                    holders.setdefault(limit, []).append(plan.index)
        self._lock = threading.Lock()
        self._limits = {limit.topic: SharedLimit(limit.bytes, t) for limit, t in holders.items()}
        self._of_task: dict[int, dict[str, SharedLimit]] = {}
        for limit, tasks in holders.items():
            for task in tasks:
                self._of_task.setdefault(task, {})[limit.topic] = self._limits[limit.topic]
        self._contended: dict[str, SharedLimit] = {}

    @classmethod
    def of(cls, plans: Sequence[TaskPlan]) -> RateShares | None:
        """None if the plans share no limits."""
        is_any = any(limit.tasks > 1 for plan in plans for limit in plan.limits)
        return cls(plans) if is_any else None

    def shares(self, task: int) -> dict[str, float]:
        """What a task that has just begun may use; a task before it may have had another share than in the plan."""
        with self._lock:
            return {topic: limit.of(task) for topic, limit in self._of_task.get(task, {}).items()}

    def answer(self, task: int, usage: Mapping[str, tuple[float, bool]]) -> dict[str, float]:
        """New shares of a task, for the limits of which some task wants more."""
        now = time.monotonic()
        with self._lock:
            own = self._of_task.get(task, {})
            for topic, (used, is_starved) in usage.items():
                if topic in own:
                    own[topic].take(task, used, is_starved=is_starved, now=now)
                    if is_starved:
                        self._contended[topic] = own[topic]
            for topic, limit in list(self._contended.items()):
                if not limit.is_contended(now):
                    del self._contended[topic]
                elif topic in own and topic not in usage:
                    limit.take(task, 0.0, is_starved=False, now=now)
            return {t: limit.answer(task) for t, limit in self._contended.items() if t in own}


def limits_of_tasks(
    packed: Sequence[Sequence[PartitionPlan]], flow: int, topics: Mapping[str, int]
) -> list[tuple[RateLimit, ...]]:
    """The limits of each Spark task, from its partitions and the caps of the job; 0: no cap."""
    names = [sorted({part.topic for part in parts}) for parts in packed]
    holders: dict[str, int] = {}
    for found in names:
        for topic in found:
            holders[topic] = holders.get(topic, 0) + 1
    whole = (RateLimit(FLOW, flow, len(packed)),) if flow > 0 else ()
    return [
        (
            *whole,
            *(RateLimit(t, topics[t], holders[t]) for t in found if topics.get(t, 0) > 0),
        )
        for found in names
    ]


def part_of_cap(cap: int, held: int, total: int) -> int:
    """What a worker may use of a cap, by what it holds of all tasks or partitions; 0: no cap."""
    if cap <= 0 or held >= total:
        return cap
    return max(1, cap * held // total)
