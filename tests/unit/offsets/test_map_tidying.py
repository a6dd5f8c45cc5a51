"""A tidied map says the same in fewer segments."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.offsets.map_tidying import removed, tidied
from sparkmirror.offsets.offset_map import PartitionMap
from tests.unit.offsets.segments import OTHER, PLACE, known, segment


def test_neighbours_become_one_but_for_the_last() -> None:
    one = known(*(segment((n * 10, n * 10, 10)) for n in range(4)))
    changes = tidied(one, 0)
    assert next((key.target_start, change) for key, change in changes.items()) == (
        0,
        segment((0, 0, 30)),
    )
    assert {key.target_start: change is None for key, change in changes.items()} == {
        0: False,
        10: True,
        20: True,
    }


def test_what_the_target_has_no_more_goes() -> None:
    one = known(segment((0, 0, 10)), segment((20, 15, 10)), segment((30, 25, 5)))
    assert {key.target_start for key in tidied(one, 12)} == {0}
    assert tidied(one, 9) == {}


def test_the_last_one_stays() -> None:
    assert tidied(known(segment((0, 0, 10))), 100) == {}


def test_void_ones_go() -> None:
    one = known(segment((0, 0, 10), ids=OTHER), segment((10, 10, 90)), segment((20, 20, 10)))
    assert tidied(one, 0) == {(PLACE, 0): None, (PLACE, 20): None}
    assert removed(one).keys() == {(PLACE, 0), (PLACE, 10), (PLACE, 20)}


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=30
)


@given(STEPS, st.integers(0, 60))
@settings(max_examples=300)
def test_it_says_the_same(steps: list[tuple[int, int, int]], log_start: int) -> None:
    source = target = order = 0
    one = PartitionMap(PLACE)
    for skip, jump, length in steps:
        source, target = source + skip, target + jump
        one.put(segment((source, target, length)), order)
        source, target, order = source + length, target + length, order + 1
    before = {offset: one.translate(offset, 0) for offset in range(source + 2)}
    size = len(one)
    for _ in range(2):
        for key, change in tidied(one, log_start).items():
            if change is None:
                one.remove(key.target_start)
            else:
                one.put(change, order)
                order += 1
    assert len(one) <= size
    assert tidied(one, log_start) == {}
    for offset, answer in before.items():
        now = one.translate(offset, log_start)
        if now is not None and answer is not None and answer.offset >= log_start:
            assert now == answer
