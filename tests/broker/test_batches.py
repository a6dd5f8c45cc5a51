"""Which batches are copied as they are, which are written anew, and that their records are the same either way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_pair import ClusterPair
from copied import Content, Copied, Reports, Transactions, Unique, numbered
from kafka_tools import (
    NewRecord,
    produce_transaction,
    set_topic_configs,
    wait_for,
)

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.kafka import log
from sparkmirror.kafka.batches import HEADER_SIZE, Batch
from sparkmirror.kafka.compression import OpeningLimit
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits
from sparkmirror.kafka.records import NewRecord as RawRecord
from sparkmirror.kafka.records import encode
from sparkmirror.tools.clusters import KafkaCluster

Make = Callable[..., Copied]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ODD_RECORDS = [
    NewRecord(None, b"no key", 0, 1_700_000_000_000),
    NewRecord(b"tombstone", None, 0, 1_700_000_000_001),
    NewRecord(None, None, 0, 1_700_000_000_002),
    NewRecord(b"", b"", 0, 1_700_000_000_003),
    NewRecord(b"empty value", b"", 0, 1_700_000_000_004),
    NewRecord(b"back in time", b"v", 0, 1_600_000_000_000),
    NewRecord(b"very old", b"v", 0, 1),
    NewRecord(
        b"headers",
        b"v",
        0,
        1_700_000_000_005,
        (
            ("b", b"1"),
            ("a", None),
            ("b", b""),
            ("", b"x"),
            ("Grüße 日本", b"\x00\xff"),
            ("b", b"1"),
        ),
    ),
    NewRecord("Schlüssel".encode(), "värde 価値".encode(), 0, 1_700_000_000_006),
    NewRecord(b"k", b"\x00" * 3000, 0, 1_700_000_000_007),
]


@pytest.fixture
def make(cluster_pair: ClusterPair, unique: Unique) -> Iterator[Make]:
    """Topics with their copies, on two clusters of one broker."""
    made: list[Copied] = []

    def new(partitions: int = 1, **options: Any) -> Copied:
        made.append(Copied(cluster_pair.source, cluster_pair.target, unique, partitions, **options))
        return made[-1]

    yield new
    for copied in made:
        copied.close()


# -- as they are ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_whole_batches_arrive_as_the_same_bytes(make: Make, codec: str) -> None:
    copied = make()
    copied.produce(numbered(600, 150), compression_type=codec, batch_num_messages=60, linger_ms=200)
    copied.copy(600)
    source, target = copied.source_batches(), copied.target_batches()
    assert len(source) >= 10
    assert [len(batch) for batch in target] == [len(batch) for batch in source]
    for one, other in zip(source, target, strict=True):
        assert other[HEADER_SIZE:] == one[HEADER_SIZE:]
        assert other[21:43] == one[21:43]  # attributes, last delta, both times
        assert Batch(memoryview(other)).codec == CODECS[codec]
        assert Batch(memoryview(other)).producer_id != Batch(memoryview(one)).producer_id
    assert copied.arrived() == copied.sent()


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_odd_records_arrive_as_they_are(make: Make, codec: str, rebuilt: bool) -> None:
    """Rebuilt: the copy begins in the middle of the batch, after a record that another program has copied."""
    copied = make()
    records = [NewRecord(b"first", b"already there", 0, 1_700_000_000_000), *ODD_RECORDS]
    copied.produce(records, compression_type=codec, linger_ms=300)
    assert len(copied.source_batches()) == 1
    if rebuilt:
        copied.seed(0)
    copied.copy(len(records) - rebuilt)
    assert copied.arrived() == copied.sent()[rebuilt:]
    (source,), (target,) = copied.source_batches(), copied.target_batches()
    assert (target[HEADER_SIZE:] == source[HEADER_SIZE:]) is not rebuilt
    assert Batch(memoryview(target)).codec == CODECS[codec]


def test_a_copy_begins_behind_the_offset_that_another_program_has_recorded(make: Make) -> None:
    copied = make(2)
    for partition in range(2):
        copied.produce(numbered(100, 100, partition), batch_num_messages=40, linger_ms=200)
    copied.seed(57, 0)
    copied.seed(39, 1)  # here a batch begins
    copied.copy(42 + 60)
    sent = copied.sent()
    assert copied.arrived() == [*sent[58:100], *sent[140:]]


def test_an_empty_topic_and_its_first_record(make: Make) -> None:
    copied = make(2)
    with copied.copying() as task:
        copied.until_begun(task)
        assert copied.end() == 0
        copied.produce(numbered(1, partition=1))
        copied.until(task, 1)
    assert copied.arrived() == copied.sent()
    assert [(row.partition, row.records, row.offset) for row in task.ledger] == [
        (0, 0, -1),
        (1, 1, 0),
    ]
    assert all(row.error == "" for row in task.ledger)


def test_latest_begins_with_what_comes_after_the_start(make: Make) -> None:
    copied = make()
    copied.produce(numbered(50))
    with copied.copying(reset="latest") as task:
        copied.until_begun(task)
        copied.produce(numbered(5, first=50))
        copied.until(task, 5)
    assert copied.arrived() == copied.sent()[50:]


def test_several_topics_of_several_partitions_in_one_task(make: Make) -> None:
    all_copied = [make(3) for _ in range(3)]
    for copied in all_copied:
        for partition in range(3):
            copied.produce(numbered(200, 300, partition), batch_num_messages=30)
    flow = all_copied[0].flow
    plans = [plan for copied in all_copied for plan in copied.plans()]
    with flow.copying(plans) as task:
        for copied in all_copied:
            copied.until(task, 600)
        for copied in all_copied:  # and while it runs
            copied.produce(numbered(10, 10, 2, first=200))
            copied.until(task, 610)
    for copied in all_copied:
        assert copied.arrived() == copied.sent()
    assert sum(row.records for row in task.ledger) == 3 * 610


# -- compaction -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_gaps_of_a_compacted_topic_are_closed(make: Make, codec: str) -> None:
    copied = make(
        configs={
            "cleanup.policy": "compact",
            "segment.ms": "50",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "50",
            "min.compaction.lag.ms": "0",
        },
        remote_configs={"cleanup.policy": "compact"},
    )
    rows = [
        NewRecord(b"k%d" % (i % 7 if i % 3 else i), b"%d" % i, 0, 1_700_000_000_000 + i)
        for i in range(300)
    ]
    copied.produce(rows, compression_type=codec, batch_num_messages=50, linger_ms=200)
    until_cleaned(copied)
    views = [Batch(memoryview(batch)) for batch in copied.source_batches()]
    assert any(0 < view.count < view.last_offset_delta + 1 for view in views), "no batch has gaps"
    expected = copied.sent()
    copied.copy(len(expected), compacted=True)
    assert copied.arrived() == expected
    for batch in copied.target_batches():
        view = Batch(memoryview(batch))
        assert view.count == view.last_offset_delta + 1


def until_cleaned(copied: Copied) -> None:
    """Roll the segment and wait until the cleaner has gone over everything before it."""
    marks = 0

    def is_cleaned() -> bool:
        nonlocal marks
        marks += 1
        copied.produce([NewRecord(b"mark", b"%d" % marks, 0, 1_700_000_001_000 + marks)])
        keys = [key for _, _, key, _, _ in copied.sent() if key != b"mark"]
        return len(keys) == len(set(keys))

    wait_for(f"{copied.topic} is compacted", is_cleaned)


# -- transactions -----------------------------------------------------------------------------


def interleave(copied: Copied) -> Transactions:
    """Commits and aborts of two producers with plain records between them; one transaction stays open."""
    a, b = Transactions(copied, "a"), Transactions(copied, "b")
    a.begin(3)
    b.begin(2)
    copied.produce(numbered(2))
    a.write(2)
    b.abort()
    b.begin(4)
    a.commit()
    a.begin(2)
    a.abort()
    b.write(1)
    b.commit()
    b.begin(2)
    copied.produce(numbered(2, first=2))
    b.abort()
    a.begin(3)  # stays open
    copied.produce(numbered(3, first=4))
    return a


def values(contents: list[Content]) -> list[bytes | None]:
    return [value for _, _, _, value, _ in contents]


def test_only_committed_records_are_copied_and_open_ones_when_they_are_committed(
    make: Make,
) -> None:
    copied = make()
    open_one = interleave(copied)
    before_open = copied.sent()
    plain = [row.value for row in numbered(7)]
    a, b = ([b"%s%d" % (name, i) for i in range(1, 9)] for name in (b"a", b"b"))
    assert sorted(map(str, values(before_open))) == sorted(map(str, [*a[:5], *b[2:7], *plain[:4]]))
    with copied.copying() as task:
        copied.until(task, len(before_open))
        assert copied.arrived() == before_open
        open_one.commit()
        everything = copied.sent()
        assert len(everything) == len(before_open) + 6
        copied.until(task, len(everything))
    assert copied.arrived() == everything
    assert copied.end() == len(everything)


def test_an_open_transaction_that_is_aborted_is_never_copied(make: Make) -> None:
    copied = make()
    open_one = interleave(copied)
    with copied.copying() as task:
        copied.until(task, len(copied.sent()))
        open_one.abort()
        everything = copied.sent()
        copied.until(task, len(everything))
    assert copied.arrived() == everything


def test_read_uncommitted_copies_all_records_but_no_markers(make: Make) -> None:
    copied = make()
    interleave(copied)
    everything = copied.sent(committed=False)
    with copied.copying(fetch=FetchLimits(isolation=READ_UNCOMMITTED)) as task:
        copied.until(task, len(everything))
    assert copied.arrived() == everything
    assert b"b1" in values(everything)


def test_a_topic_that_ends_in_markers_is_copied_to_its_end(make: Make) -> None:
    """What is left of the source are markers and aborted records: nothing to copy, and no lag."""
    copied = make()
    copied.produce(numbered(3))
    for _ in range(3):
        produce_transaction(copied.source, copied.topic, numbered(5), commit=False)
    with copied.copying() as task:
        copied.until(task, 3)
        copy = next(iter(task.task._copies.values()))
        task.until("there is no lag", lambda: copy.lag == 0)
    assert copied.arrived() == copied.sent()
    with copied.copying() as task:  # again, from the recorded position
        copied.produce(numbered(1, first=3))
        copied.until(task, 4)
    assert copied.arrived() == copied.sent()


# -- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_append_times_of_the_source_are_the_times_of_the_copy(make: Make, codec: str) -> None:
    copied = make(configs={"message.timestamp.type": "LogAppendTime"})
    begin = int(time.time() * 1000)
    for first in (0, 50):
        copied.produce(numbered(50, 50, first=first), compression_type=codec, linger_ms=100)
    copied.copy(100)
    assert copied.arrived() == copied.sent()
    assert all(timestamp >= begin for _, timestamp, _, _, _ in copied.arrived())
    assert {Batch(memoryview(batch)).attributes for batch in copied.target_batches()} == {
        CODECS[codec]
    }


def test_a_target_may_stamp_its_own_times(make: Make) -> None:
    copied = make(remote_configs={"message.timestamp.type": "LogAppendTime"})
    copied.produce(numbered(50, 50), linger_ms=100)
    begin = int(time.time() * 1000)
    copied.copy(50)
    arrived = copied.arrived()
    assert [row[2:] for row in arrived] == [row[2:] for row in copied.sent()]
    assert all(timestamp >= begin for _, timestamp, _, _, _ in arrived)


def test_records_without_a_time_get_one_as_with_mirrormaker_and_old_ones_keep_theirs(
    make: Make,
) -> None:
    """As single batches they are merged; as one batch they are not."""
    copied = make()
    times = [-1, 5, -1, 1_700_000_000_000, 0, -1, -1, 3]
    rows = [RawRecord(0, moment, b"k%d" % i, b"v", []) for i, moment in enumerate(times)]
    for row in rows:
        log.append(copied.flow.source, copied.topic, 0, encode([row], 0))
    log.append(copied.flow.source, copied.topic, 0, encode(rows, 4))
    begin = int(time.time() * 1000)
    copied.copy(16)
    assert len(copied.target_batches()) == 2
    arrived = copied.arrived()
    assert [row[2:] for row in arrived] == [row[2:] for row in copied.sent()]
    for moment, (_, timestamp, *_) in zip(times * 2, arrived, strict=True):
        assert timestamp == moment if moment >= 0 else begin <= timestamp <= time.time() * 1000


# -- sizes ------------------------------------------------------------------------------------


def noise(count: int, size: int, partition: int = 0) -> list[NewRecord]:
    """Records that no codec makes much smaller than half."""
    source = random.Random(7)
    return [
        NewRecord(
            b"%d" % i, source.randbytes(size // 2).hex().encode(), partition, 1_700_000_000_000 + i
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_the_target_does_not_take_is_split(make: Make, codec: str) -> None:
    copied = make(remote_configs={"max.message.bytes": "20000"})
    copied.produce(noise(400, 1000), compression_type=codec, batch_size=300_000, linger_ms=300)
    assert max(len(batch) for batch in copied.source_batches()) > 100_000
    copied.copy(400)
    assert copied.arrived() == copied.sent()
    sizes = [len(batch) for batch in copied.target_batches()]
    assert max(sizes) <= 20_000
    assert len(sizes) < 200
    assert all(Batch(memoryview(batch)).codec == CODECS[codec] for batch in copied.target_batches())


def test_a_batch_larger_than_a_segment_of_the_target_is_split(make: Make) -> None:
    large = {"max.message.bytes": "4000000"}
    copied = make(configs=large, remote_configs={**large, "segment.bytes": "1048576"})
    copied.produce(
        noise(200, 10_000), batch_size=3_000_000, linger_ms=500, message_max_bytes=4_000_000
    )
    assert max(len(batch) for batch in copied.source_batches()) > 1_100_000
    copied.copy(200)
    assert copied.arrived() == copied.sent()
    assert max(len(batch) for batch in copied.target_batches()) <= 1_048_576


def test_one_record_too_large_stops_its_partition_alone_until_it_is_let_in(
    make: Make, unique: Unique
) -> None:
    copied = make(2, remote_configs={"max.message.bytes": "5000"})
    copied.produce([*numbered(3), *noise(1, 30_000), *numbered(3, first=3)])
    copied.produce(numbered(10, 10, 1))
    reports = Reports(copied, unique)
    with copied.copying(progress_topic=reports.topic, progress_interval=0.2) as task:
        reason = reports.failure(task, copied.topic, 0)
        assert f"{copied.topic}-0: the record at offset 3 " in reason
        assert f"Raise max.message.bytes of {copied.remote}" in reason
        copied.produce(numbered(10, 10, 1, first=10))
        copied.until(task, 23)  # three before the large one, twenty of the other partition
        row = reports.row(copied.topic, 0)
        assert row is not None
        assert (row.state, row.offset) == ("FAILED", 3)
        set_topic_configs(copied.target, copied.remote, {"max.message.bytes": "100000"})
        copied.until(task, 27)
        running = "the partition runs again"
        task.until(running, lambda: _state(reports, copied) == "RUNNING")
    assert copied.arrived() == copied.sent()
    assert [row.error for row in task.ledger] == ["", ""]


def _state(reports: Reports, copied: Copied) -> str:
    row = reports.row(copied.topic, 0)
    return "" if row is None else row.state


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_tiny_batches_are_merged_when_many_wait(make: Make, codec: str) -> None:
    copied = make()
    copied.produce(numbered(3000, 40), batch_num_messages=1, linger_ms=0, compression_type=codec)
    assert len(copied.source_batches()) == 3000
    copied.copy(3000)
    assert len(copied.target_batches()) < 100
    assert copied.arrived() == copied.sent()


def test_tiny_batches_are_neither_merged_nor_held_back_when_nothing_waits(make: Make) -> None:
    copied = make()
    delays = []
    with copied.copying() as task:
        copied.until_begun(task)
        for i in range(20):
            copied.produce(numbered(1, first=i), linger_ms=0)
            begin = time.monotonic()
            copied.until(task, i + 1)
            delays.append(time.monotonic() - begin)
    assert [batch[HEADER_SIZE:] for batch in copied.target_batches()] == [
        batch[HEADER_SIZE:] for batch in copied.source_batches()
    ]
    assert sorted(delays)[5] < 0.15, delays
    assert copied.arrived() == copied.sent()


# -- damage -----------------------------------------------------------------------------------


def test_a_damaged_batch_is_not_copied_and_stops_its_partition_alone(
    make: Make, unique: Unique, source_cluster: KafkaCluster
) -> None:
    copied = make(2)
    for start in (0, 10, 20):
        copied.produce(numbered(10, 50, first=start), linger_ms=100)
    copied.produce(numbered(5, 10, 1))
    first, second, _ = copied.source_batches()
    segment = source_cluster.data(1) / f"{copied.topic}-0" / f"{0:020}.log"
    reports = Reports(copied, unique)
    flip(segment, len(first) + len(second) - 5)
    with copied.copying(progress_topic=reports.topic, progress_interval=0.2) as task:
        reason = reports.failure(task, copied.topic, 0)
        assert f"{copied.topic}-0: from offset 10 on the batch at offset 10 " in reason
        assert "checksum" in reason
        copied.until(task, 15)
        copied.produce(numbered(5, 10, 1, first=5))
        copied.until(task, 20)
        assert values(copied.arrived())[:10] == [row.value for row in numbered(10, 50)]
        flip(segment, len(first) + len(second) - 5)
        copied.until(task, 40)
    assert copied.arrived() == copied.sent()


def test_a_batch_that_becomes_too_large_stops_its_partition_alone(
    make: Make, unique: Unique
) -> None:
    copied = make(2, configs={"message.timestamp.type": "LogAppendTime"})  # so it must be opened
    zeros = [NewRecord(b"zeros", bytes(4 << 20), 0)]
    copied.produce(zeros, compression_type="zstd", message_max_bytes=8 << 20)
    copied.produce(numbered(5, 10, 1))
    reports = Reports(copied, unique)
    small = OpeningLimit(bytes=1 << 20)
    with copied.copying(progress_topic=reports.topic, progress_interval=0.2, opening=small) as task:
        reason = reports.failure(task, copied.topic, 0)
        assert f"{copied.topic}-0: from offset 0 on a batch of " in reason
        assert "becomes larger than 1048576 bytes" in reason
        assert "raise mirror.decompressed.batch.max.bytes" in reason
        copied.until(task, 5)
    copied.copy(6)
    assert copied.arrived() == copied.sent()


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


def test_a_topic_that_is_not_there_does_not_hold_up_the_others(make: Make, unique: Unique) -> None:
    copied = make()
    copied.produce(numbered(10))
    missing = PartitionPlan(unique("missing"), 0, copied.remote)
    with copied.flow.copying([missing, *copied.plans()]) as task:
        copied.until(task, 10)
    assert copied.arrived() == copied.sent()
