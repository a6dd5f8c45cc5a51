"""The leader takes away what is said of things that do not exist any more, whatever comes late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sparkmirror.control.memory_log import MemoryLog
from sparkmirror.control.states import ClusterConfig, State, TaskId
from sparkmirror.control.status_store import StatusStore
from sparkmirror.control.statuses import Statuses
from sparkmirror.control.topic_log import OnRecord, Row

TWO_TASKS = ClusterConfig(connectors={"c": {}}, task_counts={"c": 2})
STOPPED = ClusterConfig(connectors={"c": {}}, task_counts={"c": 0})
NOTHING = ClusterConfig()


class CountingLog(MemoryLog):
    def __init__(self, on_record: OnRecord) -> None:
        super().__init__(on_record)
        self.removals = 0

    def append(self, rows: Sequence[Row], timeout: float | None = None) -> dict[int, int]:
        self.removals += sum(value is None for _, value in rows)
        return dict(super().append(rows, timeout))


class Fixture:
    """Statuses over a log in memory; `settle` waits until all that was put has been read back."""

    def __init__(self) -> None:
        self.logs: list[CountingLog] = []
        self.store = StatusStore(self._log)
        self.statuses = Statuses(self.store, "w:1", lambda: 7)
        self.store.start()

    def _log(self, on_record: OnRecord) -> CountingLog:
        self.logs.append(CountingLog(on_record))
        return self.logs[0]

    def run(self, tasks: int = 2) -> None:
        self.statuses.put_connector("c", State.RUNNING)
        for number in range(tasks):
            self.statuses.put_task(TaskId("c", number), State.RUNNING)
        self.settle()

    def settle(self) -> None:
        assert self.store.flush(10.0)


@pytest.fixture
def status() -> Iterator[Fixture]:
    made = Fixture()
    yield made
    made.store.stop()


def test_what_exists_stays(status: Fixture) -> None:
    status.run()
    status.statuses.remove_unknown(TWO_TASKS)
    status.settle()
    assert len(status.statuses.connector("c").tasks) == 2


def test_tasks_of_a_stopped_connector_go(status: Fixture) -> None:
    status.run()
    status.statuses.remove_unknown(STOPPED)
    status.settle()
    found = status.statuses.connector("c")
    assert (found.state, found.tasks) == (State.RUNNING, ())


def test_a_last_word_after_the_removal_goes_too(status: Fixture) -> None:
    """A worker says that it has given a task up, after the leader has taken the task's status away."""
    status.run()
    status.statuses.remove_unknown(STOPPED)
    for number in range(2):
        status.statuses.put_task(TaskId("c", number), State.UNASSIGNED)
    status.settle()
    assert len(status.statuses.connector("c").tasks) == 2
    status.statuses.remove_unknown(STOPPED)
    status.settle()
    assert status.statuses.connector("c").tasks == ()


def test_the_same_last_word_twice_goes_twice(status: Fixture) -> None:
    for _ in range(3):
        status.statuses.put_task(TaskId("c", 0), State.UNASSIGNED)
        status.settle()
        status.statuses.remove_unknown(STOPPED)
        status.settle()
    assert status.store.everything() == {}


def test_a_task_whose_connector_is_gone_goes(status: Fixture) -> None:
    status.statuses.put_task(TaskId("c", 0), State.UNASSIGNED)
    status.settle()
    status.statuses.remove_unknown(NOTHING)
    status.settle()
    assert status.store.everything() == {}


def test_nothing_is_taken_away_again_while_the_removal_is_on_its_way(status: Fixture) -> None:
    status.run(1)
    seen = status.store.everything()
    status.store.everything = lambda: dict(seen)  # type: ignore[method-assign]  # not read back yet
    for _ in range(5):
        status.statuses.remove_unknown(STOPPED)
    status.settle()
    assert status.logs[0].removals == 1


def test_attempts_are_shown_until_it_has_settled(status: Fixture) -> None:
    task = TaskId("c", 0)
    status.statuses.put_connector("c", State.RUNNING, restarts=2, note="by time")
    status.statuses.put_task(task, State.FAILED, ValueError("no"), restarts=3)
    status.settle()
    known = status.statuses.connector("c")
    assert (known.restarts, known.tasks[0].restarts) == (2, 3)
    status.statuses.tell_settled("c")
    status.statuses.tell_settled(task)
    status.settle()
    known = status.statuses.connector("c")
    assert (known.restarts, known.note) == (0, "by time")
    assert known.tasks[0].restarts == 3, "it has failed again meanwhile"
    assert known.tasks[0].state is State.FAILED
