"""Partitions with transforms: whatever is killed where, every target gets its records once and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.record_resume import RecordResumer
from sparkmirror.errors import TopicRecreated
from sparkmirror.formats.position import Numbering, decode
from sparkmirror.kafka.batches import HEADER_SIZE
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.records import NewRecord
from sparkmirror.transforms.chain import TransformChain
from sparkmirror.transforms.record import ConnectRecord
from tests.unit.dataplane.two_clusters import PLAN, Copier, SharedPositions, World, simulate
from tests.unit.making import Content, batch, sealed

FILTER = {
    "predicates": "gone",
    "predicates.gone.type": "RecordIsTombstone",
    "transforms.f.type": "Filter",
    "transforms.f.predicate": "gone",
}
HEADER = {
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "via",
    "transforms.h.value.literal": "x",
}
BY_SECOND = {
    "transforms.s.type": "TimestampRouter",
    "transforms.s.timestamp.format": "ss",
}
RENAME = {
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "A\\.(.*)",
    "transforms.r.replacement": "B.$1",
}


def chain_of(*steps: str) -> TransformChain:
    known = {"f": FILTER, "h": HEADER, "s": BY_SECOND, "r": RENAME}
    props = {"transforms": ",".join(steps)}
    for step in steps:
        props |= known[step]
    chain = TransformChain.parse(props)
    assert chain is not None
    return chain


CHAINS = [chain_of("f"), chain_of("h"), chain_of("s"), chain_of("f", "h", "s"), chain_of("f", "r")]


def row(offset: int, second: int, is_tombstone: bool, size: int = 0) -> NewRecord:
    value = None if is_tombstone else b"%d" % offset + b"." * size
    return NewRecord(offset, second * 1000 + offset % 1000, b"k%d" % offset, value, [("n", b"1")])


# Batches of the source: (second, tombstone) of each record, their size, codec, offsets that are gone behind them.
_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
        st.sampled_from([0, 0, 900]),
        st.sampled_from([0, 4]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=12,
)


def fill(
    world: World, shapes: list[tuple[list[tuple[int, bool]], int, int, int]]
) -> list[NewRecord]:
    """Append these batches to the source."""
    found: list[NewRecord] = []
    for kinds, size, codec, gone in shapes:
        first = world.log.end
        rows = [row(first + i, second, dead, size) for i, (second, dead) in enumerate(kinds)]
        last = first + len(rows) - 1 + gone
        world.log.add(batch(rows, base=first, last=last, codec=codec))
        found += rows
    return found


def routed(chain: TransformChain | None, rows: list[NewRecord]) -> dict[str, list[Content]]:
    """What each topic must hold."""
    found: dict[str, list[Content]] = defaultdict(list)
    for r in rows:
        record: ConnectRecord | None = ConnectRecord(
            "A.t", 0, r.offset, r.timestamp, r.key, r.value, r.headers
        )
        if chain is not None and record is not None:
            record = chain.apply(record)
        if record is not None:
            content = (record.timestamp, record.key, record.value, record.headers)
            found[record.topic].append(content)
    return dict(found)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[World]]:
    simulate(monkeypatch)
    yield World


_script = st.lists(
    st.tuples(
        st.sampled_from(
            ["feed", "send", "send", "answer", "answer", "work", "break", "flush", "kill"]
        ),
        st.integers(0, 4),
    ),
    max_size=40,
)


def play(copier: Copier, action: str, number: int) -> None:
    match action:
        case "feed":
            copier.feed(number + 1)
        case "send":
            copier.send(number + 1)
        case "answer":
            copier.answer(number + 1)
        case "work":
            copier.feed(number + 1)
            copier.send(9)
            copier.answer(9)
        case "break":
            copier.break_off(number)
        case "flush":
            copier.flush()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.sampled_from(CHAINS), _script, st.sampled_from([1, 64 << 20]))
def test_every_record_arrives_once_whatever_is_killed(
    world: type[World],
    shapes: list[tuple[list[tuple[int, bool]], int, int, int]],
    chain: TransformChain,
    script: list[tuple[str, int]],
    opened_bytes: int,
) -> None:
    made = world()
    made.target.create("B.t")
    rows = fill(made, shapes)
    copier = made.copier(chain, opened_bytes=opened_bytes)
    for action, number in script:
        if action == "kill":
            copier = made.copier(chain, opened_bytes=opened_bytes)
        else:
            play(copier, action, number)
        assert copier.error is None
        assert copier.losses == []
    last = made.converge(chain, opened_bytes=opened_bytes)
    assert last.losses == []
    assert made.target.contents() == routed(chain, rows)
    assert last.copy.position.offset == made.log.end - 1


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.sampled_from(CHAINS), _script)
def test_leaders_may_forget_what_they_took(
    world: type[World],
    shapes: list[tuple[list[tuple[int, bool]], int, int, int]],
    chain: TransformChain,
    script: list[tuple[str, int]],
) -> None:
    """A copy is killed, and when the next one comes the target's logs alone tell what is there."""
    made = world()
    made.target.create("B.t")
    rows = fill(made, shapes)
    copier = made.copier(chain)
    for action, number in [*script, ("kill", 0)]:
        if action == "kill":
            for found in made.target.logs.values():
                found.producers.clear()
            copier = made.copier(chain)
        else:
            play(copier, action, number)
    made.converge(chain)
    assert made.target.contents() == routed(chain, rows)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    _batches,
    st.sampled_from(CHAINS),
    st.lists(st.tuples(st.sampled_from([0, 1]), _script.filter(bool)), max_size=12),
)
def test_two_copies_at_once_do_no_harm(
    world: type[World],
    shapes: list[tuple[list[tuple[int, bool]], int, int, int]],
    chain: TransformChain,
    script: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    made = world()
    made.target.create("B.t")
    rows = fill(made, shapes)
    twins = [made.copier(chain), made.copier(chain)]
    for which, actions in script:
        for action, number in actions[:8]:
            if action == "kill":
                twins[which] = made.copier(chain)
            else:
                play(twins[which], action, number)
    made.converge(chain)
    assert made.target.contents() == routed(chain, rows)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.sampled_from(CHAINS), _script, st.data())
def test_what_a_target_lost_is_copied_again(
    world: type[World],
    shapes: list[tuple[list[tuple[int, bool]], int, int, int]],
    chain: TransformChain,
    script: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    made = world()
    made.target.create("B.t")
    rows = fill(made, shapes)
    copier = made.copier(chain)
    for action, number in [*script, ("kill", 0)]:
        if action == "kill":
            for found in made.target.logs.values():
                found.lose(data.draw(st.integers(0, min(3, len(found.batches)))))
            copier = made.copier(chain)
        else:
            play(copier, action, number)
    made.converge(chain)
    assert made.target.contents() == routed(chain, rows)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    _batches,
    st.lists(st.tuples(st.sampled_from([None, *CHAINS]), _script), min_size=1, max_size=5),
)
def test_changed_transforms_take_effect_at_one_offset(
    world: type[World],
    shapes: list[tuple[list[tuple[int, bool]], int, int, int]],
    phases: list[tuple[TransformChain | None, list[tuple[str, int]]]],
) -> None:
    """Also from and to none; whatever was killed in between, each record went through the old ones or the new ones."""
    made = world()
    made.target.create("B.t")
    rows = fill(made, shapes)
    for chain, script in phases:
        copier = made.copier(chain)
        for action, number in script:
            if action == "kill":
                copier = made.copier(chain)
            else:
                play(copier, action, number)
        assert copier.error is None
        assert copier.losses == []
    last = phases[-1][0]
    copier = made.converge(last)
    assert copier.copy.position.transforms == (None if last is None else last.text)
    assert_in_phases(made, rows, [chain for chain, _ in phases])


def assert_in_phases(
    made: World, rows: list[NewRecord], chains: list[TransformChain | None]
) -> None:
    """Every record is there once as one of the chains gives it, and never as an earlier one than the record before it."""
    found: dict[bytes | None, list[tuple[str, Content]]] = defaultdict(list)
    places: list[tuple[str, int]] = []
    for topic, contents in made.target.contents().items():
        for content in contents:
            found[content[1]].append((topic, content))
            places.append((topic, int((content[1] or b"k0")[1:])))
    for topic in {topic for topic, _ in places}:
        offsets = [offset for name, offset in places if name == topic]
        assert offsets == sorted(offsets), topic
    phase = 0
    for one in rows:
        while phase < len(chains):
            wanted = [
                (topic, content)
                for topic, contents in routed(chains[phase], [one]).items()
                for content in contents
            ]
            if found[one.key] == wanted:
                break
            phase += 1
        assert phase < len(chains), f"record {one.offset}: {found[one.key]}"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_batches, st.sampled_from(CHAINS), _script)
def test_a_compacted_topic_takes_a_new_epoch_at_each_start(
    world: type[World],
    shapes: list[tuple[list[tuple[int, bool]], int, int, int]],
    chain: TransformChain,
    script: list[tuple[str, int]],
) -> None:
    """A key that comes again comes with all after it; without a second copy nothing does."""
    made = world(compacted=True)
    made.target.create("B.t")
    rows = fill(made, shapes)
    copier = made.copier(chain)
    for action, number in script:
        if action == "kill":
            before = copier.copy.numbering
            copier = made.copier(chain)
            assert copier.copy.numbering != before
        else:
            play(copier, action, number)
    made.converge(chain)
    assert made.target.contents() == routed(chain, rows)


def test_one_target_of_several_lost_its_tail(world: type[World]) -> None:
    made, chain = world(), chain_of("s")
    rows = fill(made, [([(1, False), (2, False), (1, False)], 0, 0, 0)])
    made.converge(chain).flush()
    rows += fill(made, [([(2, False), (1, False)], 0, 0, 0), ([(2, False)], 0, 0, 0)])
    made.converge(chain).flush()
    made.target.logs["A.t-02", 0].lose(1)
    copier = made.converge(chain)
    assert made.target.contents() == routed(chain, rows)
    assert "A.t-02 lost " in copier.losses[0].message
    assert copier.copy.position.offset == rows[-1].offset


def test_naming_a_target_leaves_the_position_where_it_was_written_last(world: type[World]) -> None:
    """Other positions wait for the offset map: what was acknowledged since is told there first."""
    made, chain = world(), chain_of("s")
    fill(made, [([(1, False), (1, False)], 0, 0, 0)])
    copier = made.converge(chain)
    fill(made, [([(2, False)], 0, 0, 0)])
    for _ in range(3):
        copier.feed(5)
        copier.send(9)
        copier.answer(9)
    assert copier.copy.position.offset == 2
    store = SharedPositions(made.shared)
    store.catch_up()
    position = store.get(PLAN.key)
    assert position is not None
    assert position.offset == -1
    assert {(t.topic, t.sequence) for t in position.targets} == {("A.t-01", 0), ("A.t-02", 0)}


def test_a_topic_that_was_deleted_is_made_anew_when_a_record_goes_there(
    world: type[World],
) -> None:
    made, chain = world(), chain_of("s")
    fill(made, [([(1, False), (2, False)], 0, 0, 0)])
    made.converge(chain).flush()
    made.target.delete("A.t-01")
    later = fill(made, [([(1, False), (2, False)], 0, 0, 0)])
    made.converge(chain)
    contents = made.target.contents()
    assert contents["A.t-01"] == routed(chain, later)["A.t-01"]
    assert len(contents["A.t-02"]) == 2


def test_targets_that_got_nothing_for_long_are_forgotten_with_a_new_epoch(
    world: type[World],
) -> None:
    """A topic for every second of a minute, and more: the position does not grow for ever."""
    made = world()
    props = {"transforms": "s", **BY_SECOND, "transforms.s.timestamp.format": "mmss"}
    chain = TransformChain.parse(props)
    assert chain is not None
    rows = fill(made, [([(second, False)], 0, 0, 0) for second in range(100)])
    copier = made.converge(chain)
    assert len(copier.copy.position.targets) == 100
    copier.flush()
    again = made.copier(chain)
    assert again.copy.position.targets == ()
    rows += fill(made, [([(second, False)], 0, 0, 0) for second in range(0, 100, 7)])
    made.converge(chain)
    assert made.target.contents() == routed(chain, rows)


def test_a_batch_that_cannot_be_opened_stops_the_partition(world: type[World]) -> None:
    made, chain = world(), chain_of("f")
    fill(made, [([(0, False)], 0, 0, 0)])
    odd = bytearray(batch([NewRecord(1, 1, b"k", b"v", [("name", b"x")])], base=1))
    odd[odd.find(b"name")] = 0xFF
    made.log.add(sealed(odd))
    copier = made.copier(chain)
    copier.feed(5)
    copier.send(5)
    copier.answer(5)
    assert "t-0: from offset 1 on the records of a batch cannot be read" in str(copier.error)
    assert copier.copy.position.offset == 0
    assert len(made.target.contents()["A.t"]) == 1


def test_only_records_of_the_remote_topic_give_offset_syncs(world: type[World]) -> None:
    made = world()
    made.target.create("B.t")
    fill(made, [([(0, False), (0, False)], 0, 0, 0)])
    assert made.converge(chain_of("f", "r")).acks == []
    fill(made, [([(0, True), (0, False)], 0, 0, 0)])
    assert made.converge(chain_of("f", "h")).acks == [(3, 0)]


def test_the_task_does_not_make_a_topic_that_the_connector_makes(world: type[World]) -> None:
    made, chain = world(), chain_of("r")
    fill(made, [([(0, False)], 0, 0, 0)])
    copier = made.copier(chain)
    copier.feed(5)
    assert "topic B.t" in str(copier.error)
    assert "B.t" not in made.target.ids


@pytest.mark.parametrize("was_plain", [True, False])
def test_partitions_that_may_feed_one_have_producers_of_their_own(
    world: type[World], was_plain: bool
) -> None:
    """`t` goes to the remote topic of `u`, which is copied as it is, as is `v`."""
    made = world()
    plans = [PLAN, PartitionPlan("u", 0, "A.u"), PartitionPlan("v", 0, "A.v")]
    for plan in plans[1:]:
        made.source.create(plan.topic)
        made.target.create(plan.remote)
    if was_plain:
        assert len(set(producers(made, plans, None))) == 1
    props = {"transforms": "r", **RENAME, "transforms.r.regex": "A.t"}
    chain = TransformChain.parse({**props, "transforms.r.replacement": "A.u"})
    one, other, third = producers(made, plans, chain)
    assert one != other
    assert other == third


def producers(made: World, plans: list[PartitionPlan], chain: TransformChain | None) -> list[int]:
    store = SharedPositions(made.shared)
    source, target = cast("Cluster", made.source), cast("Cluster", made.target)
    resumer = RecordResumer(source, target, store, CopySettings(transforms=chain), 77)
    found = resumer.resume(plans).positions
    return [(found[plan.key].numbering or Numbering(-1, -1)).producer_id for plan in plans]


def test_a_recreated_target_is_told(world: type[World]) -> None:
    made, chain = world(), chain_of("r")
    made.target.create("B.t")
    rows = fill(made, [([(0, False), (0, False)], 0, 0, 0)])
    made.converge(chain).flush()
    made.target.delete("B.t")
    made.target.create("B.t")
    copier = made.copier(chain)
    assert isinstance(copier.error, TopicRecreated)
    assert "B.t was deleted and created again" in str(copier.error)
    copier = made.copier(chain, recreated_target="restart")
    copier.feed(5)
    copier.send(5)
    copier.answer(5)
    assert made.target.contents() == routed(chain, rows)


def test_records_of_a_batch_that_nothing_is_done_to_keep_their_batch(world: type[World]) -> None:
    made, chain = world(), chain_of("f", "s")
    fill(made, [([(1, False)] * 20, 900, 4, 0)])
    made.converge(chain)
    (view,) = made.target.logs["A.t-01", 0].batches
    assert view[HEADER_SIZE:] == made.log.batches[0][HEADER_SIZE:]


def test_retention_that_overtook_the_copy_is_told(world: type[World]) -> None:
    made, chain = world(), chain_of("f", "s")
    fill(made, [([(1, False), (2, False)], 0, 0, 0)])
    made.converge(chain).flush()
    fill(made, [([(1, False)], 0, 0, 0)])
    later = fill(made, [([(2, False)], 0, 0, 0)])
    del made.log.batches[:2]
    made.log.start = later[0].offset
    copier = made.converge(chain)
    assert [(loss.first, loss.last) for loss in copier.losses] == [(2, 2)]
    assert len(made.target.contents()["A.t-02"]) == 2
    assert len(made.target.contents()["A.t-01"]) == 1


def test_plan_and_position_name_their_parts(world: type[World]) -> None:
    made, chain = world(), chain_of("s")
    fill(made, [([(1, False), (3, False)], 0, 0, 0)])
    copier = made.converge(chain)
    copier.flush()
    key, value = made.shared[-1]
    assert key == PLAN.key
    position = decode(value).position
    assert position == copier.copy.position
    assert position is not None
    assert position.transforms == chain.text
    assert [(t.key, t.sequence, t.target_offset) for t in position.targets] == [
        (("A.t-01", 0), 1, 1),
        (("A.t-03", 0), 1, 1),
    ]
    assert sorted(copier.copy.remotes) == ["A.t", "A.t-01", "A.t-03"]
