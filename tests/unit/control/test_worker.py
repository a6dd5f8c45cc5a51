"""A worker's tasks end together: many that are slow take as long as the slowest, whatever makes them end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.connector import ConnectorContext, TaskContext
from sparkmirror.control.kinds import MAKERS, Kind, Makers
from sparkmirror.control.states import Assignment, ClusterConfig, State, TargetState, TaskId
from sparkmirror.control.worker import Worker
from sparkmirror.control.workload import Workload
from sparkmirror.spark.session import SparkSession
from sparkmirror.veil import VEIL

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
PATIENCE_S = 10.0
SLOW_S = 0.4
MANY = 8
NAMES = [f"c{number}" for number in range(MANY)]
TASKS = [TaskId(name, 0) for name in NAMES]
OWNED = Assignment(tuple(NAMES), tuple(TASKS))


class Quiet:
    """A connector that does nothing."""

    def __init__(
        self, props: Mapping[str, str], context: ConnectorContext, worker: WorkerConfig
    ) -> None:
        pass

    def start(
        self, *, queries: bool = False, is_wanted: Callable[[], bool] = lambda: True
    ) -> None: ...
    def stop(self) -> None: ...
    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        return []


class Slow:
    """A task that takes its time to end; with `forever` it does not end before the test does."""

    running: set[str] = set()  # noqa: RUF012 - emptied by the fixture
    is_over = threading.Event()

    def __init__(self, props: Mapping[str, str], context: TaskContext) -> None:
        self._name = props["name"]
        self._is_endless = "forever" in props

    def run(self, stopping: threading.Event) -> None:
        self.running.add(self._name)
        stopping.wait(PATIENCE_S)
        self.is_over.wait(PATIENCE_S if self._is_endless else SLOW_S)
        self.running.discard(self._name)


class Events:
    """What the worker said; of each word on a task, whether the task was at work then."""

    def __init__(self) -> None:
        self.tasks: list[tuple[TaskId, State, bool]] = []
        self.errors: list[BaseException | None] = []

    def connector_said(self, name: str, state: State, error: BaseException | None) -> None: ...
    def connector_noted(self, name: str, text: str) -> None: ...
    def task_said(
        self, task: TaskId, state: State, error: BaseException | None, attempts: int = 0
    ) -> None:
        self.tasks.append((task, state, task.connector in Slow.running))
        self.errors.append(error)

    def task_noted(self, task: TaskId, text: str) -> None: ...
    def reconfigure(self, name: str) -> None: ...
    def wrote(self, task: TaskId, topic: str) -> None: ...


class Statuses:
    def __init__(self) -> None:
        self.tasks: list[tuple[TaskId, State, bool]] = []

    def put_connector(self, name: str, state: State) -> None: ...
    def put_task(self, task: TaskId, state: State) -> None:
        self.tasks.append((task, state, task.connector in Slow.running))


class NoOffsets:
    def append(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None: ...
    def load(self, connector: str) -> Mapping[bytes, bytes]:
        return {}


class Fixture:
    def __init__(
        self,
        grace_ms: int,
        more: Mapping[str, str] = {},
        references: frozenset[str] | None = None,
    ) -> None:
        keys = {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            "config.storage.topic": "c",
            "offset.storage.topic": "o",
            "status.storage.topic": "s",
            "key.converter": BYTES,
            "value.converter": BYTES,
            "task.shutdown.graceful.timeout.ms": str(grace_ms),
            **more,
        }
        self.events, self.statuses = Events(), Statuses()
        config = WorkerConfig.parse(keys)
        permits = replace(config.permits, references=references)
        worker = Worker(
            replace(config, permits=permits),
            SparkSession({}),
            NoOffsets(),
            self.events,
        )
        self.workload = Workload(worker, self.statuses)

    def run(self, **keys: str) -> None:
        self.workload.bring_about(config_of({}, **keys), OWNED)
        deadline = time.monotonic() + PATIENCE_S
        while len(Slow.running) < MANY:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(autouse=True)
def slow_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(MAKERS, Kind.HEARTBEAT, Makers(Quiet, Slow))
    Slow.running.clear()
    Slow.is_over.clear()
    yield
    Slow.is_over.set()


def config_of(states: Mapping[str, TargetState], **keys: str) -> ClusterConfig:
    kind = {"connector.class": Kind.HEARTBEAT.value, **keys}
    return ClusterConfig(
        connectors={name: {**kind, "name": name} for name in NAMES},
        target_states=states,
        task_counts=dict.fromkeys(NAMES, 1),
        tasks={task: {**kind, "name": task.connector} for task in TASKS},
    )


@pytest.mark.parametrize("state", [TargetState.PAUSED, TargetState.STOPPED])
def test_many_are_paused_at_once(state: TargetState) -> None:
    fixture = Fixture(5000)
    fixture.run()
    began = time.monotonic()
    fixture.workload.bring_about(config_of(dict.fromkeys(NAMES, state)), OWNED)
    assert SLOW_S <= time.monotonic() - began < MANY / 2 * SLOW_S
    paused = [row for row in fixture.events.tasks if row[1] is State.PAUSED]
    assert sorted(paused) == [(task, State.PAUSED, False) for task in TASKS], "said once ended"


def test_some_are_paused_while_others_are_given_other_work() -> None:
    fixture = Fixture(5000)
    fixture.run()
    paused, gone = NAMES[: MANY // 2], NAMES[MANY // 2 :]
    config = config_of(dict.fromkeys(paused, TargetState.PAUSED))
    began = time.monotonic()
    fixture.workload.bring_about(config, Assignment(tuple(paused), tuple(TASKS[: MANY // 2])))
    assert SLOW_S <= time.monotonic() - began < MANY / 2 * SLOW_S
    said = [row[0] for row in fixture.events.tasks if row[1] is State.PAUSED]
    assert sorted(said) == TASKS[: MANY // 2]
    assert sorted(fixture.statuses.tasks) == [
        (TaskId(name, 0), State.UNASSIGNED, False) for name in gone
    ]


def test_many_are_given_back_at_once() -> None:
    fixture = Fixture(5000)
    fixture.run()
    began = time.monotonic()
    fixture.workload.give_back(NAMES, TASKS)
    assert SLOW_S <= time.monotonic() - began < MANY / 2 * SLOW_S
    assert sorted(fixture.statuses.tasks) == [(task, State.UNASSIGNED, False) for task in TASKS]


@pytest.mark.parametrize("verb", ["stop", "pause and give back"])
def test_those_that_do_not_end_share_one_deadline(verb: str) -> None:
    fixture = Fixture(1000)
    fixture.run(forever="")
    began = time.monotonic()
    if verb == "stop":
        fixture.workload.stop()
    else:
        states = dict.fromkeys(NAMES[:4], TargetState.PAUSED)
        owned = Assignment(tuple(NAMES[:4]), tuple(TASKS[:4]))
        fixture.workload.bring_about(config_of(states, forever=""), owned)
    assert 1.0 <= time.monotonic() - began < 1.8


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"replication.policy.class": "os.path"}, "may not name here"),
        ({"producer.override.acks": "1"}, "The 'None' policy does not allow 'acks'"),
    ],
)
def test_stored_configs_are_held_against_what_rest_allows(
    keys: dict[str, str], message: str
) -> None:
    """Who writes to the config topic may do what REST lets people do, and no more."""
    fixture = Fixture(1000, {"connector.client.config.override.policy": "None"})
    fixture.workload.bring_about(config_of({}, **keys), OWNED)
    assert {state for _, state, _ in fixture.events.tasks} == {State.FAILED}
    assert all(message in str(error) for error in fixture.events.errors)
    assert len(fixture.events.errors) >= MANY


def test_a_stored_config_refers_to_what_the_file_does_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s3cret-of-all")
    keys = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    fixture = Fixture(1000, keys, frozenset())
    fixture.workload.bring_about(config_of({}, x="${env:SECRET_OF_THE_WORKER}"), OWNED)
    assert {state for _, state, _ in fixture.events.tasks} == {State.FAILED}
    assert all("does not contain that reference" in str(error) for error in fixture.events.errors)


def test_secrets_of_connectors_are_hidden_from_then_on() -> None:
    fixture = Fixture(1000)
    fixture.run(**{"of.nobodys.password": "only-here-12345"})
    assert VEIL.hide("it says only-here-12345") == "it says [hidden]"
