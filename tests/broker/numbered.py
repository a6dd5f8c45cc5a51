"""Topics whose committed records are numbered: what to write in; what a group at an offset reads next out."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Producer
from kafka_tools import (
    PATIENCE_S,
    NewRecord,
    Record,
    consume,
    create_topic,
    end_offsets,
    group_offsets,
    produce,
    topics,
    wait_for,
)

ABORTED = b"aborted"
_COPY_S = 120.0  # the mirror may just have been started


class Stream(NamedTuple):
    """A partition of a topic, wherever its records are."""

    origin: str
    partition: int


class Numbered(NamedTuple):
    """A record of a stream."""

    stream: Stream
    number: int


def read_number(value: bytes | None) -> Numbered:
    """Which record this is; a record of an aborted transaction is none."""
    assert value is not None and value != ABORTED, value
    origin, partition, number = value.decode().split("|")
    return Numbered(Stream(origin, int(partition)), int(number))


class NumberedTopic:
    """A topic that tests write, with transactions; those that are aborted leave gaps in the offsets, and so do all markers."""

    def __init__(
        self, bootstrap: str, topic: str, origin: str, partitions: int = 2, *, make: bool = True
    ) -> None:
        self.bootstrap, self.topic, self.origin = bootstrap, topic, origin
        self.partitions = partitions
        self.counts: Counter[Stream] = Counter()
        self._transactional: Producer | None = None
        if make:
            create_topic(bootstrap, topic, partitions)

    def plain(self, count: int) -> None:
        """As many records to each partition."""
        rows = [NewRecord(None, value, p) for p, value in self._next(count)]
        produce(self.bootstrap, self.topic, rows)

    def transaction(self, count: int) -> None:
        """As many records to each partition, in one transaction."""
        self._in_transaction(self._next(count), commit=True)

    def aborted(self, count: int) -> None:
        rows = [(p, ABORTED) for p in range(self.partitions) for _ in range(count)]
        self._in_transaction(rows, commit=False)

    def mixed(self, rounds: int) -> None:
        """Ten records to each partition a round, of which five are in transactions, and three that nobody may see."""
        for _ in range(rounds):
            self.plain(5)
            self.aborted(2)
            self.transaction(4)
            self.aborted(1)
            self.transaction(1)

    @property
    def total(self) -> int:
        return self.counts.total()

    def _next(self, count: int) -> list[tuple[int, bytes]]:
        found = []
        for partition in range(self.partitions):
            stream = Stream(self.origin, partition)
            first = self.counts[stream]
            self.counts[stream] += count
            found += [
                (partition, f"{self.origin}|{partition}|{number}".encode())
                for number in range(first, first + count)
            ]
        return found

    def _in_transaction(self, rows: Iterable[tuple[int, bytes]], *, commit: bool) -> None:
        if self._transactional is None:
            settings: dict[str, Any] = {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"numbered-{uuid.uuid4().hex}",
                "linger.ms": 5,
                "log_level": 2,  # it may outlive its cluster
            }
            self._transactional = Producer(settings)
            self._transactional.init_transactions(PATIENCE_S)
        producer = self._transactional
        producer.begin_transaction()
        for partition, value in rows:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)


def await_copies(bootstrap: str, remote: str, count: int) -> None:
    """Until a copy, which has neither markers nor gaps, holds `count` records."""
    wait_for(
        f"{remote} has {count} records",
        lambda: (
            remote in topics(bootstrap) and sum(end_offsets(bootstrap, remote).values()) >= count
        ),
        _COPY_S,
    )


class Standing:
    """What a group reads next on a cluster, by the records that the topics held when this was made."""

    def __init__(self, bootstrap: str, *names: str) -> None:
        self._bootstrap = bootstrap
        self._records: dict[tuple[str, int], list[Record]] = {}
        for name in names:
            for record in consume(bootstrap, name):
                self._records.setdefault((name, record.partition), []).append(record)

    def of(self, group: str) -> dict[Stream, int]:
        """The number of the next record of each stream that a group has an offset of."""
        return self.at(group_offsets(self._bootstrap, group))

    def at(self, offsets: Mapping[tuple[str, int], int]) -> dict[Stream, int]:
        found = {}
        for place, offset in offsets.items():
            records = self._records.get(place, [])
            if offset >= 0 and records:
                following = [record for record in records if record.offset >= offset]
                if following:
                    stream, number = read_number(following[0].value)
                else:
                    stream, number = read_number(records[-1].value)
                    number += 1
                found[stream] = number
        return found
