"""A remote topic that is deleted and created again: checkpoints and groups follow the new one, not the old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from checkpointing import Checkpointed
from confluent_kafka import Consumer
from copying import Copying, Flow
from kafka_tools import (
    NewRecord,
    commit_group,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from thread_tasks import Running

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.formats.mirror import OffsetSync, encode_offset_sync
from sparkmirror.tools.clusters import KafkaCluster

Make = Callable[..., "Recreated"]
SHIFT = 50
"""So many other records are before the copies in the old topic, so that its offsets are wrong in the new one."""


class Recreated(Checkpointed):
    """A flow with an offset map (or offset syncs alone) whose remote topic a test creates again.

    A second topic stays as it is. The group `witness` follows it: when that was moved, all groups have had their turn.
    """

    def __init__(self, source: KafkaCluster, target: KafkaCluster, *, has_map: bool = True) -> None:
        super().__init__(source, target, sync_group_offsets_enabled="true")
        self.other = f"other-{self.mark}"
        self.props["topics"] = f"{self.topic},{self.other}"
        self.map_topic = f"mm2-offset-map.{self.alias}.internal" if has_map else ""
        self.witness = self.group("witness")
        self._turns = 0
        self._stack = ExitStack()
        self._task: Running | None = None
        create_topic(self.source, self.other)
        create_topic(self.target, f"{self.alias}.{self.other}")
        produce(self.target, f"{self.alias}.{self.other}", [NewRecord(None, b"x", 0)] * 100)
        self.provide_topic()
        if has_map:
            create_topic(self.target, self.map_topic, configs={"cleanup.policy": "compact"})

    # -- topics -------------------------------------------------------------------------------

    def add_others(self, count: int) -> None:
        """Records in the remote topic that are not copies."""
        produce(self.target, self.remote, [NewRecord(None, b"x", p) for p in (0, 1)] * count)

    def recreate(self) -> None:
        delete_topic(self.target, self.remote)
        wait_for("it is gone", lambda: self.remote not in topics(self.target))
        create_topic(self.target, self.remote, self.partitions)

    def recreate_map(self) -> None:
        delete_topic(self.target, self.map_topic)
        create_topic(self.target, self.map_topic, configs={"cleanup.policy": "compact"})

    @contextmanager
    def copying(self, lag: int = 0) -> Iterator[Copying]:
        flow = Flow(*self._clusters, self.mark)
        plans = [PartitionPlan(self.topic, p, self.remote) for p in range(self.partitions)]
        try:
            with flow.copying(
                plans,
                offset_syncs_topic=self.syncs_topic,
                offset_map_topic=self.map_topic,
                offset_lag_max=lag,
                recreated_target="restart",
                metadata_max_age=0.5,
            ) as task:
                yield task
        finally:
            flow.close()

    # -- the checkpoint task --------------------------------------------------------------------

    def start(self, *groups: str) -> None:
        self._task = self.running(*groups, self.witness)
        self._task.__enter__()

    def restart(self, *groups: str) -> None:
        self.stop()
        self.start(*groups)

    def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.__exit__(None, None, None)

    def await_turn(self) -> None:
        """Wait until every group has had a turn that began after now, at checkpoints as well as at being moved."""
        for _ in range(2):
            self._turns += 1
            key, value = encode_offset_sync(OffsetSync(self.other, 0, self._turns, self._turns))
            produce(self.syncs_bootstrap, self.syncs_topic, [NewRecord(key, value, 0)])
            commit_group(self.source, self.witness, self.other, {0: self._turns})
            wait_for("the witness was moved", self._is_witness_moved)

    def _is_witness_moved(self) -> bool:
        remote, self.remote = self.remote, f"{self.alias}.{self.other}"
        partitions, self.partitions = self.partitions, 1
        try:
            return self.moved(self.witness) == {0: self._turns}
        finally:
            self.remote, self.partitions = remote, partitions


@pytest.fixture
def make(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Make]:
    made: list[Recreated] = []

    def one(**options: bool) -> Recreated:
        made.append(Recreated(source_cluster, target_cluster, **options))
        return made[-1]

    yield one
    for flow in made:
        flow.stop()


def copied(flow: Recreated, end: int) -> None:
    with flow.copying() as copy:
        copy.until(
            "all is copied", lambda: end_offsets(flow.target, flow.remote) == {0: end, 1: end}
        )


@pytest.mark.slow
@pytest.mark.parametrize("has_map", [True, False], ids=["map", "syncs"])
@pytest.mark.parametrize("restarts", [False, True], ids=["one task", "tasks"])
def test_checkpoints_and_groups_follow_the_new_topic(
    make: Make, has_map: bool, restarts: bool
) -> None:
    flow = make(has_map=has_map)
    group = flow.group("g")
    flow.add_others(SHIFT)
    flow.produce(100)
    copied(flow, 150)
    commit_group(flow.source, group, flow.topic, {0: 100, 1: 99})
    flow.start(group)
    flow.await_moved(group, {0: 150, 1: 149})

    flow.recreate()
    if restarts:
        flow.restart(group)
    # The broker forgets what a group has committed in a topic that is deleted.
    wait_for("the group has no offsets", lambda: flow.moved(group) == {})
    written = len(flow.checkpoints(group))
    flow.await_turn()
    assert flow.moved(group) == {}
    # Nor does news of the group lead to anything, as long as the copy has not begun again.
    commit_group(flow.source, group, flow.topic, {0: 98})
    flow.await_turn()
    commit_group(flow.source, group, flow.topic, {0: 100})
    flow.await_turn()
    assert flow.moved(group) == {}
    assert len(flow.checkpoints(group)) == written

    if restarts:
        flow.restart(group)
    copied(flow, 100)
    flow.await_last(group, {0: (100, 100), 1: (99, 99)})
    flow.await_moved(group, {0: 100, 1: 99})
    flow.produce(20)
    copied(flow, 120)
    commit_group(flow.source, group, flow.topic, {0: 119, 1: 119})
    flow.await_moved(group, {0: 119, 1: 119})
    new = [c.downstream_offset for c in flow.checkpoints(group)[written:]]
    assert max(new) <= 120, "derived from the old topic"


@pytest.mark.slow
def test_the_topic_of_the_map_is_created_again_as_well(make: Make) -> None:
    """A running task drops what the old map told, though its segments were at higher offsets than the new ones."""
    flow = make()
    group = flow.group("g")
    flow.add_others(SHIFT)
    for copies in range(1, 6):
        flow.produce(20)
        copied(flow, SHIFT + 20 * copies)
    commit_group(flow.source, group, flow.topic, {0: 100})
    flow.start(group)
    flow.await_moved(group, {0: 150})
    flow.recreate()
    flow.recreate_map()
    copied(flow, 100)
    flow.await_last(group, {0: (100, 100)})
    flow.await_moved(group, {0: 100})


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True], ids=["one task", "tasks"])
@pytest.mark.parametrize("others", [0, 100], ids=["beyond the end", "within the log"])
def test_a_group_that_was_left_where_the_old_topic_had_it_is_set_right(
    make: Make, restarts: bool, others: int
) -> None:
    """As by a coordinator that was down while the topic was deleted."""
    flow = make()
    group = flow.group("g")
    flow.add_others(SHIFT)
    flow.produce(100)
    copied(flow, 150)
    commit_group(flow.source, group, flow.topic, {0: 100})
    flow.start(group)
    flow.await_moved(group, {0: 150})
    flow.recreate()
    flow.await_turn()
    if restarts:
        flow.stop()
    commit_group(flow.target, group, flow.remote, {0: 150})
    copied(flow, 100)
    flow.add_others(others)
    if restarts:
        flow.start(group)
    flow.await_last(group, {0: (100, 100)})
    flow.await_moved(group, {0: 100})


@pytest.mark.slow
def test_a_group_that_was_used_on_the_target_is_not_set_back(make: Make) -> None:
    """Its members have read the new topic to where the old checkpoint was, by chance."""
    flow = make()
    group = flow.group("g")
    flow.add_others(SHIFT)
    flow.produce(100)
    copied(flow, 150)
    commit_group(flow.source, group, flow.topic, {0: 100})
    flow.start(group)
    flow.await_moved(group, {0: 150})
    flow.stop()
    flow.recreate()
    copied(flow, 100)
    flow.add_others(100)
    consume_to(flow, group, 150)
    assert flow.moved(group)[0] == 150
    flow.start(group)
    flow.await_last(group, {0: (100, 100)})
    flow.await_turn()
    assert flow.moved(group)[0] == 150


def consume_to(flow: Recreated, group: str, end: int) -> None:
    """Read partition 0 of the remote topic as a member of the group, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": flow.target,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([flow.remote])
    try:
        while True:
            message = consumer.poll(0.5)
            if message is not None and message.partition() == 0 and message.offset() == end - 1:
                consumer.commit(message=message, asynchronous=False)
                return
    finally:
        consumer.close()
