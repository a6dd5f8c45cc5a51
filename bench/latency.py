"""Records stamped at a steady pace on one side, their age read off on the other; percentiles of it.

Producer and consumer are processes of their own, the same for every replicator:

    python -m bench.latency produce BOOTSTRAP RATE SECONDS TOPIC:PARTITIONS...
    python -m bench.latency consume BOOTSTRAP COUNT SECONDS FILE TOPIC:PARTITIONS

The stamp is the system's monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import array
import math
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

STAMP = struct.Struct(">Q")
RECORD_SIZE = 200
READY = "ready"


@dataclass(frozen=True, slots=True)
class Aged:
    """One record: when it was produced and how long it took to arrive, in nanoseconds."""

    stamp: int
    age: int


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed."""
    if not values:
        raise ValueError("No values, no percentile.")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def after_warm_up(records: Sequence[Aged], seconds: float) -> list[float]:
    """Milliseconds of the records produced later than `seconds` after the first one."""
    if not records:
        return []
    begin = min(record.stamp for record in records) + int(seconds * 1e9)
    return [record.age / 1e6 for record in records if record.stamp >= begin]


def parse_topics(arguments: Sequence[str]) -> dict[str, int]:
    pairs = (argument.rsplit(":", 1) for argument in arguments)
    return {topic: int(partitions) for topic, partitions in pairs}


def produce(bootstrap: str, rate: int, seconds: float, topics: Mapping[str, int]) -> None:
    """Sends `rate` records a second, round and round over all partitions, each at its due time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    # The partitions of all topics in turn: little traffic should touch as many topics as it can.
    slots = sorted((p, topic) for topic, count in topics.items() for p in range(count))
    padding = b"." * (RECORD_SIZE - STAMP.size)
    # The first record of a client pays for its connections; that is not what is measured.
    producer.list_topics(timeout=30)
    begin = time.monotonic() + 0.5
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        while (pause := due - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(pause)
        partition, topic = slots[number % len(slots)]
        value = STAMP.pack(time.monotonic_ns()) + padding
        producer.produce(topic, value=value, partition=partition)
        producer.poll(0)
    producer.flush(30)


def consume(
    bootstrap: str, count: int, seconds: float, file: Path, topics: Mapping[str, int]
) -> None:
    """Reads until `count` records have come or the time is over, then writes stamps and ages."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
            "socket.nagle.disable": True,
        }
    )
    partitions = [TopicPartition(topic, p) for topic, n in topics.items() for p in range(n)]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition, timeout=30)[1]
    consumer.assign(partitions)
    until = time.monotonic() + seconds
    # One empty poll lets the fetchers go to work before the first record is sent.
    consumer.poll(0.5)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    seen = array.array("Q")
    while len(seen) < 2 * count and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        now = time.monotonic_ns()
        stamp = STAMP.unpack_from(message.value() or b"")[0]
        seen.extend((stamp, now - stamp))
    consumer.close()
    file.write_bytes(seen.tobytes())


def read(file: Path) -> list[Aged]:
    numbers = array.array("Q", file.read_bytes())
    return [Aged(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def main(arguments: list[str]) -> None:
    role, bootstrap, *rest = arguments
    if role == "produce":
        produce(bootstrap, int(rest[0]), float(rest[1]), parse_topics(rest[2:]))
    else:
        topics = parse_topics(rest[3:])
        consume(bootstrap, int(rest[0]), float(rest[1]), Path(rest[2]), topics)


if __name__ == "__main__":
    main(sys.argv[1:])
