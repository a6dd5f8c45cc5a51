"""Which segments are written when one of the topics is created again."""

from __future__ import annotations

from sparkmirror.formats.offset_map import Run
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
