"""The herder: it ends in time whatever its cluster does, and takes away at once what is said of things that are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.control.config_news import ConfigNews
from sparkmirror.control.config_store import ConfigStore
from sparkmirror.control.herder import ConnectHerder, Identity
from sparkmirror.control.memory_log import MemoryLog
from sparkmirror.control.offset_store import OffsetStore
from sparkmirror.control.operations import Operations
from sparkmirror.control.solo import SoloGroup
from sparkmirror.control.states import State, TargetState, TaskId
from sparkmirror.control.status_store import StatusStore
from sparkmirror.control.stores import Stores
from sparkmirror.control.topic_log import STOP_S, OnRecord, Row
from sparkmirror.errors import ConnectionFailed, KafkaError, NoSlot, SparkError
from sparkmirror.spark.session import SparkSession

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PATIENCE_S = 10.0
GRACE_S = 2.0
PROMPT_S = 1.0
"""Far less than the herder's longest turn."""


class Cluster:
    """What keeps three logs: it may be there, be gone (who connects is refused), or hang."""

    def __init__(self) -> None:
        self.state = "there"
        self.logs: list[ClusterLog] = []
        self.is_over = threading.Event()

    def log(self, on_record: OnRecord) -> ClusterLog:
        self.logs.append(ClusterLog(on_record, self))
        return self.logs[-1]


class ClusterLog(MemoryLog):
    """A log in memory that fares as its cluster does: who waits for a cluster that hangs waits until the test is over."""

    def __init__(self, on_record: OnRecord, cluster: Cluster) -> None:
        super().__init__(on_record)
        self._cluster = cluster
        self._stopping = threading.Event()

    @property
    def is_answering(self) -> bool:
        return self._cluster.state != "gone"

    def append(self, rows: Sequence[Row], timeout: float | None = None) -> Mapping[int, int]:
        deadline = time.monotonic() + (timeout or PATIENCE_S)
        while self._cluster.state == "gone" and time.monotonic() < deadline:
            if self._stopping.wait(0.05):
                raise KafkaError("not written to any more")
        if self._cluster.state == "hangs":
            self._cluster.is_over.wait(PATIENCE_S)
        if self._cluster.state != "there":
            raise ConnectionFailed("no broker can be reached")
        return super().append(rows, timeout)

    def stop(self, timeout: float = STOP_S) -> None:
        self._stopping.set()
        if self._cluster.state == "hangs":
            self._cluster.is_over.wait(timeout)


class Running:
    """A herder of a group of its own."""

    def __init__(self, cluster: Cluster) -> None:
        config = WorkerConfig.parse(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "group.id": "g",
                "config.storage.topic": "c",
                "offset.storage.topic": "o",
                "status.storage.topic": "s",
                "key.converter": BYTES,
                "value.converter": BYTES,
                "task.shutdown.graceful.timeout.ms": f"{GRACE_S * 1000:.0f}",
            }
        )
        news = ConfigNews()
        self.stores = Stores(
            ConfigStore(cluster.log, news), StatusStore(cluster.log), OffsetStore(cluster.log)
        )
        identity = Identity("http://w:1/", "w:1")
        spark = SparkSession({})
        self.herder = ConnectHerder(config, identity, news, self.stores, spark, lambda: "id")
        news.wake = self.herder.wake
        self.stores.statuses.on_status = self.herder.status_read
        self.herder.join(SoloGroup(self.herder.shared, self.herder))
        self.operations = Operations(self.herder)
        self.herder.start()

    def wait_idle(self) -> None:
        """Until it waits in its group for something to happen."""
        self.operations.health()
        wait_for(lambda: self.herder.requests.stage == "taking part in its group")


@contextmanager
def running(cluster: Cluster) -> Iterator[Running]:
    made = Running(cluster)
    try:
        wait_for(lambda: made.herder.is_ready)
        yield made
    finally:
        cluster.is_over.set()
        made.herder.stop()
        assert made.herder.wait(PATIENCE_S)


def wait_for(is_so: Callable[[], bool], patience: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def put_stopped_connector(stores: Stores) -> None:
    """One that is at rest, so that nothing of it is run."""
    stores.configs.put_connector("c", {"name": "c"}, TargetState.STOPPED)


# -- what is said of things that are gone ---------------------------------------------------------------


def test_a_last_word_on_a_task_that_is_gone_is_taken_away_at_once() -> None:
    with running(Cluster()) as worker:
        put_stopped_connector(worker.stores)
        for number in range(3):
            worker.wait_idle()
            worker.herder.statuses.put_task(TaskId("c", number), State.UNASSIGNED)
            assert worker.stores.statuses.flush(PATIENCE_S)
            wait_for(lambda: not worker.stores.statuses.tasks("c"), PROMPT_S)
        assert worker.herder.statuses.connector("c").state is State.STOPPED


def test_a_last_word_on_a_connector_that_is_gone_is_taken_away_at_once() -> None:
    with running(Cluster()) as worker:
        worker.wait_idle()
        worker.herder.statuses.put_connector("gone", State.UNASSIGNED)
        assert worker.stores.statuses.flush(PATIENCE_S)
        wait_for(lambda: not worker.stores.statuses.everything(), PROMPT_S)


def test_words_on_what_exists_do_not_wake_it() -> None:
    with running(Cluster()) as worker:
        put_stopped_connector(worker.stores)
        worker.wait_idle()
        wakes: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker.herder, "wake", lambda: wakes.append(1))
            worker.herder.statuses.put_connector("c", State.STOPPED)
            assert worker.stores.statuses.flush(PATIENCE_S)
        assert wakes == []


# -- its end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["there", "gone", "hangs"])
def test_it_ends_in_time_whatever_its_cluster_does(state: str) -> None:
    cluster = Cluster()
    with running(cluster) as worker:
        put_stopped_connector(worker.stores)
        worker.wait_idle()
        cluster.state = state
        worker.herder.statuses.put_connector("c", State.STOPPED)
        began = time.monotonic()
        worker.herder.stop()
        assert worker.herder.await_end()
        took = time.monotonic() - began
    assert took < (GRACE_S + 0.8 if state == "hangs" else 1.5)


def test_a_write_that_waits_for_the_cluster_does_not_hold_up_the_end() -> None:
    cluster = Cluster()
    with running(cluster) as worker:
        worker.wait_idle()
        cluster.state = "gone"
        asked = threading.Thread(
            target=lambda: worker.herder.requests.later(
                lambda: put_stopped_connector(worker.stores), 0.0
            ).exception()
        )
        asked.start()
        wait_for(lambda: worker.herder.requests.stage == "answering requests")
        began = time.monotonic()
        worker.herder.stop()
        assert worker.herder.await_end()
        assert time.monotonic() - began < 1.5
        asked.join(PATIENCE_S)


def test_a_level_that_is_none_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever can write to the config topic may have every worker read it."""
    cluster = Cluster()
    with running(cluster) as worker:
        worker.wait_idle()
        configs = cluster.logs[0]
        configs.append([(b"logger-cluster-x", b'{"level":"BOGUS"}')])
        wait_for(lambda: "has the level BOGUS, which is none" in caplog.text)
        worker.wait_idle()


# -- what connectors want to be known --------------------------------------------------------------------


def test_a_note_is_shown_while_the_connector_runs_whichever_comes_first() -> None:
    cluster = Cluster()
    with running(cluster) as worker:
        put_stopped_connector(worker.stores)
        herder = worker.herder

        def note() -> str | None:
            known = worker.stores.statuses.connector("c")
            return None if known is None else known.note

        wait_for(lambda: note() is not None)  # the herder itself has said that it is at rest
        herder.connector_noted("c", "placed")
        herder.connector_said("c", State.RUNNING, None)
        wait_for(lambda: note() == "placed")
        herder.connector_noted("c", "")
        wait_for(lambda: note() == "")
        herder.connector_noted("c", "placed again")
        wait_for(lambda: note() == "placed again")
        herder.connector_said("c", State.PAUSED, None)
        wait_for(lambda: note() == "")


def test_a_task_that_lacks_a_slot_or_spark_is_not_given_up_without_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: list[TaskId] = []
    with running(Cluster()) as worker:
        herder = worker.herder
        props = {"connector.class": "MirrorSourceConnector", "errors.restart.enabled": "false"}
        worker.stores.configs.put_connector("c", props, TargetState.STOPPED)
        monkeypatch.setattr(herder.worker, "mends_itself", lambda _: True)
        monkeypatch.setattr(herder.worker, "give_up", given_up.append)
        wait_for(lambda: "c" in worker.stores.configs.snapshot().connectors)
        herder.task_said(TaskId("c", 0), State.FAILED, NoSlot("1 of 2 Spark tasks wait"))
        herder.task_said(TaskId("c", 2), State.FAILED, SparkError("the executor is gone"))
        herder.task_said(TaskId("c", 1), State.FAILED, KafkaError("too large"))
        wait_for(lambda: bool(given_up))
        worker.wait_idle()
    assert given_up == [TaskId("c", 1)]
    assert herder.has_failed(TaskId("c", 0)), "it is shown all the same"


def test_a_note_on_a_task_is_shown_while_it_runs_or_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[tuple[State, str]] = []

    def put_task(
        task: TaskId, state: State, error: BaseException | None, restarts: int, note: str
    ) -> None:
        said.append((state, note))

    with running(Cluster()) as worker:
        herder, task = worker.herder, TaskId("c", 0)
        monkeypatch.setattr(herder.statuses, "put_task", put_task)
        herder.task_noted(task, "from 7 on")
        herder.task_said(task, State.RUNNING, None)
        herder.task_noted(task, "from 8 on")
        herder.task_noted(task, "from 8 on")
        herder.task_said(task, State.FAILED, KafkaError("too large"))
        herder.task_noted(task, "from 9 on")
        herder.task_said(task, State.RUNNING, None)
        herder.task_noted(task, "")
        herder.task_noted(task, "from 9 on")
        herder.task_said(task, State.PAUSED, None)
    assert said == [
        (State.RUNNING, "from 7 on"),
        (State.RUNNING, "from 8 on"),
        (State.FAILED, "from 8 on"),
        (State.RUNNING, "from 9 on"),
        (State.RUNNING, ""),
        (State.RUNNING, "from 9 on"),
        (State.PAUSED, ""),
    ]
