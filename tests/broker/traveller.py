"""A consumer that goes from cluster to cluster: topics and how much to read in, everything that it was given out, in order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka_tools import PATIENCE_S
from numbered import Numbered, Stream, read_number

_COMMIT_EVERY = 10


class Traveller:
    """A group with one member at a time, which commits what it has read before it goes.

    Invariant: `log` holds what the group was given, on all clusters, in the order in which it was given.
    """

    def __init__(self, group: str, protocol: str = "classic") -> None:
        self.group = group
        self._protocol = protocol
        self.log: list[Numbered] = []

    @property
    def read(self) -> dict[Stream, int]:
        """How many records of each stream it was given."""
        return dict(Counter(record.stream for record in self.log))

    def visit(
        self, bootstrap: str, topics: Sequence[str], is_done: Callable[[], bool] | int
    ) -> None:
        """Read until done, or that many records, commit, and leave the group in order."""
        if isinstance(is_done, int):
            wanted = len(self.log) + is_done
            done: Callable[[], bool] = lambda: len(self.log) >= wanted  # noqa: E731
        else:
            done = is_done
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "group.protocol": self._protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        try:
            consumer.subscribe(list(topics))
            self._read_until(consumer, done)
        finally:
            consumer.close()

    def _read_until(self, consumer: Consumer, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        uncommitted: dict[tuple[str, int], int] = {}
        while not is_done():
            assert time.monotonic() < deadline, f"{self.group} has only read {self.read}"
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            self.log.append(read_number(message.value()))
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            uncommitted[topic, partition] = offset + 1
            if len(self.log) % _COMMIT_EVERY == 0:
                _commit(consumer, uncommitted)
        _commit(consumer, uncommitted)

    def assert_complete(self, counts: dict[Stream, int]) -> None:
        """Each stream was given from its first to its last record: none left out, none twice, in order."""
        assert self.read.keys() == counts.keys()
        for stream, count in counts.items():
            numbers = [record.number for record in self.log if record.stream == stream]
            assert numbers == list(range(count)), f"{stream}: {numbers}"


def _commit(consumer: Consumer, offsets: dict[tuple[str, int], int]) -> None:
    if offsets:
        rows = [TopicPartition(topic, p, offset) for (topic, p), offset in offsets.items()]
        consumer.commit(offsets=rows, asynchronous=False)
        offsets.clear()
