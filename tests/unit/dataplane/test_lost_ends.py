"""At least once: as much as a target loses is copied again, and nothing that only looks like a copy passes for one."""

from __future__ import annotations

import importlib.util
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkmirror.dataplane import routing
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.kafka import messages
from sparkmirror.kafka.batches import LOG_APPEND_TIME, Batch
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from tests.unit.dataplane.test_at_least_once import is_subsequence
from tests.unit.dataplane.test_record_path import chain_of, play, routed
from tests.unit.dataplane.two_clusters import PLAN, Copier, SimulatedLog, World, simulate
from tests.unit.making import batch, independent, sealed


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[World]]:
    simulate(monkeypatch)
    yield World


def copier(world: World, chain: TransformChain | None = None) -> Copier:
    return world.copier(chain, exactly_once=False)


def put(
    world: World,
    values: Sequence[bytes],
    size: int = 1,
    time: int | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
    *,
    keyed: bool = False,
) -> list[NewRecord]:
    """Values to the source, in batches of so many records; each a millisecond later, if not all at one time."""
    rows = []
    for at in range(0, len(values), size):
        base = world.log.end
        part = [
            NewRecord(
                base + number,
                1000 + base + number if time is None else time,
                value if keyed else b"k",
                value,
                list(headers),
            )
            for number, value in enumerate(values[at : at + size])
        ]
        world.log.add(batch(part, base=base, last=base + len(part) - 1))
        rows += part
    return rows


def go(copy: Copier) -> Copier:
    """Until nothing is left to do, without a restart."""
    for _ in range(500):
        copy.feed(1)
        copy.send(9)
        copy.answer(9)
        if copy.is_done:
            return copy
    raise AssertionError("it does not converge")


def values(world: World, topic: str = "A.t") -> list[bytes | None]:
    return [row[2] for row in world.target.contents().get(topic, [])]


def missing(wanted: Sequence[bytes], world: World, topic: str = "A.t") -> list[bytes]:
    found = set(values(world, topic))
    return [value for value in wanted if value not in found]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def target(world: World, topic: str = "A.t") -> SimulatedLog:
    return world.target.logs[topic, 0]


def stamp_on_arrival(log: SimulatedLog) -> None:
    """LogAppendTime."""

    def produce(buffer: bytearray | memoryview) -> tuple[int, int]:
        kept = bytearray(buffer)
        (attributes,) = struct.unpack_from(">h", kept, 21)
        struct.pack_into(">h", kept, 21, attributes | LOG_APPEND_TIME)
        count = Batch(memoryview(bytes(kept))).count
        return messages.NONE, log._append(bytearray(sealed(kept)), count)

    log.produce = produce  # type: ignore[method-assign]


# -- as many as the log is shorter ------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "is_alone"), [(3, True), (5, False)])
def test_what_was_copied_before_the_numbering_is_copied_again(
    world: type[World], lost: int, is_alone: bool
) -> None:
    made = world()
    put(made, numbers(10), keyed=True)
    go(made.copier(None)).flush()
    changed = copier(made)
    later = [] if is_alone else [b"n1", b"n2"]
    put(made, later, keyed=True)
    go(changed).flush()
    target(made).lose(lost)
    put(made, [b"m1"], keyed=True)
    last = go(copier(made))
    assert not missing([*numbers(10), *later, b"m1"], made)
    assert "lost acknowledged records" in last.losses[0].message


def test_a_compacted_topic_begins_a_numbering_at_each_start(world: type[World]) -> None:
    made = world(compacted=True)
    put(made, numbers(10), keyed=True)
    go(copier(made)).flush()
    go(copier(made)).flush()
    target(made).lose(3)
    go(copier(made))
    assert not missing(numbers(10), made)


@pytest.mark.parametrize("compacted", [True, False])
def test_a_running_task_hears_how_much_was_lost(world: type[World], compacted: bool) -> None:
    """By the place of its next batch, which fills the lost end again."""
    made = world(compacted=compacted)
    put(made, numbers(10), keyed=True)
    running = go(copier(made))
    target(made).lose(3)
    put(made, [b"n1", b"n2", b"n3"], size=3, keyed=True)
    go(running)
    assert not missing(numbers(10), made)


def test_a_target_that_seldom_gets_a_record(world: type[World]) -> None:
    made, chain = world(), chain_of("s")
    rows: list[NewRecord] = []

    def add(seconds: Sequence[int]) -> None:
        base = made.log.end
        found = [
            NewRecord(base + n, second * 1000, b"k", b"%d" % (base + n), [])
            for n, second in enumerate(seconds)
        ]
        made.log.add(batch(found, base=base, last=base + len(found) - 1))
        rows.extend(found)

    for _ in range(4):
        add([3])
    for _ in range(24):
        add([1] * 50)
    running = go(copier(made, chain))
    target(made, "A.t-03").lose(2)
    add([3, 3])
    go(running).flush()
    go(copier(made, chain))
    wanted = [row[2] or b"" for row in routed(chain, rows)["A.t-03"]]
    assert not missing(wanted, made, "A.t-03")


def test_what_retention_took_is_told_beside_what_was_lost(world: type[World]) -> None:
    made = world()
    put(made, numbers(10), keyed=True)
    go(copier(made)).flush()
    put(made, [b"n%d" % number for number in range(10)], keyed=True)
    made.log.start = 15
    made.log.batches = [one for one in made.log.batches if Batch(one).base_offset >= 15]
    target(made).lose(2)
    last = go(copier(made))
    told = [(loss.first, loss.last) for loss in last.losses if "retention" in loss.message]
    assert told == [(10, 14)]


# -- twins of what was lost -------------------------------------------------------------------------


@pytest.mark.parametrize("time", [None, 7])
def test_a_later_twin_is_no_sign_of_what_came_before(world: type[World], time: int | None) -> None:
    """More than a window is lost, and one record of it has the content of one that is still there."""
    made = world()
    data = [b"v%d" % number for number in range(4000)]
    data[500] = data[3800] = b"ping"
    put(made, data, size=20, time=time)
    go(copier(made)).flush()
    target(made).lose(150)
    go(copier(made))
    assert not missing(data, made)


@pytest.mark.parametrize("stamps", [True, False])
def test_a_twin_in_the_place_of_the_last_record(world: type[World], stamps: bool) -> None:
    made = world()
    if stamps:
        stamp_on_arrival(target(made))
    time = None if stamps else 7
    put(made, [b"a", b"b", b"lost1", b"lost2", b"up"], time=time)
    running = go(copier(made))
    target(made).lose(3)
    put(made, [b"n1", b"n2", b"up"], size=3, time=time)
    go(running).flush()
    go(copier(made))
    assert not missing([b"lost1", b"lost2"], made)


def test_everything_is_lost_and_a_twin_comes(world: type[World]) -> None:
    made = world()
    put(made, [b"a", b"b", b"c", b"up", b"d"], time=7)
    running = go(copier(made))
    target(made).lose(5)
    put(made, [b"up", b"n1"], size=2, time=7)
    go(running).flush()
    go(copier(made))
    assert not missing([b"a", b"b", b"c"], made)


def module_for(topic: str) -> Any:
    """The rig once more, for another topic of the same clusters."""
    name = "tests.unit.dataplane.two_clusters"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[f"{name}_{topic}"] = found
    spec.loader.exec_module(found)
    found.PLAN = PartitionPlan(topic, 0, f"A.{topic}")  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("stamps", [True, False])
def test_the_record_of_another_partition_is_not_ours(world: type[World], stamps: bool) -> None:
    """Two topics go to one; the next record of the one was never written, and its twin stands behind its position."""
    merge = TransformChain.parse(
        {
            "transforms": "r",
            "transforms.r.type": "RegexRouter",
            "transforms.r.regex": ".*",
            "transforms.r.replacement": "all",
        }
    )
    one = world()
    one.source.create("u")
    one.target.create("A.u")
    one.target.create("all")
    if stamps:
        stamp_on_arrival(target(one, "all"))
    rig = module_for("u")
    other = rig.World()
    other.source, other.target, other.plan = one.source, one.target, rig.PLAN
    log = one.source.logs["u", 0]
    put(one, [b"t0"])
    go(copier(one, merge)).flush()
    put(one, [b"up"], time=5000)
    log.add(batch([NewRecord(0, 6000 if stamps else 5000, b"k", b"up", [])], base=0, last=0))
    type(other).log = property(lambda self: log)
    go(rig.Copier(other, CopySettings(transforms=merge, exactly_once=False), rig.PLAN))
    go(copier(one, merge))
    assert values(one, "all").count(b"up") == 2


# -- what looks otherwise there ---------------------------------------------------------------------


def keeps_going(world: World, copy: Copier) -> bool:
    """Connections break again and again, with nothing written."""
    reached = []
    for _ in range(6):
        for _ in range(4):
            copy.feed(1)
            copy.send(9)
            copy.answer(9)
        copy.flush()
        copy.feed(1)
        copy.send(9)
        copy.break_off(0)
        reached.append(copy.copy.position.offset)
    return reached == sorted(reached) and reached[-1] > 10


def test_a_target_that_keeps_less_than_it_is_given(world: type[World]) -> None:
    """No headers, in an old format: nothing is ever found by its content."""
    made = world()
    log = target(made)

    def produce(buffer: bytearray | memoryview) -> tuple[int, int]:
        found = list(independent(memoryview(bytes(buffer))))
        rows = [
            NewRecord(number, row.timestamp, row.key, row.value, [])
            for number, row in enumerate(found)
        ]
        return messages.NONE, log._append(bytearray(batch(rows)), len(rows))

    log.produce = produce  # type: ignore[method-assign]
    put(made, numbers(40), headers=[("h", b"1")], keyed=True)
    assert keeps_going(made, copier(made))


def test_transforms_that_give_another_answer_each_time(
    world: type[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world()
    count = iter(range(1 << 30))
    before = routing.Routing._transformed

    def transformed(self: Any, piece: Any, chain: Any) -> Any:
        kept, _ = before(self, piece, chain)
        return [row._replace(headers=[("id", b"%d" % next(count))]) for row in kept], False

    monkeypatch.setattr(routing.Routing, "_transformed", transformed)
    put(made, numbers(40), keyed=True)
    assert keeps_going(made, copier(made, chain_of("h")))


def test_a_late_batch_from_before_the_numbers(world: type[World]) -> None:
    made = world()
    put(made, numbers(5), keyed=True)
    old = go(copier(made))
    old.flush()
    put(made, [b"n1"], keyed=True)
    old.feed(5)
    old.send(9)
    made.copier(None)  # begins its numbering, and is killed
    old.answer(9)
    put(made, [b"n2"], keyed=True)
    assert made.converge(None).error is None
    assert values(made) == [*numbers(5), b"n1", b"n2"]


def test_a_compacted_target_that_stamps_its_own_times(world: type[World]) -> None:
    made = world(compacted=True)
    stamp_on_arrival(target(made))
    put(made, numbers(5), keyed=True)
    go(copier(made))
    go(copier(made))
    assert values(made) == numbers(5)


# -- whatever happens -------------------------------------------------------------------------------

_shapes = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([0, 900]), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)
_actions = ["feed", "send", "answer", "work", "work", "flush", "kill", "break", "lose"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    _shapes,
    st.lists(st.tuples(st.sampled_from(_actions), st.integers(0, 4)), max_size=50),
)
def test_no_record_is_left_out_however_much_is_lost(
    world: type[World], shapes: list[tuple[int, int, int]], script: list[tuple[str, int]]
) -> None:
    """Whoever comes next sees that the log is shorter."""
    made = world()
    rows: list[NewRecord] = []
    for count, size, gone in shapes:
        first = made.log.end
        found = [
            NewRecord(first + n, 1000, b"k%d" % (first + n), b"." * size, []) for n in range(count)
        ]
        made.log.add(batch(found, base=first, last=first + count - 1 + gone))
        rows += found
    running = copier(made)
    for action, number in script:
        if action == "lose":
            target(made).lose(min(number, len(target(made).batches)))
        if action in ("kill", "lose"):
            running = copier(made)
        else:
            play(running, action, number)
        assert running.error is None
    made.converge(None, exactly_once=False)
    wanted = routed(None, rows).get(PLAN.remote, [])
    assert is_subsequence(wanted, made.target.contents().get(PLAN.remote, []))


# -- with numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [1, 3, 5])
@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("by", ["compacted", "another delivery"])
def test_what_was_lost_before_the_numbering_began_and_is_filled_by_its_first_batch(
    world: type[World], more: int, is_killed: bool, by: str
) -> None:
    """Exactly once: the numbers of the batch do not tell of the records before, its place does."""
    made = world(compacted=by == "compacted")
    put(made, numbers(10), keyed=True)
    go(made.copier(None) if by == "compacted" else copier(made)).flush()
    running = go(made.copier(None))
    running.flush()
    target(made).lose(3)
    put(made, [b"n%d" % number for number in range(more)], size=more, keyed=True)
    running.feed(5)
    running.send(9)
    if is_killed:
        running.break_off(9)
        running = made.copier(None)
    else:
        running.answer(9)
    go(running)
    assert not missing([*numbers(10), *(b"n%d" % number for number in range(more))], made)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_what_was_lost_between_a_new_numbering_and_its_first_record(
    world: type[World], exactly_once: bool
) -> None:
    """With transforms, each target has a length of its own."""
    made, chain = world(compacted=True), chain_of("h")
    put(made, numbers(10), keyed=True)
    go(made.copier(chain, exactly_once=exactly_once)).flush()
    running = made.copier(chain, exactly_once=exactly_once)
    target(made).lose(3)
    put(made, [b"n1"], keyed=True)
    go(running).flush()
    go(made.copier(chain, exactly_once=exactly_once))
    assert not missing([*numbers(10), b"n1"], made)
