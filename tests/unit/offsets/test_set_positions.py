"""Positions that were set back and forward: the offset map against target logs whose every record is known.

A group that has read all records before an offset must find a copy of each other record at its translation or behind.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.offsets.map_tidying import tidied
from sparkmirror.offsets.offset_map import PartitionMap, Translation
from tests.unit.offsets.segments import known, segment
from tests.unit.offsets.target_log import Step, TargetLog


def steps(*kinds: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 40)), max_size=40)


def grown(taken: list[Step]) -> TargetLog:
    found = TargetLog()
    for kind, number in taken:
        found.step(kind, number)
        found.map.translate(
            0, 0
        )  # so that what comes next joins a line, and an index, that is there
    return found


def offsets(found: PartitionMap, *wanted: int) -> list[Translation | None]:
    return [found.translate(offset, 0) for offset in wanted]


def exactly(*offsets: int) -> list[Translation]:
    return [Translation(offset, True) for offset in offsets]


# -- by hand ----------------------------------------------------------------------------------------


def test_set_back_and_forward() -> None:
    """Records 110 to 199 have no later copy: nobody who has not read them may be led behind them."""
    one = known(segment((0, 0, 200)), segment((100, 200, 10)), segment((200, 210, 50)))
    assert offsets(one, 50, 99, 100, 105, 110, 150, 199) == exactly(50, 99, 110, 110, 110, 150, 199)
    assert offsets(one, 200, 205, 249, 250) == exactly(210, 215, 259, 260)


def test_a_later_copy_counts_once_nothing_else_lies_before_it() -> None:
    one = known(segment((0, 0, 200)), segment((100, 200, 10)))
    assert offsets(one, 105, 150) == exactly(110, 150)
    one.put(segment((110, 210, 90)), 9)
    assert offsets(one, 99, 100, 105, 110, 150, 199) == exactly(99, 200, 205, 210, 250, 299)


def test_set_forward_alone_leaves_nothing_out() -> None:
    one = known(segment((0, 0, 100)), segment((200, 100, 50)))
    assert offsets(one, 99, 100, 150, 200) == exactly(99, 100, 100, 100)


def test_set_forward_and_back() -> None:
    one = known(segment((0, 0, 10)), segment((50, 10, 10)), segment((10, 20, 50)))
    assert offsets(one, 9, 10, 49, 50, 55) == exactly(9, 20, 59, 60, 65)
    one = known(segment((0, 0, 10)), segment((50, 10, 10)), segment((10, 20, 5)))
    assert offsets(one, 9, 10, 49, 50, 55) == exactly(9, 10, 10, 10, 15)


def test_records_that_only_the_earlier_copy_has() -> None:
    """The source was compacted before it was copied again."""
    one = known(segment((0, 0, 10)), segment((0, 10, 4), (5, 14, 5)))
    assert offsets(one, 0, 4, 5, 9) == exactly(4, 4, 14, 18)


def test_a_hole_is_no_obstacle_once_its_records_were_copied_again() -> None:
    one = known(segment((0, 0, 10)), segment((20, 20, 10)))
    assert one.translate(15, 0) == Translation(10, False)
    one.put(segment((5, 30, 10)), 8)
    assert offsets(one, 4, 20) == exactly(4, 20)
    assert offsets(one, 7, 15) == [Translation(10, False)] * 2
    one.put(segment((5, 30, 40)), 9)
    assert offsets(one, 4, 7, 15, 20) == exactly(4, 32, 40, 45)


def test_a_position_that_was_set_back_in_a_hole() -> None:
    """Records 100 to 119 are in the hole and nowhere else, so far."""
    one = known(segment((0, 0, 100)), segment((50, 120, 10)), segment((200, 130, 10)))
    assert offsets(one, 40, 60) == exactly(40, 60)
    assert offsets(one, 100, 119) == [Translation(100, False)] * 2
    assert offsets(one, 200) == exactly(130)


def test_what_no_answer_may_exceed() -> None:
    one = known(segment((0, 0, 200)), segment((100, 200, 10)), segment((200, 210, 50)))
    assert [one.bound(offset) for offset in (105, 150, 250)] == [110, 150, None]
    one = known(segment((0, 0, 10)), segment((20, 18, 10)))
    assert one.bound(15) == 18, "an offset sync may tell of what is in the hole"
    one = known(segment((0, 0, 100)), segment((50, 120, 10)), segment((200, 130, 10)))
    assert one.bound(110) == 100, "offset syncs do not tell of a position that was set back"


def test_a_cut_back_makes_what_lay_behind_void() -> None:
    one = known(
        segment((0, 0, 100)), segment((100, 100, 50)), segment((40, 50, 20)), segment((150, 150, 5))
    )
    assert [s.target_start for s in one.void] == [100]
    assert offsets(one, 30, 49) == exactly(30, 59)


def test_a_segment_that_agrees_at_its_beginning_alone_is_no_part_of_another() -> None:
    """The target was cut back to 50, and the source compacted before records 50 to 79 were copied again."""
    one = known(segment((0, 0, 100)), segment((50, 50, 5), (60, 55, 20)))
    assert offsets(one, 54, 55, 60, 70) == exactly(54, 55, 55, 65)


def test_what_was_copied_again_after_a_cut_back_is_as_good_as_what_came_before_it() -> None:
    """The log was cut back to 2 and written otherwise, then cut back to 1 and written as it was at first."""
    one = known(segment((0, 0, 3)), segment((1, 2, 1)), segment((1, 1, 2)))
    assert offsets(one, 0, 1, 2) == exactly(0, 1, 2)
    one = known(segment((50, 50, 100)), segment((10, 55, 10)), segment((0, 0, 60)))
    assert offsets(one, 12, 55, 100) == exactly(12, 55, 100)


def test_a_map_that_begins_late_knows_what_was_copied_again() -> None:
    one = known(segment((1000, 1000, 100)), segment((500, 1100, 700)))
    assert one.translate(400, None) is None
    assert one.translate(600, None) == Translation(1200, True)


def test_tidying_keeps_apart_what_was_set_forward_over_a_hole() -> None:
    """Records 100 to 109 are in the hole and nowhere else."""
    one = known(
        segment((0, 0, 100)),
        segment((110, 110, 10)),
        segment((50, 120, 50)),
        segment((110, 170, 10)),
        segment((120, 180, 5)),
    )
    assert tidied(one, 0) == {}
    back_in_the_hole = known(
        segment((0, 0, 100)),
        segment((50, 120, 50)),
        segment((130, 170, 10)),
        segment((140, 180, 5)),
    )
    assert tidied(back_in_the_hole, 0) == {}
    plain = known(segment((0, 0, 100)), segment((110, 100, 10)), segment((120, 110, 5)))
    assert len(tidied(plain, 0)) == 2


# -- against every record ---------------------------------------------------------------------------


@given(steps("copy", "set", "write", "restart", "gap", "compact", "tidy"))
@settings(max_examples=200, deadline=None)
def test_all_that_was_written_is_translated_exactly(taken: list[Step]) -> None:
    one = grown(taken)
    one.write()
    for offset in one.offsets:
        wanted, answer = one.unread_from(offset), one.map.translate(offset, 0)
        if wanted is not None:
            assert answer == Translation(wanted, True)
        elif answer is not None:
            assert answer.offset == len(one.log)


@given(steps("copy", "set", "write", "restart", "gap", "cut", "tidy"))
@settings(max_examples=200, deadline=None)
def test_a_log_that_was_cut_back_is_translated_as_it_is_now(taken: list[Step]) -> None:
    one = grown(taken)
    one.outgrow()
    one.write()
    for offset in one.offsets:
        wanted, answer = one.unread_from(offset), one.map.translate(offset, 0)
        if wanted is not None:
            assert answer == Translation(wanted, True)


LOSSY = steps("copy", "set", "write", "restart", "kill", "kill_and_set", "foreign", "tidy")


@given(LOSSY)
@settings(max_examples=300, deadline=None)
def test_nothing_is_passed_over_whatever_the_map_has_lost(taken: list[Step]) -> None:
    one = grown(taken)
    for offset in one.offsets:
        wanted = one.unread_from(offset)
        answer = one.map.translate(offset, 0)
        if wanted is not None and answer is not None:
            assert answer.offset <= wanted
        bound = one.map.bound(offset)
        if answer is not None and bound is not None:
            assert answer.offset <= bound


@given(LOSSY)
@settings(max_examples=200, deadline=None)
def test_translations_never_go_back_with_the_group(taken: list[Step]) -> None:
    one = grown(taken)
    answers = [one.map.translate(offset, 0) for offset in one.offsets]
    told = [answer.offset for answer in answers if answer is not None]
    assert told == sorted(told)


@given(
    steps("copy", "set", "write", "restart", "foreign", "tidy")
    | steps("copy", "write", "restart", "kill", "foreign", "tidy")
)
@settings(max_examples=200, deadline=None)
def test_nothing_is_passed_over_on_the_way_back(taken: list[Step]) -> None:
    one = grown([*taken, ("copy", 1), ("write", 1)])
    for target in range(len(one.log) + 1):
        unread, answer = one.unread_behind(target), one.map.translate_back(target)
        if unread is not None and answer is not None:
            assert answer <= unread


@given(steps("copy", "set", "restart", "gap", "compact"))
@settings(max_examples=150, deadline=None)
def test_tidying_changes_no_answer(taken: list[Step]) -> None:
    one = grown(taken)
    one.write()
    before = [one.map.translate(offset, 0) for offset in one.offsets]
    back = [one.map.translate_back(target) for target in range(len(one.log) + 1)]
    one.tidy(0)
    assert tidied(one.map, 0) == {}
    assert [one.map.translate(offset, 0) for offset in one.offsets] == before
    assert [one.map.translate_back(target) for target in range(len(one.log) + 1)] == back


def test_the_way_back_after_a_set_back() -> None:
    """Who came over at 105 was led to 110, and has not read 105 to 109 until the second copy of them is behind it."""
    one = known(segment((0, 0, 200)), segment((100, 200, 10)), segment((200, 210, 50)))
    wanted = [(50, 50), (99, 99), (150, 100), (205, 105), (210, 200), (260, 250)]
    assert [one.translate_back(target) for target, _ in wanted] == [source for _, source in wanted]


def test_the_way_back_before_a_hole_with_records_of_a_position_that_was_set_back() -> None:
    one = known(segment((0, 0, 10)), segment((90, 10, 10)), segment((60, 30, 10)))
    assert [one.translate_back(target) for target in (5, 15, 25, 30)] == [5, 50, 50, 60]
