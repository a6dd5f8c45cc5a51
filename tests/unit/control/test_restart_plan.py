"""What a restart request comes to (KIP-745)."""

from __future__ import annotations

import itertools

import pytest

from sparkmirror.control.states import ConnectorState, RestartRequest, State, TaskState
from sparkmirror.control.statuses import restart_plan


def state(connector: State, *tasks: State) -> ConnectorState:
    return ConnectorState(
        "c",
        connector,
        "w:1",
        tuple(TaskState(i, task, "w:1", "why") for i, task in enumerate(tasks)),
        trace="why",
    )


@pytest.mark.parametrize(
    ("only_failed", "include_tasks", "connector"),
    list(itertools.product([False, True], [False, True], [State.RUNNING, State.FAILED])),
)
def test_who_is_restarted(only_failed: bool, include_tasks: bool, connector: State) -> None:
    before = state(connector, State.RUNNING, State.FAILED)
    plan = restart_plan(before, RestartRequest("c", only_failed, include_tasks))
    restarted = not only_failed or connector is State.FAILED
    assert (plan.state is State.RESTARTING) == restarted
    assert (plan.tasks[0].state is State.RESTARTING) == (include_tasks and not only_failed)
    assert (plan.tasks[1].state is State.RESTARTING) == include_tasks
    assert (plan.trace, plan.tasks[1].trace) == ("why", "why"), "as a Java worker shows it"


def test_the_greater_impact_counts() -> None:
    requests = [
        RestartRequest("c", only_failed, tasks)
        for only_failed in (True, False)
        for tasks in (False, True)
    ]
    assert [request.impact for request in requests] == [0, 1, 2, 3]
