"""The offset map against both logs: exact for every offset, whatever the source holds, and whatever happens to its writer."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster_pair import ClusterPair
from connect_worker import BYTES
from copying import Copying, Flow
from kafka_tools import (
    NewRecord,
    consume,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    produce,
    produce_transaction,
    start_offsets,
    topics,
    wait_for,
)

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.map_keeper import MapKeeper
from sparkmirror.connectors.source_settings import source_settings
from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.formats.offset_map import Place
from sparkmirror.formats.position import Entry, Position
from sparkmirror.offsets.map_reader import MapTopic
from sparkmirror.offsets.offset_map import PartitionMap, Translation

Make = Callable[..., "Mapped"]
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "50",
    "min.compaction.lag.ms": "0",
}


class Mapped:
    """A topic of one partition under an alias of its own, its copy, and the map of both."""

    def __init__(self, clusters: ClusterPair, configs: dict[str, str]) -> None:
        mark = uuid.uuid4().hex[:6]
        self.clusters = clusters
        self.source, self.target = clusters.source.bootstrap, clusters.target.bootstrap
        self.alias = f"A{mark}"
        self.topic = f"orders-{mark}"
        self.remote = f"{self.alias}.{self.topic}"
        self.map_topic = f"mm2-offset-map.{self.alias}.internal"
        self.place = Place(self.topic, 0, self.remote, 0)
        self.made = 0
        self.flow = Flow(clusters.source, clusters.target, mark)
        create_topic(self.source, self.topic, configs=configs)
        create_topic(self.target, self.remote)
        self.create_map()

    def create_map(self) -> None:
        create_topic(self.target, self.map_topic, configs={"cleanup.policy": "compact"})

    # -- data -----------------------------------------------------------------------------------

    def records(self, count: int) -> list[NewRecord]:
        rows = [NewRecord(b"k%d" % n, b"v%d" % n) for n in range(self.made, self.made + count)]
        self.made += count
        return rows

    def produce(self, count: int) -> None:
        produce(self.source, self.topic, self.records(count))

    def transaction(self, count: int, *, commit: bool = True) -> None:
        produce_transaction(self.source, self.topic, self.records(count), commit=commit)

    @contextlib.contextmanager
    def copying(self, **settings: Any) -> Iterator[Copying]:
        plan = PartitionPlan(self.topic, 0, self.remote)
        settings = {"offset_map_topic": self.map_topic, **settings}
        with self.flow.copying([plan], **settings) as task:
            yield task

    def copied(self) -> list[bytes | None]:
        return [row.value for row in consume(self.target, self.remote)]

    def until_copied(self, task: Copying) -> None:
        wanted = len(consume(self.source, self.topic))
        task.until("all is copied", lambda: end_offsets(self.target, self.remote)[0] >= wanted)

    def copy(self) -> None:
        with self.copying() as task:
            self.until_copied(task)

    def set_last(self, offset: int) -> None:
        """Set the position: this is the last offset that counts as copied."""
        self.flow.target.refresh([self.flow.offsets_topic])
        store = PositionStore(self.flow.target, self.flow.store)
        store.catch_up()
        store.write([((self.topic, 0), Entry(Position(offset)))])

    # -- the map --------------------------------------------------------------------------------

    def read(self) -> PartitionMap | None:
        cluster = self.flow.target
        cluster.refresh([self.map_topic])
        topic = MapTopic(cluster, self.map_topic)
        topic.follow()
        assert topic.is_loaded
        return topic.map.get(self.place)

    def known(self) -> PartitionMap:
        found = self.read()
        assert found is not None
        return found

    def mistakes(self) -> list[tuple[int, Translation | None, int]]:
        """Offsets whose translation is not the next record to be read, which the logs tell."""
        known = self.read()
        source = [(row.offset, row.value) for row in consume(self.source, self.topic)]
        target = {row.value: row.offset for row in consume(self.target, self.remote)}
        end = end_offsets(self.target, self.remote)[0]
        start = start_offsets(self.target, self.remote)[0]
        found = []
        for offset in range(end_offsets(self.source, self.topic)[0] + 1):
            later = [
                target[value] for place, value in source if place >= offset and value in target
            ]
            wanted = later[0] if later else end
            answer = None if known is None else known.translate(offset, start)
            if answer is None or max(answer.offset, start) != wanted:
                found.append((offset, answer, wanted))
        return found

    def exact(self) -> None:
        assert self.mistakes() == []

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        keeper = self.keeper()
        keeper.start()
        try:
            yield
        finally:
            keeper.stop()

    def look_after(self) -> None:
        """One look of a new keeper."""
        keeper = self.keeper()
        try:
            keeper._look()
        finally:
            keeper._source.close()
            keeper._target.close()

    def keeper(self) -> MapKeeper:
        settings = source_settings(
            {
                "name": "keeper",
                "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
                "source.cluster.alias": self.alias,
                "target.cluster.alias": "B",
                "source.cluster.bootstrap.servers": self.source,
                "target.cluster.bootstrap.servers": self.target,
            },
            WorkerConfig.parse(
                {
                    "bootstrap.servers": self.target,
                    "key.converter": BYTES,
                    "value.converter": BYTES,
                    "offset.storage.file.filename": "unused",
                },
                standalone=True,
            ),
        )
        assert settings.copy.offset_map_topic == self.map_topic
        return MapKeeper(settings, lambda: [(self.topic, 0)], "test", every=0.1)


@pytest.fixture
def mapped(cluster_pair: ClusterPair) -> Iterator[Make]:
    made: list[Mapped] = []

    def make(configs: dict[str, str] | None = None) -> Mapped:
        made.append(Mapped(cluster_pair, configs or {}))
        return made[-1]

    yield make
    for one in made:
        one.flow.close()


def test_plain_records(mapped: Make) -> None:
    one = mapped()
    one.produce(50)
    with one.copying() as task:
        one.until_copied(task)
        one.produce(30)
        one.until_copied(task)
    one.exact()
    known = one.read()
    assert known is not None
    assert [len(list(segment.runs())) for segment in known.line] == [1]


def test_transactions_committed_and_aborted(mapped: Make) -> None:
    one = mapped()
    for number in range(6):
        one.transaction(7)
        one.transaction(3, commit=bool(number % 2))
        one.produce(2)
    one.copy()
    one.exact()


def test_a_compacted_source_with_gaps(mapped: Make) -> None:
    one = mapped(COMPACTED)
    rows = [NewRecord(b"k%d" % (n % 7 if n % 3 else n), b"v%d" % n) for n in range(300)]
    produce(one.source, one.topic, rows, batch_num_messages=50, linger_ms=200)

    def is_cleaned() -> bool:
        one.made += 1
        produce(one.source, one.topic, [NewRecord(b"mark", b"m%d" % one.made)])
        keys = [row.key for row in consume(one.source, one.topic) if row.key != b"mark"]
        return len(keys) == len(set(keys))

    wait_for("the source is compacted", is_cleaned)
    one.copy()
    known = one.read()
    assert known is not None
    assert sum(len(list(segment.runs())) for segment in known.line) > 50, "no gaps inside batches"
    one.exact()


def test_tasks_that_end_and_begin_leave_no_hole(mapped: Make) -> None:
    one = mapped()
    for _ in range(4):
        one.transaction(5)
        one.copy()
    one.exact()
    known = one.read()
    assert known is not None
    assert not list(known.holes())


def test_what_a_killed_task_left_out_is_found_again(mapped: Make) -> None:
    one = mapped()
    one.transaction(20)
    one.copy()
    with one.copying(progress_interval=3600.0, flush_interval=3600.0) as task:
        for number in range(5):
            one.transaction(4, commit=number != 2)
        one.until_copied(task)
        task.abandon()
    one.transaction(3)
    one.copy()
    known = one.read()
    assert known is not None
    assert list(known.holes())
    for offset, answer, wanted in one.mistakes():
        assert answer is not None
        assert answer.offset <= wanted, f"records from {offset} on would be passed over"
    with one.keeping():
        wait_for("the hole is closed", lambda: not one.mistakes())


def test_a_map_that_was_lost_is_made_anew(mapped: Make) -> None:
    one = mapped()
    for number in range(5):
        one.transaction(10, commit=number != 3)
        one.produce(5)
    one.copy()
    delete_topic(one.target, one.map_topic)
    wait_for("it is gone", lambda: one.map_topic not in topics(one.target))
    one.create_map()
    with one.keeping():
        wait_for("it is known again", lambda: not one.mistakes())


@pytest.mark.slow
def test_a_map_whose_topic_is_deleted_while_it_is_written(
    mapped: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names topic, cluster and remedy; what is not written waits for the topic."""
    one = mapped()
    one.produce(50)
    with one.copying() as task:
        one.until_copied(task)
        task.until("the map is written", lambda: one.read() is not None)
        delete_topic(one.target, one.map_topic)
        one.produce(50)
        one.until_copied(task)
        wanted = f"offset map segments to topic {one.map_topic} on "
        task.until("there is a warning", lambda: wanted in caplog.text)
        assert "create it yourself" in caplog.text
        one.create_map()
        task.until("it is written again", lambda: not one.mistakes())


def test_a_map_that_begins_late_gets_its_beginning(mapped: Make) -> None:
    """Something else copied the topic so far."""
    one = mapped()
    one.transaction(30)
    with one.copying(offset_map_topic="") as task:
        one.until_copied(task)
    one.produce(20)
    one.copy()
    known = one.read()
    assert known is not None
    assert known.translate(5, 0) is None
    with one.keeping():
        wait_for("the beginning is known", lambda: not one.mistakes())


def test_a_hole_in_which_the_position_was_set_back_is_closed(mapped: Make) -> None:
    one = mapped()
    one.produce(40)
    one.copy()
    with one.copying(progress_interval=3600.0, flush_interval=3600.0) as task:
        one.transaction(20)
        one.until_copied(task)
        task.abandon()
    one.set_last(9)
    with one.copying() as task:
        task.until("copied again", lambda: end_offsets(one.target, one.remote)[0] == 110)
    known = one.read()
    assert known is not None
    assert [hole.is_set_back for hole in known.holes()] == [True]
    with one.keeping():
        wait_for("the hole is closed", lambda: not list(one.known().holes()))
    one.exact()


def test_a_rewound_copy_leads_to_the_later_one(mapped: Make) -> None:
    one = mapped()
    one.produce(40)
    one.copy()
    one.set_last(19)
    with one.copying() as task:
        task.until("copied again", lambda: end_offsets(one.target, one.remote)[0] == 60)
    known = one.read()
    assert known is not None
    assert [known.translate(offset, 0) for offset in (10, 19, 20, 30, 40)] == [
        Translation(10, True),
        Translation(19, True),
        Translation(40, True),
        Translation(50, True),
        Translation(60, True),
    ]


def test_the_map_stays_small(mapped: Make) -> None:
    one = mapped()
    for _ in range(6):
        one.produce(10)
        one.copy()
    known = one.read()
    assert known is not None and len(known) == 6
    delete_records(one.target, one.remote, {0: 25})
    with one.keeping():

        def is_small() -> bool:
            now = one.read()
            return now is not None and len(now) == 2

        wait_for("the map is tidied", is_small)
    one.exact()


def test_a_copy_that_another_one_has_overtaken_tells_of_no_record_that_it_did_not_write(
    mapped: Make,
) -> None:
    """It finds out when the target refuses what it offers, and resumes behind what the other one wrote."""
    one = mapped()
    one.produce(10)
    with one.copying() as late:
        one.until_copied(late)
        late.hold()
        with one.copying(offset_map_topic="") as other:
            for _ in range(12):  # the target knows the last five batches of a producer
                one.produce(5)
                one.until_copied(other)
        late.release()
        one.produce(5)
        one.until_copied(late)
    assert one.copied() == [b"v%d" % n for n in range(one.made)], "the same offsets on both sides"
    known = one.known()
    answers = {offset: known.translate(offset, 0) for offset in range(one.made)}
    assert not {o: a for o, a in answers.items() if a is not None and a.offset > o}
    assert list(known.holes()), "the other one has overtaken nobody"


@pytest.mark.slow
def test_the_keeper_leaves_the_map_of_a_topic_that_is_created_again(mapped: Make) -> None:
    """Until the copy begins again the map tells that another topic is there, and none of its records are taken for old ones."""
    one = mapped()
    one.produce(20)
    with one.copying(offset_map_topic="") as task:
        one.until_copied(task)
    one.produce(10)
    one.copy()
    before = one.read()
    assert before is not None and [s.target_start for s in before.line] == [20]
    delete_topic(one.target, one.remote)
    wait_for("it is gone", lambda: one.remote not in topics(one.target))
    one.look_after()
    assert one.read() is not None, "the map of the old topic is gone"
    create_topic(one.target, one.remote)
    with one.copying(offset_map_topic="", recreated_target="restart") as task:
        task.until("copied again", lambda: end_offsets(one.target, one.remote)[0] == 30)
    one.look_after()
    after = one.read()
    assert after is not None and [s.target_start for s in after.line] == [20]
    assert after.ids == before.ids
