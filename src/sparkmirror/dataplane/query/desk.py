"""Where a copy task hands records out to queries: slices out to Spark's steps, what they gave back in.

The driver runs one job after the other for a query while any copy task has records for it. A job takes slices from the desks and
gives the results back; only when the driver says that the job is done do they count. So a job that fails, whatever it had got
to, is as if it had not been: its slices are given out again.

What becomes of the slices of one query, whatever became of its jobs, is decided in `queue`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sparkmirror.dataplane.job_label import JobLabel
from sparkmirror.dataplane.links.address import Driver, Purpose
from sparkmirror.dataplane.links.connecting import connect
from sparkmirror.dataplane.links.task_listener import TaskListener
from sparkmirror.dataplane.poller import Poller
from sparkmirror.errors import QueryFailed, QueryRefused, QueryStuck, SparkError
from sparkmirror.transforms.record import ConnectRecord

from .columns import Prepared, first_number
from .frames import Kind, Line, Message, frame, said, weighed
from .parts import Slice, Taker
from .queue import SliceQueue
from .terms import QueryLimits, QueryTerms

log = logging.getLogger(__name__)
_PREPARE_S = 180.0
_ANSWER_S = 600.0
_MOST_UNKNOWN = 32


class Desk:
    """One for a copy task.

    Invariants: there is a queue for every query that the driver has prepared for us; the driver is told of records once, until
    the next job. Few connections are kept that have not greeted: the oldest are closed for new ones.
    """

    def __init__(
        self, driver: Driver, flow: str, limits: QueryLimits, label: JobLabel | None = None
    ) -> None:
        self._driver, self._flow, self._limits = driver, flow, limits
        self._label = label or JobLabel(flow, flow)
        self._poller = Poller()
        self._line: Line | None = None
        self._listener: TaskListener | None = None
        self._number = 0
        self._slices = 0
        self._known: dict[str, Prepared] = {}
        self._queries: dict[int, SliceQueue] = {}
        self._lines: dict[Line, None] = {}
        """Of tasks of queries, in the order in which they came."""
        self._schemas: dict[Line, tuple[int, pa.Schema]] = {}
        self._prepared: Prepared | QueryRefused | SparkError | None = None

    # -- with the driver ----------------------------------------------------------------------

    def prepare(self, terms: QueryTerms) -> Prepared:
        """Have the driver look at a query, once; QueryRefused with its reason if it cannot be run."""
        known = self._known.get(terms.text)
        if known is not None:
            return known
        self._connect()
        self._prepared = None
        self._tell(
            said(
                Kind.PREPARE,
                flow=self._flow,
                terms=terms.text,
                interval=self._limits.interval,
                limit=self._limits.patience,
                memory=self._limits.memory,
            )
        )
        found = self._await(lambda: self._prepared, _PREPARE_S, "look at a query")
        if isinstance(found, QueryRefused | SparkError):
            raise found
        assert isinstance(found, Prepared)  # noqa: S101 - there is no third
        self._known[terms.text] = found
        self._queries[found.number] = SliceQueue(found)
        return found

    def _connect(self) -> None:
        if self._line is not None and self._line.is_open:
            return
        if self._line is not None:
            raise SparkError("The driver has ended the connection for queries.")
        with_driver = connect(self._driver.address, Purpose.QUERIES, self._driver.secret)
        self._line = line = Line.of(with_driver)
        # The address under which the driver is reached is one under which others on that network can reach us.
        host = str(with_driver.getsockname()[0])
        self._listener = TaskListener(host, self._driver.task_ports, self._accepted)
        self._poller.watch(self._listener, self._listener.ready)
        self._poller.watch(line, lambda: self._heard(line))
        address = list(self._listener.address)
        line.send(said(Kind.HELLO, address=address, label=self._label.plain))

    def _tell(self, data: bytes) -> None:
        if self._line is None or not self._line.is_open:
            raise SparkError("The driver has ended the connection for queries.")
        self._line.send(data)

    def _heard(self, line: Line) -> None:
        """What the driver says."""
        for message in line.receive():
            fields = message.fields
            match message.kind:
                case Kind.HEARD:
                    self._number = fields["desk"]
                case Kind.PREPARED:
                    self._prepared = Prepared.read(fields)
                case Kind.REFUSED:
                    self._prepared = QueryRefused(fields["message"], fields["remedy"])
                case Kind.LOST:
                    self._prepared = SparkError(fields["message"], fields["remedy"])
                case Kind.DONE:
                    self._done(self._queries[fields["query"]], fields["job"])
                case Kind.FAILED:
                    self._failed(self._queries[fields["query"]], fields)
                case _:
                    log.warning("The driver says %s, which is not for a copy task.", message.kind)

    def _await(self, condition: Callable[[], Any], patience: float, what: str) -> Any:
        """Deal with nothing but queries until something has come about."""
        deadline = time.monotonic() + patience
        while (found := condition()) is None:
            if self._line is None or not self._line.is_open or time.monotonic() > deadline:
                raise SparkError(f"The driver did not {what}.")
            self._poller.wait(0 if self.is_busy else 0.2)
            self._answer()
        return found

    # -- life -----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """False once the driver is gone, if it was ever needed."""
        return self._line is None or self._line.is_open

    def turn(self) -> None:
        """Deal with what has come in, and with some of what is known."""
        self._poller.wait(0)
        self._answer()

    @property
    def is_busy(self) -> bool:
        """Whether the next turn has something to do, whatever comes in."""
        return any(query.may_answer for query in self._queries.values())

    def _answer(self) -> None:
        """One slice of each query that may be known."""
        for query in self._queries.values():
            if query.may_answer:
                query.answer()
                self._call_for(query)

    def fileno(self) -> int:
        return self._poller.fileno()

    wants_write = False

    def flush_quietly(self) -> None:
        """Nothing: what it writes to is watched inside."""

    def close(self) -> None:
        for end in (self._line, self._listener, *self._lines):
            if end is not None:
                end.close()
        self._poller.close()

    # -- records --------------------------------------------------------------------------------

    def offer(self, prepared: Prepared, taker: Taker) -> None:
        """Somebody has records for a query."""
        query = self._queries[prepared.number]
        query.offer(taker)
        self._call_for(query)

    def forget(self, taker: Taker) -> None:
        """Somebody does not wait for answers any more."""
        for query in self._queries.values():
            query.forget(taker)

    def ask(self, prepared: Prepared, rows: Sequence[ConnectRecord]) -> Slice:
        """What comes of these rows, waited for; QueryFailed if that will never be known."""
        (found,) = self.ask_all(prepared, [rows])
        return found

    def ask_all(
        self, prepared: Prepared, portions: Sequence[Sequence[ConnectRecord]]
    ) -> list[Slice]:
        """The same for several portions at once."""
        askers = [_Asker(rows) for rows in portions]
        for asker in askers:
            self.offer(prepared, asker)
        try:
            return [self._await(asker.answer, _ANSWER_S, "answer") for asker in askers]
        finally:
            for asker in askers:
                self.forget(asker)

    def _call_for(self, query: SliceQueue) -> None:
        """Tell the driver that there are records, unless it knows."""
        there = query.there
        if there == query.told or not any(there):
            return
        query.told = there
        alone, plenty = there
        number = query.prepared.number
        word = said(Kind.WAITING, query=number, alone=alone, plenty=plenty, left=query.is_left)
        self._tell(word)

    # -- with Spark's steps ---------------------------------------------------------------------

    def _accepted(self, connection: socket.socket) -> None:
        unknown = [line for line in self._lines if not line.is_known]
        for line in unknown[: max(0, len(unknown) - _MOST_UNKNOWN + 1)]:  # the oldest
            line.close()
            self._lines.pop(line)
        try:
            line = Line.accepted(connection, self._driver.secret)
        except OSError:  # it is gone already
            connection.close()
            return
        self._lines[line] = None
        self._poller.watch(line, lambda: self._asked(line))

    def _asked(self, line: Line) -> None:
        for message in line.receive():
            self._serve(line, message)
        if not line.is_open:
            self._lines.pop(line, None)
            self._schemas.pop(line, None)

    def _serve(self, line: Line, message: Message) -> None:
        match message.kind:
            case Kind.TAKE:
                line.send(*self._next(message.fields))
            case Kind.SCHEMA:
                fields = message.fields
                schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(fields["schema"])))
                self._schemas[line] = fields["job"], schema
            case Kind.RESULT if line in self._schemas:
                self._take_in(*self._schemas[line], message)
            case Kind.END:
                line.send(frame(Kind.HEARD))
            case _:
                line.close()

    def _next(self, fields: dict[str, Any]) -> tuple[bytes | memoryview, ...]:
        """The next slice for a task of a job."""
        query, job, task = self._queries[fields["query"]], fields["job"], fields["task"]
        if job > query.job and self._line is not None:
            self._heard(self._line)  # the word on the job before may be waiting there
        if job > query.job:
            query.begin(job, is_hunting=fields["alone"])
        if job < query.job or not query.is_latest(task, fields["attempt"]):
            return (frame(Kind.NOTHING),)
        first = first_number(self._number, self._slices + 1)
        picked = query.pick(first, task, is_careful=fields["careful"])
        if picked is None:
            return (frame(Kind.NOTHING),)
        self._slices += 1
        return weighed(Kind.SLICE, *picked)

    def _take_in(self, job: int, schema: pa.Schema, message: Message) -> None:
        query = next((q for q in self._queries.values() if q.job == job), None)
        if query is None:  # of a job that was given up
            return
        query.take_in(pa.ipc.read_record_batch(pa.py_buffer(message.payload), schema))

    # -- outcomes -------------------------------------------------------------------------------

    def _done(self, query: SliceQueue, job: int) -> None:
        if job == query.job:
            query.done()
        self._go_on(query, job)

    def _failed(self, query: SliceQueue, fields: dict[str, Any]) -> None:
        if fields["job"] == query.job:
            kind = QueryStuck if fields.get("stuck") else QueryFailed
            query.failed(fields["reason"], kind(fields["message"], fields["remedy"]))
        self._go_on(query, fields["job"])

    def _go_on(self, query: SliceQueue, job: int) -> None:
        """A job is over, whether it had anything of ours or not."""
        if job >= query.job:
            query.told = None
            self._call_for(query)


class _Asker:
    """One who asks once, and waits."""

    is_wanting = False

    def __init__(self, rows: Sequence[ConnectRecord]) -> None:
        self._rows: Sequence[ConnectRecord] | None = rows
        self.outcome: Slice | QueryFailed | None = None

    def next_slice(self) -> Slice | None:
        rows, self._rows = self._rows, None
        return None if rows is None else Slice(rows, self)

    def answered(self, piece: Slice) -> None:
        self.outcome = piece

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        self.outcome = error

    def answer(self) -> Slice | None:
        if isinstance(self.outcome, QueryFailed):
            raise self.outcome
        return self.outcome
