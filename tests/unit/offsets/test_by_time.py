"""Translation by time: which time counts, who needs it, and which checkpoints are news."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats.mirror import BY_TIME, Checkpoint
from sparkmirror.formats.offset_map import Segment
from sparkmirror.kafka import admin, records, topic_configs
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka.cluster import Broker, PartitionInfo, TopicInfo
from sparkmirror.kafka.cluster import Cluster as KafkaCluster
from sparkmirror.kafka.fetch import Fetched, FetchLimits
from sparkmirror.offsets import by_time, placed_groups, unread_times
from sparkmirror.offsets.by_time import Ends, TimeTranslator
from sparkmirror.offsets.checkpoints import CheckpointStore
from sparkmirror.offsets.groups import GroupOffset, Offsets
from sparkmirror.offsets.map_reader import MapReader, Syncs, WayBack
from sparkmirror.offsets.placed_groups import PlacedGroups
from sparkmirror.offsets.unread_times import UnreadStretches, UnreadTimes
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


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.lists(
        st.tuples(st.lists(st.integers(0, 59), min_size=1, max_size=4), st.integers(0, 4)),
        max_size=12,
    ),
    st.integers(1, 9),
)
def test_stretches_know_the_same_as_who_reads_all(
    times: list[int], turns: list[tuple[list[int], int]], step: int
) -> None:
    """Groups come and go, the log grows, and only some of it is read at each turn."""
    stretches = UnreadStretches()
    for number, (wanted, fetches) in enumerate(turns, 1):
        end = len(times) * number // len(turns)
        asked = sorted({offset for offset in wanted if offset < end})
        if not asked:
            continue
        stretches.keep(asked[0], end)
        for _ in range(fetches):
            gap = stretches.next_gap(asked, end)
            if gap is None:
                break
            line, upto = gap
            assert line.end < upto <= end
            for offset in range(line.end, min(line.end + step, upto)):
                line.take(offset, times[offset])
            stretches.join()
        known = [offset for offset in asked if stretches.covers(offset, end)]
        assert known == asked[len(asked) - len(known) :]  # the last ones come first
        for offset in known:
            assert stretches.earliest(offset) == min(times[offset:end])
        if stretches.next_gap(asked, end) is None:
            assert known == asked


def test_what_was_read_twice_over_is_one_stretch_and_no_longer_than_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread_times, "_MOST", 8)
    one, other = UnreadTimes(0), UnreadTimes(8)
    for offset in range(8):
        one.take(offset, offset)
        other.take(8 + offset, 8 + offset)
    one.append(other)
    assert (one.start, one.end) == (0, 16)
    assert len(one) <= 9
    for offset in range(16):
        found = one.earliest(offset)
        assert found is not None
        assert found <= offset


def test_stretches_of_a_log_that_was_cut_are_forgotten() -> None:
    stretches = UnreadStretches()
    gap = stretches.next_gap([3], 6)
    assert gap is not None
    for offset in range(3, 6):
        gap[0].take(offset, offset)
    assert stretches.covers(3, 6)
    stretches.keep(3, 5)
    assert not stretches.covers(3, 5)


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
        self.read_for: list[tuple[str, Mapping[int, int]]] = []
        self.looked: set[str] = set()

    def look(self, topics: set[str]) -> dict[str, Ends]:
        self.looked = topics
        return dict.fromkeys(topics, self.ends)

    def read(self, groups: Iterable[tuple[str, Mapping[int, int]]]) -> None:
        self.read_for = list(groups)

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
    assert times.read_for == [("t", {0: 10, 1: 20})]
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


def test_a_group_that_went_back_is_told_also_if_that_takes_a_while() -> None:
    times, store = Times(), CheckpointStore(["g"])
    groups = groups_of(times, store)
    times.answer = {0: 80, 1: 80, 2: 80}
    news(groups, store, 4000, 4000)
    times.answer = None  # there is much to read first
    assert news(groups, store, 100, 4000) == {}
    times.answer = {0: 5, 1: 6, 2: 7}
    assert news(groups, store, 120, 4000) == times.answer


def test_a_task_that_begins_without_a_copy_does_not_know_either() -> None:
    times, store = Times(), CheckpointStore(["g"])
    store.put(Checkpoint("g", "A.t", 0, BY_TIME, 50))
    groups, times.answer = groups_of(times, store), None
    assert news(groups, store, 10, 20) == {}
    times.answer = {0: 5, 1: 6, 2: 7}
    assert news(groups, store, 10, 20) == times.answer


def test_what_was_not_written_was_not_seen() -> None:
    times, store = Times(), CheckpointStore(["g"])
    groups = groups_of(times, store)
    times.answer = {0: 80, 1: 80, 2: 80}
    news(groups, store, 4000, 4000)
    times.answer = {0: 5, 1: 6, 2: 7}
    groups.look(offsets(100, 4000), lambda _: True, Map())
    assert len(groups.news()) == 3  # and then the topic could not be written to
    assert news(groups, store, 100, 4000) == times.answer


def test_checkpoints_of_a_copy_made_anew_may_be_lower() -> None:
    times, store = Times(), CheckpointStore(["g"])
    groups = groups_of(times, store)
    times.answer = {0: 80, 1: 80, 2: 80}
    news(groups, store, 10, 20)
    times.answer = {0: 5, 1: 6, 2: 7}
    assert news(groups, store, 10, 20) == {}
    times.ends = replace(times.ends, target_id=b"another")
    assert news(groups, store, 11, 20) == times.answer
    times.answer = {0: 4, 1: 6, 2: 7}
    assert news(groups, store, 11, 20) == {}


def test_who_is_not_translated_for_long_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(placed_groups, "time", SimpleNamespace(monotonic=lambda: now[0]))
    times, store = Times(), CheckpointStore(["g"])
    groups, times.answer = groups_of(times, store), None
    told = []
    for minute in (0, 9, 11, 12):
        now[0] = minute * 60.0
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            news(groups, store, 10, 20)
        told.append(sum("the first is g." in r.getMessage() for r in caplog.records))
    assert told == [0, 0, 1, 0]
    times.answer = {0: 5, 1: 6, 2: 7}
    news(groups, store, 10, 20)
    times.answer = None
    caplog.clear()
    news(groups, store, 10, 20)
    assert caplog.records == []


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


# -- both clusters ----------------------------------------------------------------------------


class Side:
    """A cluster's topics: the times of the records of each partition, from some offset on."""

    def __init__(self) -> None:
        self.brokers = {1: Broker(1, "", 0)}
        self.topics: dict[str, TopicInfo] = {}
        self.times: dict[tuple[str, int], list[int]] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.settings = "a cluster"

    def create(self, topic: str, *partitions: list[int], topic_id: bytes = b"1") -> None:
        infos = {p: PartitionInfo(p, 1, 0) for p in range(len(partitions))}
        self.topics[topic] = TopicInfo(topic, topic_id, False, infos)
        for partition, times in enumerate(partitions):
            self.times[topic, partition] = times
            self.starts[topic, partition] = 0

    def refresh(self, topics: Collection[str]) -> None:
        pass

    def topic(self, name: str) -> TopicInfo:
        return self.topics[name]

    def offset(self, key: tuple[str, int], moment: int) -> int:
        times, start = self.times[key], self.starts[key]
        if moment == -1:
            return len(times)
        if moment == -2:
            return start
        return next((o for o in range(start, len(times)) if times[o] >= moment), -1)


STEP = 100
"""So many records come of a fetch, which takes half a second: in one turn, some 400 are read."""


class Both:
    """Source and target in memory, a clock that goes on with every fetch, and groups that are translated for real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.source, self.target, self.now = Side(), Side(), 0.0
        self.fetches: list[tuple[str, int, int]] = []
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(by_time, "time", clock)
        monkeypatch.setattr(admin, "list_offsets", self._list_offsets)
        monkeypatch.setattr(kafka_log, "read", self._read)
        self._configs: dict[str, list[SimpleNamespace]] = {}
        described = SimpleNamespace(configs=self._configs)
        monkeypatch.setattr(topic_configs, "describe", lambda *_: described)
        self.store = CheckpointStore(names)
        source, target = (cast("KafkaCluster", side) for side in (self.source, self.target))
        self.groups = PlacedGroups(
            lambda _: True, "A.{}".format, self.store, TimeTranslator(source, target, "A.{}".format)
        )

    def _list_offsets(
        self, side: Side, keys: Iterable[tuple[str, int]], moment: int
    ) -> dict[tuple[str, int], int]:
        return {key: side.offset(key, moment) for key in keys}

    def _read(
        self,
        side: Side,
        topic: str,
        partition: int,
        offset: int,
        end: int,
        limits: FetchLimits,
        patience: float,
    ) -> Iterator[Fetched]:
        times = side.times[topic, partition]
        while offset < end:
            assert offset >= side.starts[topic, partition]
            first = offset // STEP * STEP  # batches begin where they were written
            rows = [records.NewRecord(0, t, None, b"", []) for t in times[first : first + STEP]]
            batch = records.encode(rows, 0)
            batch[:8] = first.to_bytes(8)
            self.now += 0.5
            self.fetches.append((topic, partition, offset))
            yield Fetched(topic, partition, 0, -1, -1, 0, [], -1, memoryview(batch), None)
            offset = first + len(rows)

    def set_timestamp_type(self, remote: str, kind: str) -> None:
        self._configs[remote] = [SimpleNamespace(name="message.timestamp.type", value=kind)]

    def turn(self, **committed: tuple[int, ...]) -> dict[str, dict[int, int]]:
        """What each of these groups is told in topic `t` (or, if its name begins with another letter, in that one)."""
        found = {
            group: {(group[0], p): GroupOffset(offset) for p, offset in enumerate(offsets)}
            for group, offsets in committed.items()
        }
        self.groups.look(cast("dict[str, Offsets]", found), lambda _: True, Map())
        told: dict[str, dict[int, int]] = {}
        for checkpoint in self.groups.news():
            self.store.put(checkpoint)
            told.setdefault(checkpoint.group, {})[checkpoint.partition] = (
                checkpoint.downstream_offset
            )
        self.groups.written()
        return told


def test_a_group_that_is_left_behind_does_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both(monkeypatch, "told", "t")
    both.source.create("t", list(range(1000, 3000)))
    both.target.create("A.t", list(range(1000, 3000, 2)), list(range(1001, 3000, 2)))
    assert both.turn(t=(0,), told=(1990,)) == {"told": {0: 995, 1: 995}}
    turns = 0
    while not (found := both.turn(t=(10,), told=(1990,))):
        turns += 1
        assert turns < 10
    assert found == {"t": {0: 5, 1: 5}}
    # Nothing but what the live group needed was read twice.
    assert len(both.fetches) <= 2000 // STEP + 2
    # And now that all is known, what comes is all that is read.
    both.fetches.clear()
    both.source.times["t", 0] += range(3000, 3010)
    assert both.turn(t=(20,), told=(2005,)) == {
        "t": {0: 10, 1: 10},
        "told": {0: 1000, 1: 1000},
    }
    assert both.fetches == [("t", 0, 2005), ("t", 0, 2000)]


def test_a_late_record_anywhere_behind_a_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it lies in what was read for another group."""
    both = Both(monkeypatch, "ta", "tb")
    times = list(range(1000, 1400))
    times[350] = 1100
    both.source.create("t", times)
    both.target.create("A.t", times, [])
    told = both.turn(ta=(300,), tb=(360,))
    told |= both.turn(ta=(300,), tb=(360,))
    assert told == {"ta": {0: 100, 1: 0}, "tb": {0: 360, 1: 0}}


def test_no_partition_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics with nobody but a group that is far behind, and one with a group that is not, whichever comes first."""
    names = [f"{topic}-left" for topic in "abcdef"]
    both = Both(monkeypatch, *names, "t")
    for topic in "abcdeft":
        both.source.create(topic, list(range(1, 1001)))
        both.target.create(f"A.{topic}", list(range(1, 1001)), [])
    committed = dict.fromkeys(names, (0,)) | {"t": (900,)}
    told: dict[str, int] = {}
    for turn in range(40):
        for group in both.turn(**committed):
            told.setdefault(group, turn)
    assert told["t"] <= 2
    assert set(told) == {*names, "t"}
    assert max(told.values()) <= 6 * 1000 // 400 + 3


def test_what_expired_while_it_was_read_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(monkeypatch, "t")
    both.source.create("t", list(range(1000, 3000)))
    both.target.create("A.t", list(range(1000, 3000)), [])
    assert both.turn(t=(0,)) == {}
    both.source.starts["t", 0] = 1500
    assert both.turn(t=(1700,)) == {"t": {0: 1700, 1: 0}}


def test_what_expired_at_the_source_only_is_still_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both(monkeypatch, "t", "told")
    both.source.create("t", list(range(1000, 1300)))
    both.target.create("A.t", list(range(1000, 1300)), [])
    both.source.starts["t", 0] = 200
    both.target.starts["A.t", 0] = 50
    assert both.turn(t=(100,), told=(200,)) == {"t": {0: 50, 1: 0}, "told": {0: 200, 1: 0}}
    both.source.starts["t", 0] = 300  # nothing is left
    assert both.turn(t=(90,), told=(300,)) == {"told": {0: 300}}


def test_a_copy_made_anew_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(monkeypatch, "t")
    both.source.create("t", list(range(1000, 1300)))
    both.target.create("A.t", list(range(1000, 1300)), [])
    assert both.turn(t=(250,)) == {"t": {0: 250, 1: 0}}
    both.target.create("A.t", list(range(1200, 1300)), [], topic_id=b"2")
    assert both.turn(t=(250,)) == {"t": {0: 50}}
    assert both.turn(t=(250,)) == {}


def test_a_record_without_a_time_leads_to_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for the moment -1, the target would answer with its end."""
    both = Both(monkeypatch, "t", "told")
    untimed = [-1, *range(1050, 1100)]
    both.source.create("t", list(range(1000, 1100)), untimed)
    both.target.create("A.t", list(range(1000, 1100)), untimed, [])
    both.target.starts["A.t", 0] = 7
    assert both.turn(t=(90, 0), told=(90, 41)) == {
        "t": {0: 7, 1: 0, 2: 0},
        "told": {0: 90, 1: 41, 2: 0},
    }


def test_a_partition_of_which_nothing_was_read_is_read_from_its_first_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target's answer is offset 0, which is one; that there is no such record is -1."""
    both = Both(monkeypatch, "t", "told")
    both.source.create("t", list(range(1000, 1300)))
    both.target.create("A.t", list(range(1000, 1150)), list(range(1150, 1300)), [])
    assert both.turn(t=(100,), told=(160,)) == {
        "t": {0: 100, 1: 0, 2: 0},
        "told": {0: 150, 1: 10, 2: 0},
    }


def test_times_that_the_target_sets_are_noticed_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy's message.timestamp.type is changed, and changed back."""
    both = Both(monkeypatch, "t")
    both.source.create("t", list(range(1000, 1300)))
    both.target.create("A.t", list(range(1000, 1300)), [])
    assert both.turn(t=(100,)) == {"t": {0: 100, 1: 0}}
    for offset, kind, told in (
        (110, "LogAppendTime", {}),
        (120, "CreateTime", {"t": {0: 120}}),
        (130, "LogAppendTime", {}),
    ):
        both.set_timestamp_type("A.t", kind)
        both.now += 61.0
        assert both.turn(t=(offset,)) == told
    assert caplog.text.count("A.t has message.timestamp.type=LogAppendTime.") == 1


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


@pytest.mark.parametrize(
    ("start", "is_dense"), [(0, False), (4, False), (5, False), (7, False), (8, True), (99, True)]
)
def test_records_of_others_within_a_segment_are_a_hole_too(start: int, is_dense: bool) -> None:
    found = known(segment((0, 0, 5), (5, 8, 5)), segment((12, 13, 5)))
    assert found.is_dense_from(start) == is_dense


class Cluster:
    """Nobody is asked here."""


def map_reader(*segments: Segment) -> MapReader:
    nobody = cast("KafkaCluster", Cluster())
    reader = MapReader(nobody, "map", "A.{}".format, cast("Syncs", None), cast("WayBack", None))
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


def test_a_topic_with_other_records_within_a_segment_is_not_whole() -> None:
    reader = map_reader(segment((0, 0, 5), (6, 7, 5)))
    assert not reader.is_whole("t", {0: 0, 1: 0}, ends_of(12))
    assert reader.is_whole("t", {0: 7, 1: 0}, ends_of(12))


def test_a_topic_with_other_records_between_is_whole_behind_the_last_of_them() -> None:
    reader = map_reader(segment((0, 0, 5)), segment((10, 8, 5)))
    assert not reader.is_whole("t", {0: 3}, ends_of(13))
    assert reader.is_whole("t", {0: 12}, ends_of(13))


def test_a_partition_without_a_map_is_whole_if_there_is_nothing_to_read() -> None:
    reader = map_reader()
    assert not reader.is_whole("t", {0: 3}, ends_of(13))
    assert reader.is_whole("t", {0: 30}, ends_of(13))
