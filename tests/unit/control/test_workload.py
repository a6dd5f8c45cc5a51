"""What runs follows what is configured and assigned, whatever happened in between."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.control.states import Assignment, ClusterConfig, State, TargetState, TaskId
from sparkmirror.control.workload import Workload

Props = Mapping[str, str]
NAMES = ["a", "b", "c"]


class Worker:
    """Runs nothing, but knows what it would run."""

    def __init__(self) -> None:
        self.connectors: dict[str, tuple[Props, TargetState]] = {}
        self.tasks: dict[TaskId, tuple[Props, TargetState]] = {}
        self.starts = 0
        self.is_waited_for = True
        """Whether all that was told to stop or to pause was waited for."""

    def start_connector(self, name: str, props: Props, state: TargetState) -> None:
        assert self.is_waited_for, "something else is still ending"
        self.connectors[name] = (props, state)
        self.starts += 1

    def stop_connector(self, name: str) -> None:
        del self.connectors[name]

    def start_tasks(
        self, tasks: Mapping[TaskId, Props], state: Callable[[str], TargetState]
    ) -> None:
        assert self.is_waited_for, "something else is still ending"
        for task, props in tasks.items():
            assert task not in self.tasks, "it is running already"
            self.tasks[task] = (props, state(task.connector))
            self.starts += 1

    def stop_tasks(self, tasks: Collection[TaskId]) -> None:
        for task in tasks:
            del self.tasks[task]
            self.is_waited_for = False

    def await_stopped(self) -> None:
        self.is_waited_for = True

    def set_target_state(self, name: str, props: Props, state: TargetState) -> None:
        if state is TargetState.STARTED:
            assert self.is_waited_for, "something else is still ending"
        else:
            self.is_waited_for = False
        if name in self.connectors:
            self.connectors[name] = (self.connectors[name][0], state)
        for task, (known, _) in list(self.tasks.items()):
            if task.connector == name:
                self.tasks[task] = (known, state)


class Statuses:
    def __init__(self) -> None:
        self.connectors: list[tuple[str, State]] = []
        self.tasks: list[tuple[TaskId, State]] = []

    def put_connector(self, name: str, state: State) -> None:
        self.connectors.append((name, state))

    def put_task(self, task: TaskId, state: State) -> None:
        self.tasks.append((task, state))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterConfig, Assignment]:
    """Any configs, and any assignment, also of what does not exist."""
    versions = st.sampled_from(["1", "2"])
    names = draw(st.sets(st.sampled_from(NAMES)))
    counts = {name: draw(st.integers(0, 2)) for name in names}
    tasks = {
        TaskId(name, number): {"v": draw(versions)}
        for name, count in counts.items()
        for number in range(count)
    }
    config = ClusterConfig(
        connectors={name: {"v": draw(versions)} for name in names},
        target_states={name: draw(st.sampled_from(list(TargetState))) for name in names},
        task_counts=counts,
        tasks=tasks,
    )
    every = [TaskId(name, number) for name in NAMES for number in range(2)]
    owned = Assignment(
        tuple(draw(st.sets(st.sampled_from(NAMES)))), tuple(draw(st.sets(st.sampled_from(every))))
    )
    return config, owned


@given(st.lists(worlds(), min_size=1, max_size=6))
def test_what_runs_is_what_should_run(changes: list[tuple[ClusterConfig, Assignment]]) -> None:
    worker = Worker()
    workload = Workload(worker, Statuses())
    for config, owned in changes:
        workload.bring_about(config, owned)
        assert worker.connectors == {
            name: (config.connectors[name], config.target_state(name))
            for name in owned.connectors
            if name in config.connectors
        }
        assert worker.tasks == {
            task: (config.tasks[task], config.target_state(task.connector))
            for task in owned.tasks
            if task in config.tasks
        }
        assert worker.is_waited_for
        starts = worker.starts
        workload.bring_about(config, owned)
        assert worker.starts == starts, "nothing has changed"


def test_what_is_given_back_is_said_to_be_unassigned() -> None:
    worker, statuses = Worker(), Statuses()
    workload = Workload(worker, statuses)
    task = TaskId("a", 0)
    config = ClusterConfig(connectors={"a": {}}, task_counts={"a": 1}, tasks={task: {}})
    workload.bring_about(config, Assignment(("a",), (task,)))
    workload.give_back(["a", "unknown"], [task, TaskId("b", 1)])
    assert not worker.connectors
    assert not worker.tasks
    assert statuses.connectors == [("a", State.UNASSIGNED)]
    assert statuses.tasks == [(task, State.UNASSIGNED)]


def test_a_restart_reaches_only_what_is_here() -> None:
    worker, statuses = Worker(), Statuses()
    workload = Workload(worker, statuses)
    mine, other = TaskId("a", 0), TaskId("a", 1)
    config = ClusterConfig(
        connectors={"a": {}, "b": {}}, task_counts={"a": 2}, tasks={mine: {}, other: {}}
    )
    workload.bring_about(config, Assignment(("a",), (mine,)))
    starts = worker.starts
    workload.restart_tasks([mine, other], config, say=True)
    workload.restart_connector("a", config)
    workload.restart_connector("b", config)
    assert worker.starts == starts + 2
    assert statuses.tasks == [(mine, State.UNASSIGNED), (mine, State.RESTARTING)]


def test_what_was_removed_and_created_again_alike_is_started_anew() -> None:
    worker = Worker()
    workload = Workload(worker, Statuses())
    task, other = TaskId("a", 0), TaskId("b", 0)
    config = ClusterConfig(
        connectors={"a": {}, "b": {}}, task_counts={"a": 1, "b": 1}, tasks={task: {}, other: {}}
    )
    owned = Assignment(("a", "b"), (task, other))
    workload.bring_about(config, owned)
    assert worker.starts == 4
    workload.bring_about(config, owned, ["a"])
    assert worker.starts == 6
    assert worker.tasks.keys() == {task, other}
