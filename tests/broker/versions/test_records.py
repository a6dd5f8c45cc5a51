"""All kinds of records, between brokers of two versions: each arrives once, in order and unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from cluster_pair import VersionPair
from kafka_tools import NewRecord, consume, topic_configs, wait_for
from numbered import NumberedTopic
from versioned import CODECS, VersionedTopic, is_before

NewTopic = Callable[..., VersionedTopic]
FORMATS = {"magic-0": "0.9.0", "magic-1": "0.10.0"}
OLD_TIME = 1_700_000_000_000
LARGE = 1_500_000
ODD_RECORDS = [
    NewRecord(None, b"no key", 0, OLD_TIME),
    NewRecord(b"tombstone", None, 0, OLD_TIME + 1),
    NewRecord(None, None, 0, OLD_TIME + 2),
    NewRecord(b"", b"", 0, OLD_TIME + 3),
    NewRecord(b"back in time", b"v", 0, 1),
    NewRecord(
        b"headers", b"v", 0, OLD_TIME + 4, (("b", b"1"), ("a", None), ("b", b""), ("", b"x"))
    ),
    NewRecord("Schlüssel".encode(), "värde 価値".encode(), 0, OLD_TIME + 5),
    NewRecord(b"large", bytes(range(256)) * (LARGE // 256), 0, OLD_TIME + 6),
    NewRecord(b"after", b"the large one", 0, OLD_TIME + 7),
]


@pytest.mark.parametrize("codec", CODECS)
def test_codec(new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    topic.produce(600, compression_type=codec, batch_num_messages=50)
    topic.await_all()
    assert topic.check() == 600


def test_odd_records(new_topic: NewTopic) -> None:
    topic = new_topic(1, configs={"max.message.bytes": "2000000"})
    topic.write(ODD_RECORDS, message_max_bytes=2_000_000)
    topic.await_all()
    assert topic.check() == len(ODD_RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS[:-1])
@pytest.mark.parametrize("message_format", FORMATS)
def test_old_message_format(
    new_topic: NewTopic, versions: VersionPair, message_format: str, codec: str
) -> None:
    """Records of the formats before headers; those of the first one have no times, and get that of the copy."""
    if not is_before(versions.source, 3, 0):
        pytest.skip(f"Kafka {versions.source} writes no records of the old formats")
    start = time.time_ns() // 1_000_000
    topic = new_topic(1, configs={"message.format.version": FORMATS[message_format]})
    rows = [NewRecord(b"k%d" % i, b"%d:" % i + b"x" * 100, 0, OLD_TIME + i) for i in range(300)]
    topic.write(rows, compression_type=codec, batch_num_messages=50)
    topic.await_all()
    if message_format == "magic-1":
        assert topic.check() == len(rows)
        return
    arrived = topic.arrived()[0]
    assert [(key, value) for _, key, value, _ in arrived] == [(r.key, r.value) for r in rows]
    assert all(start <= at <= time.time_ns() // 1_000_000 for at, *_ in arrived)


def test_transactions_with_aborts(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    written = NumberedTopic(topic.source.bootstrap, topic.name, topic.name, 2, make=False)
    written.mixed(5)
    topic.await_all()
    assert topic.check() == written.total == 100
    assert len(consume(topic.source.bootstrap, topic.name, committed=False)) == 130


@pytest.mark.slow
def test_compacted_topic(new_topic: NewTopic) -> None:
    """Its gaps are closed, and the topic stays compacted on the target."""
    compaction = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = new_topic(1, configs=compaction)
    rows = [NewRecord(b"k%d" % (i % 7 if i % 3 else i), b"%d" % i, 0) for i in range(300)]
    topic.write(rows, batch_num_messages=50, linger_ms=100)
    wanted = {row.key: row.value for row in rows}
    turn = 0

    def is_compacted() -> bool:
        nonlocal turn
        turn += 1
        topic.write([NewRecord(b"mark", b"%d" % turn, 0)])
        keys = [key for _, key, _, _ in topic.sent()[0] if key != b"mark"]
        return len(keys) == len(set(keys))

    wait_for(f"{topic.name} is compacted", is_compacted)
    topic.write([NewRecord(b"mark", b"last", 0)])
    wanted[b"mark"] = b"last"

    def latest() -> dict[bytes | None, bytes | None]:
        return {key: value for _, key, value, _ in topic.arrived().get(0, [])}

    wait_for(f"{topic.remote} has the last value of each key", lambda: latest() == wanted)
    assert topic_configs(topic.target.bootstrap, topic.remote)["cleanup.policy"] == "compact"
