"""The driver's side of queries without Spark: a listener that a real desk connects to, and jobs whose steps are the real ones."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from sparkmirror.dataplane.links.address import Address, Purpose, SessionSecret
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.dataplane.links.session_tls import new_secret
from sparkmirror.dataplane.query import steps
from sparkmirror.dataplane.query.columns import (
    DROPPED,
    ERROR,
    KEPT,
    NUMBER,
    RAISED,
    STATE,
    Feed,
    Prepared,
)
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.frames import Call, Kind, Message, said
from sparkmirror.dataplane.query.parts import Slice
from sparkmirror.dataplane.query.terms import QueryLimits, QueryTerms
from sparkmirror.errors import QueryFailed, SparkError
from sparkmirror.transforms.record import ConnectRecord

PATIENCE_S = 20.0
TERMS = QueryTerms("SELECT value FROM records")
VALUE = frozenset({"value"})


def record(offset: int, value: bytes) -> ConnectRecord:
    return ConnectRecord("t", 0, offset, 1_700_000_000_000, None, value, [])


def turned(desk: Desk, condition: Callable[[], Any]) -> Any:
    """The first true answer, with the desk at work meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        desk.turn()
        time.sleep(0.0005)
    return found


class Hub:
    """A driver that serves one desk: prepares every query, and keeps what else it hears."""

    def __init__(self, prepared: Prepared, secret: SessionSecret) -> None:
        self._listener = DriverListener("127.0.0.1", "127.0.0.1", secret)
        self.driver = self._listener.driver
        self._prepared = prepared
        self.refusal: dict[str, str] | None = None
        self.heard: queue.Queue[Message] = queue.Queue()
        self.desk: Address | None = None
        """Where the desk listens for tasks of queries."""
        self._call: Call | None = None
        self._listener.serve(Purpose.QUERIES, self._serve)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(SparkError, OSError):
            self._call = call = Call(connection)
            self.desk = Address(*call.receive().fields["address"])
            call.send(said(Kind.HEARD, desk=7))
            while True:
                message = call.receive()
                if message.kind is not Kind.PREPARE:
                    self.heard.put(message)
                elif self.refusal is not None:
                    call.send(said(Kind.REFUSED, **self.refusal))
                else:
                    call.send(said(Kind.PREPARED, **self._prepared.fields))

    def tell(self, kind: Kind, **fields: object) -> None:
        assert self._call is not None
        self._call.send(said(kind, query=self._prepared.number, **fields))

    def waiting(self, desk: Desk) -> dict[str, Any]:
        """The next time that the desk says it has records."""
        turned(desk, lambda: not self.heard.empty())
        message = self.heard.get()
        assert message.kind is Kind.WAITING
        return message.fields

    def close(self) -> None:
        self._listener.close()
        if self._call is not None:
            self._call.close()


@dataclass
class Context:
    """A task, as its steps see it."""

    order: str
    task: int = 0
    attempt: int = 0

    def getLocalProperty(self, name: str) -> str:
        assert name == steps.ORDER
        return self.order

    def partitionId(self) -> int:
        return self.task

    def attemptNumber(self) -> int:
        return self.attempt


class Contexts(threading.local):
    """Stands in for Spark's `TaskContext`: each thread has its own."""

    current: Context | None = None

    def get(self) -> Context | None:
        return self.current


@dataclass
class Job:
    """One job of one desk: its steps, run in a thread while the desk is at work."""

    desk: Desk
    hub: Hub
    contexts: Contexts
    number: int
    alone: bool = False
    limit: int = 1 << 20
    task: int = 0
    attempt: int = 0
    careful: bool = False
    feed: Feed = field(default_factory=lambda: Feed(VALUE))

    def take(self) -> list[pa.RecordBatch]:
        return self._run(lambda: list(steps.take(self.hub.driver.secret, iter([]))))

    def give(self, *batches: pa.RecordBatch) -> dict[str, Any]:
        (row,) = self._run(lambda: list(steps.give(self.hub.driver.secret, iter(batches))))
        found: dict[str, Any] = row.to_pylist()[0]
        return found

    def _run(self, step: Callable[[], list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        order = {
            "job": self.number,
            "query": 3,
            "alone": self.alone,
            "limit": self.limit,
            "careful": self.careful,
            "feed": (Feed(VALUE) if self.careful else self.feed).plain,
            "copy tasks": {"7": list(self.hub.desk or ())},
        }
        context = Context(json.dumps(order), self.task, self.attempt)
        outcome: list[list[pa.RecordBatch] | SparkError] = []

        def run() -> None:
            self.contexts.current = context
            try:
                outcome.append(step())
            except SparkError as error:
                outcome.append(error)

        threading.Thread(target=run, daemon=True).start()
        found = turned(self.desk, lambda: outcome)[0]
        if isinstance(found, SparkError):
            raise found
        batches: list[pa.RecordBatch] = found
        return batches


def upper(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What the query gives: values in upper case, none that begins with `drop`."""
    rows = [
        (number, value.upper())
        for number, value in zip(
            batch.column(NUMBER).to_pylist(), batch.column("value").to_pylist(), strict=True
        )
        if not value.startswith(b"drop")
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([number for number, _ in rows], pa.int64()),
            pa.array([value for _, value in rows], pa.binary()),
        ],
        names=[NUMBER, "value"],
    )


def carefully(
    batch: pa.RecordBatch, is_bad: Callable[[bytes], bool], said: str | None = None
) -> pa.RecordBatch:
    """The same by the careful plan: every record, with what became of it."""
    numbers, values = batch.column(NUMBER).to_pylist(), batch.column("value").to_pylist()
    states = [RAISED if is_bad(v) else DROPPED if v.startswith(b"drop") else KEPT for v in values]
    given = [v.upper() if s == KEPT else None for v, s in zip(values, states, strict=True)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(states, pa.int32()),
            pa.array([said if state == RAISED else None for state in states], pa.string()),
            pa.array(numbers, pa.int64()),
            pa.array(given, pa.binary()),
        ],
        names=[STATE, ERROR, NUMBER, "value"],
    )


@dataclass(eq=False)
class Partition:
    """A taker with some slices, which hears what came of them."""

    slices: list[Sequence[ConnectRecord]]
    answers: list[Slice] = field(default_factory=list)
    failures: list[QueryFailed] = field(default_factory=list)

    @property
    def is_wanting(self) -> bool:
        return bool(self.slices)

    def next_slice(self) -> Slice | None:
        return Slice(self.slices.pop(0), self) if self.slices else None

    def answered(self, piece: Slice) -> None:
        self.answers.append(piece)

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        self.failures.append(error)


@dataclass
class Bench:
    """A desk, its hub, and jobs between them."""

    desk: Desk
    hub: Hub
    contexts: Contexts
    prepared: Prepared
    jobs: int = 100
    log: list[tuple[bool, int]] = field(default_factory=list)
    """Of each job whether it was for one suspect, and how many records it got."""

    def job(self, **fields: Any) -> Job:
        self.jobs += 1
        fields.setdefault("feed", self.prepared.feed)
        return Job(self.desk, self.hub, self.contexts, self.jobs, **fields)

    def tell(self, kind: Kind, job: Job, **fields: object) -> None:
        self.hub.tell(kind, job=job.number, **fields)

    def fail(self, job: Job, reason: str, message: str = "it failed") -> None:
        self.tell(Kind.FAILED, job, reason=reason, message=message, remedy="mend it")

    def settle(self) -> None:
        """Let the desk hear what was told."""
        deadline = time.monotonic() + 0.05
        while time.monotonic() < deadline:
            self.desk.turn()
            time.sleep(0.001)

    def run_until(
        self,
        condition: Callable[[], bool],
        is_bad: Callable[[bytes], bool],
        *,
        has_careful: bool = False,
        misfortunes: Iterator[str] | None = None,
    ) -> None:
        """Run jobs as the driver does, one for each time that the desk has records."""
        is_careful = was_alone = False
        known: dict[str, Any] | None = None
        while not condition():
            while known is None or not self.hub.heard.empty():
                known = self.hub.waiting(self.desk)
            alone = known["alone"] and (not was_alone or not known["plenty"])
            known = {**known, "plenty": False} if known["alone"] and not alone else None
            was_alone = alone
            job = self.job(alone=alone)
            batches = job.take()
            self.log.append((alone, sum(b.num_rows for b in batches)))
            misfortune = next(misfortunes, "") if misfortunes else ""
            values = [v for b in batches for v in b.column("value").to_pylist()]
            if misfortune:
                self.fail(job, misfortune)
            elif is_careful and not alone:
                job.give(*(carefully(b, is_bad) for b in batches))
                self.tell(Kind.DONE, job)
            elif first := next((v for v in values if is_bad(v)), None):
                is_careful = has_careful
                reason = "sift" if has_careful and not alone else "query"
                self.fail(job, reason, f"bad: {first.decode()}")
            else:
                job.give(*(upper(b) for b in batches))
                self.tell(Kind.DONE, job)
            if known is None:
                turned(self.desk, lambda: condition() or not self.hub.heard.empty())


@contextlib.contextmanager
def bench(
    patch: pytest.MonkeyPatch, prepared: Prepared | None = None, *, tls: bool = False
) -> Iterator[Bench]:
    prepared = prepared or Prepared(3, VALUE, VALUE, Feed(VALUE))
    contexts = Contexts()
    patch.setattr(steps, "TaskContext", contexts)
    hub = Hub(prepared, new_secret(tls=tls))
    desk = Desk(hub.driver, "A->B", QueryLimits())
    try:
        yield Bench(desk, hub, contexts, prepared)
    finally:
        desk.close()
        hub.close()
        for call in steps._calls.values():
            call.close()
        steps._calls.clear()
