"""Maps of partitions that a query sends records to: one source feeds several, several feed one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats.offset_map import Place, Run, TopicIds
from sparkmirror.offsets.coverage import Coverage
from sparkmirror.offsets.offset_map import OffsetMap, PartitionMap, Translation
from sparkmirror.offsets.ranges import ranges
from sparkmirror.offsets.segments import of_runs
from tests.unit.offsets.test_ranges import joined

IDS = TopicIds()
RED, BLUE = Place("orders", 0, "A.red", 0), Place("orders", 0, "A.blue", 0)
OTHER = Place("orders", 1, "A.red", 0)


def test_a_map_knows_where_records_went_and_where_they_came_from() -> None:
    known = OffsetMap()
    for order, place in enumerate((RED, BLUE, OTHER)):
        known.put(of_runs(place, IDS, [Run(0, 10 * order, 5)]), order)
    assert set(known.from_source("orders", 0)) == {RED, BLUE}
    assert set(known.to_target("A.red", 0)) == {RED, OTHER}
    known.remove(OTHER, 20)
    assert set(known.to_target("A.red", 0)) == {RED}
    assert not known.from_source("orders", 1)


def map_of(place: Place, *runs: Run) -> PartitionMap:
    found = PartitionMap(place)
    found.put(of_runs(place, IDS, list(runs)), 0)
    return found


def test_what_all_sources_tell_of_a_target_covers_it_up_to_the_first_hole() -> None:
    one, other = [Run(0, 0, 3), Run(3, 5, 2), Run(5, 9, 1)], [Run(0, 3, 2), Run(2, 7, 1)]
    both = Coverage([*one, *other])
    assert [both.passed(start) for start in (0, 4, 8, 9)] == [8, 8, 8, 10]
    assert Coverage(one).passed(0) == 3
    assert Coverage([]).passed(7) == 7


def test_a_partition_that_one_source_feeds_has_no_others_to_ask() -> None:
    known = OffsetMap()
    known.put(of_runs(RED, IDS, [Run(0, 0, 5)]), 0)
    assert known.coverage("A.red", 0) is None
    known.put(of_runs(OTHER, IDS, [Run(0, 5, 5)]), 1)
    shared = known.coverage("A.red", 0)
    assert shared is not None
    assert shared.passed(0) == 10
    known.put(of_runs(OTHER, IDS, [Run(5, 10, 5)]), 2)
    grown = known.coverage("A.red", 0)
    assert grown is not None
    assert grown.passed(0) == 15


def test_what_lies_between_two_segments_is_no_hole_if_it_came_from_another_source() -> None:
    """The first of the records in between were dropped; a segment ends wherever a task does."""
    one = PartitionMap(RED)
    one.put(of_runs(RED, IDS, [Run(0, 10, 3)]), 0)
    one.put(of_runs(RED, IDS, [Run(6, 20, 2)]), 1)
    shared = Coverage([Run(0, 10, 3), Run(0, 13, 7), Run(6, 20, 2)])
    assert one.translate(4, 10) == Translation(13, False)
    assert one.translate(4, 10, shared) == Translation(20, True)
    assert one.translate(6, 10, shared) == Translation(20, True)
    some = Coverage([Run(0, 10, 3), Run(0, 13, 2), Run(6, 20, 2)])
    assert one.translate(4, 10, some) == Translation(15, False)


def test_what_lies_before_a_map_is_known_if_it_came_from_another_source() -> None:
    one = PartitionMap(RED)
    one.put(of_runs(RED, IDS, [Run(4, 5, 3)]), 0)
    assert one.translate(2, 0) is None
    assert one.translate(2, 0, Coverage([Run(0, 0, 5), Run(4, 5, 3)])) == Translation(5, True)
    assert one.translate(2, 0, Coverage([Run(0, 0, 4), Run(4, 5, 3)])) is None


_STRETCHES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=30,
)


@given(_STRETCHES, st.integers(0, 10))
def test_wherever_a_segment_ends_a_group_stands_at_the_first_record_that_it_has_not_read(
    stretches: list[tuple[int, int, int, bool]], log_start: int
) -> None:
    """A query sends records of two source partitions to one and drops some; tasks are killed and go on."""
    places = {0: RED, 1: OTHER}
    known = OffsetMap()
    runs: dict[int, list[Run]] = {0: [], 1: []}
    copies: dict[int, list[Run]] = {0: [], 1: []}
    source, target = [0, 0], log_start
    for order, (owner, length, dropped, is_cut) in enumerate(stretches):
        source[owner] += dropped
        run = Run(source[owner], target, length)
        if is_cut:
            runs[owner] = []
        runs[owner].append(run)
        copies[owner].append(run)
        known.put(of_runs(places[owner], IDS, runs[owner]), order)
        source[owner] += length
        target += length
    shared = known.coverage("A.red", 0)
    if shared is None:
        return
    for owner, place in places.items():
        one = known.places[place]
        rows = list(ranges(one, log_start, shared))
        for offset in range(source[owner] + 3):
            rest = (run for run in copies[owner] if run.source_end > offset)
            unread = next((r.target + max(0, offset - r.source) for r in rest), target)
            found = one.translate(offset, log_start, shared)
            assert found is not None
            assert found.offset == unread
            assert joined(rows, offset) == found
