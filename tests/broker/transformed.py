"""A topic whose records pass through transforms on their way, and all the topics they end up in."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from copied import Content, content
from copying import Copying, Flow
from kafka_tools import NewRecord, Record, consume, create_topic, end_offsets, produce, topics

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.formats.position import Position
from sparkmirror.kafka import admin, log
from sparkmirror.kafka.batches import whole_batches
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.transforms.chain import TransformChain
from sparkmirror.transforms.record import ConnectRecord

Unique = Callable[[str], str]
Make = Callable[..., "Transformed"]
Contents = dict[str, list[Content]]
DAY_MS = 86_400_000
_EVERYTHING = FetchLimits(max_wait_ms=50, isolation=READ_UNCOMMITTED)
BEGIN_MS = 1_700_006_400_000  # the beginning of a day


def chain_of(props: Mapping[str, str]) -> TransformChain:
    chain = TransformChain.parse(props)
    assert chain is not None
    return chain


class Transformed:
    """Topics `t0`, `t1`, … of a source, copied by one flow through whatever transforms a test gives."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        unique: Unique,
        partitions: int = 1,
        count: int = 1,
        *,
        configs: dict[str, str] | None = None,
    ) -> None:
        self.source, self.target = source.bootstrap, target.bootstrap
        self.name = unique("t")
        self.names = [f"{self.name}-{i}" for i in range(count)]
        self.partitions = partitions
        self.compacted = "compact" in (configs or {}).get("cleanup.policy", "")
        for name in self.names:
            create_topic(self.source, name, partitions, configs=configs)
            create_topic(self.target, f"A.{name}", partitions)
        self.flow = Flow(source, target, unique("f"))
        self.count = 0
        self._random = random.Random(unique(""))

    @property
    def plans(self) -> list[PartitionPlan]:
        return [
            PartitionPlan(name, partition, f"A.{name}", self.compacted)
            for name in self.names
            for partition in range(self.partitions)
        ]

    # -- the source ---------------------------------------------------------------------------

    def records(self, count: int, partition: int = 0, *, days: int = 5) -> list[NewRecord]:
        """The next records, none like another: times on several days, some tombstones, some with headers."""
        first, self.count = self.count, self.count + count
        return [self._record(i, partition, days) for i in range(first, first + count)]

    def _record(self, i: int, partition: int, days: int) -> NewRecord:
        headers: list[tuple[str, bytes | None]] = [("n", b"%d" % i)]
        if i % 3 == 0:
            headers += [("drop", b"%d" % i), ("drop", None), ("keep", b"\xff")]
        day = self._random.randrange(days) if i % 5 == 0 else i // 40 % days
        time_of = BEGIN_MS + day * DAY_MS + i
        value = None if i % 7 == 0 else b"%d:" % i + b"x" * (i % 50)
        return NewRecord(b"k%d" % i, value, partition, time_of, tuple(headers))

    def produce(self, count: int, *, days: int = 5, **client: Any) -> None:
        """As many records to every partition of every topic."""
        for name in self.names:
            for partition in range(self.partitions):
                rows = self.records(count, partition, days=days)
                produce(self.source, name, rows, **client)

    def sent(self) -> dict[str, list[Record]]:
        return {name: consume(self.source, name) for name in self.names}

    # -- the target ---------------------------------------------------------------------------

    def expected(self, chain: TransformChain) -> Contents:
        """What each topic of the target must hold, as the chain says of every record of the source."""
        found: Contents = defaultdict(list)
        for name, rows in self.sent().items():
            for row in rows:
                after = chain.apply(connect_record(f"A.{name}", row))
                if after is not None:
                    found[after.topic].append(as_content(after))
        return {topic: sorted(rows, key=lambda row: row[0]) for topic, rows in found.items()}

    def arrived(self) -> Contents:
        """What the topics of the target hold whose names have the source's in them."""
        found = {}
        for topic in topics(self.target):
            if self.name in topic and not topic.startswith("mm2-"):
                rows = [content(row) for row in consume(self.target, topic)]
                if rows:
                    found[topic] = rows
        return found

    def arrived_count(self) -> int:
        known = [name for name in topics(self.target) if self.name in name]
        ends = [end_offsets(self.target, name) for name in known if not name.startswith("mm2-")]
        return sum(sum(end.values()) for end in ends)

    def batches(self, topic: str, partition: int = 0) -> list[bytes]:
        """The batches of a partition of the target as they are kept."""
        self.flow.target.refresh([topic])
        key = (topic, partition)
        end = admin.list_offsets(self.flow.target, [key], admin.LATEST)[key]
        return [
            bytes(view)
            for found in log.read(self.flow.target, *key, 0, end, _EVERYTHING)
            for view in whole_batches(found.records)
        ]

    # -- copying ------------------------------------------------------------------------------

    def copying(self, chain: TransformChain | None, **settings: Any) -> Copying:
        return self.flow.copying(self.plans, transforms=chain, **settings)

    def copy(self, chain: TransformChain | None, expected: int, **settings: Any) -> None:
        """Copy until the target holds that many records, and end in order."""
        with self.copying(chain, **settings) as task:
            self.until(task, expected)

    def until(self, task: Copying, expected: int) -> None:
        task.until(
            f"{expected} records are on the target (now {self.arrived_count()})",
            lambda: self.arrived_count() >= expected,
        )

    def until_done(self, task: Copying) -> None:
        """Until nothing is left to be read or written."""
        copies = task.task._copies
        task.until("nothing is left", lambda: all(c.lag == 0 for c in copies.values()))

    def kill_within(self, task: Copying, rng: random.Random) -> None:
        """Kill the task at some moment of its work."""
        goal = self.arrived_count() + rng.randrange(1, 200)
        deadline = time.monotonic() + rng.uniform(0.1, 1.5)
        while self.arrived_count() < goal and time.monotonic() < deadline:
            assert task.error is None, task.error
        task.abandon()

    def position(self, partition: int = 0) -> Position:
        store = PositionStore(self.flow.target, self.flow.store)
        self.flow.target.refresh([self.flow.offsets_topic])
        store.catch_up()
        position = store.get((self.names[0], partition))
        assert position is not None
        return position


def connect_record(topic: str, row: Record) -> ConnectRecord:
    headers = list(row.headers)
    return ConnectRecord(
        topic, row.partition, row.offset, row.timestamp, row.key, row.value, headers
    )


def as_content(record: ConnectRecord) -> Content:
    headers = tuple(record.headers)
    return (record.partition, record.timestamp, record.key, record.value, headers)


def assert_same(arrived: Contents, expected: Contents) -> None:
    """Every topic holds its records once and in order; where several source topics feed one, in the order of each."""
    assert arrived.keys() == expected.keys()
    for topic, rows in expected.items():
        found = arrived[topic]
        assert len(found) == len(rows), f"{topic}: {len(found)} records for {len(rows)}"
        assert found == rows, f"{topic} differs from record {_difference(found, rows)} on"


def _difference(one: Sequence[Content], other: Sequence[Content]) -> int:
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


@contextmanager
def transforming(source: KafkaCluster, target: KafkaCluster, unique: Unique) -> Iterator[Make]:
    """Makes topics to be transformed; their clients are closed at the end."""
    with ExitStack() as stack:

        def make(*args: Any, **options: Any) -> Transformed:
            made = Transformed(source, target, unique, *args, **options)
            stack.callback(made.flow.close)
            return made

        yield make
