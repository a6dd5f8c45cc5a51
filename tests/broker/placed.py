"""A topic whose copy has another number of partitions, on which records are placed by their keys."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from copying import Copying, Flow
from kafka_tools import (
    NewRecord,
    Record,
    add_partitions,
    consume,
    create_topic,
    end_offsets,
    produce,
    wait_for,
)

from sparkmirror.dataplane.placing import STRETCH
from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.shape import Shape
from sparkmirror.formats.connect import default_partition
from sparkmirror.formats.position import Position
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
Make = Callable[..., "Placed"]


class Placed:
    """A topic of `partitions`, and its copy of `width`, with as many records as a test likes: none has the value of another."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        unique: Unique,
        partitions: int,
        width: int,
        *,
        configs: dict[str, str] | None = None,
    ) -> None:
        self.source, self.target = source.bootstrap, target.bootstrap
        self.topic = unique("t")
        self.remote = f"A.{self.topic}"
        self.partitions, self.width = partitions, width
        self.compacted = "compact" in (configs or {}).get("cleanup.policy", "")
        create_topic(self.source, self.topic, partitions, configs=configs)
        create_topic(self.target, self.remote, width)
        self.flow = Flow(source, target, unique("f"))
        self.count = 0
        # Of the last minutes: two tasks at once take turns on records that are so old that brokers forget who wrote them.
        self._begin_ms = int(time.time() * 1000) - 600_000
        self._random = random.Random(self.topic)

    # -- the source ---------------------------------------------------------------------------

    def records(self, count: int) -> list[NewRecord]:
        """The next records: few keys and many, short and long, and none at all."""
        first, self.count = self.count, self.count + count
        return [self._record(i) for i in range(first, first + count)]

    def _record(self, i: int) -> NewRecord:
        key: bytes | None = b"k%d" % self._random.randrange(40)
        if i % 5 == 0:
            key = None if i % 2 else b""
        elif i % 3 == 0:
            key = self._random.randbytes(i % 45)
        value = b"%d:" % i + b"x" * (i % 50)
        return NewRecord(key, value, -1, self._begin_ms + i, (("n", b"%d" % i),))

    def produce(self, count: int, **client: Any) -> None:
        """To the partitions that the keys decide, as Java's producer does it."""
        produce(
            self.source, self.topic, self.records(count), partitioner="murmur2_random", **client
        )

    def sent(self) -> list[Record]:
        return consume(self.source, self.topic)

    # -- the target ---------------------------------------------------------------------------

    def arrived(self) -> list[Record]:
        return consume(self.target, self.remote)

    def arrived_count(self) -> int:
        return sum(end_offsets(self.target, self.remote).values())

    def widen(self, width: int) -> None:
        add_partitions(self.target, self.remote, width)
        self.width = width

    # -- copying ------------------------------------------------------------------------------

    @property
    def plans(self) -> list[PartitionPlan]:
        places = 0 if self.width == self.partitions else self.width
        return [
            PartitionPlan(self.topic, partition, self.remote, self.compacted, places=places)
            for partition in range(self.partitions)
        ]

    def copying(self, **settings: Any) -> Copying:
        return self.flow.copying(self.plans, **settings)

    def until(self, task: Copying, expected: int) -> None:
        task.until(
            f"{expected} records are on the target", lambda: self.arrived_count() >= expected
        )

    def until_done(self, task: Copying) -> None:
        copies = task.task._copies
        task.until("nothing is left", lambda: all(c.lag == 0 for c in copies.values()))

    def kill_within(self, task: Copying, rng: random.Random) -> None:
        """Kill the task at some moment of its work."""
        goal = self.arrived_count() + rng.randrange(1, 200)
        deadline = time.monotonic() + rng.uniform(0.1, 1.5)
        while self.arrived_count() < goal and time.monotonic() < deadline:
            assert task.error is None, task.error
        task.abandon()

    def until_switched(self) -> None:
        """Until the positions tell of the present number of partitions."""
        text = Shape(places=self.width).text
        wait_for(
            "all positions have the new number",
            lambda: all(self.position(p).transforms == text for p in range(self.partitions)),
        )

    def position(self, partition: int = 0) -> Position:
        store = PositionStore(self.flow.target, self.flow.store)
        self.flow.target.refresh([self.flow.offsets_topic])
        store.catch_up()
        position = store.get((self.topic, partition))
        assert position is not None
        return position

    # -- what must be -------------------------------------------------------------------------

    def check(self, *widths: int) -> None:
        """See `assert_placed`."""
        sent = self.sent()
        assert self.arrived_count() == len(sent)
        assert_placed(sent, self.arrived(), *(widths or (self.width,)))


def assert_placed(sent: Sequence[Record], arrived: Sequence[Record], *widths: int) -> None:
    """Every record is there once, where its key places it, behind those that were before it in its partition.

    With several widths: each record where one of them places it, and none where an earlier one does than the record before.
    """
    found = {row.value: row for row in arrived}
    assert len(sent) == len(arrived) == len(found)
    for partition in {row.partition for row in sent}:
        rows = [row for row in sent if row.partition == partition]
        copies = [found[row.value] for row in rows]
        assert [bare(row) for row in copies] == [bare(row) for row in rows]
        _check_places(rows, copies, widths)
        last: dict[int, int] = {}
        for copy in copies:
            assert copy.offset > last.get(copy.partition, -1), copy
            last[copy.partition] = copy.offset


def bare(row: Record) -> tuple[Any, ...]:
    return (row.timestamp, row.key, row.value, row.headers)


def place(row: Record, width: int) -> int:
    """Where a record of the source belongs."""
    if row.key is None:
        return (row.partition + row.offset // STRETCH) % width
    return default_partition(row.key, width)


def _check_places(rows: Sequence[Record], copies: Sequence[Record], widths: Sequence[int]) -> None:
    phase = 0
    for row, copy in zip(rows, copies, strict=True):
        while copy.partition != place(row, widths[phase]):
            phase += 1
            assert phase < len(widths), f"{row} went to {copy.partition}"


@contextmanager
def placing(source: KafkaCluster, target: KafkaCluster, unique: Unique) -> Iterator[Make]:
    """Makes such topics; their clients are closed at the end."""
    with ExitStack() as stack:

        def make(*args: Any, **options: Any) -> Placed:
            made = Placed(source, target, unique, *args, **options)
            stack.callback(made.flow.close)
            return made

        yield make
