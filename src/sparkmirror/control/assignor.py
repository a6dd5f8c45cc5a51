"""Who runs what: the workers of a group with what each of them runs come in, what each is to add and to give back goes out.

Incremental cooperative assignment, as Connect's leader does it: work stays where it is; only what a worker has too much of
is taken back, in a round of its own, and given away in the next. The work of a worker that has gone is kept for it
until a delay has passed. Eager assignment, for old groups, deals everything anew each time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .states import Assignment, ClusterConfig, TaskId

Item = str | TaskId
"""A connector or a task."""

_NOTHING: frozenset[Item] = frozenset()
_KINDS: tuple[type[str] | type[TaskId], ...] = (str, TaskId)
_BACK_OFF_FACTOR = 40
_ENOUGH_STEPS = 32
"""More steps of the back-off are beyond any delay."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """What one member is to add and to give back, and what it has after that."""

    assigned: Assignment
    revoked: Assignment
    owned: Assignment


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One round: a plan for each member, and after how long the group has to meet again (0: no need)."""

    members: Mapping[str, MemberPlan]
    delay_ms: int = 0
    kept: int = 0
    """How many connectors and tasks are kept for a worker that has gone."""


def deal_all(config: ClusterConfig, members: Iterable[str]) -> GroupPlan:
    """Eager assignment: all connectors, then all tasks, one to each member in turn."""
    shares: dict[str, list[Item]] = {member: [] for member in sorted(members)}
    turn = itertools.cycle(shares.values())
    for kind in _KINDS:
        for item in _sorted(_configured(config), kind):
            next(turn).append(item)
    plans = {member: _as_assignment(share) for member, share in shares.items()}
    nothing = Assignment()
    return GroupPlan({m: MemberPlan(plan, nothing, plan) for m, plan in plans.items()})


@dataclass(slots=True)
class _Round:
    """What is worked out in one round."""

    now_ms: int
    owned: Mapping[str, set[Item]]
    loads: dict[str, set[Item]]
    """What each member will have; grows and shrinks while the round is worked out."""
    revoked: dict[str, set[Item]]
    lost: frozenset[Item]
    to_deal: list[Item] = field(default_factory=list)


class IncrementalAssignor:
    """What a leader remembers from round to round.

    Invariants: nothing is given to a member in the round in which it is taken from another; `_previous` holds all that is
    assigned or kept for a worker that has gone, but nothing that was revoked; `_delay_ms` is 0 unless `_scheduled_ms` lies ahead.
    Not thread-safe: only the herder's thread leads.
    """

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_ms = max_delay_ms
        self._previous = _NOTHING
        self._previously_revoked = _NOTHING
        self._previous_members: frozenset[str] = frozenset()
        self._previous_generation = -1
        self._has_just_revoked = False
        self._revoking_rounds = 0
        self._candidates: dict[str, None] = {}
        """Members that came without work while work was kept for one that has gone, in the order they came."""
        self._delay_ms = 0
        self._scheduled_ms = 0

    def assign(
        self,
        config: ClusterConfig,
        members: Mapping[str, Assignment],
        *,
        generation: int,
        last_generation: int,
        now_ms: int,
    ) -> GroupPlan:
        """Work out one round.

        `generation` is the one being made; `last_generation` the last one this leader took part in to its end: if that is
        not the one it assigned last, somebody else has led in between and what it remembers is void.
        """
        if self._previous_generation != last_generation:
            self._previous = _NOTHING
        owned = {member: set(items_of(members[member])) for member in sorted(members)}
        configured = _configured(config)
        active = frozenset(itertools.chain.from_iterable(owned.values()))
        if self._previously_revoked & active:
            self._previous = (
                active  # that revocation was never carried out: begin again from what is
            )
        deleted = (self._previous | active) - configured
        unwanted = deleted | _held_twice(owned.values())
        created = configured - self._previous - active
        work = _Round(
            now_ms=now_ms,
            owned=owned,
            loads={member: items - unwanted for member, items in owned.items()},
            revoked={member: items & unwanted for member, items in owned.items()},
            lost=self._previous - active - deleted,
            to_deal=_in_order(created),
        )
        self._handle_lost(work)
        self._balance(work, configured)
        _deal(work.loads, work.to_deal)
        self._remember(work, generation)
        return self._plan(work)

    # -- work of workers that have gone ---------------------------------------------------------------

    def _handle_lost(self, work: _Round) -> None:
        """Decide whether lost work is dealt now or kept, and for how long."""
        if not work.lost and not self._has_just_revoked:
            self._end_delay()
        elif self._is_nobody_gone(work) or self._max_delay_ms == 0:
            work.to_deal += _in_order(work.lost)
        elif 0 < self._scheduled_ms <= work.now_ms:
            self._give_back(work)
            self._end_delay()
            self._has_just_revoked = False
        else:
            idle = (member for member, items in work.loads.items() if not items)
            self._candidates.update(dict.fromkeys(idle))
            left = self._scheduled_ms - work.now_ms if self._scheduled_ms else self._max_delay_ms
            self._delay_ms = min(left, self._max_delay_ms)
            self._scheduled_ms = work.now_ms + self._delay_ms

    def _is_nobody_gone(self, work: _Round) -> bool:
        """Whether work is missing only because some members never heard of their last assignment."""
        return self._scheduled_ms <= 0 and self._previous_members <= work.loads.keys()

    def _give_back(self, work: _Round) -> None:
        """The delay is over: lost work goes to those that came without any since, else to everybody."""
        back = [work.loads[member] for member in self._candidates if member in work.loads]
        if not back:
            work.to_deal += _in_order(work.lost)
            return
        for kind in _KINDS:
            for load, item in zip(itertools.cycle(back), _sorted(work.lost, kind), strict=False):
                load.add(item)

    def _end_delay(self) -> None:
        self._candidates.clear()
        self._scheduled_ms = self._delay_ms = 0

    # -- balance ------------------------------------------------------------------------------------------

    def _balance(self, work: _Round, configured: frozenset[Item]) -> None:
        """Take back what members have too much of, but not twice in a row without a pause in between."""
        if self._delay_ms != 0:
            self._has_just_revoked = False
            return
        surplus = _surplus(work.loads, work.owned, configured)
        if not surplus:
            if self._has_just_revoked:
                self._has_just_revoked = False
                self._revoking_rounds = 0
            return
        if self._has_just_revoked:
            self._revoking_rounds += 1
            self._delay_ms = self._back_off()
            if self._delay_ms != 0:
                self._scheduled_ms = work.now_ms + self._delay_ms
                return
        for member, items in surplus.items():
            work.loads[member] -= items
            work.revoked[member] |= items & work.owned[member]
            # What was only just given to a returning worker runs nowhere: others can have it at once.
            work.to_deal += _in_order(items - work.owned[member])
        self._has_just_revoked = True

    def _back_off(self) -> int:
        steps = min(self._revoking_rounds, _ENOUGH_STEPS)
        return min(self._max_delay_ms, int(_BACK_OFF_FACTOR**steps))

    # -- the end of a round ---------------------------------------------------------------------------------

    def _remember(self, work: _Round, generation: int) -> None:
        revoked = frozenset(itertools.chain.from_iterable(work.revoked.values()))
        loads = frozenset(itertools.chain.from_iterable(work.loads.values()))
        self._previous = (loads - revoked) | work.lost
        self._previously_revoked = revoked
        self._previous_members = frozenset(work.loads)
        self._previous_generation = generation

    def _plan(self, work: _Round) -> GroupPlan:
        plans = {
            member: MemberPlan(
                assigned=_as_assignment(load - work.owned[member]),
                revoked=_as_assignment(work.revoked[member]),
                owned=_as_assignment(load),
            )
            for member, load in work.loads.items()
        }
        dealt = frozenset(itertools.chain.from_iterable(work.loads.values()))
        return GroupPlan(plans, self._delay_ms, len(work.lost - dealt))


def _configured(config: ClusterConfig) -> frozenset[Item]:
    tasks = (config.tasks_of(connector) for connector in config.connectors)
    return frozenset(config.connectors) | frozenset(itertools.chain.from_iterable(tasks))


def items_of(assignment: Assignment) -> frozenset[Item]:
    """Connectors and tasks alike."""
    return frozenset((*assignment.connectors, *assignment.tasks))


def _as_assignment(items: Iterable[Item]) -> Assignment:
    ordered = _in_order(items)
    return Assignment(
        tuple(item for item in ordered if isinstance(item, str)),
        tuple(item for item in ordered if isinstance(item, TaskId)),
    )


def _in_order(items: Iterable[Item]) -> list[Item]:
    """Connectors, then tasks, each by name."""
    known = frozenset(items)
    return [item for kind in _KINDS for item in _sorted(known, kind)]


def _sorted(items: Iterable[Item], kind: type[str] | type[TaskId]) -> list[Item]:
    mine = (item for item in items if isinstance(item, kind))
    return sorted(mine, key=lambda i: (i, -1) if isinstance(i, str) else (i.connector, i.task))


def _held_twice(loads: Iterable[set[Item]]) -> frozenset[Item]:
    counts = Counter(itertools.chain.from_iterable(loads))
    return frozenset(item for item, count in counts.items() if count > 1)


def _surplus(
    loads: Mapping[str, set[Item]], owned: Mapping[str, set[Item]], configured: frozenset[Item]
) -> dict[str, frozenset[Item]]:
    """What each member has beyond an even share, first of what it does not run yet; members with just enough are left out."""
    taken: dict[str, frozenset[Item]] = {}
    for kind in _KINDS:
        share, extras = divmod(sum(isinstance(item, kind) for item in configured), len(loads))
        for member, load in loads.items():
            mine = sorted(_sorted(load, kind), key=lambda item: item in owned[member])
            allowed = share
            if len(mine) > share and extras > 0:
                extras -= 1
                allowed += 1
            if len(mine) > allowed:
                surplus = frozenset(mine[: len(mine) - allowed])
                taken[member] = taken.get(member, _NOTHING) | surplus
    return taken


def _deal(loads: Mapping[str, set[Item]], items: Iterable[Item]) -> None:
    """Give each item to the member that has the fewest of its kind; of equals, to the one that had the fewest before."""
    given = list(dict.fromkeys(items))
    for kind in _KINDS:
        before = sorted((len(_sorted(load, kind)), member) for member, load in loads.items())
        heap = [(count, place, member) for place, (count, member) in enumerate(before)]
        for item in given:
            if isinstance(item, kind):
                count, place, member = heap[0]
                loads[member].add(item)
                heapq.heapreplace(heap, (count + 1, place, member))
