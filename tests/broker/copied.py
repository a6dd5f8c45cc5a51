"""A topic, its copy and the flow between them, seen record by record and batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from copying import CONNECTOR, Copying, Flow
from kafka_tools import (
    PATIENCE_S,
    Headers,
    NewRecord,
    Record,
    consume,
    create_topic,
    produce,
    wait_for,
)

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.formats.connect import source_offset_key
from sparkmirror.formats.progress import PartitionProgress
from sparkmirror.kafka import admin, log
from sparkmirror.kafka.batches import whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
Content = tuple[int, int, bytes | None, bytes | None, Headers]
_EVERYTHING = FetchLimits(max_wait_ms=50, isolation=READ_UNCOMMITTED)


def content(record: Record) -> Content:
    """All that must be the same on both sides, the partition included."""
    return (record.partition, record.timestamp, record.key, record.value, record.headers)


def numbered(count: int, size: int = 20, partition: int = 0, first: int = 0) -> list[NewRecord]:
    """Records that tell which they are, none like another."""
    return [
        NewRecord(
            b"k%d" % i,
            (b"%d:" % i).ljust(size, b"."),
            partition,
            1_700_000_000_000 + i,
            (("n", b"%d" % i),) if i % 3 == 0 else (),
        )
        for i in range(first, first + count)
    ]


class Copied:
    """One topic and its copy `A.<topic>`."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        unique: Unique,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        remote_configs: Mapping[str, str] | None = None,
        offsets_partitions: int = 3,
    ) -> None:
        self.source, self.target = source.bootstrap, target.bootstrap
        self.topic = unique("t")
        self.remote = f"A.{self.topic}"
        self.partitions = partitions
        create_topic(self.source, self.topic, partitions, configs=configs)
        create_topic(self.target, self.remote, partitions, configs=remote_configs)
        self.flow = Flow(source, target, unique("f"), offsets_partitions)
        self.flow.source.refresh([self.topic])
        wanted = {self.remote, self.flow.offsets_topic}
        wait_for("the target knows its topics", lambda: self._target_knows(wanted))

    def _target_knows(self, wanted: set[str]) -> bool:
        known = self.flow.target
        known.refresh(wanted)
        return all(
            name in known.topics
            and all(part.leader >= 0 for part in known.topics[name].partitions.values())
            for name in wanted
        )

    def close(self) -> None:
        self.flow.close()

    # -- copying ------------------------------------------------------------------------------

    def plans(self, **fields: Any) -> list[PartitionPlan]:
        return [
            PartitionPlan(self.topic, partition, self.remote, **fields)
            for partition in range(self.partitions)
        ]

    def copying(self, *, compacted: bool = False, **settings: Any) -> Copying:
        return self.flow.copying(self.plans(compacted=compacted), **settings)

    def copy(self, count: int, **settings: Any) -> None:
        """Run a task until the target holds `count` records."""
        with self.copying(**settings) as task:
            self.until(task, count)

    def until(self, task: Copying, count: int, patience: float = 60.0) -> None:
        task.until(f"{self.remote} holds {count}", lambda: self.end() >= count, patience)

    def seed(self, offset: int, partition: int = 0) -> None:
        """A position as MirrorMaker 2 leaves it."""
        key = source_offset_key(CONNECTOR, "A", self.topic, partition)
        value = b'{"offset":%d}' % offset
        produce(self.target, self.flow.offsets_topic, [NewRecord(key, value)])

    def until_begun(self, task: Copying) -> None:
        """Until every partition has a position: from then on it is decided where the copy begins."""
        store = PositionStore(self.flow.target, self.flow.store)

        def begun() -> bool:
            store.catch_up()
            return all(store.get((self.topic, p)) is not None for p in range(self.partitions))

        task.until(f"{self.topic} has positions", begun)

    # -- what is there ------------------------------------------------------------------------

    def produce(self, records: Iterable[NewRecord], **client: Any) -> None:
        produce(self.source, self.topic, records, **client)

    def end(self) -> int:
        """How many records the target holds."""
        keys = [(self.remote, partition) for partition in range(self.partitions)]
        return sum(admin.list_offsets(self.flow.target, keys, admin.LATEST).values())

    def sent(self, *, committed: bool = True) -> list[Content]:
        return [content(row) for row in consume(self.source, self.topic, committed=committed)]

    def arrived(self) -> list[Content]:
        return [content(row) for row in consume(self.target, self.remote)]

    def source_batches(self, partition: int = 0) -> list[bytes]:
        return batches(self.flow.source, self.topic, partition)

    def target_batches(self, partition: int = 0) -> list[bytes]:
        return batches(self.flow.target, self.remote, partition)


def batches(cluster: Cluster, topic: str, partition: int) -> list[bytes]:
    """The raw batches of a partition."""
    key = (topic, partition)
    start = admin.list_offsets(cluster, [key], admin.EARLIEST)[key]
    end = admin.list_offsets(cluster, [key], admin.LATEST)[key]
    return [
        bytes(view)
        for fetched in log.read(cluster, topic, partition, start, end, _EVERYTHING)
        for view in whole_batches(fetched.records)
    ]


class Reports:
    """The last progress report of every partition."""

    def __init__(self, copied: Copied, unique: Unique) -> None:
        self.topic = unique("progress")
        create_topic(copied.target, self.topic)
        self._reader = ProgressReader(copied.flow.target, self.topic, back=1000)
        self._rows: dict[tuple[str, int], PartitionProgress] = {}

    def row(self, topic: str, partition: int) -> PartitionProgress | None:
        for report in self._reader.poll():
            self._rows |= {(row.topic, row.partition): row for row in report.partitions}
        return self._rows.get((topic, partition))

    def failure(self, task: Copying, topic: str, partition: int) -> str:
        """Wait until the partition is reported as failed; gives the reason."""
        found: list[str] = []

        def failed() -> bool:
            row = self.row(topic, partition)
            if row is not None and row.state == "FAILED":
                found.append(row.error)
            return bool(found)

        task.until(f"{topic}-{partition} fails", failed)
        return found[0]


class Transactions:
    """A transactional producer whose records reach the log before their transaction ends."""

    def __init__(self, copied: Copied, name: str) -> None:
        self._topic, self._name, self._count = copied.topic, name, 0
        self._producer = Producer(
            {
                "bootstrap.servers": copied.source,
                "transactional.id": f"{copied.topic}-{name}",
                "linger.ms": 2,
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def begin(self, count: int) -> None:
        self._producer.begin_transaction()
        self.write(count)

    def write(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            value = f"{self._name}{self._count}"
            self._producer.produce(self._topic, value, partition=0, timestamp=self._count)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)
