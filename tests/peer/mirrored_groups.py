"""A topic with transactions, its copy, and groups at random positions: what both logs, offset syncs and checkpoints say out."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from java_connect import ConnectWorker, connector_path
from kafka_tools import (
    NewRecord,
    commit_group,
    consume,
    create_topic,
    end_offsets,
    group_offsets,
    produce,
    produce_transaction,
    topics,
    wait_for,
)
from thread_tasks import checkpoints

from sparkmirror.formats.mirror import Checkpoint, OffsetSync, decode_offset_sync
from sparkmirror.offsets.sync_store import OffsetSyncStore

MIRROR = "org.apache.kafka.connect.mirror"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PATIENCE_S = 120.0
WITNESS = "witness"
_MOVES = 3
Position = tuple[str, int]
"""A group and a partition."""


class SourceTopic:
    """A topic that grows by transactions, some of them aborted, and by plain records.

    Invariant: `records` holds, by partition, offset and value of what is to be copied, in order; no two values are the same.
    """

    def __init__(self, bootstrap: str, name: str, partitions: int, seed: int) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.draw = random.Random(seed)
        self.records: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}
        self._made = 0
        create_topic(bootstrap, name, partitions)

    def grow(self, rounds: int, count: int) -> None:
        """In each round a transaction and as many records without one; every third transaction is aborted."""
        for number in range(rounds):
            rows = self._rows(count)
            commits = number % 3 != 1
            where = produce_transaction(self.bootstrap, self.name, rows, commit=commits)
            if commits:
                self._note(where, rows)
            rows = self._rows(count)
            self._note(produce(self.bootstrap, self.name, rows), rows)

    def _rows(self, count: int) -> list[NewRecord]:
        numbers = range(self._made, self._made + count)
        self._made += count
        partitions = len(self.records)
        return [NewRecord(None, b"%d" % n, self.draw.randrange(partitions)) for n in numbers]

    def _note(self, where: Iterable[tuple[int, int]], rows: Iterable[NewRecord]) -> None:
        for (partition, offset), row in zip(where, rows, strict=True):
            assert row.value is not None
            self.records[partition].append((offset, row.value))

    def commit_anywhere(self, groups: Iterable[str]) -> None:
        """Let groups commit at random, from the first offset to the end, on markers and aborted records too."""
        ends = end_offsets(self.bootstrap, self.name)
        commit_group(self.bootstrap, WITNESS, self.name, {0: ends[0]})
        for group in groups:
            offsets = {p: self.draw.randint(0, end) for p, end in ends.items()}
            commit_group(self.bootstrap, group, self.name, offsets)

    def committed(self, groups: Iterable[str]) -> dict[Position, int]:
        """Where the groups are."""
        return {
            (group, partition): offset
            for group in groups
            for (_, partition), offset in group_offsets(self.bootstrap, group).items()
        }


class Mirrored:
    """One copy of a source topic, under aliases of its own."""

    def __init__(self, topic: SourceTopic, target: str, alias: str, target_alias: str) -> None:
        self.topic = topic
        self.target = target
        self.alias = alias
        self.remote = f"{alias}.{topic.name}"
        self.syncs_topic = f"mm2-offset-syncs.{target_alias}.internal"
        self.checkpoints_topic = f"{alias}.checkpoints.internal"
        self._shared = {
            "source.cluster.alias": alias,
            "target.cluster.alias": target_alias,
            "source.cluster.bootstrap.servers": topic.bootstrap,
            "target.cluster.bootstrap.servers": target,
            "topics": topic.name,
            "key.converter": BYTES,
            "value.converter": BYTES,
        }

    def source_config(self, **changes: str) -> dict[str, str]:
        return {
            **self._shared,
            "connector.class": f"{MIRROR}.MirrorSourceConnector",
            "tasks.max": "2",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "heartbeats.replication.enabled": "false",
            # Ours is so by default; MirrorMaker 2 would copy what was aborted.
            "source.consumer.isolation.level": "read_committed",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    def checkpoint_config(self, **changes: str) -> dict[str, str]:
        return {
            **self._shared,
            "connector.class": f"{MIRROR}.MirrorCheckpointConnector",
            "tasks.max": "1",
            "groups": "group-.*," + WITNESS,
            "checkpoints.topic.replication.factor": "1",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    # -- both logs ------------------------------------------------------------------------------

    def await_copied(self) -> None:
        """Until everything is on the target, and an offset sync tells of each partition's last record."""
        counts = {p: len(rows) for p, rows in self.topic.records.items()}
        wait_for(
            f"{self.remote}: all is copied",
            lambda: self.remote in topics(self.target) and self._ends() == counts,
            PATIENCE_S,
        )
        last = {p: (rows[-1][0], len(rows) - 1) for p, rows in self.topic.records.items()}

        def synced() -> bool:
            found = {s.partition: (s.upstream_offset, s.downstream_offset) for s in self.syncs()}
            return found == last

        wait_for(f"{self.syncs_topic} tells of all ends", synced, PATIENCE_S)

    def _ends(self) -> dict[int, int]:
        return end_offsets(self.target, self.remote)

    def syncs(self) -> list[OffsetSync]:
        """All offset syncs of the topic, in order."""
        rows = consume(self.topic.bootstrap, self.syncs_topic)
        found = [decode_offset_sync(row.key, row.value) for row in rows]
        return [sync for sync in found if sync.topic == self.topic.name]

    def exact(self, committed: Mapping[Position, int]) -> dict[Position, int]:
        """The target offset of the first record that each group has not read; the end, if it has read all."""
        places = {(r.partition, r.value): r.offset for r in consume(self.target, self.remote)}
        ends = self._ends()
        found = {}
        for (group, partition), offset in committed.items():
            rows = self.topic.records[partition]
            at = bisect_left(rows, (offset, b""))
            is_left = at < len(rows)
            found[group, partition] = places[partition, rows[at][1]] if is_left else ends[partition]
        return found

    def by_syncs(self, committed: Mapping[Position, int]) -> dict[Position, int]:
        """What MirrorMaker's rules make of the offset syncs; nothing for positions that they cannot tell."""
        store = OffsetSyncStore(must_read_to_end=False)
        for sync in self.syncs():
            store.add(sync)
        store.finish_loading()
        found = {
            (group, partition): store.translate(self.topic.name, partition, offset)
            for (group, partition), offset in committed.items()
        }
        return {place: known for place, known in found.items() if known is not None and known >= 0}

    # -- checkpoints ----------------------------------------------------------------------------

    def all_checkpoints(self) -> list[Checkpoint]:
        if self.checkpoints_topic not in topics(self.target):
            return []
        return checkpoints(self.target, self.checkpoints_topic)

    def await_witness(self, upstream: int) -> None:
        """Until a checkpoint of the witness at this offset is written."""
        wait_for(
            f"{self.checkpoints_topic} tells of the witness at {upstream}",
            lambda: any(
                c.group == WITNESS and c.upstream_offset == upstream for c in self.all_checkpoints()
            ),
            PATIENCE_S,
        )

    def translations(self) -> dict[Position, int]:
        """By the last checkpoint of each group and partition; without the witness."""
        return {
            (c.group, c.partition): c.downstream_offset
            for c in self.all_checkpoints()
            if c.group != WITNESS
        }


def create(worker: ConnectWorker, name: str, config: dict[str, str]) -> None:
    """Create a connector."""
    answer = worker.request("PUT", f"{connector_path(name)}/config", config)
    assert answer.status == 201, answer.body


def settle(flows: Iterable[Mirrored]) -> None:
    """Until every flow's checkpoint task has looked at all groups, and once more.

    A group that goes back a little is always told of, whoever writes the checkpoints.
    """
    flows = list(flows)
    topic = flows[0].topic
    before = topic.committed([WITNESS])[WITNESS, 0]
    for move in range(_MOVES):
        offset = before - 1 - move
        commit_group(topic.bootstrap, WITNESS, topic.name, {0: offset})
        for flow in flows:
            flow.await_witness(offset)


class Share(NamedTuple):
    """How good translations are."""

    total: int
    exact: int
    missing: int
    behind: int
    """Records that have been read would be read again."""
    ahead: int
    """Records would be passed over."""
    repeated: int
    """How many records would be read again, all in all."""

    def __str__(self) -> str:
        return (
            f"{self.exact} of {self.total} exact ({self.exact / self.total:.1%}), "
            f"{self.behind} behind (by {self.repeated} records), {self.missing} missing, "
            f"{self.ahead} ahead"
        )


def share(found: Mapping[Position, int], exact: Mapping[Position, int]) -> Share:
    """Compare translations with what is right."""
    both = [(found[place], right) for place, right in exact.items() if place in found]
    return Share(
        len(exact),
        sum(one == right for one, right in both),
        len(exact) - len(both),
        sum(one < right for one, right in both),
        sum(one > right for one, right in both),
        sum(max(0, right - one) for one, right in both),
    )
