"""Translation by time: which time counts, who needs it, and which checkpoints are news."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats.mirror import BY_TIME, Checkpoint
from sparkmirror.formats.offset_map import Segment
from sparkmirror.kafka.cluster import Cluster as KafkaCluster
from sparkmirror.offsets import unread_times
from sparkmirror.offsets.by_time import Ends, TimeTranslator
from sparkmirror.offsets.checkpoints import CheckpointStore
from sparkmirror.offsets.groups import GroupOffset, Offsets
from sparkmirror.offsets.map_reader import MapReader, WayBack
from sparkmirror.offsets.placed_groups import PlacedGroups
from sparkmirror.offsets.translator import Translator
from sparkmirror.offsets.unread_times import UnreadTimes
from tests.unit.offsets.segments import known, segment

# -- times ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=80), st.integers(0, 400))
def test_no_record_from_an_offset_on_is_before_its_time(
    steps: list[tuple[int, int]], offset: int
) -> None:
    line, rows, place = UnreadTimes(0), [], 0
    for gap, time in steps:
        place += gap
        rows.append((place, time))
        line.take(place, time)
        place += 1
    left = [time for at, time in rows if at >= offset]
    assert line.earliest(offset) == (min(left) if left else None)
    line.forget(offset // 2)
    assert line.earliest(offset) == (min(left) if left else None)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=300), st.integers(0, 300))
def test_what_is_thinned_out_is_never_too_late(times: list[int], offset: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unread_times, "_MOST", 8)
        line = UnreadTimes(0)
        for place, time in enumerate(times):
            line.take(place, time)
        assert len(line) <= 9
        found = line.earliest(offset)
    left = times[offset:]
    assert (found is None) == (not left)
    if found is not None:
        assert found <= min(left)


def test_it_covers_what_was_read() -> None:
    line = UnreadTimes(10)
    assert line.covers(10, 10)
    assert not line.covers(10, 11)
    line.take(12, 5)
    assert line.covers(11, 13)
    line.forget(12)
    assert not line.covers(11, 13)


# -- groups -----------------------------------------------------------------------------------


class Times:
    """What a `TimeTranslator` knows, set by a test."""

    def __init__(self, partitions: int = 2, width: int = 3) -> None:
        self.ends = Ends(
            "A.t",
            dict.fromkeys(range(width), 0),
            dict.fromkeys(range(width), 90),
            dict.fromkeys(range(partitions), 0),
            dict.fromkeys(range(partitions), 100),
        )
        self.answer: dict[int, int] | None = {0: 5, 1: 6, 2: 7}
        self.lowest: dict[tuple[str, int], int] = {}
        self.looked: set[str] = set()

    def look(self, topics: set[str]) -> dict[str, Ends]:
        self.looked = topics
        return dict.fromkeys(topics, self.ends)

    def read(self, lowest: dict[tuple[str, int], int]) -> None:
        self.lowest = lowest

    def translate(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int] | None:
        return self.answer


class Map:
    def __init__(self, *whole: int) -> None:
        self._whole = whole

    def is_whole(self, topic: str, offsets: Mapping[int, int], ends: Ends) -> bool:
        return set(offsets) <= set(self._whole)


def groups_of(times: Times, store: CheckpointStore, pattern: str = "t") -> PlacedGroups:
    return PlacedGroups(pattern.__eq__, "A.{}".format, store, cast("TimeTranslator", times))


def offsets(*committed: int, topic: str = "t") -> dict[str, Offsets]:
    return {"g": {(topic, p): GroupOffset(offset) for p, offset in enumerate(committed)}}


def news(groups: PlacedGroups, store: CheckpointStore, *committed: int) -> dict[int, int]:
    """What is told, and told again only when it changes."""
    groups.look(offsets(*committed), lambda _: True, Map())
    found = groups.news()
    for checkpoint in found:
        assert (checkpoint.topic, checkpoint.upstream_offset) == ("A.t", BY_TIME)
        store.put(checkpoint)
    groups.written()
    return {checkpoint.partition: checkpoint.downstream_offset for checkpoint in found}


def test_a_group_is_told_of_every_partition_once() -> None:
    times, store = Times(), CheckpointStore(["g"])
    groups = groups_of(times, store)
    assert news(groups, store, 10, 20) == {0: 5, 1: 6, 2: 7}
    assert times.lowest == {("t", 0): 10, ("t", 1): 20}
    assert news(groups, store, 10, 20) == {}
    times.answer = {0: 5, 1: 8, 2: 7}
    assert news(groups, store, 11, 20) == {1: 8}


def test_only_a_group_that_goes_back_takes_its_checkpoints_along() -> None:
    times, store = Times(), CheckpointStore(["g"])
    groups = groups_of(times, store)
    news(groups, store, 10, 20)
    times.answer = {0: 4, 1: 6, 2: 7}  # a record came late
    assert news(groups, store, 10, 20) == {}
    assert news(groups, store, 10, 19) == {0: 4}


def test_a_task_that_begins_does_not_know_whether_a_group_has_gone_back() -> None:
    times, store = Times(), CheckpointStore(["g"])
    store.put(Checkpoint("g", "A.t", 0, BY_TIME, 50))
    assert news(groups_of(times, store), store, 10, 20) == {0: 5, 1: 6, 2: 7}


def test_what_is_not_known_yet_is_not_told() -> None:
    times, store = Times(), CheckpointStore(["g"])
    times.answer = None
    assert news(groups_of(times, store), store, 10, 20) == {}


def test_topics_of_equal_numbers_are_left_to_the_map() -> None:
    times, store = Times(2, 2), CheckpointStore(["g"])
    groups, committed = groups_of(times, store), offsets(10, 20)
    groups.look(committed, lambda _: True, Map(0, 1))
    assert groups.by_map("g", committed["g"]) == committed["g"]
    assert groups.news() == []


def test_what_was_placed_before_the_numbers_were_equal_is_found_by_time() -> None:
    times, store = Times(2, 2), CheckpointStore(["g"])
    groups, committed = groups_of(times, store), offsets(10, 20)
    groups.look(committed, lambda _: True, Map(0))  # of partition 1 the map does not know all
    assert groups.by_map("g", committed["g"]) == {}
    assert groups.news() != []


def test_a_group_that_was_found_by_time_stays_so_until_it_is_through() -> None:
    """Also when the setting is gone."""
    times, store = Times(2, 2), CheckpointStore(["g"])
    store.put(Checkpoint("g", "A.t", 0, BY_TIME, 3))
    groups, committed = groups_of(times, store, pattern="other"), offsets(10, 20)
    groups.look(committed, lambda _: True, Map(0))
    assert groups.by_map("g", committed["g"]) == {}
    groups.look(committed, lambda _: True, Map(0, 1))
    assert groups.by_map("g", committed["g"]) == committed["g"]
    store.put(Checkpoint("g", "A.t", 0, 10, 9))
    groups.look(committed, lambda _: True, Map())
    assert times.looked == set()


def test_other_topics_are_nobodys_business_here() -> None:
    times, store = Times(), CheckpointStore(["g"])
    groups = groups_of(times, store)
    committed = offsets(10, topic="u")
    groups.look(committed, lambda _: True, Map())
    assert (times.looked, groups.by_map("g", committed["g"])) == (set(), committed["g"])
    groups.look(offsets(10, 20), lambda _: False, Map())
    assert times.looked == set()


# -- the map ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "is_whole"), [(9, False), (10, True), (24, True), (25, True), (99, True)]
)
def test_a_map_is_whole_from_its_last_gap_on(offset: int, is_whole: bool) -> None:
    found = known(segment((0, 0, 5)), segment((10, 7, 10)), segment((20, 17, 5)))
    assert found.is_whole_from(offset) == is_whole


def test_a_gap_in_a_segment_is_a_gap() -> None:
    found = known(segment((0, 0, 5), (6, 5, 5)))
    assert [found.is_whole_from(offset) for offset in (0, 5, 6)] == [False, False, True]


@pytest.mark.parametrize(
    ("start", "is_dense"), [(0, False), (4, False), (6, False), (7, True), (99, True)]
)
def test_a_map_is_dense_from_its_last_hole_on(start: int, is_dense: bool) -> None:
    found = known(segment((0, 0, 5)), segment((10, 7, 10)), segment((24, 17, 5)))
    assert found.is_dense_from(start) == is_dense


class Cluster:
    """Nobody is asked here."""


def map_reader(*segments: Segment) -> MapReader:
    nobody = cast("KafkaCluster", Cluster())
    reader = MapReader(
        nobody, "map", "A.{}".format, cast("Translator", None), cast("WayBack", None)
    )
    for order, one in enumerate(segments):
        reader._topic.map.put(one, order)
    return reader


def ends_of(target_end: int) -> Ends:
    """One partition on both sides, and another that nobody has written to."""
    return Ends("A.t", {0: 0, 1: 0}, {0: target_end, 1: 0}, {0: 0, 1: 0}, {0: 30, 1: 0})


def test_a_topic_that_was_never_placed_is_whole_whatever_is_missing_upstream() -> None:
    """Markers of transactions have no copies."""
    reader = map_reader(segment((0, 0, 5), (6, 5, 5)))
    assert reader.is_whole("t", {0: 0, 1: 0}, ends_of(10))


def test_a_topic_with_other_records_between_is_whole_behind_the_last_of_them() -> None:
    reader = map_reader(segment((0, 0, 5)), segment((10, 8, 5)))
    assert not reader.is_whole("t", {0: 3}, ends_of(13))
    assert reader.is_whole("t", {0: 12}, ends_of(13))


def test_a_partition_without_a_map_is_whole_if_there_is_nothing_to_read() -> None:
    reader = map_reader()
    assert not reader.is_whole("t", {0: 3}, ends_of(13))
    assert reader.is_whole("t", {0: 30}, ends_of(13))
