"""The checkpoint connector and its tasks between two real clusters."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest
from checkpointing import Checkpointed
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation
from guarded import forbid, guarded_cluster
from kafka_tools import (
    NewRecord,
    commit_group,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    topic_configs,
    topics,
    wait_for,
)
from thread_tasks import ConnectorWatch, Running, TaskWatch

from sparkmirror.connectors import checkpoint_task
from sparkmirror.connectors.checkpoint import CheckpointConnector, GroupsUnknown
from sparkmirror.connectors.checkpoint_task import CheckpointTask
from sparkmirror.errors import BrokerError
from sparkmirror.formats.mirror import OffsetSync, encode_offset_sync
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.settings import client_settings
from sparkmirror.offsets.groups import GroupOffset, Groups
from sparkmirror.offsets.homecoming import Moves
from sparkmirror.tools.clusters import KafkaCluster, free_port

Make = Callable[..., Checkpointed]
NO_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
SYNC = {"sync_group_offsets_enabled": "true"}


@pytest.fixture
def make(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Make:
    """Flows between the two clusters that all tests share."""

    def made(**changes: str) -> Checkpointed:
        return Checkpointed(source_cluster, target_cluster, **changes)

    return made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster whose ACLs count."""
    yield from guarded_cluster(tmp_path_factory)


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit for a group; its coordinator may not be there yet on a cluster that has just been started."""

    def done() -> bool:
        try:
            commit_group(bootstrap, group, topic, offsets)
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR:
                raise
            return False
        return True

    wait_for(f"the offsets of {group} are committed", done)


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A consumer that has joined `group` and got its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])

    def has_joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        wait_for("the consumer has partitions", has_joined)
        yield consumer
    finally:
        consumer.close()


# -- connector ------------------------------------------------------------------------------------


def test_the_connector_finds_groups_and_makes_tasks(make: Make) -> None:
    flow = make()
    flow.produce(10)
    for name in ("g1", "g2", "g3"):
        commit(flow.source, flow.group(name), flow.topic, {0: 5})
    commit(flow.source, "stranger", flow.topic, {0: 5})  # not in `groups`
    commit(flow.source, flow.group("elsewhere"), "__consumer_offsets", {0: 1})
    with member(flow.source, flow.group("new"), flow.topic, "consumer") as consumer:
        consumer.commit(offsets=[TopicPartition(flow.topic, 1, 3)], asynchronous=False)
    configs = flow.task_configs(2)
    assert [c["task.index"] for c in configs] == ["0", "1"]
    assigned = [c.pop("task.assigned.groups").split(",") for c in configs]
    assert list(map(len, assigned)) == [2, 2]
    assert {*assigned[0], *assigned[1]} == set(map(flow.group, ("g1", "g2", "g3", "new")))
    java_class = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"
    for index, props in enumerate(configs):
        assert props == {**flow.props, "task.class": java_class, "task.index": str(index)}
    assert topics(flow.target)[flow.checkpoints_topic] == 1
    assert topic_configs(flow.target, flow.checkpoints_topic)["cleanup.policy"] == "compact"


def test_new_groups_and_groups_that_are_gone_ask_for_new_tasks(make: Make) -> None:
    flow, watch = make(), ConnectorWatch()
    connector = CheckpointConnector(flow.props, watch)
    connector.start()
    try:
        assert connector.task_configs(1) == []
        assert not watch.reconfigured.is_set()
        commit(flow.source, flow.group("g"), flow.topic, {0: 5})
        assert watch.reconfigured.wait(30)
        (props,) = connector.task_configs(4)
        assert props["task.assigned.groups"] == flow.group("g")
    finally:
        connector.stop()
    assert watch.errors == []


def test_a_disabled_connector_does_nothing(make: Make) -> None:
    flow = make(enabled="false")
    commit(flow.source, flow.group("g"), flow.topic, {0: 5})
    assert flow.task_configs() == []
    assert flow.checkpoints_topic not in topics(flow.target)


@pytest.mark.slow
def test_a_source_that_is_down_is_tried_again(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    flow = make()
    address = f"127.0.0.1:{free_port()}"
    props = flow.props | {"source.cluster.bootstrap.servers": address, "admin.timeout.ms": "100"}
    watch = ConnectorWatch()
    connector = CheckpointConnector(props, watch)

    def tries(of: str) -> list[str]:
        found = [m for m in caplog.messages if m.startswith(of) and "Trying again in" in m]
        return [m for m in found if address in m]

    with caplog.at_level(logging.WARNING):
        connector.start()
        with pytest.raises(GroupsUnknown) as caught:
            connector.task_configs(1)
        assert caught.value.retriable
        task_props = {**props, "task.assigned.groups": "g", "task.index": "3"}
        name = flow.props["name"]
        with Running(CheckpointTask(task_props, TaskWatch())) as task:
            wait_for("both tried twice", lambda: tries(f"Task {name}-3:")[1:] and tries("Conn")[1:])
            assert task.is_alive
            task.stop(5.0)
    assert all("\n" not in m for m in tries(f"Task {name}"))
    connector.stop()
    assert watch.errors == []


# -- checkpoints ----------------------------------------------------------------------------------


def test_checkpoints_are_written_and_empty_groups_moved(make: Make) -> None:
    flow, watch = make(**SYNC), TaskWatch()
    produce(flow.target, flow.remote, [NewRecord(None, b"not ours", p) for p in (0, 1, 1)])
    flow.produce(100)
    with flow.copying() as copy:
        copy.until("all is copied", lambda: copy_has(flow, {0: 101, 1: 102}))
    group = flow.group("g")
    commit(flow.source, group, flow.topic, {0: 100, 1: 40})
    (props,) = flow.task_configs()
    with Running(CheckpointTask(props, watch)):
        flow.await_last(group, {0: (100, 101), 1: (40, 3)})
        flow.await_moved(group, {0: 101, 1: 3})
    assert watch.topics == {flow.checkpoints_topic}
    expected = {
        f'["{flow.props["name"]}",{{"partition":{p},"topic":"{flow.remote}","group":"{group}"}}]'
        for p in (0, 1)
    }
    assert {key.decode() for key, _ in watch.offsets} == expected
    assert {value for _, value in watch.offsets} == {b'{"offset":0}'}


def copy_has(flow: Checkpointed, ends: dict[int, int]) -> bool:
    return end_offsets(flow.target, flow.remote) == ends


def test_checkpoints_follow_the_copy_and_the_group(make: Make) -> None:
    flow = make()
    group = flow.group("g")
    with flow.copying() as copy:
        flow.produce(10)
        copy.until("10 are copied", lambda: copy_has(flow, {0: 10, 1: 10}))
        commit(flow.source, group, flow.topic, {0: 10})
        (props,) = flow.task_configs()
        with Running(CheckpointTask(props, TaskWatch())):
            flow.await_last(group, {0: (10, 10)})
            flow.produce(10)
            copy.until("20 are copied", lambda: copy_has(flow, {0: 20, 1: 20}))
            commit(flow.source, group, flow.topic, {0: 20})
            flow.await_last(group, {0: (20, 20)})
    assert [c.downstream_offset for c in flow.checkpoints(group)] == [10, 20]


def test_a_topic_that_is_not_in_topics_gets_no_checkpoint(make: Make) -> None:
    """Nor does its group become one to follow, though offset syncs tell of both topics."""
    flow = make()
    both, other = flow.group("both"), f"{flow.topic}-other"
    create_topic(flow.source, other)
    flow.write_syncs((0, 0, 0))
    key, value = encode_offset_sync(OffsetSync(other, 0, 0, 0))
    produce(flow.syncs_bootstrap, flow.syncs_topic, [NewRecord(key, value, 0)])
    for topic in (other, flow.topic):
        commit(flow.source, both, topic, {0: 5})
    commit(flow.source, flow.group("other"), other, {0: 5})
    (props,) = flow.task_configs()
    assert props["task.assigned.groups"] == both
    with Running(CheckpointTask(props, TaskWatch())):
        flow.await_last(both, {0: (5, 1)})
        commit(flow.source, both, flow.topic, {0: 0})
        flow.await_last(both, {0: (0, 0)})  # a round after the first: all that is due is written
    assert {c.topic for c in flow.checkpoints()} == {flow.remote}


def test_syncs_on_the_target(make: Make) -> None:
    flow = make(**{"offset-syncs_topic_location": "target"})
    flow.produce(10)
    flow.copy(10)
    commit(flow.source, flow.group("g"), flow.topic, {1: 10})
    (props,) = flow.task_configs()
    with Running(CheckpointTask(props, TaskWatch())):
        flow.await_last(flow.group("g"), {1: (10, 10)})


def test_a_group_that_is_rewound_is_followed_but_not_moved_back(make: Make) -> None:
    flow = make(**SYNC)
    flow.write_syncs((0, 0, 0), (0, 50, 60), (0, 99, 120))
    group, witness = flow.group("g"), flow.group("w")
    flow.provide_topic()
    commit(flow.source, group, flow.topic, {0: 100})
    with flow.running(group, witness):
        flow.await_last(group, {0: (100, 121)})
        flow.await_moved(group, {0: 121})
        commit(flow.source, group, flow.topic, {0: 50})
        flow.await_last(group, {0: (50, 60)})
        commit(flow.source, witness, flow.topic, {0: 99})
        flow.await_moved(witness, {0: 120})
        assert flow.moved(group) == {0: 121}
        commit(flow.source, group, flow.topic, {0: 70})
        flow.await_last(group, {0: (70, 61)})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_left_alone(
    make: Make, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    flow = make(**SYNC)
    flow.write_syncs((0, 0, 0), (0, 10, 10), (0, 20, 20))
    busy, idle = flow.group("busy"), flow.group("idle")
    flow.provide_topic()
    for name in (busy, idle):
        commit(flow.source, name, flow.topic, {0: 10})
    with flow.running(busy, idle):
        with member(flow.target, busy, flow.remote, protocol):
            flow.await_last(busy, {0: (10, 10)})
            for offset in (10, 20):  # two rounds in which the others are moved
                commit(flow.source, idle, flow.topic, {0: offset})
                flow.await_moved(idle, {0: offset})
            assert flow.moved(busy) == {}
        flow.await_moved(busy, {0: 10})
    assert "UNKNOWN_MEMBER_ID" not in caplog.text


def test_a_target_group_that_is_ahead_is_left_alone(make: Make) -> None:
    flow = make(**SYNC)
    flow.write_syncs((0, 0, 0), (0, 10, 10), (1, 0, 0), (1, 10, 10))
    group = flow.group("g")
    flow.provide_topic()
    produce(flow.target, flow.remote, [NewRecord(None, b"x", 0)] * 30)
    commit(flow.target, group, flow.remote, {0: 25})
    commit(flow.source, group, flow.topic, {0: 10, 1: 10})
    with flow.running(group):
        flow.await_moved(group, {0: 25, 1: 10})


# -- restart --------------------------------------------------------------------------------------


def test_a_restart_goes_on_from_the_checkpoints_topic(make: Make) -> None:
    flow = make()
    flow.write_syncs((0, 0, 0), (0, 10, 10), (0, 20, 20))
    group, witness = flow.group("g"), flow.group("w")
    flow.provide_topic()
    commit(flow.source, group, flow.topic, {0: 10})
    with flow.running(group, witness):
        flow.await_last(group, {0: (10, 10)})
    # What another task had written with better knowledge than the syncs give: (17, 11) would go back.
    flow.write_checkpoint(group, 0, 15, 15)
    commit(flow.source, group, flow.topic, {0: 17})
    commit(flow.source, witness, flow.topic, {0: 17})
    with flow.running(group, witness):
        flow.await_last(witness, {0: (17, 11)})
        assert flow.last(group) == {0: (15, 15)}
        commit(flow.source, group, flow.topic, {0: 21})
        flow.await_last(group, {0: (21, 21)})
    assert [c.downstream_offset for c in flow.checkpoints(group)] == [10, 15, 21]


def test_records_that_are_no_checkpoints_do_no_harm(make: Make) -> None:
    flow = make()
    flow.write_syncs((0, 0, 0), (0, 10, 10))
    group = flow.group("g")
    flow.provide_topic()
    produce(flow.target, flow.checkpoints_topic, [NewRecord(b"k", b"v"), NewRecord(b"k", None)])
    produce(flow.source, flow.syncs_topic, [NewRecord(b"k", b"v")])
    commit(flow.source, group, flow.topic, {0: 10})
    props = {**flow.props, "task.assigned.groups": group, "task.index": "0"}

    def written() -> bool:
        return end_offsets(flow.target, flow.checkpoints_topic) == {0: 3}

    with Running(CheckpointTask(props, TaskWatch())):
        wait_for("a checkpoint is written", written)


def test_a_syncs_topic_that_was_made_anew_is_read_from_its_start(make: Make) -> None:
    flow = make()
    flow.write_syncs((0, 0, 0), (0, 10, 10))
    group = flow.group("g")
    flow.provide_topic()
    commit(flow.source, group, flow.topic, {0: 10})
    with flow.running(group):
        flow.await_last(group, {0: (10, 10)})
        delete_topic(flow.source, flow.syncs_topic)
        wait_for("it is gone", lambda: flow.syncs_topic not in topics(flow.source))
        create_topic(flow.source, flow.syncs_topic, configs={"cleanup.policy": "compact"})
        flow.write_syncs((0, 0, 50), (0, 10, 60), (0, 20, 70), (0, 30, 80))
        flow.await_last(group, {0: (10, 51)})


# -- rights ---------------------------------------------------------------------------------------


def test_without_the_last_checkpoints_only_what_is_new_is_translated(
    guarded: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    flow = Checkpointed(guarded, guarded)
    flow.write_syncs((0, 0, 0), (0, 10, 10), (0, 20, 20))
    old, new = flow.group("old"), flow.group("new")
    flow.provide_topic()
    forbid(guarded, AclOperation.READ, flow.checkpoints_topic)
    for name, offset in ((old, 15), (new, 25)):
        commit(flow.source, name, flow.topic, {0: offset})
    watch = TaskWatch()
    with flow.running(old, new, watch=watch):
        wait_for("the new one has a checkpoint", lambda: watch.offsets)
    assert [new in key.decode() for key, _ in watch.offsets] == [True]
    assert f"User:ANONYMOUS lacks the ACL Read on topic {flow.checkpoints_topic}." in caplog.text


def test_who_may_not_read_the_syncs_fails_and_is_told_why(guarded: KafkaCluster) -> None:
    flow = Checkpointed(guarded, guarded)
    flow.write_syncs((0, 0, 0))
    flow.provide_topic()
    forbid(guarded, AclOperation.READ, flow.syncs_topic)
    running = flow.running(flow.group("g"))
    with pytest.raises(BrokerError) as caught, running:
        wait_for("the task fails", lambda: not running.is_alive)
    assert f"User:ANONYMOUS lacks the ACL Read on topic {flow.syncs_topic}." in caught.value.remedy


def test_who_may_not_read_the_offset_map_goes_without(
    guarded: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Rights that do for MirrorMaker 2 do for us."""
    flow = Checkpointed(guarded, guarded)
    flow.write_syncs((0, 0, 0), (0, 10, 10))
    flow.provide_topic()
    maps = [f"mm2-offset-map.{alias}.internal" for alias in (flow.alias, f"B{flow.mark}")]
    for topic in maps:
        create_topic(guarded.bootstrap, topic, configs={"cleanup.policy": "compact"})
        forbid(guarded, AclOperation.READ, topic)
    group = flow.group("g")
    commit(flow.source, group, flow.topic, {0: 15})
    watch = TaskWatch()
    with flow.running(group, watch=watch):
        wait_for("it has a checkpoint", lambda: watch.offsets)
    for topic in maps:
        assert f"User:ANONYMOUS lacks the ACL Read on topic {topic}." in caplog.text


# -- many groups, moving coordinators ---------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_groups_take_a_few_requests(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = make(**SYNC)
    flow.write_syncs((0, 0, 0), (0, 10, 10), (1, 0, 0), (1, 10, 10))
    flow.provide_topic()
    names = [flow.group(f"g{i}") for i in range(1000)]
    offsets = {(flow.topic, p): GroupOffset(10, "m") for p in (0, 1)}
    moves = dict.fromkeys(names, offsets)
    source = Cluster(client_settings("A", {"bootstrap.servers": flow.source}))
    target = Cluster(client_settings("B", {"bootstrap.servers": flow.target}))
    with closing(source), closing(target):  # coordinators may be still to come
        wait_for("all commit", lambda: not Groups(source).commit(moves).failed)
        wait_for("all can be asked", lambda: not Groups(target).committed(names).failed)

    requests: Counter[str] = Counter()
    counting = threading.Lock()  # groups are moved by several threads
    exchange = Connection._exchange

    def counted(self: Connection, request: Any, *rest: Any) -> Any:
        with counting:
            requests[request.name] += 1
        return exchange(self, request, *rest)

    monkeypatch.setattr(Connection, "_exchange", counted)
    watch = TaskWatch()
    last = names[-1]
    with flow.running(*names, watch=watch):
        wait_for("all are written", lambda: len(watch.offsets) == 2000)
        flow.await_moved(last, {0: 10, 1: 10})
        rounds = requests["ListGroupsRequest"]
        wait_for("two more rounds", lambda: requests["ListGroupsRequest"] >= rounds + 2)
    assert requests["OffsetCommitRequest"] == 1000  # each once, and none where nothing is to do
    assert requests["FindCoordinatorRequest"] == 2 * 4  # on either side, 250 groups at a time
    rounds = requests["ListGroupsRequest"]  # checkpoints are written at the same pace
    assert requests["OffsetFetchRequest"] <= 4 * (2 * rounds + 2)


@pytest.mark.slow
def test_checkpoints_leave_while_many_groups_are_moved(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = make(**SYNC)
    flow.write_syncs((0, 0, 0), (0, 10, 10), (0, 20, 20))
    flow.provide_topic()
    first, second = flow.group("first"), flow.group("second")
    for name in (first, second):
        commit(flow.source, name, flow.topic, {0: 10})
    seen: list[tuple[list[str], Mapping[int, tuple[int, int]]]] = []
    really_commit = Groups.commit

    def slowly(self: Groups, offsets: Moves) -> Any:
        if offsets:
            seen.append((list(offsets), flow.last(second)))
        if len(seen) == 1:
            commit(flow.source, second, flow.topic, {0: 20})
            due = time.monotonic() + 1.1
            wait_for("checkpoints are due again", lambda: time.monotonic() > due)
        return really_commit(self, offsets)

    monkeypatch.setattr(checkpoint_task, "_GROUPS_AT_ONCE", 1)
    monkeypatch.setattr(Groups, "commit", slowly)
    with flow.running(first, second):
        flow.await_moved(second, {0: 20})
    assert seen[:2] == [([first], {0: (10, 10)}), ([second], {0: (20, 20)})]


@pytest.mark.slow
def test_groups_are_asked_for_at_their_new_coordinator(three_broker_source: KafkaCluster) -> None:
    flow = Checkpointed(three_broker_source, three_broker_source)
    names = [flow.group(f"g{i}") for i in range(30)]
    cluster = Cluster(client_settings("A", {"bootstrap.servers": flow.source}))
    groups = Groups(cluster)

    def commits(offset: int) -> bool:
        moves = {(flow.topic, 0): GroupOffset(offset, "m")}
        return groups.commit(dict.fromkeys(names, moves)).found == dict.fromkeys(names, 1)

    def reads(offset: int) -> bool:
        expected = {(flow.topic, 0): GroupOffset(offset, "m")}
        return groups.committed(names).found == dict.fromkeys(names, expected)

    wait_for("all commit", lambda: commits(7))
    assert reads(7)
    three_broker_source.kill(2)
    try:
        wait_for("all answer again", lambda: reads(7))
        wait_for("all commit again", lambda: commits(8))
        assert {listing.group for listing in groups.listings()} >= set(names)
    finally:
        three_broker_source.restart(2)
    wait_for("all answer once more", lambda: reads(8))
    cluster.close()
