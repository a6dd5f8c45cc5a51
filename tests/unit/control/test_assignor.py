"""Who runs what: whatever happens to a group, after a few rounds everything runs once, and evenly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparkmirror.control.assignor import GroupPlan, IncrementalAssignor, Item, deal_all, items_of
from sparkmirror.control.states import Assignment, ClusterConfig, TaskId

_DELAY_MS = 10_000
_ENOUGH_ROUNDS = 30


def _config(counts: dict[str, int]) -> ClusterConfig:
    return ClusterConfig(connectors={name: {} for name in counts}, task_counts=counts)


def _assignment(items: frozenset[Item]) -> Assignment:
    return Assignment(
        tuple(sorted(i for i in items if isinstance(i, str))),
        tuple(sorted(i for i in items if isinstance(i, TaskId))),
    )


def _configured(counts: dict[str, int]) -> frozenset[Item]:
    tasks = (TaskId(name, number) for name, count in counts.items() for number in range(count))
    return frozenset((*counts, *tasks))


@dataclass
class _Group:
    """A group with its leader, which does what it is told; workers come, go and return as a test says."""

    counts: dict[str, int]
    members: dict[str, frozenset[Item]]
    max_delay_ms: int = _DELAY_MS
    now_ms: int = 1
    generation: int = 0
    assignor: IncrementalAssignor = field(init=False)

    def __post_init__(self) -> None:
        self.assignor = IncrementalAssignor(self.max_delay_ms)

    def meet(self) -> GroupPlan:
        before = Counter(item for items in self.members.values() for item in items)
        plan = self.assignor.assign(
            _config(self.counts),
            {name: _assignment(items) for name, items in self.members.items()},
            generation=self.generation + 1,
            last_generation=self.generation or -1,
            now_ms=self.now_ms,
        )
        self.generation += 1
        assert plan.members.keys() == self.members.keys()
        for name, share in plan.members.items():
            assert items_of(share.revoked) <= self.members[name], "only what one has is taken"
            assert not items_of(share.assigned) & self.members[name], "nothing is given twice"
            after = (self.members[name] - items_of(share.revoked)) | items_of(share.assigned)
            assert after == items_of(share.owned)
            running = {item for item in items_of(share.assigned) if before[item]}
            assert not running, "nothing is given while another one still runs it"
        assert 0 <= plan.delay_ms <= self.max_delay_ms
        self.members = {name: items_of(share.owned) for name, share in plan.members.items()}
        return plan

    def settle(self) -> None:
        """Meet as often as workers do: again after a revocation, and when the delay is over."""
        for _ in range(_ENOUGH_ROUNDS):
            plan = self.meet()
            if plan.delay_ms:
                self.now_ms += plan.delay_ms
            elif not any(items_of(share.revoked) for share in plan.members.values()):
                return
        raise AssertionError(f"no end after {_ENOUGH_ROUNDS} rounds: {self}")

    def check(self) -> None:
        """Everything is owned, once, and evenly."""
        owned = [item for items in self.members.values() for item in items]
        assert len(owned) == len(set(owned))
        assert set(owned) == _configured(self.counts)
        for kind in (str, TaskId):
            sizes = [sum(isinstance(i, kind) for i in items) for items in self.members.values()]
            assert max(sizes) - min(sizes) <= 1


_COUNTS = st.dictionaries(
    st.sampled_from([f"c{n}" for n in range(12)]), st.integers(0, 7), max_size=10
)
_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["join", "die", "reset", "return", "leader", "nothing"]),
        st.integers(0, 9),
        _COUNTS,
        st.integers(0, 2 * _DELAY_MS),
        st.booleans(),
    ),
    max_size=12,
)


def _happen(group: _Group, gone: dict[str, frozenset[Item]], event: str, number: int) -> None:
    names = sorted(group.members)
    if event == "join":
        group.members.setdefault(f"w{number}", frozenset())
    elif event == "die" and len(names) > 1:
        name = names[number % len(names)]
        gone[name] = group.members.pop(name)
    elif event == "return" and gone:
        name = sorted(gone)[number % len(gone)]
        group.members[name] = gone.pop(name)  # with what it still runs
    elif event == "leader":
        group.assignor = IncrementalAssignor(group.max_delay_ms)


@settings(max_examples=300)
@given(_COUNTS, _EVENTS, st.sampled_from([0, 1, _DELAY_MS]))
def test_whatever_happens_all_work_runs_once_and_evenly_in_the_end(
    counts: dict[str, int],
    events: list[tuple[str, int, dict[str, int], int, bool]],
    max_delay_ms: int,
) -> None:
    group = _Group(counts, {"w0": frozenset()}, max_delay_ms)
    gone: dict[str, frozenset[Item]] = {}
    for event, number, new_counts, later, meets in events:
        if event == "reset":
            group.counts = new_counts
        _happen(group, gone, event, number)
        group.now_ms += later
        if meets:
            group.meet()
    group.settle()
    group.check()


@given(_COUNTS, st.integers(1, 8))
def test_settled_work_stays_where_it_is(counts: dict[str, int], workers: int) -> None:
    group = _Group(counts, {f"w{n}": frozenset() for n in range(workers)})
    group.settle()
    before = dict(group.members)
    plan = group.meet()
    assert group.members == before
    assert plan.delay_ms == 0


@given(_COUNTS, st.integers(2, 8))
def test_only_the_surplus_is_taken_for_a_new_worker(counts: dict[str, int], workers: int) -> None:
    group = _Group(counts, {f"w{n}": frozenset() for n in range(workers - 1)})
    group.settle()
    before = dict(group.members)
    group.members["new"] = frozenset()
    group.settle()
    group.check()
    for name, items in before.items():
        assert group.members[name] <= items, "nobody but the new one gets anything"


@given(_COUNTS, st.integers(2, 6), st.integers(1, _DELAY_MS - 1))
def test_work_of_a_worker_that_has_gone_waits_for_the_delay(
    counts: dict[str, int], workers: int, early: int
) -> None:
    group = _Group(counts, {f"w{n}": frozenset() for n in range(workers)})
    group.settle()
    lost = group.members.pop("w1")
    before = dict(group.members)
    plan = group.meet()
    assert group.members == before
    assert plan.delay_ms == (_DELAY_MS if lost else 0)
    if lost:
        group.now_ms += early
        assert group.meet().delay_ms == _DELAY_MS - early
        assert group.members == before
        group.now_ms += _DELAY_MS - early
        assert group.meet().delay_ms == 0
    group.settle()
    group.check()
    for name, items in before.items():
        assert items <= group.members[name]


@given(_COUNTS, st.integers(2, 6))
def test_a_worker_that_returns_in_time_gets_its_work_back(
    counts: dict[str, int], workers: int
) -> None:
    group = _Group(counts, {f"w{n}": frozenset() for n in range(workers)})
    group.settle()
    before = dict(group.members)
    assume(all(before.values()))  # one that has nothing to do may get the work too
    lost = group.members.pop("w1")
    group.meet()
    group.members["w1, restarted"] = frozenset()
    group.now_ms += 10
    group.meet()
    group.settle()
    assert group.members.pop("w1, restarted") == lost
    before.pop("w1")
    assert group.members == before


def test_without_a_delay_lost_work_moves_at_once() -> None:
    group = _Group({"a": 4, "b": 4}, {"w0": frozenset(), "w1": frozenset()}, max_delay_ms=0)
    group.settle()
    del group.members["w1"]
    plan = group.meet()
    assert plan.delay_ms == 0
    group.check()


def test_what_two_workers_have_is_taken_from_both_and_given_anew() -> None:
    twice: frozenset[Item] = frozenset({"a", TaskId("a", 0)})
    group = _Group({"a": 2}, {"w0": twice, "w1": twice})
    plan = group.meet()
    assert [items_of(share.revoked) for share in plan.members.values()] == [twice, twice]
    group.settle()
    group.check()


def test_what_is_not_configured_is_taken_even_by_a_leader_that_never_gave_it() -> None:
    group = _Group({"a": 1}, {"w0": frozenset({"old", TaskId("old", 3), "a"})})
    plan = group.meet()
    assert items_of(plan.members["w0"].revoked) == {"old", TaskId("old", 3)}
    assert group.members["w0"] == {"a", TaskId("a", 0)}


def test_work_that_a_member_never_heard_of_is_given_again_at_once() -> None:
    group = _Group({"a": 4}, {"w0": frozenset(), "w1": frozenset()})
    group.settle()
    group.members["w1"] = frozenset()
    assert group.meet().delay_ms == 0
    group.check()


def test_rounds_that_take_back_work_one_after_the_other_are_spaced_out() -> None:
    group = _Group({f"c{n:02}": 0 for n in range(60)}, {"w0": frozenset()})
    group.settle()
    delays = []
    for number in range(1, 6):
        group.members[f"w{number}"] = frozenset()
        plan = group.meet()
        delays.append(plan.delay_ms)
    assert delays == [0, 40, 40, 0, 1600]
    group.settle()
    group.check()


def test_a_leader_that_has_missed_a_generation_forgets_what_it_knew() -> None:
    group = _Group({"a": 4}, {"w0": frozenset(), "w1": frozenset()})
    group.settle()
    group.generation += 1  # somebody else has led
    del group.members["w1"]
    assert group.meet().delay_ms == 0
    group.check()


@given(_COUNTS, st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_eager_assignment_deals_everything(counts: dict[str, int], names: set[str]) -> None:
    plan = deal_all(_config(counts), names)
    owned = [item for share in plan.members.values() for item in items_of(share.owned)]
    assert sorted(map(str, owned)) == sorted(map(str, _configured(counts)))
    sizes = [len(items_of(share.owned)) for share in plan.members.values()]
    assert max(sizes) - min(sizes) <= 1
    assert plan.delay_ms == 0
    for share in plan.members.values():
        assert (share.assigned, share.revoked) == (share.owned, Assignment())
