"""Message sets from before Kafka 0.11 (magic 0 and 1), as a 2.4 broker keeps them, are copied with the records they hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from cluster_pair import ClusterPair
from copied import Content, Copied, Unique, numbered
from kafka_tools import QUICK_JVM, NewRecord, delete_records

from sparkmirror.dataplane.alignment import Pair
from sparkmirror.dataplane.remapping import remap
from sparkmirror.formats.offset_map import Run
from sparkmirror.kafka import log
from sparkmirror.kafka.batches import magic_of
from sparkmirror.kafka.fetch import FetchLimits
from sparkmirror.kafka.records import NewRecord as RawRecord
from sparkmirror.kafka.records import encode
from sparkmirror.tools.clusters import KafkaCluster, start_all
from sparkmirror.tools.comparison import compare

pytestmark = pytest.mark.slow
Make = Callable[..., Copied]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
MAGIC = {"0.9.0": 0, "0.10.0": 1}
JAVA_FRAME = bytes.fromhex("04224d186040")  # magic, flags, block size: what Kafka's own code writes
OLD_CHECKSUM = 0x1A  # 0x82 is right
NEVER_S = 1000.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPair]:
    """A source of Kafka 2.4.1 and a target of the newest version."""
    directory = tmp_path_factory.mktemp("old-formats")
    pair = ClusterPair(
        KafkaCluster("source", 1, directory, jvm=QUICK_JVM, version="2.4.1"),
        KafkaCluster("target", 1, directory, jvm=QUICK_JVM),
    )
    start_all(pair)
    yield pair
    for cluster in pair:
        cluster.close()


@pytest.fixture
def make(pair: ClusterPair, unique: Unique) -> Iterator[Make]:
    """Topics of an old format with their copies."""
    made: list[Copied] = []

    def copied(version: str = "0.9.0", **configs: str) -> Copied:
        configs = {name.replace("_", "."): value for name, value in configs.items()}
        configs["message.format.version"] = version
        made.append(Copied(*pair, unique, configs=configs))
        return made[-1]

    yield copied
    for each in made:
        each.close()


def plain(count: int, first: int = 0) -> list[NewRecord]:
    """Records without headers, which these formats do not have."""
    return [row._replace(headers=()) for row in numbered(count, first=first)]


def timeless(rows: list[Content]) -> list[tuple[bytes | None, bytes | None]]:
    return [(key, value) for _, _, key, value, _ in rows]


def wanted(rows: list[NewRecord]) -> list[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value) for row in rows]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", MAGIC)
def test_message_sets_are_copied(make: Make, version: str, codec: str) -> None:
    copied = make(version)
    rows = [*plain(300), NewRecord(b"tombstone", None, 0), NewRecord(None, b"no key", 0)]
    copied.produce(rows, compression_type=codec, linger_ms=100)
    stored = copied.source_batches()
    assert {magic_of(memoryview(batch)) for batch in stored} == {MAGIC[version]}
    assert {batch[17] & 7 for batch in stored} == {CODECS[codec]}
    if (version, codec) == ("0.9.0", "lz4"):
        at = stored[0].index(JAVA_FRAME) + len(JAVA_FRAME)
        assert stored[0][at] == OLD_CHECKSUM
    before = time.time() * 1000
    copied.copy(len(rows))
    arrived = copied.arrived()
    assert timeless(arrived) == wanted(rows)
    if MAGIC[version]:
        assert arrived == copied.sent()
    else:
        assert all(before <= row[1] <= time.time() * 1000 for row in arrived), "as MirrorMaker 2"
    source, target = copied.flow.source, copied.flow.target
    assert compare(source, target, {copied.topic: copied.remote}).equal


def test_records_without_a_time_in_the_current_format_get_one_too(make: Make) -> None:
    """A broker makes such batches of what producers before 0.10 send; MirrorMaker 2 sees no difference."""
    copied = make("2.4")
    rows = plain(20)
    timed, untimed = rows[:10], rows[10:]
    copied.produce(timed)
    raw = [RawRecord(0, -1, row.key, row.value, []) for row in untimed]
    log.append(copied.flow.source, copied.topic, 0, encode(raw, CODECS["lz4"]))
    before = time.time() * 1000
    copied.copy(20)
    arrived = copied.arrived()
    assert timeless(arrived) == wanted(rows)
    assert arrived[:10] == copied.sent()[:10]
    assert all(before <= row[1] <= time.time() * 1000 for row in arrived[10:])


@pytest.mark.parametrize("compacted", [False, True])
def test_what_a_killed_task_copied_is_not_copied_again(make: Make, *, compacted: bool) -> None:
    """Records without a time got one on the target: it says nothing about which record is which."""
    copied = make(cleanup_policy="compact" if compacted else "delete")
    rows = plain(3000)
    copied.produce(rows[:1000], compression_type="lz4")
    with copied.copying(compacted=compacted, flush_interval=NEVER_S) as task:
        copied.until(task, 1000)
        task.abandon()
    copied.produce(rows[1000:2000], compression_type="lz4")
    with copied.copying(compacted=compacted, flush_interval=NEVER_S) as task:
        copied.until(task, 2000)
        task.abandon()
    copied.produce(rows[2000:], compression_type="lz4")
    with copied.copying(compacted=compacted) as task:
        copied.until(task, 3000)
    assert timeless(copied.arrived()) == wanted(rows)


def test_a_killed_task_is_followed_though_retention_took_what_it_copied(make: Make) -> None:
    """Only the content tells how far it had come."""
    copied = make()
    rows = plain(2000)
    copied.produce(rows[:1000], compression_type="lz4", linger_ms=100)
    with copied.copying(flush_interval=NEVER_S) as task:
        copied.until(task, 1000)
        task.abandon()
    delete_records(copied.source, copied.topic, {0: 600})
    copied.produce(rows[1000:], compression_type="lz4")
    with copied.copying() as task:
        copied.until(task, 2000)
    assert timeless(copied.arrived()) == wanted(rows)


def test_a_lost_offset_map_is_made_anew(make: Make) -> None:
    """From both logs: also where the records got their times from the copy."""
    copied = make()
    copied.produce(plain(500), compression_type="lz4")
    copied.copy(500)
    source, target = copied.flow.source, copied.flow.target
    pair = Pair(source, target, copied.topic, copied.remote, 0, FetchLimits())
    runs = list(remap(pair, (0, 500), (0, 500), threading.Event()))
    assert runs == [Run(0, 0, 500)]
