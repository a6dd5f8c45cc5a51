"""Java's Connect worker and our stores on the same topics: each reads what the other wrote, and shows the same."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from java_connect import JavaConnectWorker, connector_path
from kafka_tools import consume, wait_for

from sparkmirror.control.config_store import ConfigStore
from sparkmirror.control.offset_rules import ConnectorKind
from sparkmirror.control.offset_store import OffsetStore
from sparkmirror.control.states import (
    RestartRequest,
    SessionKey,
    State,
    Status,
    TargetState,
    TaskId,
)
from sparkmirror.control.status_store import StatusStore
from sparkmirror.control.storage_topic import Role
from sparkmirror.control.topic_log import LogFactory, StorageTopicSettings, TopicLog
from sparkmirror.errors import ConnectError
from sparkmirror.formats import config_log, java_json, status_log
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster

PATIENCE_S = 30.0
_CLASS = "org.apache.kafka.connect.mirror.Mirror{}Connector"
_PARTITIONS: dict[Role, int] = {"config": 1, "offset": 25, "status": 5}


class Heard:
    """A listener that keeps what only passes by."""

    def __init__(self) -> None:
        self.passing: queue.Queue[object] = queue.Queue()

    def connector_config_updated(self, name: str) -> None: ...
    def connector_config_removed(self, name: str) -> None: ...
    def task_configs_updated(self, tasks: list[TaskId]) -> None: ...
    def target_state_changed(self, name: str) -> None: ...
    def session_key_updated(self, key: SessionKey) -> None: ...
    def restart_requested(self, request: RestartRequest) -> None:
        self.passing.put(request)

    def logger_level_updated(self, namespace: str, level: str) -> None:
        self.passing.put((namespace, level))


class Stores(NamedTuple):
    configs: ConfigStore
    statuses: StatusStore
    offsets: OffsetStore
    heard: Heard

    def refresh(self) -> None:
        self.configs.refresh(PATIENCE_S)
        assert self.statuses.flush(PATIENCE_S)
        self.statuses.refresh(PATIENCE_S)


@contextmanager
def our_stores(bootstrap: str, group: str) -> Iterator[Stores]:
    settings = client_settings("target", {"bootstrap.servers": bootstrap})

    def log(role: Role) -> LogFactory:
        name = f"{group}-{role}{'' if role == 'status' else 's'}"
        topic = StorageTopicSettings(name, _PARTITIONS[role], 1, role=role)
        return partial(TopicLog, settings, topic)

    heard = Heard()
    stores = Stores(
        ConfigStore(log("config"), heard),
        StatusStore(log("status")),
        OffsetStore(log("offset")),
        heard,
    )
    with ExitStack() as stack:
        for store in (stores.configs, stores.statuses, stores.offsets):
            stack.callback(store.stop)
            store.start()
        yield stores


def heartbeat_config(bootstrap: str) -> dict[str, str]:
    return {
        "connector.class": _CLASS.format("Heartbeat"),
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": bootstrap,
        "target.cluster.bootstrap.servers": bootstrap,
        "emit.heartbeats.interval.seconds": "1",
        "heartbeats.topic.replication.factor": "1",
        "tasks.max": "1",
    }


def shown_by_java(worker: JavaConnectWorker, name: str) -> dict[str, Any]:
    """Everything that REST shows of a connector, or why it shows nothing."""
    found: dict[str, Any] = {}
    for what in ("", "/tasks", "/status", "/topics", "/offsets"):
        status, _, body = worker.request("GET", f"{connector_path(name)}{what}")
        found[what] = body if status == 200 else status
    return found


def shown_by_us(stores: Stores, name: str) -> dict[str, Any]:
    """The same, made of what our stores hold."""
    stores.refresh()
    config = stores.configs.snapshot()
    status = stores.statuses.connector(name)
    tasks = [{"connector": task.connector, "task": task.task} for task in config.tasks_of(name)]
    is_known = name in config.connectors
    info = {"name": name, "config": config.connectors.get(name), "tasks": tasks, "type": "source"}
    task_list = [
        {"id": {"connector": name, "task": task.task}, "config": config.tasks[task]}
        for task in config.tasks_of(name)
    ]
    states = [{"id": number} | _state(task) for number, task in stores.statuses.tasks(name).items()]
    offsets = [
        {"partition": dict(partition), "offset": dict(offset)}
        for partition, offset in stores.offsets.offsets(name)
    ]
    return {
        "": info if is_known else 404,
        "/tasks": task_list if is_known else 404,
        "/status": 404
        if status is None
        else {"name": name, "connector": _state(status), "tasks": states, "type": "source"},
        "/topics": {name: {"topics": stores.statuses.topics(name)}},
        "/offsets": {"offsets": offsets} if is_known else 404,
    }


def _state(status: Status) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "state": status.state.value,
        "worker_id": status.worker_id,
        "version": status.version,
    }
    return fields if status.trace is None else {**fields, "trace": status.trace}


def assert_same(worker: JavaConnectWorker, stores: Stores, name: str) -> dict[str, Any]:
    """Wait until both show the same (both read the topics on their own), and give it."""
    pair: list[dict[str, Any]] = []

    def is_same() -> bool:
        pair[:] = [shown_by_us(stores, name), shown_by_java(worker, name)]
        return pair[0] == pair[1]

    try:
        wait_for("both show the same", is_same, PATIENCE_S)
    except AssertionError:
        assert pair[0] == pair[1]
        raise
    return pair[0]


@pytest.mark.parametrize("exactly_once", ["disabled", "preparing"])
def test_the_life_of_a_connector_on_a_java_worker(
    peer_cluster: KafkaCluster, group: str, tmp_path: Path, exactly_once: str
) -> None:
    """With "preparing" the leader writes the config topic in transactions."""
    bootstrap, name = peer_cluster.bootstrap, "größe & 1"
    path = connector_path(name)
    support = {"exactly.once.source.support": exactly_once}
    with (
        JavaConnectWorker(bootstrap, tmp_path, group, **support) as worker,
        our_stores(bootstrap, group) as stores,
    ):
        config = heartbeat_config(bootstrap)
        assert worker.request("POST", "/connectors", {"name": name, "config": config}).status == 201
        worker.await_state(name, "RUNNING", 1)
        wait_for("heartbeats are written", lambda: stores.offsets.offsets(name))
        same = assert_same(worker, stores, name)
        assert same["/topics"] == {name: {"topics": ["heartbeats"]}}
        assert len(same["/tasks"]) == 1

        worker.request("PUT", f"{path}/pause")
        worker.await_state(name, "PAUSED", 1)
        assert_same(worker, stores, name)
        assert stores.configs.snapshot().target_state(name) == TargetState.PAUSED

        worker.request("PUT", f"{path}/stop")
        worker.await_state(name, "STOPPED", 0)
        assert_same(worker, stores, name)
        snapshot = stores.configs.snapshot()
        assert snapshot.target_state(name) == TargetState.STOPPED
        assert snapshot.task_counts == {name: 0}

        assert worker.request("DELETE", f"{path}/offsets").status == 200
        assert assert_same(worker, stores, name)["/offsets"] == {"offsets": []}

        worker.request("PUT", f"{path}/resume")
        worker.await_state(name, "RUNNING", 1)
        assert worker.request("POST", f"{path}/restart?includeTasks=true").status == 202
        worker.request("PUT", "/admin/loggers/org.example?scope=cluster", {"level": "WARN"})
        heard = [stores.heard.passing.get(timeout=PATIENCE_S) for _ in range(2)]
        restart = RestartRequest(name, only_failed=False, include_tasks=True)
        assert heard == [restart, ("org.example", "WARN")]
        worker.await_state(name, "RUNNING", 1)

        worker.request("DELETE", path)
        wait_for("the status is gone", lambda: shown_by_java(worker, name)["/status"] == 404)
        assert_same(worker, stores, name)
        assert stores.configs.snapshot().session_key is not None
    assert_bytes_are_ours(bootstrap, group)


def assert_bytes_are_ours(bootstrap: str, group: str) -> None:
    """What the Java worker wrote, read and written by us, is the same to the last byte."""
    for record in consume(bootstrap, f"{group}-configs"):
        assert config_log.encode(config_log.decode(record.key, record.value)) == record[3:5]
    for record in consume(bootstrap, f"{group}-status"):
        assert status_log.encode(status_log.decode(record.key, record.value)) == record[3:5]
    keys = [record.key for record in consume(bootstrap, f"{group}-offsets")]
    assert keys
    for key in keys:
        assert java_json.encode(java_json.hash_ordered(java_json.decode(key or b""))) == key


def test_whose_word_counts_about_a_task(
    peer_cluster: KafkaCluster, group: str, tmp_path: Path
) -> None:
    """Records of other workers, of the same and of other generations: both believe the same of them."""
    bootstrap, task = peer_cluster.bootstrap, TaskId("hb", 0)
    with (
        JavaConnectWorker(bootstrap, tmp_path, group) as worker,
        our_stores(bootstrap, group) as stores,
    ):
        body = {"name": "hb", "config": heartbeat_config(bootstrap)}
        worker.request("POST", "/connectors", body)
        worker.await_state("hb", "RUNNING", 1)
        assert_same(worker, stores, "hb")
        known = stores.statuses.task(task)
        assert known is not None
        before = (known, Status(State.PAUSED, "elsewhere:8083", 1, None, "1"))
        cases = itertools.product(
            before,
            (State.UNASSIGNED, State.FAILED, State.RUNNING),
            ("elsewhere:8083", known.worker_id),
            (known.generation - 1, known.generation, known.generation + 1),
        )
        mark = same_partition(task)
        for number, (first, state, worker_id, generation) in enumerate(cases):
            stores.statuses.put_task(task, first)
            restarts = number % 3  # a field of ours, which Java does not know
            status = Status(state, worker_id, generation, f"case {number}", restarts=restarts)
            stores.statuses.put_task(task, status)
            # Read after the others, as it is in the same partition.
            stores.statuses.put_task(mark, Status(State.PAUSED, "mark", number))
            stores.statuses.put_task(mark, Status(State.FAILED, f"mark:{number}", number))
            wait_for("Java has read it", partial(has_read, worker, f"mark:{number}"))
            assert_same(worker, stores, "hb")


def has_read(worker: JavaConnectWorker, worker_id: str) -> bool:
    tasks = worker.request("GET", "/connectors/hb/status").body["tasks"]
    return any(task["worker_id"] == worker_id for task in tasks)


def same_partition(task: TaskId) -> TaskId:
    """Another task of the connector, whose status is in the same partition of the status topic."""

    def partition(number: int) -> int:
        return default_partition(f"status-task-{task.connector}-{number}".encode(), 5)

    numbers = range(task.task + 1, 1000)
    return TaskId(task.connector, next(n for n in numbers if partition(n) == partition(task.task)))


# -- offsets ------------------------------------------------------------------------------------

_SOURCE = {"cluster": "A", "topic": "t", "partition": 0}
_CHECKPOINT = {"group": "g", "topic": "A.t", "partition": 1}
_HEARTBEAT = {"sourceClusterAlias": "A", "targetClusterAlias": "B"}
ALTERATIONS: list[tuple[ConnectorKind, Any, Any]] = [
    ("source", _SOURCE, {"offset": 5}),
    ("source", {"partition": 7, "topic": "größe", "cluster": 'a"\\\u001f'}, {"offset": 2**40}),
    ("source", {**_SOURCE, "more": "x", "cost": 1.5, "huge": 1e10, "is": True}, {"offset": 0}),
    ("source", {**_SOURCE, **{f"k{i}": i for i in range(12)}}, {"offset": 1}),
    ("source", _SOURCE, None),
    ("source", None, None),
    ("source", {}, None),
    ("source", {"x": None}, None),
    ("source", None, {"offset": 1}),
    ("source", {}, {"offset": 1}),
    ("source", {**_SOURCE, "cluster": 1}, {"offset": 1}),
    ("source", {**_SOURCE, "topic": None}, {"offset": 1}),
    ("source", {**_SOURCE, "partition": "0"}, {"offset": 1}),
    ("source", {**_SOURCE, "partition": 0.0}, {"offset": 1}),
    ("source", {**_SOURCE, "partition": False}, {"offset": 1}),
    ("source", {**_SOURCE, "partition": -1}, {"offset": 1}),
    ("source", {**_SOURCE, "partition": 2**31}, {"offset": 1}),
    ("source", {"topic": "t", "cluster": "A"}, {"offset": 1}),
    ("source", {**_SOURCE, "deep": {"a": 1}}, {"offset": 1}),
    ("source", {**_SOURCE, "deep": [1, None]}, {"offset": 1}),
    ("source", {"deep": [1]}, None),
    ("source", _SOURCE, {}),
    ("source", _SOURCE, {"offset": None}),
    ("source", _SOURCE, {"offset": "5"}),
    ("source", _SOURCE, {"offset": 5.0}),
    ("source", _SOURCE, {"offset": -1}),
    ("source", _SOURCE, {"offset": 1, "deep": {}}),
    ("checkpoint", _CHECKPOINT, {"offset": 0}),
    ("checkpoint", _CHECKPOINT, {"offset": 1}),
    ("checkpoint", _SOURCE, {"offset": 0}),
    ("checkpoint", {**_CHECKPOINT, "partition": -5}, {"offset": 0}),
    ("checkpoint", _CHECKPOINT, None),
    ("heartbeat", _HEARTBEAT, {"offset": 0}),
    ("heartbeat", _HEARTBEAT, {"offset": -1}),
    ("heartbeat", {"sourceClusterAlias": "A"}, {"offset": 0}),
    ("heartbeat", {**_HEARTBEAT, "targetClusterAlias": 3}, {"offset": 0}),
    ("heartbeat", None, {"offset": 0}),
]


def test_offsets_are_altered_as_java_alters_them(
    peer_cluster: KafkaCluster, group: str, tmp_path: Path
) -> None:
    bootstrap, ours = peer_cluster.bootstrap, f"{group}-ours"
    with (
        JavaConnectWorker(bootstrap, tmp_path, group) as worker,
        our_stores(bootstrap, ours) as stores,
    ):
        for kind in ("source", "checkpoint", "heartbeat"):
            config = {**heartbeat_config(bootstrap), "connector.class": _CLASS.format(kind.title())}
            stopped = {"name": kind, "config": config, "initial_state": "STOPPED"}
            assert worker.request("POST", "/connectors", stopped).status == 201
            worker.await_state(kind, "STOPPED", 0)
        for kind, partition, offset in ALTERATIONS:
            body = {"offsets": [{"partition": partition, "offset": offset}]}
            status, _, answer = worker.request("PATCH", f"/connectors/{kind}/offsets", body)
            said = "" if status == 200 else answer["message"]
            assert altered(stores, kind, partition, offset) == said, body
        for kind in ("source", "checkpoint", "heartbeat"):
            assert shown_by_us(stores, kind)["/offsets"] == 404  # our own topics have no connector
            assert {repr(row) for row in stores.offsets.offsets(kind)} == {
                repr((row["partition"], row["offset"]))
                for row in shown_by_java(worker, kind)["/offsets"]["offsets"]
            }
    assert rows(bootstrap, f"{ours}-offsets") == rows(bootstrap, f"{group}-offsets")


def altered(stores: Stores, kind: ConnectorKind, partition: Any, offset: Any) -> str:
    try:
        stores.offsets.alter(kind, kind, [(partition, offset)])
    except ConnectError as error:
        return error.message
    return ""


def rows(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.partition, r.key, r.value) for r in consume(bootstrap, topic)]


# -- the other way round ------------------------------------------------------------------------


def test_a_java_worker_takes_over_what_our_stores_wrote(
    peer_cluster: KafkaCluster, group: str, tmp_path: Path
) -> None:
    bootstrap = peer_cluster.bootstrap
    config = {**heartbeat_config(bootstrap), "connector.class": "MirrorHeartbeatConnector"}
    task = {**config, "task.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"}
    wanted = {
        "started": (None, 1),
        "paused-é": (TargetState.PAUSED, 1),
        "stopped": (TargetState.STOPPED, 0),
    }
    with our_stores(bootstrap, group) as stores:
        for name, (target, tasks) in wanted.items():
            named = {"name": name}
            stores.configs.put_connector(name, config | named, target)
            stores.configs.put_task_configs(name, [task | named] * tasks)
            stores.offsets.alter(name, "heartbeat", [(_HEARTBEAT, {"offset": 0})])
        stores.configs.put_connector("deleted", config | {"name": "deleted"})
        stores.configs.put_task_configs("deleted", [task | {"name": "deleted"}])
        stores.configs.remove_connector("deleted")
        stores.statuses.put_topic("stopped", "heartbeats", 0, 1700000000000)
        stores.statuses.put_connector("stopped", Status(State.RUNNING, "gone:8083", 1))
        stores.refresh()
        with JavaConnectWorker(bootstrap, tmp_path, group) as worker:
            assert set(worker.request("GET", "/connectors").body) == set(wanted)
            for name, state in (
                ("started", "RUNNING"),
                ("paused-é", "PAUSED"),
                ("stopped", "STOPPED"),
            ):
                worker.await_state(name, state, wanted[name][1])
                shown = assert_same(worker, stores, name)
                assert shown[""]["config"] == config | {"name": name}
                assert [row["config"] for row in shown["/tasks"]] == [
                    task | {"name": name}
                ] * wanted[name][1]
                assert shown["/offsets"]["offsets"] == [
                    {"partition": _HEARTBEAT, "offset": {"offset": 0}}
                ]
            assert shown["/topics"] == {"stopped": {"topics": ["heartbeats"]}}

            # Both at work: what our store says is done by the Java worker.
            stores.configs.put_target_state("started", TargetState.PAUSED)
            worker.await_state("started", "PAUSED", 1)
            stores.configs.put_target_state("paused-é", TargetState.STARTED)
            worker.await_state("paused-é", "RUNNING", 1)
            stores.configs.remove_connector("started")
            wait_for(
                "the connector is gone", lambda: shown_by_java(worker, "started")["/status"] == 404
            )
            assert_same(worker, stores, "started")
