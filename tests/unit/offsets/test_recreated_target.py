"""A remote topic that was created again: what was known of the old one is not told of the new one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import BrokerError
from sparkmirror.formats.mirror import Checkpoint, OffsetSync
from sparkmirror.formats.offset_map import NO_ID, Place, Segment, TopicIds
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster, TopicInfo
from sparkmirror.kafka.settings import client_settings
from sparkmirror.offsets.checkpoint_news import Verdict, judged, judged_by_time
from sparkmirror.offsets.checkpoints import CheckpointStore, Dated, is_more_recent
from sparkmirror.offsets.map_reader import MapReader, Syncs, WayBack
from sparkmirror.offsets.sync_reader import OffsetSyncReader
from sparkmirror.offsets.sync_store import OffsetSyncStore
from sparkmirror.offsets.target_topics import NO_END, Seen, TargetTopics
from tests.unit.offsets.segments import IDS, OTHER, PLACE, segment

OLD, NEW = b"o" * 16, b"n" * 16
NEVER_ENDS = NO_END


def dated(upstream: int, downstream: int, topic_id: bytes | None) -> Dated:
    return Dated(Checkpoint("g", "A.t", 0, upstream, downstream), topic_id)


# -- which checkpoints are written ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "last", "verdict"),
    [
        (dated(10, 5, NEW), None, Verdict.NEW),
        # In one topic, only forward.
        (dated(11, 19, NEW), dated(10, 20, NEW), Verdict.NOTHING),
        (dated(11, 20, NEW), dated(10, 20, NEW), Verdict.SAME),
        (dated(11, 21, NEW), dated(10, 20, NEW), Verdict.NEW),
        (dated(9, 19, NEW), dated(10, 20, NEW), Verdict.NEW),
        # In another, back as well.
        (dated(11, 19, NEW), dated(10, 20, OLD), Verdict.CORRECTION),
        (dated(11, 20, NEW), dated(10, 20, OLD), Verdict.SAME),
        (dated(11, 21, NEW), dated(10, 20, OLD), Verdict.CORRECTION),
        (dated(9, 20, NEW), dated(10, 20, OLD), Verdict.CORRECTION),
        # Of a topic that is not known, or on brokers without ids: see below.
        (dated(11, 19, NEW), dated(10, 20, None), Verdict.NOTHING),
        (dated(11, 19, NO_ID), dated(10, 20, NO_ID), Verdict.NOTHING),
        (dated(11, 20, NEW), dated(10, 20, None), Verdict.SAME),
        (dated(11, 21, NEW), dated(10, 20, None), Verdict.NEW),
        (dated(9, 19, NEW), dated(10, 20, None), Verdict.NEW),
    ],
)
def test_only_forward_is_a_rule_of_one_topic(
    new: Dated, last: Dated | None, verdict: Verdict
) -> None:
    assert judged(new, last, is_exact=False, end=NEVER_ENDS) is verdict


@pytest.mark.parametrize("last_id", [None, NO_ID])
@pytest.mark.parametrize(
    ("is_exact", "end", "verdict"),
    [
        (False, 20, Verdict.NOTHING),
        (False, 19, Verdict.CORRECTION),  # the last one is beyond the end of the log
        (True, 20, Verdict.CORRECTION),  # the offset map says otherwise
    ],
)
def test_a_last_checkpoint_of_an_unknown_topic_is_held_against_the_facts(
    last_id: bytes | None, is_exact: bool, end: int, verdict: Verdict
) -> None:
    new = dated(11, 19, NO_ID if last_id == NO_ID else NEW)
    assert judged(new, dated(10, 20, last_id), is_exact=is_exact, end=end) is verdict
    same_id = dated(10, 20, NEW)
    if last_id is None:
        assert judged(new, same_id, is_exact=is_exact, end=end) is Verdict.NOTHING


offsets = st.integers(0, 30)
ids = st.sampled_from([NEW, OLD, NO_ID, None])


@given(offsets, offsets, offsets, offsets, ids, st.booleans(), offsets)
def test_what_a_verdict_means(
    up: int,
    down: int,
    last_up: int,
    last_down: int,
    last_id: bytes | None,
    is_exact: bool,
    end: int,
) -> None:
    new, last = dated(up, down, NEW), dated(last_up, last_down, last_id)
    verdict = judged(new, last, is_exact=is_exact, end=end)
    if last_id == NEW:  # as MirrorMaker 2 has it
        assert (verdict is Verdict.NEW) == is_more_recent(new.checkpoint, last.checkpoint)
        assert verdict is not Verdict.CORRECTION
    if last_id == OLD:
        assert verdict in (Verdict.SAME, Verdict.CORRECTION)
    if verdict is Verdict.SAME:
        assert down == last_down
    if is_more_recent(new.checkpoint, last.checkpoint):
        assert verdict in (Verdict.NEW, Verdict.CORRECTION)


def test_checkpoints_by_time_may_go_back() -> None:
    last = dated(-1, 20, OLD)
    assert judged_by_time(dated(-1, 19, OLD), last) is Verdict.NEW
    assert judged_by_time(dated(-1, 19, NEW), last) is Verdict.CORRECTION
    assert judged_by_time(dated(-1, 20, NEW), last) is Verdict.SAME
    assert judged_by_time(dated(-1, 20, NEW), None) is Verdict.NEW


def test_what_earlier_tasks_wrote_is_of_the_topic_that_was_there() -> None:
    store = CheckpointStore(["g"])
    store.put(Checkpoint("g", "A.t", 0, 5, 5))
    store.put(Checkpoint("g", "A.t", 1, 5, 5), NEW)
    store.put(Checkpoint("g", "A.u", 0, 5, 5))
    store.outdate("A.t", OLD)
    keys = [("A.t", 0), ("A.t", 1), ("A.u", 0)]
    found = [store.dated("g", key) for key in keys]
    assert [one.topic_id for one in found if one is not None] == [OLD, NEW, None]


def topics_of(*answers: bytes) -> Iterator[TargetTopics]:
    """Looks at a cluster that names one id after the other."""
    cluster = Cluster(client_settings("B", {"bootstrap.servers": "localhost:1"}))
    topics = TargetTopics(cluster)
    for answer in answers:
        info = TopicInfo("A.t", answer, internal=False)
        cluster.refresh = lambda _, info=info: cluster.topics.update({"A.t": info})  # type: ignore[method-assign,misc]
        topics.look(["A.t"])
        yield topics


def test_an_end_that_cannot_be_told_is_logged_after_three_looks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (topics,) = topics_of(NEW)
    answers: list[dict[tuple[str, int], int] | None] = [*[None] * 6, {("A.t", 0): 5}, *[None] * 4]

    def list_offsets(*_: object) -> dict[tuple[str, int], int]:
        if (answer := answers[0]) is None:
            raise BrokerError(
                5, "LEADER_NOT_AVAILABLE", "Asking for the end of A.t", retriable=True
            )
        return answer

    monkeypatch.setattr(admin, "list_offsets", list_offsets)
    monkeypatch.setattr(topics, "_is_led", lambda _: True)
    lines = []
    while answers:
        caplog.clear()
        topics.ends([("A.t", 0)])
        lines.append([row.getMessage() for row in caplog.records if row.levelname == "WARNING"])
        answers.pop(0)
    assert [number for number, found in enumerate(lines) if found] == [3, 10]
    assert "A.t" in lines[3][0]
    assert "next try" in lines[3][0]


def test_a_broker_that_still_names_the_old_topic_is_not_believed() -> None:
    told = [
        (topics.id_of("A.t"), [seen.topic_id for seen in topics.take_recreated().values()])
        for topics in topics_of(OLD, OLD, NEW, OLD, NEW, NO_ID, NEW)
    ]
    assert told == [
        (OLD, []),
        (OLD, []),
        (NEW, [OLD]),
        (None, []),
        (NEW, []),
        (NO_ID, []),
        (NEW, []),
    ]


# -- translation ------------------------------------------------------------------------------------


class FixedSyncs:
    """One sync of each partition: what it translates to, and when it was written."""

    is_ready = True

    def __init__(self, downstream: int, written_at: int) -> None:
        self._downstream = downstream
        self._written_at = written_at

    def follow(self, wait: float) -> None: ...

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        return self._downstream

    def written_at(self, topic: str, partition: int) -> int:
        return self._written_at


def reader(syncs: FixedSyncs, *segments: Segment, written_at: int = 100) -> MapReader:
    nobody = cast("Cluster", None)
    way_back = WayBack(nobody, "back", lambda _: False)
    made = MapReader(nobody, "map", "A.{}".format, cast("Syncs", syncs), way_back)
    for order, one in enumerate(segments):
        made._topic.map.put(one, order, written_at)
    return made


@pytest.mark.parametrize(("written_at", "downstream"), [(99, 50), (100, 1000), (101, 1000)])
def test_a_sync_counts_beyond_the_map_unless_it_is_older(written_at: int, downstream: int) -> None:
    """The copy began again and has come to 50; a sync of the old topic knows of 1000."""
    known = reader(FixedSyncs(1000, written_at), segment((0, 0, 50)))
    assert known.translate("t", 0, 900) == downstream
    assert known.translate("t", 0, 30) == 30


def test_a_segment_that_is_written_again_as_it_was_does_not_age_syncs() -> None:
    known = reader(FixedSyncs(1000, 100), segment((0, 0, 50)))
    known._topic.map.put(segment((0, 0, 50)), 7, 200)
    assert known.translate("t", 0, 900) == 1000
    known._topic.map.put(segment((0, 0, 60)), 8, 200)
    assert known.translate("t", 0, 900) == 60


@pytest.mark.parametrize(("by_syncs", "downstream"), [(200, None), (40, 40), (-1, -1)])
def test_a_sync_before_the_map_does_not_lead_into_it(by_syncs: int, downstream: int | None) -> None:
    """With mirror.recreated.target=continue: what came before is not in the new topic."""
    known = reader(FixedSyncs(by_syncs, 100), segment((300, 40, 10)))
    assert known.translate("t", 0, 200) == downstream


def test_where_the_old_log_began_says_nothing_of_the_new_one() -> None:
    known = reader(FixedSyncs(-1, 0), segment((0, 0, 1000)))
    known._starts["A.t", 0] = IDS.target, 500
    assert known.translate("t", 0, 10) == 500
    new = TopicIds(IDS.source, NEW)
    known._topic.map.put(segment((0, 0, 1000), ids=new), 7)
    assert known.translate("t", 0, 10) == 10
    assert not known.is_exact("A.t", 0, 10)
    known._starts["A.t", 0] = NEW, 0
    assert known.is_exact("A.t", 0, 10)
    assert not known.is_exact("A.t", 0, 1001)
    assert not known.is_exact("A.t", 1, 10)


def test_which_topic_translations_are_of() -> None:
    known = reader(FixedSyncs(-1, 0), segment((0, 0, 10)))
    assert known.target_id("A.t", 0) == IDS.target
    assert known.target_id("A.t", 1) == NO_ID
    known._topic.map.put(segment((0, 0, 5), ids=OTHER), 7)
    assert known.target_id("A.t", 0) == OTHER.target
    another = Segment(PLACE._replace(topic="u"), IDS, 0, 10, 20, 30)
    known._topic.map.put(another, 8)
    assert known.target_id("A.t", 0) is None, "two sources that do not agree"


def test_which_topic_translations_back_home_are_of() -> None:
    known = reader(FixedSyncs(-1, 0))
    home = Place("orders", 0, "B.orders", 0)
    known._way_back._topic.map.put(Segment(home, IDS, 0, 10, 0, 10), 0)
    assert known.target_id("orders", 0) == IDS.source
    assert known.target_id("orders", 1) == NO_ID


def sync_reader() -> tuple[OffsetSyncReader, OffsetSyncStore]:
    made = OffsetSyncReader(cast("Cluster", None), "syncs", must_read_to_end=False)
    made._store.finish_loading()
    return made, made._store


def test_a_sync_that_goes_back_downstream_voids_those_before() -> None:
    made, _ = sync_reader()
    for upstream, downstream in [(0, 50), (100, 150), (101, 0)]:
        made._take(OffsetSync("t", 0, upstream, downstream), 0)
    assert made.translate("t", 0, 100) == -1
    assert made.translate("t", 0, 101) == 0


def test_syncs_of_an_old_topic_are_forgotten_but_not_those_of_the_new_one() -> None:
    made, _ = sync_reader()
    for partition in (0, 1):
        made._take(OffsetSync("t", partition, 100, 150), 0)
    made._take(OffsetSync("u", 0, 100, 150), 0)
    began = made._began_at["u", 0]
    made._take(OffsetSync("t", 1, 0, 0), 0)  # the copy began again
    known = reader(FixedSyncs(-1, 0))
    known._syncs = made
    known.forget({"A.t": Seen(OLD, began)})
    known.forget({"A.t": Seen(OLD, (began + made._began_at["t", 1]) / 2)})
    assert made.translate("t", 0, 100) is None
    assert made.translate("t", 1, 0) == 0
    assert made.translate("u", 0, 100) == 150
