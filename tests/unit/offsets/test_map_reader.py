"""Translation by the offset map and by offset syncs together: which of the two counts, and how far either may lead."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from sparkmirror.formats.mirror import OffsetSync
from sparkmirror.formats.offset_map import Segment
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.offsets.map_reader import MapReader, Syncs, WayBack
from sparkmirror.offsets.sync_store import OffsetSyncStore
from tests.unit.offsets.segments import IDS, segment

Sync = tuple[int, int]


def reader(segments: Iterable[Segment] = (), syncs: Iterable[Sync] = ()) -> MapReader:
    """A reader that has read these segments, and these offset syncs (upstream, downstream)."""
    store = OffsetSyncStore(must_read_to_end=False)
    for upstream, downstream in syncs:
        store.add(OffsetSync("t", 0, upstream, downstream))
    store.finish_loading()
    topic = SimpleNamespace(partitions={0: None}, topic_id=IDS.target)
    target = SimpleNamespace(refresh=lambda topics: None, topics={"A.t": topic})
    way_back = SimpleNamespace(leads_home=lambda topic: False)
    found = MapReader(
        cast("Cluster", target),
        "map",
        "A.{}".format,
        cast("Syncs", syncs_of(store)),
        cast("WayBack", way_back),
    )
    for order, one in enumerate(segments):
        found._topic.map.put(one, order)
    return found


def syncs_of(store: OffsetSyncStore) -> SimpleNamespace:
    """Offset syncs that were written after all segments."""
    return SimpleNamespace(translate=store.translate, written_at=lambda topic, partition: 1)


def log_starts_at(start: int, reading: MapReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "list_offsets", lambda _, keys, __: dict.fromkeys(keys, start))
    reading._learn_starts()


def test_where_the_map_knows_offset_syncs_do_not_count() -> None:
    one = reader([segment((0, 0, 100))], [(10, 40)])
    assert [one.translate("t", 0, offset) for offset in (5, 10, 50, 100)] == [5, 10, 50, 100]


def test_what_the_map_does_not_know_yet_an_offset_sync_may_tell() -> None:
    one = reader([segment((0, 0, 100))], [(120, 110)])
    assert [one.translate("t", 0, offset) for offset in (110, 120, 150)] == [100, 110, 111]


def test_an_offset_sync_that_knows_less_than_the_map_does_not_count() -> None:
    one = reader([segment((0, 0, 100))], [(20, 20)])
    assert one.translate("t", 0, 150) == 100


@pytest.mark.parametrize("syncs", [[], [(200, 190)]], ids=["none", "too late"])
def test_without_an_offset_sync_the_map_leads_as_far_as_it_goes(syncs: list[Sync]) -> None:
    assert reader([segment((0, 0, 100))], syncs).translate("t", 0, 150) == 100


def test_an_offset_sync_within_a_hole() -> None:
    one = reader([segment((0, 0, 10)), segment((20, 18, 10))], [(12, 11)])
    assert [one.translate("t", 0, offset) for offset in (11, 12, 15, 20)] == [10, 11, 12, 18]


def test_no_offset_sync_leads_past_a_record_that_the_map_knows() -> None:
    """It is right only until the position is set back and forward: it tells of a later copy of some of the records."""
    one = reader([segment((0, 0, 10)), segment((20, 18, 10))], [(12, 25)])
    assert one.translate("t", 0, 15) == 18
    begun_late = [segment((100, 100, 100)), segment((50, 200, 10)), segment((200, 210, 50))]
    one = reader(begun_late, [(50, 200), (200, 210)])
    assert [one.translate("t", 0, offset) for offset in (45, 55, 150)] == [-1, None, 150]
    back_in_a_hole = [segment((0, 0, 100)), segment((50, 120, 10)), segment((200, 130, 10))]
    one = reader(back_in_a_hole, [(50, 120), (200, 130)])
    assert [one.translate("t", 0, offset) for offset in (40, 60, 110, 205)] == [40, 60, 100, 135]


def test_before_the_map_begins_offset_syncs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else copied the records there, and told of some."""
    one = reader([segment((100, 80, 50))], [(10, 5), (60, 45)])
    assert [one.translate("t", 0, offset) for offset in (10, 20, 70)] == [5, 6, 46]
    assert one.translate("t", 0, 5) == -1
    log_starts_at(0, one, monkeypatch)
    assert one.translate("t", 0, 70) == 46, "there are records before the map"


def test_before_the_map_begins_and_nothing_else_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one = reader([segment((100, 80, 50))])
    assert one.translate("t", 0, 70) is None
    log_starts_at(80, one, monkeypatch)
    assert one.translate("t", 0, 70) == 80, "nothing lies before the map"


def test_no_group_is_sent_before_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    one = reader([segment((100, 80, 50)), segment((170, 140, 10))], [(50, 60)])
    assert one.translate("t", 0, 60) == 61
    log_starts_at(135, one, monkeypatch)
    assert [one.translate("t", 0, offset) for offset in (60, 110, 160, 170)] == [135, 135, 135, 140]


def test_a_partition_without_a_map_is_left_to_offset_syncs() -> None:
    assert reader(syncs=[(10, 5)]).translate("t", 0, 12) == 6
    assert reader().translate("t", 0, 12) is None
