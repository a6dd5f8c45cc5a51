"""A worker without a group: it leads, and has all the work. Config changes in, one assignment after the other out."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .group_assignment import NO_WORK, GroupAssignment, RebalanceListener
from .restarts import Item
from .states import Assignment, ClusterConfig


class SoloGroup:
    """Stands in for `WorkerGroup` where one process does it all.

    Invariant: after `poll`, `owned` is everything that the last snapshot names, and the listener has heard of it.
    """

    leader_url = ""
    protocol_version = 0
    is_leader = True

    def __init__(self, snapshot: Callable[[], ClusterConfig], listener: RebalanceListener) -> None:
        self._snapshot = snapshot
        self._listener = listener
        self._woken = threading.Event()
        self._is_due = True
        self.generation = 0
        self.owned: Assignment = NO_WORK

    @property
    def is_settled(self) -> bool:
        return not self._is_due

    def owner_url(self, item: Item) -> str | None:
        return None

    def poll(self, timeout: float) -> None:
        if not self._is_due:
            self._woken.wait(timeout)
            self._woken.clear()
        if self._is_due:
            self._is_due = False
            self._share_out()

    def _share_out(self) -> None:
        config = self._snapshot()
        owned = Assignment(tuple(config.connectors), tuple(config.tasks))
        gone = Assignment(
            tuple(name for name in self.owned.connectors if name not in config.connectors),
            tuple(task for task in self.owned.tasks if task not in config.tasks),
        )
        self._listener.on_revoked("", gone.connectors, gone.tasks)
        self.owned = owned
        self.generation += 1
        self._listener.on_assigned(GroupAssignment("", "", config.offset, owned), self.generation)

    def wakeup(self) -> None:
        self._woken.set()

    def request_rejoin(self, reason: str) -> None:
        self._is_due = True
        self._woken.set()

    def leave(self, reason: str) -> None:
        """There is nobody to leave."""

    def close(self, timeout: float = 0.0) -> None:
        """There is nobody to leave."""
