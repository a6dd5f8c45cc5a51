"""Targets without idempotent writes: refused unless repetitions are allowed, and then as few as content can tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkmirror.dataplane import anchors
from sparkmirror.dataplane.anchors import Mark
from sparkmirror.dataplane.tail import _opened
from sparkmirror.errors import NotIdempotent
from sparkmirror.formats.position import UNSENT_IDS
from sparkmirror.kafka import admin
from sparkmirror.kafka.batches import Batch
from tests.unit.dataplane.test_record_path import _batches, _script, fill, play, routed, row
from tests.unit.dataplane.two_clusters import PLAN, Copier, World, simulate
from tests.unit.making import Content, batch, content, marker, message_set

Shapes = list[tuple[list[tuple[int, bool]], int, int, int]]
_Plenty = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[World]]:
    simulate(monkeypatch)
    yield World


def ids(world: World) -> set[int]:
    """The producer ids on the target."""
    return {Batch(view).producer_id for view in world.target.logs["A.t", 0].batches}


# -- allowed --------------------------------------------------------------------------------------


@_Plenty
@given(_batches, _script)
def test_what_is_seen_on_the_target_is_not_repeated(
    world: type[World], shapes: Shapes, script: list[tuple[str, int]]
) -> None:
    """Kills, and connections that break after some batches were written: content tells which."""
    made = world()
    rows = fill(made, shapes)
    copier = made.copier(None, exactly_once=False)
    for action, number in script:
        if action == "kill":
            copier = made.copier(None, exactly_once=False)
        else:
            play(copier, action, number)
        assert copier.error is None
    last = made.converge(None, exactly_once=False)
    assert made.target.contents() == routed(None, rows)
    assert ids(made) == {-1}
    assert last.copy.position.offset == made.log.end - 1


@_Plenty
@given(_batches, _script, st.data())
def test_others_may_write_to_the_topic_as_well(
    world: type[World], shapes: Shapes, script: list[tuple[str, int]], data: st.DataObject
) -> None:
    made = world()
    rows = fill(made, shapes)
    copier = made.copier(None, exactly_once=False)
    for number, (action, count) in enumerate(script):
        if data.draw(st.booleans()):
            other = batch([row(0, 1, False)._replace(key=b"other", value=b"%d" % number)])
            made.target.logs["A.t", 0].produce(bytearray(other))
        if action == "kill":
            copier = made.copier(None, exactly_once=False)
        else:
            play(copier, action, count)
    made.converge(None, exactly_once=False)
    found = [one for one in made.target.contents().get("A.t", []) if one[1] != b"other"]
    assert found == routed(None, rows).get("A.t", [])


@_Plenty
@given(_batches, _script, st.integers(0, 3))
def test_a_target_that_lost_its_end_gets_it_again(
    world: type[World], shapes: Shapes, script: list[tuple[str, int]], lost: int
) -> None:
    made = world()
    rows = fill(made, shapes)
    copier = made.copier(None, exactly_once=False)
    for action, number in script:
        if action != "kill":
            play(copier, action, number)
    copier.flush()
    made.target.logs["A.t", 0].lose(lost)
    made.converge(None, exactly_once=False)
    wanted = [content(one) for one in rows]
    assert is_subsequence(wanted, made.target.contents().get("A.t", []))


def is_subsequence(wanted: list[Content], found: list[Content]) -> bool:
    rest = iter(found)
    return all(one in rest for one in wanted)


@_Plenty
@given(_batches, _batches, _script, st.booleans())
def test_the_delivery_may_be_changed(
    world: type[World], shapes: Shapes, more: Shapes, script: list[tuple[str, int]], first: bool
) -> None:
    """From then on records carry numbers, or do not; what was copied before is found by its numbers or content."""
    made = world()
    rows = fill(made, shapes)
    copier = made.copier(None, exactly_once=first)
    for action, number in script:
        if action == "kill":
            copier = made.copier(None, exactly_once=first)
        else:
            play(copier, action, number)
    rows += fill(made, more)
    last = made.converge(None, exactly_once=not first)
    assert made.target.contents() == routed(None, rows)
    numbering = last.copy.numbering
    assert numbering is not None
    assert numbering.is_sent == (not first)
    assert (numbering.producer_id >= UNSENT_IDS) == first


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_kept_in_an_old_format_is_read(magic: int) -> None:
    """Brokers write what has no numbers in the format that the topic has; times do not count there."""
    rows = [row(number, 1, False)._replace(headers=[]) for number in range(3)]
    has_times, found = _opened(message_set(rows, magic))
    assert not has_times
    assert [(one.offset, one.key, one.value) for one in found] == [
        (one.offset, one.key, one.value) for one in rows
    ]


# -- not allowed ----------------------------------------------------------------------------------


def copied_without_numbers(world: World, *, flushes: bool) -> Copier:
    """A copy that thinks its numbers are kept, and is killed."""
    world.target.logs["A.t", 0].keeps_numbers = False
    fill(world, [([(1, False), (2, False)], 0, 0, 0)] * 3)
    copier = world.converge(None)
    if flushes:
        copier.flush()
    return copier


def test_a_target_that_does_not_keep_numbers_is_refused_before_anything_is_repeated(
    world: type[World],
) -> None:
    made = world()
    copied_without_numbers(made, flushes=True)
    before = made.target.contents()
    fill(made, [([(3, False)], 0, 0, 0)])
    again = made.copier(None)
    assert isinstance(again.error, NotIdempotent)
    assert "mirror.delivery=at-least-once" in again.error.remedy
    assert made.target.contents() == before


def test_what_was_not_known_to_be_acknowledged_is_no_proof_of_that(world: type[World]) -> None:
    """It may be a late batch from before the numbering, of a copy without numbers: content tells what is there."""
    made = world()
    copied_without_numbers(made, flushes=False)
    before = made.target.contents()["A.t"]
    rows = fill(made, [([(3, False)], 0, 0, 0)])
    again = made.converge(None)
    assert made.target.contents()["A.t"] == [*before, *map(content, rows)]
    again.flush()
    assert isinstance(made.copier(None).error, NotIdempotent)


def test_and_goes_on_where_it_was_when_repetitions_are_allowed(world: type[World]) -> None:
    made = world()
    copied_without_numbers(made, flushes=True)
    before = made.target.contents()
    assert isinstance(made.copier(None).error, NotIdempotent)
    made.converge(None, exactly_once=False)
    assert made.target.contents() == before


@pytest.fixture
def no_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders that cannot tell what they took."""
    monkeypatch.setattr(admin, "describe_producers", lambda *_: None)


@pytest.mark.usefixtures("no_producers")
@pytest.mark.parametrize("by", ["MirrorMaker 2", "at-least-once"])
def test_copies_without_numbers_from_before_the_numbering_are_no_sign(
    world: type[World], by: str
) -> None:
    """A copy that takes over, writes its first batch and is killed."""
    made = world()
    rows = fill(made, [([(1, False)], 0, 0, 0)] * 5)
    if by == "at-least-once":
        made.converge(None, exactly_once=False).flush()
    else:
        for one in rows:
            made.target.logs["A.t", 0].produce(bytearray(batch([one._replace(offset=0)])))
        made.shared.append((PLAN.key, b'{"offset":4}'))
    rows += fill(made, [([(2, False)], 0, 0, 0)])
    killed = made.copier(None)
    killed.feed(5)
    killed.send(9)
    killed.answer(9)
    rows += fill(made, [([(3, False)], 0, 0, 0)])
    assert made.converge(None).error is None
    assert made.target.contents() == routed(None, rows)


@pytest.mark.usefixtures("no_producers")
def test_numbers_that_are_not_kept_are_noticed_behind_a_transaction(world: type[World]) -> None:
    """The position is that of the marker, so that the record behind it tells."""
    made = world()
    made.target.logs["A.t", 0].keeps_numbers = False
    fill(made, [([(1, False), (2, False)], 0, 0, 0)])
    made.log.add(marker(made.log.end, 7, 1))
    copier = made.converge(None)
    copier.flush()
    fill(made, [([(3, False), (4, False)], 0, 0, 0)])
    made.log.add(marker(made.log.end, 7, 1))
    copier.feed(5)
    copier.send(9)
    copier.answer(9)
    before = made.target.contents()
    assert isinstance(made.copier(None).error, NotIdempotent)
    assert made.target.contents() == before


@pytest.mark.usefixtures("no_producers")
def test_a_record_of_others_with_the_same_value_and_another_time_is_no_sign(
    world: type[World],
) -> None:
    made = world()
    rows = fill(made, [([(1, False)], 0, 0, 0)] * 3)
    made.copier(None)
    other = batch([rows[0]._replace(timestamp=rows[0].timestamp + 123_000)])
    made.target.logs["A.t", 0].produce(bytearray(other))
    assert made.converge(None).error is None


def test_records_of_others_do_not_look_like_numbers_that_are_not_kept(world: type[World]) -> None:
    made = world()
    rows = fill(made, [([(1, False), (2, False)], 0, 0, 0)])
    made.copier(None)
    other = batch([row(0, 1, False)._replace(key=b"other")])
    made.target.logs["A.t", 0].produce(bytearray(other))
    made.converge(None).flush()
    made.target.logs["A.t", 0].produce(bytearray(other))
    made.target.logs["A.t", 0].producers.clear()
    last = made.converge(None)
    assert last.error is None
    found = [one for one in made.target.contents()["A.t"] if one[1] != b"other"]
    assert found == [content(one) for one in rows]


# -- by content -----------------------------------------------------------------------------------

marks = st.lists(st.integers(0, 3)).map(
    lambda digests: [Mark(i, None, d) for i, d in enumerate(digests)]
)


@given(marks, marks)
def test_in_order_finds_the_longest_beginning_that_is_there(
    source: list[Mark], tail: list[Mark]
) -> None:
    found = list(anchors.in_order(source, tail))
    count = len(found)
    assert [mark for mark, _ in found] == source[:count]
    assert all(copy.digest == mark.digest for mark, copy in found)
    places = [copy.offset for _, copy in found]
    assert places == sorted(set(places))

    def is_there(wanted: list[Mark]) -> bool:
        rest = iter(tail)
        return all(any(found.digest == mark.digest for found in rest) for mark in wanted)

    assert is_there(source[:count])
    assert count == len(source) or not is_there(source[: count + 1])
