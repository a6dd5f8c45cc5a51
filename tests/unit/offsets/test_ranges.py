"""Ranges of the offset map: a join with them gives for every offset what `PartitionMap.translate` gives."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.formats.offset_map import Place, Run, TopicIds
from sparkmirror.offsets.coverage import Coverage
from sparkmirror.offsets.offset_map import PartitionMap, Translation
from sparkmirror.offsets.ranges import NO_END, OffsetRange, ranges
from sparkmirror.offsets.segments import of_runs
from tests.unit.offsets.segments import PLACE, known, segment
from tests.unit.offsets.target_log import Step, TargetLog
from tests.unit.offsets.test_map_reader import reader

KINDS = (
    *("copy", "copy", "write", "restart", "kill", "set", "kill_and_set"),
    *("foreign", "gap", "compact", "cut", "tidy"),
)
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(1, 40)), max_size=40
)


def joined(found: list[OffsetRange], offset: int) -> Translation | None:
    """What the join of the documentation gives for an offset."""
    rows = [one for one in found if one.source_start <= offset < one.source_end]
    assert len(rows) < 2, "an offset has one translation"
    return next(
        (
            Translation(r.target_start + (offset - r.source_start) * r.step, r.is_exact)
            for r in rows
        ),
        None,
    )


def translated(one: PartitionMap, offset: int, log_start: int | None) -> Translation | None:
    """What the checkpoint connector takes from the map: nothing leads before the beginning of the log."""
    answer = one.translate(offset, log_start)
    return None if answer is None else answer._replace(offset=max(answer.offset, log_start or 0))


# -- by hand ----------------------------------------------------------------------------------------


def test_one_run_and_what_lies_beyond_it() -> None:
    assert list(ranges(known(segment((5, 0, 10))), 0)) == [
        OffsetRange(0, 5, 0, 0, True),
        OffsetRange(5, 16, 0, 1, True),
        OffsetRange(16, NO_END, 10, 0, False),
    ]


def test_nothing_is_said_of_what_lies_before_the_map() -> None:
    one = known(segment((5, 100, 10)))
    assert next(ranges(one, None)) == OffsetRange(5, 16, 100, 1, True)
    assert next(ranges(one, 0)) == OffsetRange(5, 16, 100, 1, True)
    assert next(ranges(one, 100)) == OffsetRange(0, 5, 100, 0, True)
    assert list(ranges(PartitionMap(PLACE), 0)) == []


def test_gaps_lead_to_the_next_record_and_holes_to_their_beginning() -> None:
    gap = list(ranges(known(segment((0, 0, 10), (12, 10, 5))), 0))
    assert gap[:3] == [
        OffsetRange(0, 10, 0, 1, True),
        OffsetRange(10, 12, 10, 0, True),
        OffsetRange(12, 18, 10, 1, True),
    ]
    hole = list(ranges(known(segment((0, 0, 10)), segment((20, 18, 5))), 0))
    assert hole[:3] == [
        OffsetRange(0, 10, 0, 1, True),
        OffsetRange(10, 20, 10, 0, False),
        OffsetRange(20, 26, 18, 1, True),
    ]


def test_what_the_target_has_deleted_is_not_there_to_be_read() -> None:
    assert list(ranges(known(segment((0, 0, 10))), 4)) == [
        OffsetRange(0, 4, 4, 0, True),
        OffsetRange(4, 11, 4, 1, True),
        OffsetRange(11, NO_END, 10, 0, False),
    ]


def test_a_group_that_has_read_all_of_one_source_passes_what_comes_from_others() -> None:
    red = Place("orders", 0, "A.red", 0)
    one = PartitionMap(red)
    one.put(of_runs(red, TopicIds(), [Run(0, 0, 3)]), 0)
    assert list(ranges(one, 0, Coverage([Run(0, 0, 3), Run(0, 3, 4)]))) == [
        OffsetRange(0, 3, 0, 1, True),
        OffsetRange(3, 4, 7, 0, True),
        OffsetRange(4, NO_END, 7, 0, False),
    ]


# -- whatever happened ------------------------------------------------------------------------------


@given(STEPS, st.one_of(st.none(), st.integers(0, 120)))
@settings(max_examples=200)
def test_the_join_is_the_translation_of_every_offset(
    taken: list[Step], log_start: int | None
) -> None:
    log = TargetLog()
    for kind, number in taken:
        log.step(kind, number)
    log.write()
    found = list(ranges(log.map, log_start))
    for before, after in pairwise(found):
        assert before.source_end <= after.source_start
    for offset in [*range(log.position + 60), NO_END - 1]:
        assert joined(found, offset) == translated(log.map, offset, log_start)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=20
    ),
    st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_the_least_of_several_sources_is_where_the_checkpoint_connector_leads(
    stretches: list[tuple[int, int, int]], offsets: tuple[int, int]
) -> None:
    """A query sends records of two source partitions to one, drops some, and another producer writes between."""
    runs: dict[int, list[Run]] = {0: [], 1: []}
    source, target = [0, 0], 0
    for owner, length, dropped in stretches:
        if owner in runs:
            source[owner] += dropped
            runs[owner].append(Run(source[owner], target, length))
            source[owner] += length
        target += length
    places = {owner: Place("t", owner, "A.red", 0) for owner in runs}
    reading = reader(
        of_runs(places[owner], TopicIds(), found) for owner, found in runs.items() if found
    )
    known_ones = reading._topic.map.places
    feeding = reading._topic.map.to_target("A.red", 0)
    shared = reading._topic.map.coverage("A.red", 0)
    rows = {
        place.partition: joined(
            list(ranges(known_ones[place], None, shared)), offsets[place.partition]
        )
        for place in feeding
    }
    leads = [found.offset for found in rows.values() if found is not None]
    expected = min(leads) if len(leads) == len(feeding) and leads else None
    ways = list(reading.elsewhere({("t", 0): offsets[0], ("t", 1): offsets[1]}))
    assert [way.offset for way in ways] == ([] if expected is None else [expected])
