"""The three stores of a Connect worker on real brokers: what one worker writes, all of them see."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    Record,
    consume,
    create_topic,
    produce,
    produce_transaction,
    wait_for,
)

from sparkmirror.control.config_store import ConfigStore
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
from sparkmirror.dataplane.positions import PositionStore, StoreAddress
from sparkmirror.errors import ConfigError, ConnectError
from sparkmirror.formats.position import Entry, Numbering, Position
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
Event = tuple[object, ...]
PATIENCE_S = 30.0
W1, W2 = "one:8083", "two:8083"


def log_of(bootstrap: str, name: str, role: Role, partitions: int = 1) -> LogFactory:
    settings = client_settings("target", {"bootstrap.servers": bootstrap})
    return partial(TopicLog, settings, StorageTopicSettings(name, partitions, 1, role=role))


class Heard:
    """A listener that passes on what it is told."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()

    def connector_config_updated(self, name: str) -> None:
        self.events.put(("updated", name))

    def connector_config_removed(self, name: str) -> None:
        self.events.put(("removed", name))

    def task_configs_updated(self, tasks: list[TaskId]) -> None:
        self.events.put(("tasks", *map(str, tasks)))

    def target_state_changed(self, name: str) -> None:
        self.events.put(("state", name))

    def session_key_updated(self, key: SessionKey) -> None:
        self.events.put(("key", key))

    def restart_requested(self, request: RestartRequest) -> None:
        self.events.put(("restart", request))

    def logger_level_updated(self, namespace: str, level: str) -> None:
        self.events.put(("logger", namespace, level))

    def next(self, count: int) -> list[Event]:
        return [self.events.get(timeout=PATIENCE_S) for _ in range(count)]


@contextmanager
def config_store(bootstrap: str, topic: str, **options: Any) -> Iterator[tuple[ConfigStore, Heard]]:
    heard = Heard()
    store = ConfigStore(log_of(bootstrap, topic, "config"), heard, **options)
    try:
        store.start()
        yield store, heard
    finally:
        store.stop()


@contextmanager
def status_store(bootstrap: str, topic: str) -> Iterator[StatusStore]:
    store = StatusStore(log_of(bootstrap, topic, "status", 5))
    try:
        store.start()
        yield store
    finally:
        store.stop()


@contextmanager
def offset_store(bootstrap: str, topic: str) -> Iterator[OffsetStore]:
    store = OffsetStore(log_of(bootstrap, topic, "offset", 25))
    try:
        store.start()
        yield store
    finally:
        store.stop()


# -- configs ------------------------------------------------------------------------------------


def test_configs_are_seen_by_the_writer_at_once_and_by_the_others_soon(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("configs"), target_cluster.bootstrap
    with (
        config_store(bootstrap, topic) as (one, _),
        config_store(bootstrap, topic) as (other, heard),
    ):
        key = SessionKey(b"secret", "HmacSHA256", 1)
        one.put_session_key(key)
        one.put_connector("c", {"name": "c", "größe": "\n"}, TargetState.PAUSED)
        assert one.contains("c")
        one.put_task_configs("c", [{"task": "0"}, {"task": "1"}])
        one.put_target_state("c", TargetState.STARTED)
        request = RestartRequest("c", only_failed=True, include_tasks=False)
        one.put_restart_request(request)
        one.put_logger_level("root", "DEBUG")
        one.put_task_count_record("c", 2)
        mine = one.snapshot()
        assert mine.connectors == {"c": {"name": "c", "größe": "\n"}}
        assert mine.tasks == {TaskId("c", 0): {"task": "0"}, TaskId("c", 1): {"task": "1"}}
        assert (mine.target_state("c"), mine.session_key) == (TargetState.STARTED, key)
        assert mine.task_count_records == {"c": 2}
        assert heard.next(6) == [
            ("key", key),
            ("updated", "c"),
            ("tasks", "c-0", "c-1"),
            ("state", "c"),
            ("restart", request),
            ("logger", "root", "DEBUG"),
        ]
        other.refresh(PATIENCE_S)
        assert other.snapshot() == mine
        one.remove_connector("c")
        assert not one.contains("c")
        assert heard.next(1) == [("removed", "c")]
        assert heard.events.empty()


def test_what_was_asked_for_before_the_start_is_not_done_after_it(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("configs"), target_cluster.bootstrap
    with config_store(bootstrap, topic) as (one, _):
        one.put_connector("c", {})
        one.put_restart_request(RestartRequest("c", only_failed=False, include_tasks=True))
        one.put_logger_level("root", "DEBUG")
    with config_store(bootstrap, topic) as (later, heard):
        assert later.contains("c")
        later.put_target_state("c", TargetState.STOPPED)
        assert heard.next(1) == [("state", "c")]
        assert heard.events.empty()


def test_the_config_topic_has_the_bytes_of_a_java_worker(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("configs"), target_cluster.bootstrap
    with config_store(bootstrap, topic) as (store, _):
        store.put_connector("c", {"a": "1"}, TargetState.STOPPED)
        store.put_task_configs("c", [{"a": "1"}, {"b": "2"}])
        store.put_task_configs("c", [])
        store.remove_connector("c")
    assert [(r.key, r.value) for r in consume(bootstrap, topic)] == [
        (b"target-state-c", b'{"state":"PAUSED","state.v2":"STOPPED"}'),
        (b"connector-c", b'{"properties":{"a":"1"}}'),
        (b"task-c-0", b'{"properties":{"a":"1"}}'),
        (b"task-c-1", b'{"properties":{"b":"2"}}'),
        (b"commit-c", b'{"tasks":2}'),
        (b"commit-c", b'{"tasks":0}'),
        (b"connector-c", None),
        (b"target-state-c", None),
    ]


def test_a_leader_that_writes_in_transactions_is_read_committed(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("configs"), target_cluster.bootstrap
    with config_store(bootstrap, topic) as (store, _):
        for name, commit in (("kept", True), ("given-up", False)):
            record = NewRecord(f"connector-{name}".encode(), b'{"properties":{}}')
            produce_transaction(
                bootstrap, topic, [record], commit=commit, transactional_id=unique("leader")
            )
        store.refresh(PATIENCE_S)
        assert list(store.snapshot().connectors) == ["kept"]
        assert store.snapshot().offset == 1


def test_a_config_topic_with_two_partitions_is_fatal(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("configs"), target_cluster.bootstrap
    create_topic(bootstrap, topic, 2, configs={"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match="2 partitions"), config_store(bootstrap, topic):
        pass


@pytest.mark.slow
def test_a_write_that_nobody_takes_is_an_error_and_a_later_one_is_not(tmp_path: Path) -> None:
    with (
        KafkaCluster("alone", 1, tmp_path, jvm=QUICK_JVM) as cluster,
        config_store(cluster.bootstrap, "configs", timeout=3.0) as (store, _),
        config_store(cluster.bootstrap, "configs") as (other, heard),
        status_store(cluster.bootstrap, "status") as statuses,
    ):
        store.put_connector("a", {})
        cluster.kill(1)
        with pytest.raises(ConnectError, match="connector b could not be"):
            store.put_connector("b", {})
        statuses.put_connector("a", Status(State.RUNNING, W1, 1))
        statuses.put_connector("a", Status(State.FAILED, W1, 1, "trace"))
        cluster.restart(1)

        def is_written() -> bool:
            try:
                store.put_connector("c", {})
            except ConnectError:
                return False
            return True

        wait_for("the broker takes a write", is_written)
        assert ("updated", "a") in heard.next(2)
        other.refresh(PATIENCE_S)
        assert {"a", "c"} <= set(other.snapshot().connectors)
        assert statuses.flush(PATIENCE_S)
        statuses.refresh(PATIENCE_S)
        assert statuses.connector("a") == Status(State.FAILED, W1, 1, "trace")


# -- status -------------------------------------------------------------------------------------


def seen(stores: list[StatusStore]) -> None:
    for store in stores:
        assert store.flush(PATIENCE_S)
    for store in stores:
        store.refresh(PATIENCE_S)


def test_statuses_are_seen_by_all(target_cluster: KafkaCluster, unique: Unique) -> None:
    topic, bootstrap = unique("status"), target_cluster.bootstrap
    with status_store(bootstrap, topic) as one, status_store(bootstrap, topic) as other:
        running = Status(State.RUNNING, W1, 1, None, "4.3.1")
        failed = Status(State.FAILED, W1, 1, "Trace\n\tat", "4.3.1")
        one.put_connector("c", running)
        for number in (10, 2):
            one.put_task(TaskId("c", number), failed)
        one.put_task(TaskId("d-1", 0), running)
        seen([one, other])
        for store in (one, other):
            assert store.everything().keys() == {
                "c",
                TaskId("c", 2),
                TaskId("c", 10),
                TaskId("d-1", 0),
            }
            assert store.connector("c") == running
            assert list(store.tasks("c").items()) == [(2, failed), (10, failed)]
            assert store.task(TaskId("d-1", 0)) == running
            assert store.task(TaskId("d", 1)) is None
        other.delete_task(TaskId("d-1", 0))
        other.delete_connector("c")
        seen([other, one])
        assert (one.everything(), one.tasks("c")) == ({}, {})
    with status_store(bootstrap, topic) as later:
        assert later.everything() == {}


def test_a_destroyed_connector_is_a_tombstone(target_cluster: KafkaCluster, unique: Unique) -> None:
    topic, bootstrap = unique("status"), target_cluster.bootstrap
    with status_store(bootstrap, topic) as store:
        store.put_connector("c", Status(State.RUNNING, W1, 1))
        store.put_connector("c", Status(State.DESTROYED, W1, 1))
        seen([store])
        assert store.connector("c") is None
    assert consume(bootstrap, topic)[-1].value is None


def test_a_safe_status_does_not_cover_that_of_a_newer_generation(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("status"), target_cluster.bootstrap
    task = TaskId("c", 0)
    with status_store(bootstrap, topic) as one, status_store(bootstrap, topic) as other:
        other.put_connector("c", Status(State.RUNNING, W2, 5))
        other.put_task(task, Status(State.RUNNING, W2, 5))
        seen([other, one])
        one.put_connector_safe("c", Status(State.FAILED, W1, 4, "old"))
        one.put_task_safe(task, Status(State.FAILED, W1, 4, "old"))
        seen([one])
        assert one.connector("c") == one.task(task) == Status(State.RUNNING, W2, 5)
        one.put_connector_safe("c", Status(State.FAILED, W1, 5, "same"))
        one.put_task_safe(task, Status(State.FAILED, W1, 6, "newer"))
        seen([one, other])
        assert other.connector("c") == Status(State.FAILED, W1, 5, "same")
        assert other.task(task) == Status(State.FAILED, W1, 6, "newer")
        one.put_task_safe(task, Status(State.UNASSIGNED, W1, 2))  # one's own word may be taken back
        seen([one])
        assert one.task(task) == Status(State.UNASSIGNED, W1, 2)


def test_topics_are_told_once_and_again_after_a_reset(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("status"), target_cluster.bootstrap
    with status_store(bootstrap, topic) as one, status_store(bootstrap, topic) as other:
        for _ in range(100):
            one.put_topic("c", "A.orders", 0, 1000)
        one.put_topic("c", "A.more", 1, 2000)
        seen([one, other])
        other.put_topic("c", "A.orders", 3, 3000)
        assert other.topics("c") == ["A.more", "A.orders"]
        assert other.topics("d") == []
        other.delete_topics("c")
        seen([other, one])
        assert one.topics("c") == []
        one.put_topic("c", "A.orders", 0, 4000)
        one.delete_topics("c")
        one.put_topic("c", "A.orders", 0, 5000)
        seen([one, other])
        assert other.topics("c") == ["A.orders"]
    values = [r.value for r in consume(bootstrap, topic) if b"A.orders" in (r.key or b"")]
    stamps = [None if value is None else int(value[-6:-2]) for value in values]
    assert stamps == [1000, None, 4000, None, 5000]


# -- offsets ------------------------------------------------------------------------------------

SOURCE_KEY = b'["src",{"cluster":"A","partition":0,"topic":"orders"}]'
PARTITION = {"topic": "orders", "partition": 0, "cluster": "A"}


def written(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    records: list[Record] = consume(bootstrap, topic)
    return [(r.key, r.value) for r in sorted(records, key=lambda r: (r.timestamp, r.offset))]


def test_offsets_are_shown_altered_and_reset(target_cluster: KafkaCluster, unique: Unique) -> None:
    topic, bootstrap = unique("offsets"), target_cluster.bootstrap
    with offset_store(bootstrap, topic) as one, offset_store(bootstrap, topic) as other:
        one.append([(SOURCE_KEY, b'{"offset":125}'), (b'["src2",{"x":1}]', b'{"y":"z"}')])
        assert other.offsets("src") == [(PARTITION, {"offset": 125})]
        assert other.offsets("src2") == [({"x": 1}, {"y": "z"})]
        assert other.load("src") == {SOURCE_KEY: b'{"offset":125}'}
        more = {"partition": 1, "topic": "orders", "cluster": "A"}
        other.alter("src", "source", [(PARTITION, {"offset": 5}), (more, {"offset": 7, "pid": 1})])
        assert one.offsets("src") == [(PARTITION, {"offset": 5}), (more, {"offset": 7})]
        one.alter("src", "source", [(more, None), (None, None)])
        assert other.offsets("src") == [(PARTITION, {"offset": 5})]
        with pytest.raises(ConnectError, match="negative"):
            one.alter("src", "source", [(more, {"offset": 1}), (PARTITION, {"offset": -1})])
        assert one.offsets("src") == [(PARTITION, {"offset": 5})]
        one.reset("src")
        one.reset("src")
        assert (one.offsets("src"), other.offsets("src")) == ([], [])
        assert len(other.offsets("src2")) == 1
    rows = written(bootstrap, topic)
    assert rows.count((SOURCE_KEY, None)) == 1
    assert (SOURCE_KEY.replace(b'":0', b'":1'), b'{"offset":7}') in rows
    assert (b'["src",null]', None) in rows


def test_altered_keys_have_the_bytes_of_a_java_worker(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("offsets"), target_cluster.bootstrap
    with offset_store(bootstrap, topic) as store:
        group = {"topic": "A.t", "group": "g", "partition": 3}
        store.alter("cp", "checkpoint", [(group, {"offset": 0})])
        aliases = {"targetClusterAlias": "B", "sourceClusterAlias": "A"}
        store.alter("hb", "heartbeat", [(aliases, {"offset": 0})])
    assert set(written(bootstrap, topic)) == {
        (b'["cp",{"partition":3,"topic":"A.t","group":"g"}]', b'{"offset":0}'),
        (b'["hb",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]', b'{"offset":0}'),
    }


def test_what_is_not_an_offset_of_a_connector_is_passed_over(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, bootstrap = unique("offsets"), target_cluster.bootstrap
    with offset_store(bootstrap, topic) as store:
        odd = [b"", b"{", b'"src"', b'["src"]', b"[1,{}]", b'["src",1,2]']
        produce(bootstrap, topic, [NewRecord(key, b'{"offset":1}') for key in odd])
        store.append([(SOURCE_KEY, b"not json"), (b'["src",{"a":1}]', b"[]")])
        assert store.offsets("src") == []


def test_a_copy_task_honours_what_a_person_has_set(
    target_cluster: KafkaCluster, unique: Unique
) -> None:
    """Positions of copy tasks are shown without our fields; one that is altered ends their numbering."""
    topic, bootstrap = unique("offsets"), target_cluster.bootstrap
    partition = ("orders", 0)
    with offset_store(bootstrap, topic) as store:
        cluster = Cluster(client_settings("target", {"bootstrap.servers": bootstrap}))
        cluster.refresh([topic])
        tasks = PositionStore(cluster, StoreAddress(topic, "src", "A"))
        tasks.catch_up()
        begun = Position(-1, Numbering(7, 0), origin=(0, 0))
        tasks.claim({partition: (begun, None)})
        assert store.offsets("src") == [], "nothing has been copied yet"
        tasks.write([(partition, Entry(Position(41, Numbering(7, 0), 42, 42)))])
        assert store.offsets("src") == [(PARTITION, {"offset": 41})]

        store.alter("src", "source", [(PARTITION, {"offset": 9})])
        tasks.catch_up()
        assert tasks.get(partition) == Position(9)
        # A task on a lost node reports under the old numbering: nobody believes it.
        tasks.write([(partition, Entry(Position(50, Numbering(7, 0), 51, 51)))])
        tasks.catch_up()
        assert tasks.get(partition) == Position(9)
        assert store.offsets("src") == [(PARTITION, {"offset": 9})]

        again = Position(9, Numbering(8, 0), origin=(10, 42))
        tasks.claim({partition: (again, None)})
        store.reset("src")
        tasks.catch_up()
        assert tasks.get(partition) is None
        assert store.offsets("src") == []
        cluster.close()
