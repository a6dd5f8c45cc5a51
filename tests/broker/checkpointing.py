"""A topic that is copied with offset syncs, and a checkpoint connector with its tasks beside it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from copying import Copying, Flow
from flow_records import fill
from kafka_tools import (
    NewRecord,
    committed,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from thread_tasks import ConnectorWatch, Running, TaskWatch, checkpoints

from sparkmirror.connectors.checkpoint import CheckpointConnector
from sparkmirror.connectors.checkpoint_task import CheckpointTask
from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.formats.mirror import Checkpoint, OffsetSync, encode_checkpoint, encode_offset_sync
from sparkmirror.tools.clusters import KafkaCluster


class Checkpointed:
    """A flow between two clusters under aliases of its own, so that its internal topics are its own too."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, **changes: str) -> None:
        self.source, self.target = source.bootstrap, target.bootstrap
        self._clusters = (source, target)
        self.mark = uuid.uuid4().hex[:6]
        self.alias, other = f"A{self.mark}", f"B{self.mark}"
        self.topic = f"orders-{self.mark}"
        self.remote = f"{self.alias}.{self.topic}"
        self.partitions = 2
        self.changes = {name.replace("_", "."): value for name, value in changes.items()}
        self.props = {
            "name": f"cp-{self.mark}",
            "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
            "source.cluster.alias": self.alias,
            "target.cluster.alias": other,
            "source.cluster.bootstrap.servers": self.source,
            "target.cluster.bootstrap.servers": self.target,
            "topics": self.topic,
            "groups": f".*{self.mark}",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            **self.changes,
        }
        at_source = self.props.get("offset-syncs.topic.location", "source") == "source"
        self.syncs_topic = f"mm2-offset-syncs.{other if at_source else self.alias}.internal"
        self.syncs_bootstrap = self.source if at_source else self.target
        self._at_source = at_source
        self.checkpoints_topic = f"{self.alias}.checkpoints.internal"
        create_topic(self.source, self.topic, self.partitions)
        create_topic(self.target, self.remote, self.partitions)
        compacted = {"cleanup.policy": "compact"}
        create_topic(self.syncs_bootstrap, self.syncs_topic, configs=compacted)

    def group(self, name: str) -> str:
        """A group's name that only this flow follows."""
        return f"{name}-{self.mark}"

    # -- data -----------------------------------------------------------------------------------

    def produce(self, count: int) -> None:
        """As many records to each partition of the source topic."""
        rows = [NewRecord(None, b"%d" % i, p) for p in range(self.partitions) for i in range(count)]
        produce(self.source, self.topic, rows)

    @contextmanager
    def copying(self, lag: int = 0) -> Iterator[Copying]:
        """Copy with a task of our own, which writes the offset syncs."""
        flow = Flow(*self._clusters, self.mark)
        plans = [PartitionPlan(self.topic, p, self.remote) for p in range(self.partitions)]
        try:
            with flow.copying(
                plans,
                offset_syncs_topic=self.syncs_topic,
                offset_syncs_at_source=self._at_source,
                offset_lag_max=lag,
            ) as task:
                yield task
        finally:
            flow.close()

    def copy(self, upto: int) -> None:
        """Copy until each remote partition holds `upto` records and every partition's last record has been synced."""
        with self.copying() as task:
            task.until("all is copied", lambda: self._ends() == {upto})

    def _ends(self) -> set[int]:
        return set(end_offsets(self.target, self.remote).values())

    def write_syncs(self, *syncs: tuple[int, int, int]) -> None:
        """Offset syncs without a copy (partition, upstream, downstream), but with as many records on the target."""
        for partition, _, downstream in syncs:
            fill(self.target, self.remote, partition, downstream + 1)
        rows = [encode_offset_sync(OffsetSync(self.topic, *sync)) for sync in syncs]
        produce(
            self.syncs_bootstrap,
            self.syncs_topic,
            [NewRecord(key, value, 0) for key, value in rows],
        )

    def write_checkpoint(self, group: str, partition: int, upstream: int, downstream: int) -> None:
        """A checkpoint as a task before us would have left it."""
        key, value = encode_checkpoint(
            Checkpoint(group, self.remote, partition, upstream, downstream)
        )
        produce(self.target, self.checkpoints_topic, [NewRecord(key, value, 0)])

    def moved(self, group: str) -> dict[int, int]:
        """Where a group is in the remote topic, by partition; without those that it has no offset of."""
        return committed(self.target, group, self.remote)

    def await_moved(self, group: str, expected: Mapping[int, int]) -> None:
        wait_for(f"{group} is at {expected} on the target", lambda: self.moved(group) == expected)

    # -- connector and tasks --------------------------------------------------------------------

    def task_configs(self, tasks_max: int = 1) -> list[dict[str, str]]:
        """What the connector gives, started and stopped for it."""
        connector = CheckpointConnector(self.props, ConnectorWatch())
        connector.start()
        try:
            return connector.task_configs(tasks_max)
        finally:
            connector.stop()

    def provide_topic(self) -> None:
        """The checkpoints topic, for tests that need no connector."""
        create_topic(self.target, self.checkpoints_topic, configs={"cleanup.policy": "compact"})

    def running(self, *groups: str, watch: TaskWatch | None = None) -> Running:
        """A task for these groups."""
        props = {**self.props, "task.assigned.groups": ",".join(groups), "task.index": "0"}
        return Running(CheckpointTask(props, watch or TaskWatch()))

    def checkpoints(self, group: str = "") -> list[Checkpoint]:
        if self.checkpoints_topic not in topics(self.target):
            return []
        return checkpoints(self.target, self.checkpoints_topic, group)

    def last(self, group: str) -> Mapping[int, tuple[int, int]]:
        """The last checkpoint of each partition: upstream and downstream."""
        return {
            c.partition: (c.upstream_offset, c.downstream_offset) for c in self.checkpoints(group)
        }

    def await_last(self, group: str, expected: Mapping[int, tuple[int, int]]) -> None:
        wait_for(f"checkpoints {expected} of {group}", lambda: self.last(group) == expected)
