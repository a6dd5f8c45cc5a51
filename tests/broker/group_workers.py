"""Workers for tests of a group: each polls in a thread of its own and notes what it was told to run.

As a program (bootstrap, group, url, number of connectors, tasks each) it is one worker that says what it owns, line by line,
until it is killed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from sparkmirror.control.assignor import Item, items_of
from sparkmirror.control.membership import GroupAssignment, GroupSettings, WorkerGroup
from sparkmirror.control.states import Assignment, ClusterConfig, TaskId
from sparkmirror.errors import KafkaError
from sparkmirror.kafka.settings import ClientSettings, client_settings

_POLL_S = 30.0
QUICK = GroupSettings(
    "http://nobody:1/",
    session_timeout=6.0,
    rebalance_timeout=20.0,
    heartbeat_interval=0.3,
    scheduled_rebalance_max_delay=1.0,
)


def client(bootstrap: str) -> ClientSettings:
    return client_settings("target", {"bootstrap.servers": bootstrap})


def config_of(connectors: int, tasks: int, offset: int = 1) -> ClusterConfig:
    names = [f"connector-{number:02}" for number in range(connectors)]
    return ClusterConfig(
        offset=offset, connectors={n: {} for n in names}, task_counts=dict.fromkeys(names, tasks)
    )


def all_items(config: ClusterConfig) -> frozenset[Item]:
    tasks = (task for name in config.connectors for task in config.tasks_of(name))
    return frozenset((*config.connectors, *tasks))


@dataclass
class Shared:
    """What all workers of a test share: the config, and a note of everything that ever ran twice at once."""

    config: ClusterConfig
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: dict[Item, str] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)

    def start(self, worker: str, wanted: frozenset[Item]) -> None:
        with self.lock:
            for item in wanted:
                other = self.running.setdefault(item, worker)
                if other != worker:
                    self.doubled.append(f"{item} ran on {other} when {worker} started it")

    def stop(self, worker: str, unwanted: frozenset[Item]) -> None:
        with self.lock:
            for item in unwanted:
                if self.running.get(item) == worker:
                    del self.running[item]


class Worker:
    """A herder that does nothing but note; `pause` keeps it from polling."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        name: str,
        shared: Shared,
        settings: GroupSettings = QUICK,
        snapshot: ClusterConfig | Callable[[], ClusterConfig] | None = None,
    ) -> None:
        self.name = name
        self.url = f"http://{name}:8083/"
        self.shared = shared
        self.snapshot = snapshot
        self.assignments: list[GroupAssignment] = []
        self.revocations: list[frozenset[Item]] = []
        self.errors: list[KafkaError] = []
        self._stop = threading.Event()
        self._may_poll = threading.Event()
        self._may_poll.set()
        self.group = WorkerGroup(
            client(bootstrap), group, replace(settings, url=self.url), self._snapshot, self
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _snapshot(self) -> ClusterConfig:
        if self.snapshot is None:
            return self.shared.config
        return self.snapshot() if callable(self.snapshot) else self.snapshot

    def _run(self) -> None:
        while not self._stop.is_set():
            self._may_poll.wait()
            try:
                self.group.poll(_POLL_S)
            except KafkaError as error:
                self.errors.append(error)

    def on_revoked(self, leader: str, connectors: Sequence[str], tasks: Sequence[TaskId]) -> None:
        revoked = items_of(Assignment(tuple(connectors), tuple(tasks)))
        self.shared.stop(self.name, revoked)
        self.revocations.append(revoked)

    def on_assigned(self, assignment: GroupAssignment, generation: int) -> None:
        self.shared.start(self.name, items_of(assignment.assigned))
        self.assignments.append(assignment)

    @property
    def owned(self) -> frozenset[Item]:
        return items_of(self.group.owned)

    @property
    def is_settled(self) -> bool:
        return self.group.generation > 0 and self.group._session.join_reason is None

    def pause(self) -> None:
        self._may_poll.clear()
        self.group.wakeup()

    def resume(self) -> None:
        self._may_poll.set()

    def close(self) -> None:
        """Stop all work and leave, as a worker that is shut down does."""
        if not self._stop.is_set():
            self._stop.set()
            self._may_poll.set()
            self.group.wakeup()
            self._thread.join()
            self.shared.stop(self.name, self.owned)
            self.group.close()


def even(workers: Sequence[Worker], config: ClusterConfig) -> bool:
    """Whether all work is shared out, nothing twice, nobody with more than one more than another, and no one wants more."""
    loads = [worker.owned for worker in workers]
    if sorted(map(str, chain(*loads))) != sorted(map(str, all_items(config))):
        return False
    for kind in (str, TaskId):
        counts = [sum(isinstance(item, kind) for item in load) for load in loads]
        if max(counts) - min(counts) > 1:
            return False
    return all(worker.is_settled for worker in workers)


if __name__ == "__main__":
    where, group_id, its_name, connectors, tasks = sys.argv[1:]
    one = Worker(where, group_id, its_name, Shared(config_of(int(connectors), int(tasks))))
    told = -1
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if len(one.owned) != told:
                told = len(one.owned)
                sys.stdout.write(f"{told}\n")
                sys.stdout.flush()
            threading.Event().wait(0.05)
