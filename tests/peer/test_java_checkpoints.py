"""Checkpoints of one on top of the other's source connector: Java's by our offset syncs, ours by Java's; Java's tools on both."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_pair import ClusterPair, running_pair
from java_connect import JavaConnectWorker
from java_tools import described_groups, printed
from kafka_tools import commit_group, consume, end_offsets, group_offsets, wait_for
from mirrored_groups import PATIENCE_S, WITNESS, Mirrored, Position, SourceTopic, create, settle
from our_connect import OurConnectWorker
from thread_tasks import ConnectorWatch, Running, TaskWatch

from sparkmirror.connectors.checkpoint import CheckpointConnector
from sparkmirror.connectors.checkpoint_task import CheckpointTask

PARTITIONS = 4
GROUPS = [f"group-{number}" for number in range(12)]
SYNC = {"sync_group_offsets_enabled": "true"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ClusterPair]:
    yield from running_pair(1, tmp_path)


@pytest.fixture
def flow(clusters: ClusterPair) -> Mirrored:
    topic = SourceTopic(clusters.source.bootstrap, "orders", PARTITIONS, seed=11)
    topic.grow(4, 150)
    return Mirrored(topic, clusters.target.bootstrap, "A", "B")


def commit_ends(flow: Mirrored, group: str) -> dict[Position, int]:
    """Let a group have read everything; gives where it goes on downstream."""
    topic = flow.topic
    commit_group(topic.bootstrap, group, topic.name, end_offsets(topic.bootstrap, topic.name))
    return {(group, p): len(rows) for p, rows in topic.records.items()}


def moved(flow: Mirrored) -> dict[Position, int]:
    """Where the groups are on the target."""
    return {
        (group, partition): offset
        for group in GROUPS
        for (topic, partition), offset in group_offsets(flow.target, group).items()
        if topic == flow.remote and offset >= 0
    }


def check_described(flow: Mirrored) -> None:
    """Java's tool shows the groups where the checkpoints have put them."""
    ends = end_offsets(flow.target, flow.remote)
    shown = described_groups(flow.target)
    for (group, partition), offset in flow.translations().items():
        assert shown[group, flow.remote, partition] == (offset, ends[partition] - offset)


def test_java_checkpoints_by_our_offset_syncs(flow: Mirrored, tmp_path: Path) -> None:
    topic = flow.topic
    with OurConnectWorker(flow.target, tmp_path, "ours") as ours:
        create(ours, "source", flow.source_config(**{"offset_lag_max": "10"}))
        flow.await_copied()
        topic.commit_anywhere(GROUPS)
        with JavaConnectWorker(flow.target, tmp_path, "java") as java:
            create(java, "checkpoint", flow.checkpoint_config(**SYNC))
            settle([flow])
            committed = topic.committed(GROUPS)
            found, exact = flow.translations(), flow.exact(committed)
            assert found == flow.by_syncs(committed)
            assert len(found) > len(committed) / 2
            assert all(offset <= exact[place] for place, offset in found.items())
            wait_for("Java moves the groups", lambda: moved(flow) == found, PATIENCE_S)

            # While records flow.
            topic.grow(2, 150)
            flow.await_copied()
            ends = commit_ends(flow, GROUPS[0])
            wait_for(
                "Java's checkpoints are at the end",
                lambda: ends.items() <= flow.translations().items(),
                PATIENCE_S,
            )
            wait_for("so is the group", lambda: ends.items() <= moved(flow).items(), PATIENCE_S)
    written = len(consume(topic.bootstrap, flow.syncs_topic))
    assert printed(topic.bootstrap, flow.syncs_topic, "OffsetSyncFormatter", written) == [
        f"OffsetSync{{topicPartition={sync.topic}-{sync.partition}, "
        f"upstreamOffset={sync.upstream_offset}, downstreamOffset={sync.downstream_offset}}}"
        for sync in flow.syncs()
    ]


@contextlib.contextmanager
def checkpointing(flow: Mirrored) -> Iterator[None]:
    """Our connector's task, in a thread of the test."""
    connector = CheckpointConnector(
        {**flow.checkpoint_config(**SYNC), "name": "checkpoint"}, watch := ConnectorWatch()
    )
    connector.start()
    try:
        (props,) = connector.task_configs(1)
        with Running(CheckpointTask(props, TaskWatch())):
            yield
    finally:
        connector.stop()
    assert watch.errors == []


def test_our_checkpoints_by_javas_offset_syncs_and_then_exact(
    flow: Mirrored, tmp_path: Path
) -> None:
    topic = flow.topic
    with contextlib.ExitStack() as ends_last:
        with JavaConnectWorker(flow.target, tmp_path, "workers") as java:
            create(java, "source", flow.source_config(**{"offset_lag_max": "10"}))
            flow.await_copied()
            topic.commit_anywhere(GROUPS)
            ends_last.enter_context(checkpointing(flow))
            settle([flow])
            committed = topic.committed(GROUPS)
            found = flow.translations()
            assert found == flow.by_syncs(committed)
            assert found != flow.exact(committed)
            wait_for("we move the groups", lambda: moved(flow) == found, PATIENCE_S)
            check_described(flow)

        # The same connector, with us: what Java has copied is looked up in both logs.
        with OurConnectWorker(flow.target, tmp_path, "workers") as ours:
            ours.await_state("source", "RUNNING", 2)
            topic.grow(3, 150)
            flow.await_copied()
            commit_ends(flow, GROUPS[0])
            committed = topic.committed(GROUPS)
            exact = flow.exact(committed)
            wait_for("all is exact", lambda: flow.translations() == exact, PATIENCE_S)
            wait_for("the groups follow", lambda: moved(flow) == exact, PATIENCE_S)
            check_described(flow)
    check_order(flow)
    check_printed(flow)


def check_order(flow: Mirrored) -> None:
    """Checkpoints of groups that never went back do not go back either."""
    by_place: dict[Position, list[int]] = {}
    for c in flow.all_checkpoints():
        if c.group != WITNESS:
            by_place.setdefault((c.group, c.partition), []).append(c.downstream_offset)
    for offsets in by_place.values():
        assert all(one < next_one for one, next_one in itertools.pairwise(offsets))


def check_printed(flow: Mirrored) -> None:
    """Java's formatter reads every checkpoint."""
    written = flow.all_checkpoints()
    lines = printed(flow.target, flow.checkpoints_topic, "CheckpointFormatter", len(written))
    assert lines == [
        f"Checkpoint{{consumerGroupId={c.group}, topicPartition={c.topic}-{c.partition}, "
        f"upstreamOffset={c.upstream_offset}, downstreamOffset={c.downstream_offset}, metadata=}}"
        for c in written
    ]
