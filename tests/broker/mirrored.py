"""A topic and its copy, on both sides of a `Flow`: filled, copied, damaged and compared by tests of the exactly-once rules."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from copying import Copying, Flow
from kafka_tools import (
    PATIENCE_S,
    Headers,
    NewRecord,
    consume,
    create_topic,
    delete_topic,
    produce,
)

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.formats.position import Entry, Position, advance
from sparkmirror.kafka import admin, log, records
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.tools.clusters import KafkaCluster

NEVER = 3600.0  # a flush interval: positions are written when a task ends in order, else not at all
Content = tuple[int, bytes | None, bytes | None, Headers]
Unique = Callable[[str], str]
Make = Callable[..., "Mirrored"]


class Mirrored:
    """One topic of partitions with numbered records, and the remote topic it is copied to."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        unique: Unique,
        partitions: int = 1,
        *,
        configs: dict[str, str] | None = None,
        remote_configs: dict[str, str] | None = None,
        compacted: bool = False,
        age_s: int = 0,
    ) -> None:
        self.source, self.target = source, target
        self.topic = unique("t")
        self.remote = f"A.{self.topic}"
        self.partitions = partitions
        self.compacted = compacted
        policy = {"cleanup.policy": "compact"} if compacted else {}
        self.configs = policy | (configs or {})
        self.remote_configs = policy | (remote_configs or {})
        self.create_source()
        self.create_target()
        self.flow = Flow(source, target, unique("f"))
        self.count = 0
        self._time = int((time.time() - age_s) * 1000)

    # -- topics -------------------------------------------------------------------------------

    def create_source(self) -> None:
        create_topic(self.source.bootstrap, self.topic, self.partitions, configs=self.configs)

    def create_target(self) -> None:
        create_topic(
            self.target.bootstrap, self.remote, self.partitions, configs=self.remote_configs
        )

    def delete_source(self) -> None:
        delete_topic(self.source.bootstrap, self.topic)

    def delete_target(self) -> None:
        delete_topic(self.target.bootstrap, self.remote)

    # -- records ------------------------------------------------------------------------------

    def records(self, count: int, partition: int, size: int = 20, keys: int = 0) -> list[NewRecord]:
        """The next records: each tells its number, and no two are the same."""
        first, self.count = self.count, self.count + count
        return [
            NewRecord(
                b"k%d" % (i % keys) if keys else b"k%d" % i,
                b"%d:" % i + b"x" * size,
                partition,
                self._time + i,
                (("n", b"%d" % i),) if i % 3 == 0 else (),
            )
            for i in range(first, first + count)
        ]

    def produce(
        self, count: int, partition: int = 0, *, size: int = 20, keys: int = 0, **client: Any
    ) -> None:
        produce(
            self.source.bootstrap, self.topic, self.records(count, partition, size, keys), **client
        )

    def produce_small_batches(self, count: int, each: int = 3, partition: int = 0) -> None:
        self.produce(count, partition, batch_num_messages=each)

    def produce_transaction(self, count: int, partition: int = 0, *, commits: bool = True) -> None:
        """The next records as one transaction, with its marker behind them."""
        producer = Producer(
            {"bootstrap.servers": self.source.bootstrap, "transactional.id": f"txn-{self.topic}"}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for row in self.records(count, partition):
            producer.produce(
                self.topic, row.value, row.key, partition, headers=list(row.headers),
                timestamp=row.timestamp,
            )  # fmt: skip
        assert producer.flush(PATIENCE_S) == 0
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)

    @contextmanager
    def load(self, pause: float = 0.01, each: int = 40) -> Iterator[None]:
        """Records all the time, to every partition, in batches of all sizes."""
        over = threading.Event()

        def run() -> None:
            turn = 0
            while not over.is_set():
                turn += 1
                for partition in range(self.partitions):
                    size = 200 if turn % 7 else 6000
                    limit = 1 + turn % 9
                    self.produce(each, partition, size=size, batch_num_messages=limit)
                over.wait(pause)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60)

    # -- copying ------------------------------------------------------------------------------

    @property
    def plans(self) -> list[PartitionPlan]:
        return [
            PartitionPlan(self.topic, partition, self.remote, self.compacted)
            for partition in range(self.partitions)
        ]

    def copying(self, **settings: Any) -> Copying:
        return self.flow.copying(self.plans, **settings)

    def copy_all(self, *, expected: int | None = None, **settings: Any) -> None:
        """Start a task, wait until the target holds as many records as expected, end it in order."""
        with self.copying(**settings) as task:
            self.wait(task, expected)

    def copy_and_abandon(self, *, expected: int | None = None, **settings: Any) -> None:
        """The same, but it is killed with its position never written."""
        with self.copying(flush_interval=NEVER, **settings) as task:
            self.wait(task, expected)
            task.abandon()

    def wait(self, task: Copying, expected: int | None = None) -> None:
        wanted = self.source_count() if expected is None else expected
        task.until(
            f"{self.remote} has {wanted} records (now {self.target_count()})",
            lambda: self.target_count() >= wanted,
        )

    # -- both sides ---------------------------------------------------------------------------

    def source_count(self) -> int:
        return _records(self.flow.source, self.topic, self.partitions)

    def target_count(self) -> int:
        return _records(self.flow.target, self.remote, self.partitions)

    def source_content(self) -> dict[int, list[Content]]:
        return contents(self.source, self.topic, self.partitions)

    def target_content(self) -> dict[int, list[Content]]:
        return contents(self.target, self.remote, self.partitions)

    def has_all(self) -> bool:
        """Whether every record of the source is on the target, whatever else is."""
        wanted, found = self.source_content(), self.target_content()
        return all(set(rows) <= set(found[partition]) for partition, rows in wanted.items())

    def assert_same(self) -> None:
        """None missing, none twice, in order, with time, key, value and headers."""
        for partition, wanted in self.source_content().items():
            assert_sequence(self.target_content()[partition], wanted)

    def write_as(self, position: Position, skip: int, count: int) -> int:
        """Do what another copy would with this numbering: write `count` records from `skip` after the position on.

        Gives the broker's base offset; the records are the source's own.
        """
        assert position.numbering is not None
        first = position.next_offset + skip
        rows = consume(self.source.bootstrap, self.topic)[first : first + count]
        batch = records.encode(
            [records.NewRecord(0, r.timestamp, r.key, r.value, list(r.headers)) for r in rows],
            0,
            position.numbering.producer_id,
            position.numbering.epoch,
            advance(position.sequence, skip),
        )
        self.flow.target.refresh([self.remote])
        return log.append(self.flow.target, self.remote, 0, batch)

    # -- positions ----------------------------------------------------------------------------

    def store(self) -> PositionStore:
        store = PositionStore(self.flow.target, self.flow.store)
        self.flow.target.refresh([self.flow.offsets_topic])
        store.catch_up()
        return store

    def position(self, partition: int = 0) -> Position:
        """The position in force; there must be one."""
        position = self.store().get((self.topic, partition))
        assert position is not None
        return position

    def next_offset(self, partition: int = 0) -> int:
        """The source offset up to which everything is copied, as it is recorded; 0 if nothing is."""
        position = self.store().get((self.topic, partition))
        return 0 if position is None else position.next_offset

    def write_position(self, entry: Entry, partition: int = 0) -> None:
        self.store().write([((self.topic, partition), entry)])

    def close(self) -> None:
        self.flow.close()


@contextmanager
def making(source: KafkaCluster, target: KafkaCluster, unique: Unique) -> Iterator[Make]:
    """Makes topics with copies between two clusters; the clients of all are closed at the end."""
    with ExitStack() as stack:

        def make(*args: Any, **options: Any) -> Mirrored:
            mirrored = Mirrored(source, target, unique, *args, **options)
            stack.callback(mirrored.close)
            return mirrored

        yield make


def contents(cluster: KafkaCluster, topic: str, partitions: int) -> dict[int, list[Content]]:
    found: dict[int, list[Content]] = {partition: [] for partition in range(partitions)}
    for record in consume(cluster.bootstrap, topic):
        found[record.partition].append((record.timestamp, record.key, record.value, record.headers))
    return found


def assert_sequence(found: list[Content], wanted: list[Content]) -> None:
    """The same records in the same order; says what is wrong in few words."""
    if found == wanted:
        return
    missing = Counter(wanted) - Counter(found)
    extra = Counter(found) - Counter(wanted)
    first = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), None)
    raise AssertionError(
        f"{len(found)} records for {len(wanted)}: {missing.total()} missing {_numbers(missing)}, "
        f"{extra.total()} too many {_numbers(extra)}, first difference at {first}"
    )


def _numbers(found: Counter[Content]) -> list[str]:
    values = [value or b"" for _, _, value, _ in found]
    return [value[:12].decode().split(":")[0] for value in values[:10]]


def _records(cluster: Cluster, topic: str, partitions: int) -> int:
    keys: list[TopicPartition] = [(topic, partition) for partition in range(partitions)]
    deadline = time.monotonic() + 30
    if topic not in cluster.topics:
        cluster.retrying(lambda: cluster.refresh([topic]), deadline)
    first = admin.list_offsets(cluster, keys, admin.EARLIEST)
    last = admin.list_offsets(cluster, keys, admin.LATEST)
    return sum(last[key] - first[key] for key in keys)


def lose_tails(cluster: KafkaCluster, keep: Mapping[str, int]) -> dict[str, int]:
    """End a broker as a power cut would, with only the batches of the first so many records of a topic on its disk.

    It is started again. Gives the offset at which the first partition of each topic ends then.
    """
    cluster.kill(1)
    ends = {
        topic: _cut(cluster.data(1) / f"{topic}-0" / f"{0:020}.log", count)
        for topic, count in keep.items()
    }
    cluster.restart(1)
    return ends


def _cut(file: Path, keep: int) -> int:
    end = size = 0
    data = file.read_bytes()
    while size < len(data):
        base, length = struct.unpack_from(">qi", data, size)
        after = int(base + struct.unpack_from(">i", data, size + 23)[0] + 1)
        if after > keep:
            break
        end, size = after, size + 12 + length
    assert size < len(data), "there is nothing to lose"
    with file.open("r+b") as opened:
        opened.truncate(size)
    return end
