"""Maps of partitions that a query sends records to: one source feeds several, several feed one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats.offset_map import Place, Run, TopicIds
from sparkmirror.offsets.offset_map import OffsetMap, PartitionMap, covered
from sparkmirror.offsets.segments import of_runs

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
    one = map_of(RED, Run(0, 0, 3), Run(3, 5, 2), Run(5, 9, 1))
    other = map_of(OTHER, Run(0, 3, 2), Run(2, 7, 1))
    assert covered([one, other], 0) == 8
    assert covered([one, other], 4) == 8
    assert covered([one, other], 8) == 8
    assert covered([one, other], 9) == 10
    assert covered([one], 0) == 3
    assert covered([], 7) == 7


def test_a_group_that_has_read_all_that_is_known() -> None:
    one = map_of(RED, Run(0, 0, 3), Run(7, 5, 2))
    assert not one.is_passed(8)
    assert one.is_passed(9)
    assert not PartitionMap(RED).is_passed(9)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60), st.integers(0, 59))
def test_covering_ends_where_nobody_knows(owners: list[int], start: int) -> None:
    """Every target offset belongs to one of two sources but the last, which is of neither."""
    start = min(start, len(owners))
    runs: dict[int, list[Run]] = {0: [], 1: []}
    for target, owner in enumerate(owners):
        runs[owner].append(Run(target, target, 1))
    places = {0: RED, 1: OTHER}
    maps = [map_of(places[owner], *found) for owner, found in runs.items() if found]
    assert covered(maps, start) == len(owners)
