"""Which segments are written when one of the topics is created again."""

from __future__ import annotations

from sparkmirror.formats.offset_map import Run, Segment
from sparkmirror.offsets.map_writer import MapWriter
from tests.unit.offsets.segments import IDS, OTHER, PLACE


def test_segments_of_the_old_topic_are_not_written_after_the_new_ones() -> None:
    """The last in the log tells which topic is there."""
    writer = MapWriter()
    writer.acknowledged(PLACE, IDS, Run(0, 100, 10))
    (lost,) = writer.take()
    writer.acknowledged(PLACE, IDS, Run(0, 200, 10))  # not in line: the one before is closed
    writer.acknowledged(PLACE, OTHER, Run(0, 0, 10))
    writer.give_back([lost])
    assert {one.ids for one in writer.take()} == {OTHER}


END = Segment.end_of_log(PLACE, IDS, 100)


def test_what_lies_behind_the_end_of_a_log_that_was_cut_back_is_not_written() -> None:
    writer = MapWriter()
    writer.acknowledged(PLACE, IDS, Run(0, 100, 10))
    writer.acknowledged(PLACE, IDS, Run(0, 200, 10))
    writer.ended([END], is_writing=False)
    assert writer.is_idle
    writer.acknowledged(PLACE, IDS, Run(5, 100, 1))
    writer.settled()
    assert [one.source_start for one in writer.take()] == [5]


def test_what_was_being_written_when_a_log_was_cut_back_is_made_void_after_it() -> None:
    """Whether it came to lie before or behind the end that was written meanwhile, nobody knows."""
    writer = MapWriter()
    writer.acknowledged(PLACE, IDS, Run(0, 150, 10))
    old = writer.take()
    writer.ended([END], is_writing=True)
    writer.acknowledged(PLACE, IDS, Run(5, 105, 1))
    writer.give_back(old)
    writer.settled()
    taken = writer.take()
    assert [(one.is_empty, one.target_end) for one in taken] == [(True, 100), (False, 106)]
    writer.give_back(taken[:1])
    writer.settled()
    assert writer.take() == taken, "an end that is written late is before all that was copied since"
