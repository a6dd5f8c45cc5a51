"""A worker on its own: the log in memory, and the group of one."""

from __future__ import annotations

from collections.abc import Sequence

from sparkmirror.control.config_news import ConfigNews
from sparkmirror.control.config_store import ConfigStore
from sparkmirror.control.group_assignment import GroupAssignment
from sparkmirror.control.memory_log import MemoryLog
from sparkmirror.control.solo import SoloGroup
from sparkmirror.control.states import (
    Assignment,
    ClusterConfig,
    RestartRequest,
    TargetState,
    TaskId,
)


class Listener:
    def __init__(self) -> None:
        self.assigned: list[Assignment] = []
        self.revoked: list[tuple[list[str], list[TaskId]]] = []

    def on_revoked(self, leader: str, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        self.revoked.append((list(connectors), list(tasks)))

    def on_assigned(self, assignment: GroupAssignment, generation: int) -> None:
        self.assigned.append(assignment.assigned)


def test_configs_live_in_memory() -> None:
    news = ConfigNews()
    store = ConfigStore(MemoryLog, news)
    store.start()
    assert not news.take_change()
    store.put_connector("c", {"name": "c"}, TargetState.PAUSED)
    store.put_task_configs("c", [{"task": "0"}, {"task": "1"}])
    config = store.snapshot()
    assert config.connectors == {"c": {"name": "c"}}
    assert config.target_state("c") is TargetState.PAUSED
    assert config.tasks_of("c") == (TaskId("c", 0), TaskId("c", 1))
    assert news.take_change()
    assert not news.take_change()
    store.remove_connector("c")
    assert not store.contains("c")


def test_of_restart_requests_the_greatest_is_kept_until_the_connector_goes() -> None:
    news, woken = ConfigNews(), []
    news.wake = lambda: woken.append(1)
    small, large = RestartRequest("c", True, False), RestartRequest("c", False, True)
    for request in (small, large, small):
        news.restart_requested(request)
    assert news.take_restarts() == [large]
    assert len(woken) == 3
    news.restart_requested(large)
    news.connector_config_removed("c")
    assert news.take_restarts() == []
    assert news.take_removed() == {"c"}
    assert news.take_removed() == set()


def test_the_only_worker_has_all_the_work() -> None:
    config = ClusterConfig(1, connectors={"a": {}, "b": {}}, tasks={TaskId("a", 0): {}})
    listener = Listener()
    group = SoloGroup(lambda: config, listener)
    group.poll(0)
    assert listener.assigned == [Assignment(("a", "b"), (TaskId("a", 0),))]
    group.poll(0)
    assert len(listener.assigned) == 1, "nothing has changed"
    config = ClusterConfig(2, connectors={"b": {}})
    group.request_rejoin("a is gone")
    group.poll(10)
    assert listener.revoked[-1] == (["a"], [TaskId("a", 0)])
    assert group.owned == Assignment(("b",), ())
    assert group.is_leader
