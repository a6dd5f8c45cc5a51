"""Topics that are deleted and created again while they are followed: what was read of the old log says nothing of the new one."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from sparkmirror.formats import offset_map
from sparkmirror.formats.mirror import (
    Checkpoint,
    OffsetSync,
    encode_checkpoint,
    encode_offset_sync,
)
from sparkmirror.formats.offset_map import NO_ID
from sparkmirror.kafka import admin, messages, records
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import Fetched
from sparkmirror.kafka.records import NewRecord
from sparkmirror.kafka.row_batches import Row
from sparkmirror.kafka.settings import client_settings
from sparkmirror.offsets.checkpoint_reader import CheckpointReader
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.offsets.map_reader import MapTopic
from sparkmirror.offsets.sync_reader import OffsetSyncReader
from tests.unit.making import batch
from tests.unit.offsets.bombed_log import bombed
from tests.unit.offsets.segments import IDS, OTHER, PLACE, segment

NAME = "internal"
FIRST, SECOND = b"1" * 16, b"2" * 16


@dataclass
class Log:
    """A cluster with one topic of one partition."""

    topic_id: bytes = FIRST
    rows: list[Row] = field(default_factory=list)
    exists: bool = True
    settings = client_settings("B", {"bootstrap.servers": "localhost:1"})

    @property
    def topics(self) -> dict[str, SimpleNamespace]:
        return {NAME: SimpleNamespace(topic_id=self.topic_id)} if self.exists else {}

    def topic(self, name: str) -> SimpleNamespace:
        if not self.exists:
            raise messages.broker_error(messages.UNKNOWN_TOPIC_OR_PARTITION, "Looking")
        return self.topics[name]

    def call_any(self, request: object) -> SimpleNamespace:
        code = messages.UNKNOWN_TOPIC_OR_PARTITION
        return SimpleNamespace(topics=[SimpleNamespace(error_code=code)])

    def refresh(self, names: object) -> None:
        """It is always fresh."""

    def create_again(self, *rows: Row, topic_id: bytes = SECOND) -> None:
        self.topic_id, self.rows = topic_id, list(rows)

    @property
    def cluster(self) -> Cluster:
        return cast(Cluster, self)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()

    def list_offsets(_: object, keys: object, timestamp: int) -> dict[tuple[str, int], int]:
        if not log.exists:
            raise messages.broker_error(messages.UNKNOWN_TOPIC_OR_PARTITION, "Asking")
        return {(NAME, 0): 0 if timestamp == admin.EARLIEST else len(log.rows)}

    def fetch_once(_: object, topic: str, partition: int, offset: int, limits: object) -> Fetched:
        if offset > len(log.rows):
            raise messages.broker_error(messages.OFFSET_OUT_OF_RANGE, "Reading")
        batch = bytearray()
        if rows := log.rows[offset:]:
            batch = records.control_batch(rows, 0)
            struct.pack_into(">q", batch, 0, offset)
        end = len(log.rows)
        return Fetched(topic, partition, 0, end, end, 0, [], -1, memoryview(batch), None)

    monkeypatch.setattr(admin, "list_offsets", list_offsets)
    monkeypatch.setattr(kafka_log, "fetch_once", fetch_once)
    return log


def checkpoint(partition: int) -> Row:
    return encode_checkpoint(Checkpoint("g", "A.t", partition, 5, 5))


def sync(partition: int, offset: int) -> Row:
    return encode_offset_sync(OffsetSync("t", partition, offset, offset))


OLD = [offset_map.encode(segment((0, 50 + n, 1000), ids=IDS)) for n in range(9)]
NEW = offset_map.encode(segment((0, 0, 100), ids=OTHER))


@pytest.mark.parametrize("topic_id", [SECOND, FIRST], ids=["its id", "its end"])
def test_a_map_whose_topic_is_created_again_begins_empty(log: Log, topic_id: bytes) -> None:
    """Offsets in the log begin at 0 again: none of them comes after those of the old log."""
    log.rows = list(OLD)
    topic = MapTopic(log.cluster, NAME)
    topic.follow()
    log.create_again(NEW, topic_id=topic_id)
    topic.follow()
    known = topic.map.get(PLACE)
    assert known is not None
    assert topic.is_loaded
    assert known.ids == OTHER
    assert known.line == [segment((0, 0, 100), ids=OTHER)]


def test_a_map_whose_topic_is_created_again_without_ids(log: Log) -> None:
    """That it was away tells, also if the new log is longer than the old one."""
    log.create_again(*OLD[:1], topic_id=NO_ID)
    topic = MapTopic(log.cluster, NAME)
    topic.follow()
    log.exists = False
    topic.follow()
    assert topic.map.get(PLACE) is not None, "what it told is true as long as nothing else is known"
    log.exists = True
    topic._look_at = 0.0
    log.rows = [NEW, NEW, NEW]
    topic.follow()
    known = topic.map.get(PLACE)
    assert known is not None
    assert known.ids == OTHER


def test_checkpoints_of_an_old_topic_are_dropped(log: Log) -> None:
    log.rows = [checkpoint(0), checkpoint(1)]
    reader = CheckpointReader(InternalTopic(log.cluster, NAME))
    assert reader.read(lambda: False)
    log.create_again(checkpoint(2), checkpoint(3))
    assert reader.read(lambda: False)
    assert sorted(one.partition for one in reader.checkpoints) == [2, 3]


def test_checkpoints_whose_topic_is_created_again_while_they_are_read(log: Log) -> None:
    """Reading ends at the end of the new log, not at that of the old one."""
    log.rows = [checkpoint(number) for number in range(4)]
    reader = CheckpointReader(InternalTopic(log.cluster, NAME))
    assert reader.read(lambda: False)
    reader._end = 5  # what it was to read to when it was interrupted
    log.create_again(checkpoint(7))
    tries = iter(range(100))
    assert reader.read(lambda: next(tries) == 50)
    assert [one.partition for one in reader.checkpoints] == [7]


def test_offset_syncs_whose_topic_is_created_again_while_they_are_read(log: Log) -> None:
    log.rows = [sync(0, 10)]
    reader = OffsetSyncReader(log.cluster, NAME, must_read_to_end=False)
    reader._topic.poll(0.0)
    reader._load_to = 5
    log.create_again(sync(1, 20))
    reader.follow(0.0)
    reader.follow(0.0)
    assert reader.is_ready
    assert reader.translate("t", 1, 20) == 20


def test_going_back_in_the_same_log_is_no_restart(log: Log) -> None:
    log.rows = [checkpoint(0)]
    topic = InternalTopic(log.cluster, NAME)
    assert topic.seek_back(1) == 0
    restarts: list[None] = []
    topic.on_restart = lambda: restarts.append(None)
    assert len(topic.poll(0.0)) == 1
    assert not restarts


def test_a_batch_that_cannot_be_opened_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may write to the topic could else keep all who read it from reading on."""
    log = bombed()
    monkeypatch.setattr(admin, "list_offsets", lambda *_: {(NAME, 0): 0})
    monkeypatch.setattr(
        kafka_log,
        "fetch_once",
        lambda *_: Fetched(NAME, 0, 0, 3, 3, 0, [], -1, memoryview(log), None),
    )
    topic = InternalTopic(Log().cluster, NAME)
    assert [record.key for record in topic._fetch(0)] == [b"before", b"behind"]
    assert topic.position == 3
    assert "from offset 1: a batch of" in caplog.text


def test_only_so_much_is_opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may become gigabytes; what is left of an answer is fetched again."""
    large = batch([NewRecord(0, 1, b"k", bytes(7 << 20), [])], codec=4)
    views = []
    for offset in range(9):
        view = bytearray(large)
        struct.pack_into(">q", view, 0, offset)
        views.append(bytes(view))

    def fetch_once(_: object, topic: str, partition: int, offset: int, limits: object) -> Fetched:
        rest = memoryview(b"".join(views[offset:]))
        return Fetched(topic, partition, 0, 9, 9, 0, [], -1, rest, None)

    monkeypatch.setattr(admin, "list_offsets", lambda *_: {(NAME, 0): 0})
    monkeypatch.setattr(kafka_log, "fetch_once", fetch_once)
    topic = InternalTopic(Log().cluster, NAME)
    found = []
    while topic.position < 9:
        polled = topic._fetch(0)
        assert len(polled) == 3
        found += [record.offset for record in polled]
    assert found == list(range(9))
