"""Copy tasks, as the driver knows them: what they say they have in; what is said to them out."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkmirror.dataplane.job_label import JobLabel
from sparkmirror.dataplane.links.address import Address
from sparkmirror.errors import SparkError

from .frames import Call


class Waiting(NamedTuple):
    """What a copy task has for a query: suspects, which want a job alone, and others."""

    alone: bool
    plenty: bool
    left: bool = False
    """Whether there is more than the last job could take, so that the next need not wait."""


@dataclass(slots=True, eq=False)
class Link:
    """A copy task, as the driver knows it.

    Invariants: `waiting` holds the queries that it has records for since their last job began; `queries` all that it knows.
    """

    number: int
    call: Call
    address: Address
    """Where it listens for the tasks of queries."""
    label: JobLabel
    """What of the flow passes through queries there."""
    waiting: dict[int, Waiting] = field(default_factory=dict)
    queries: set[int] = field(default_factory=set)
    is_open: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, data: bytes) -> None:
        try:
            with self._lock:
                self.call.send(data)
        except SparkError:
            self.is_open = False
