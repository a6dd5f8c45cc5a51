"""Our workers and Java's in one group: whoever leads, the work is shared evenly, and nothing of it runs twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from group_workers import QUICK, Shared, Worker
from java_connect import JavaConnectWorker
from kafka_tools import wait_for

from sparkmirror.control.assignor import Item
from sparkmirror.control.config_store import ConfigStore
from sparkmirror.control.states import ClusterConfig, RestartRequest, SessionKey, TaskId
from sparkmirror.control.topic_log import StorageTopicSettings, TopicLog
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster

_NAMES = [f"heartbeat-{number}" for number in range(6)]
_PACKAGE = "org.apache.kafka.connect.mirror"
_ALL: frozenset[Item] = frozenset((*_NAMES, *(TaskId(name, 0) for name in _NAMES)))


class _Deaf:
    """A listener that the store needs and this test does not."""

    def connector_config_updated(self, name: str) -> None: ...
    def connector_config_removed(self, name: str) -> None: ...
    def task_configs_updated(self, tasks: list[TaskId]) -> None: ...
    def target_state_changed(self, name: str) -> None: ...
    def session_key_updated(self, key: SessionKey) -> None: ...
    def restart_requested(self, request: RestartRequest) -> None: ...
    def logger_level_updated(self, namespace: str, level: str) -> None: ...


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as things:
        yield things


@pytest.fixture
def start_java(
    peer_cluster: KafkaCluster, group: str, tmp_path: Path, stack: ExitStack
) -> Callable[[], JavaConnectWorker]:
    def start() -> JavaConnectWorker:
        worker = JavaConnectWorker(
            peer_cluster.bootstrap,
            tmp_path,
            group,
            session_timeout_ms="6000",
            heartbeat_interval_ms="500",
        )
        return stack.enter_context(worker)

    return start


@pytest.fixture
def configs(peer_cluster: KafkaCluster, group: str, stack: ExitStack) -> ConfigStore:
    """The group's config topic, as our worker reads it; `start` makes it if it is not there."""
    settings = client_settings("peer", {"bootstrap.servers": peer_cluster.bootstrap})
    topic = StorageTopicSettings(f"{group}-configs", 1, 1, role="config")
    store = ConfigStore(partial(TopicLog, settings, topic), _Deaf())
    stack.callback(store.stop)
    return store


@pytest.fixture
def start_ours(
    peer_cluster: KafkaCluster, group: str, configs: ConfigStore, stack: ExitStack
) -> Callable[[str], Worker]:
    def start(name: str) -> Worker:
        shared = Shared(ClusterConfig())
        worker = Worker(
            peer_cluster.bootstrap, group, name, shared, QUICK, snapshot=configs.snapshot
        )
        stack.callback(worker.close)
        return worker

    return start


def _config(bootstrap: str) -> dict[str, str]:
    return {
        "connector.class": f"{_PACKAGE}.MirrorHeartbeatConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": bootstrap,
        "target.cluster.bootstrap.servers": bootstrap,
        "heartbeats.topic.replication.factor": "1",
        "tasks.max": "1",
    }


def _running(java: JavaConnectWorker) -> frozenset[Item]:
    """What Java's worker says that it runs."""
    found: set[Item] = set()
    for name in _NAMES:
        answer = java.request("GET", f"/connectors/{name}/status")
        if answer.status != 200:
            continue
        if answer.body["connector"]["state"] == "RUNNING":
            found.add(name)
        found |= {TaskId(name, t["id"]) for t in answer.body["tasks"] if t["state"] == "RUNNING"}
    return frozenset(found)


def _assigned(java: JavaConnectWorker) -> frozenset[Item]:
    """What Java's worker says that it was assigned last."""
    *_, last = re.findall(
        r"got assignment: .*?connectorIds=\[(.*?)\], taskIds=\[(.*?)\]", java.log.read_text()
    )
    connectors, tasks = ([name for name in names.split(", ") if name] for names in last)
    return frozenset((*connectors, *(TaskId(*_split(task)) for task in tasks)))


def _split(task: str) -> tuple[str, int]:
    name, number = task.rsplit("-", 1)
    return name, int(number)


def _share_evenly(ours: Worker, java: JavaConnectWorker) -> bool:
    """Whether each has three connectors and three tasks, together all, and the group is at rest."""
    work = ours.group.owned
    if (len(work.connectors), len(work.tasks)) != (3, 3) or not ours.is_settled:
        return False
    rest = _ALL - ours.owned
    # Java may write a state after the one that followed it: RUNNING alone does not say that it runs.
    return _assigned(java) == rest and _running(java) >= rest


def test_ours_follows_java(
    peer_cluster: KafkaCluster,
    start_java: Callable[[], JavaConnectWorker],
    start_ours: Callable[[str], Worker],
    configs: ConfigStore,
) -> None:
    java = start_java()
    for name in _NAMES:
        config = {**_config(peer_cluster.bootstrap), "name": name}
        assert java.request("PUT", f"/connectors/{name}/config", config).status == 201
    wait_for("Java runs all", lambda: _running(java) == _ALL)
    configs.start()
    ours = start_ours("ours")
    wait_for("each has its half", lambda: _share_evenly(ours, java))
    assert ours.group.leader_url == f"{java.url}/"
    assert not ours.group.is_leader
    assert ours.group.protocol_version == 2
    ours.close()
    wait_for("Java runs all again", lambda: _running(java) == _ALL)


def test_java_follows_ours_then_leads(
    peer_cluster: KafkaCluster,
    start_java: Callable[[], JavaConnectWorker],
    start_ours: Callable[[str], Worker],
    configs: ConfigStore,
) -> None:
    configs.start()
    task_class = f"{_PACKAGE}.MirrorHeartbeatTask"
    for name in _NAMES:
        config = {**_config(peer_cluster.bootstrap), "name": name}
        configs.put_connector(name, config)
        configs.put_task_configs(name, [{**config, "task.class": task_class}])
    ours = start_ours("ours")
    wait_for("ours has all", lambda: ours.owned == _ALL)
    java = start_java()
    wait_for("each has its half", lambda: _share_evenly(ours, java))
    assert ours.group.is_leader
    assert {ours.group.owner_url(item) for item in _ALL - ours.owned} == {f"{java.url}/"}
    assert {ours.group.owner_url(item) for item in ours.owned} == {ours.url}
    revoked = sum(map(len, ours.revocations))
    assert revoked == 6, "only what Java got was taken"
    ours.close()
    wait_for("Java runs all", lambda: _running(java) == _ALL)
    again = start_ours("again")
    wait_for("each has its half again", lambda: _share_evenly(again, java))
    assert again.group.leader_url == f"{java.url}/"
