"""Java and us on the same internal topics: its formatters read what we write; its connectors make the tasks that ours make."""

from __future__ import annotations

from pathlib import Path

from checkpointing import Checkpointed
from java_connect import JavaConnectWorker
from java_tools import printed
from kafka_tools import commit_group, consume, wait_for
from thread_tasks import ConnectorWatch, Running, TaskWatch

from sparkmirror.connectors.checkpoint import CheckpointConnector
from sparkmirror.connectors.checkpoint_task import CheckpointTask
from sparkmirror.connectors.heartbeat import HeartbeatConnector, HeartbeatTask
from sparkmirror.tools.clusters import KafkaCluster

JAVA = "org.apache.kafka.connect.mirror"
SYNCS = ((0, 0, 3), (0, 10, 13), (0, 20, 22), (0, 30, 31), (1, 5, 5), (1, 500, 400))
COMMITTED = ({0: 0, 1: 4}, {0: 10, 1: 5}, {0: 15, 1: 499}, {0: 25, 1: 500}, {0: 31, 1: 501})


def heartbeat_props(flow: Checkpointed) -> dict[str, str]:
    own = ("source.cluster.", "target.cluster.")
    shared = {name: value for name, value in flow.props.items() if name.startswith(own)}
    return {
        **shared,
        "name": f"hb-{flow.mark}",
        "connector.class": f"{JAVA}.MirrorHeartbeatConnector",
        "heartbeats.topic.replication.factor": "1",
    }


def test_java_reads_what_we_write(peer_cluster: KafkaCluster) -> None:
    flow = Checkpointed(peer_cluster, peer_cluster)
    flow.produce(10)
    flow.copy(10)
    group = flow.group("g")
    commit_group(flow.source, group, flow.topic, {0: 10})
    (props,) = flow.task_configs()
    connector = HeartbeatConnector(heartbeat_props(flow), ConnectorWatch())
    connector.start()
    connector.stop()
    beating = HeartbeatTask(connector.task_configs(1)[0], beats := TaskWatch())
    with Running(CheckpointTask(props, TaskWatch())), Running(beating):
        flow.await_last(group, {0: (10, 10)})
        wait_for("a heartbeat", lambda: beats.offsets)

    assert printed(peer_cluster.bootstrap, flow.checkpoints_topic, "CheckpointFormatter", 1) == [
        f"Checkpoint{{consumerGroupId={group}, topicPartition={flow.remote}-0, "
        "upstreamOffset=10, downstreamOffset=10, metadata=}"
    ]
    syncs = len(consume(flow.source, flow.syncs_topic))
    lines = printed(peer_cluster.bootstrap, flow.syncs_topic, "OffsetSyncFormatter", syncs)
    for partition in (0, 1):
        for offset in (0, 9):
            assert (
                f"OffsetSync{{topicPartition={flow.topic}-{partition}, "
                f"upstreamOffset={offset}, downstreamOffset={offset}}}"
            ) in lines
    beats_there = consume(flow.target, "heartbeats")  # those of other tests among them
    lines = printed(peer_cluster.bootstrap, "heartbeats", "HeartbeatFormatter", len(beats_there))
    for beat, line in zip(beats_there, lines, strict=True):
        assert line.startswith("Heartbeat{") and f"timestamp={beat.timestamp}}}" in line
    ours = f"sourceClusterAlias={flow.alias}, targetClusterAlias={props['target.cluster.alias']}"
    assert any(ours in line for line in lines)


def filled(cluster: KafkaCluster, **changes: str) -> Checkpointed:
    """A flow with the offset syncs and groups of `SYNCS` and `COMMITTED`."""
    flow = Checkpointed(
        cluster,
        cluster,
        **{"tasks_max": "3", "checkpoints_topic_replication_factor": "1", **changes},
    )
    flow.write_syncs(*SYNCS)
    for index in range(40):
        offsets = COMMITTED[index % len(COMMITTED)]
        commit_group(flow.source, flow.group(f"g{index}"), flow.topic, offsets)
    return flow


def test_java_makes_the_same_tasks_and_checkpoints(
    peer_cluster: KafkaCluster, tmp_path: Path, group: str
) -> None:
    theirs, ours = filled(peer_cluster), filled(peer_cluster)
    heartbeats = heartbeat_props(theirs)
    with JavaConnectWorker(peer_cluster.bootstrap, tmp_path, group) as worker:
        for props in (theirs.props, heartbeats):
            answer = worker.request("PUT", f"/connectors/{props['name']}/config", props)
            assert answer.status == 201, answer.body
        worker.await_state(theirs.props["name"], "RUNNING", 3)
        worker.await_state(heartbeats["name"], "RUNNING", 1)

        def tasks(name: str) -> list[dict[str, str]]:
            body = worker.request("GET", f"/connectors/{name}/tasks").body
            return [task["config"] for task in sorted(body, key=lambda task: task["id"]["task"])]

        assert tasks(theirs.props["name"]) == theirs.task_configs(3)
        ours_hb = HeartbeatConnector(heartbeats, ConnectorWatch())
        assert tasks(heartbeats["name"]) == ours_hb.task_configs(3)
        wait_for(
            "Java's checkpoints of all groups",
            lambda: len({c.group for c in theirs.checkpoints()}) == 40,
        )

    connector = CheckpointConnector(ours.props, ConnectorWatch())
    connector.start()
    connector.stop()
    (props,) = connector.task_configs(1)
    with Running(CheckpointTask(props, TaskWatch())):
        wait_for("ours", lambda: len({c.group for c in ours.checkpoints()}) == 40)
    for index in range(40):
        of = f"g{index}"
        assert ours.last(ours.group(of)) == theirs.last(theirs.group(of)), of

    # Ours takes over from Java's topic: nothing is said twice, and what is new is said.
    before = len(theirs.checkpoints())
    mover = theirs.group("g0")
    with theirs.running(*(theirs.group(f"g{index}") for index in range(40))):
        commit_group(theirs.source, mover, theirs.topic, {0: 40})
        theirs.await_last(mover, {**theirs.last(mover), 0: (40, 32)})
    assert len(theirs.checkpoints()) == before + 1
