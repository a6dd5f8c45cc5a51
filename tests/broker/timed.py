"""A topic whose copy has another number of partitions, with groups that are translated by time, and what they must not miss."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from checkpointing import Checkpointed
from copying import Copying, Flow
from kafka_tools import (
    NewRecord,
    Record,
    add_partitions,
    commit_group,
    consume,
    end_offsets,
    group_offsets,
    produce,
    wait_for,
)

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.tools.clusters import KafkaCluster


class Timed(Checkpointed):
    """A topic whose records are placed on `width` partitions; the checkpoint connector knows of it."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        partitions: int,
        width: int,
        **changes: str,
    ) -> None:
        super().__init__(source, target, target_partitions=str(width), **changes)
        if partitions > self.partitions:
            add_partitions(self.source, self.topic, partitions)
        if width > self.partitions:
            add_partitions(self.target, self.remote, width)
        self.partitions, self.width = partitions, width
        self.count = 0
        self._rows: list[Record] = []
        self._copies: list[Record] = []
        self.random = random.Random(self.mark)
        self._begin_ms = int(time.time() * 1000) - 600_000

    def produce_timed(self, count: int, jitter_ms: int) -> None:
        """Records of any key, a millisecond apart, whose times go back and forth by so much."""
        first, self.count = self.count, self.count + count
        rows = [
            NewRecord(
                b"k%d" % self.random.randrange(100),
                b"%d" % i,
                self.random.randrange(self.partitions),
                self._begin_ms + i + self.random.randint(-jitter_ms, jitter_ms),
            )
            for i in range(first, first + count)
        ]
        produce(self.source, self.topic, rows)

    @contextmanager
    def placing(self) -> Iterator[Copying]:
        flow = Flow(*self._clusters, self.mark)
        plans = [
            PartitionPlan(self.topic, p, self.remote, places=self.width)
            for p in range(self.partitions)
        ]
        try:
            with flow.copying(plans) as task:
                yield task
        finally:
            flow.close()

    def place_all(self) -> None:
        with self.placing() as task:
            task.until("all is copied", lambda: self.arrived_count() >= self.count)

    def arrived_count(self) -> int:
        return sum(end_offsets(self.target, self.remote).values())

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        commit_group(self.source, group, self.topic, offsets)

    def moved(self, group: str) -> dict[int, int]:
        return {
            partition: offset
            for (topic, partition), offset in group_offsets(self.target, group).items()
            if topic == self.remote
        }

    # -- what must be -------------------------------------------------------------------------

    def await_all(self, group: str) -> dict[int, int]:
        """Where the group goes on, when it has been told of every partition."""

        def told() -> dict[int, int] | None:
            known = self.by_time(group)
            return known if len(known) == self.width else None

        return wait_for(f"{group} is told of all {self.width} partitions", told)

    def by_time(self, group: str) -> dict[int, int]:
        return {c.partition: c.downstream_offset for c in self.checkpoints(group)}

    def see(self) -> None:
        """Read both topics, for what follows."""
        self._rows = consume(self.source, self.topic)
        self._copies = consume(self.target, self.remote)
        assert {row.value for row in self._rows} == {row.value for row in self._copies}

    def missed(self, committed: Mapping[int, int], downstream: Mapping[int, int]) -> list[Record]:
        """Records that a group has not read at the source and would not read on the target."""
        unread = {row.value for row in self._rows if row.offset >= committed.get(row.partition, 0)}
        return [
            row
            for row in self._copies
            if row.value in unread and row.offset < downstream[row.partition]
        ]

    def repeated(self, committed: Mapping[int, int], downstream: Mapping[int, int]) -> int:
        """How many records it would read again."""
        read = {row.value for row in self._rows if row.offset < committed.get(row.partition, 0)}
        return sum(
            row.value in read and row.offset >= downstream[row.partition] for row in self._copies
        )


def all_by_time(checkpoints: list[Checkpoint]) -> bool:
    return bool(checkpoints) and all(checkpoint.is_by_time for checkpoint in checkpoints)
