"""Several Connect workers of one group: properties come in, workers that share connectors go out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from connect_worker import ConnectWorker
from kafka_tools import wait_for

_LEADER = re.compile(r"the leader is (\S+?)/?\.$", re.MULTILINE)


class Fleet:
    """Workers of one group, all alive unless a test has ended one. Leaving the block stops them all."""

    def __init__(self, directory: Path, properties: Mapping[str, str], size: int) -> None:
        self.workers = [ConnectWorker(directory, properties) for _ in range(size)]

    def __enter__(self) -> Self:
        try:
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                worker.wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        """All at once: each takes some seconds."""
        with ThreadPoolExecutor(len(self.workers)) as pool:
            list(pool.map(ConnectWorker.stop, self.alive))

    @property
    def alive(self) -> list[ConnectWorker]:
        return [w for w in self.workers if w.process is not None and w.process.poll() is None]

    def leader(self) -> ConnectWorker:
        """Who leads, as the others have been told last."""
        found = _LEADER.findall(self.alive[0].output)
        return next(worker for worker in self.workers if worker.url == found[-1])

    def follower(self) -> ConnectWorker:
        leader = self.leader()
        return next(worker for worker in self.alive if worker is not leader)

    def owner(self, connector: str, task: int | None = None) -> ConnectWorker:
        """The worker that runs a connector, or one of its tasks."""
        status = self.alive[0].status(connector)
        part = status["connector"] if task is None else status["tasks"][task]
        return next(worker for worker in self.workers if worker.worker_id == part["worker_id"])

    def shares(self, seen_by: ConnectWorker) -> tuple[Counter[str], Counter[str]] | None:
        """How many connectors and tasks each worker runs; None while one of them is not running."""
        known = seen_by.get("/connectors?expand=status").values()
        statuses = [row["status"] for row in known]
        connectors = [status["connector"] for status in statuses]
        tasks = [task for status in statuses for task in status["tasks"]]
        if any(part["state"] != "RUNNING" for part in (*connectors, *tasks)):
            return None
        return _owners(connectors), _owners(tasks)

    def is_even(self, connectors: int, tasks: int) -> bool:
        """Whether every worker alive sees all of these running on those alive, none with two more than another."""
        alive = {worker.worker_id for worker in self.alive}
        for worker in self.alive:
            shares = self.shares(worker)
            if shares is None or [share.total() for share in shares] != [connectors, tasks]:
                return False
            if any(share.keys() != alive or _gap(share) > 1 for share in shares):
                return False
        return True

    def wait_even(self, connectors: int, tasks: int, patience: float = 120.0) -> None:
        try:
            wait_for("work is shared evenly", lambda: self.is_even(connectors, tasks), patience)
        except AssertionError as error:
            seen = [self.shares(worker) for worker in self.alive]
            raise AssertionError(f"{error}; {seen}\n{self.alive[0].tail}") from None


def _owners(parts: Iterable[Any]) -> Counter[str]:
    return Counter(part["worker_id"] for part in parts)


def _gap(share: Counter[str]) -> int:
    return max(share.values()) - min(share.values())
