"""Where a copy task hands records out to queries: slices out to Spark's steps, what they gave back in.

The driver runs one job after the other for a query while any copy task has records for it. A job takes slices from the desks and
gives the results back; only when the driver says that the job is done do they count. So a job that fails, whatever it had got
to, is as if it had not been: its slices are given out again.

The driver says why a job failed:
- *lost*: that had nothing to do with records. They are given out once more; if it is so all the time, the slices fail as a whole.
- *sift*: some record was to blame; the jobs that follow look at each record by itself (`careful`). They are given out once more,
  and the answer tells which ones the query raises on, and what a function said. If it was none, the first of a slice is tried
  alone, to hear what is wrong with it.
- *query*: some record was to blame, and there is no such plan. The slices become suspects. Each gets a job alone; one that fails
  is cut in halves, until it is known which record it was.
- *crash*: a Python worker ended in the midst, which may or may not be due to a record. Taken for *query* when it happens again
  and again; of a single record only after it alone has done it so often.
- *slow*: the job did not end in time. As *query*, but a slice that does it alone fails as a whole.

Other slices go on meanwhile: jobs for suspects take turns with jobs for all.
"""

from __future__ import annotations

import bisect
import logging
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from sparkmirror.dataplane.poller import Poller
from sparkmirror.errors import QueryFailed, QueryRefused, SparkError
from sparkmirror.transforms.record import ConnectRecord

from .columns import ERROR, MOST_ROWS, NUMBER, RAISED, STATE, Prepared, first_number, slice_of
from .frames import Door, Kind, Line, Message, frame, said
from .slices import Given, from_arrow, to_arrow
from .terms import QueryLimits, QueryTerms

log = logging.getLogger(__name__)
_CONNECT_S = 10.0
_PREPARE_S = 180.0
_ANSWER_S = 600.0
_MOST_LOSSES = 10
_MOST_CRASHES = 3
"""So often a Python worker may end in the midst before somebody is to blame."""


class Slice:
    """Rows of one partition on their way through a query.

    Invariants: `given` and `bad` hold what came of the rows so far, by their place in `rows`; it is whole when that is so of all.
    """

    __slots__ = ("_left", "_parts", "bad", "rows", "taker")

    def __init__(self, rows: Sequence[ConnectRecord], taker: Taker) -> None:
        self.rows = rows
        self.taker = taker
        self.bad: dict[int, str] = {}
        """The rows on which the query raised, and what it said."""
        self._parts: list[tuple[Sequence[int], Given]] = []
        self._left = len(rows)

    def passed(self, start: int, count: int, given: Given) -> bool:
        """What came of `count` rows from one on; whether that was the last of it."""
        return self.taken(range(start, len(self.rows)), count, given)

    def taken(self, places: Sequence[int], count: int, given: Given) -> bool:
        """What came of `count` rows, which `given` has by their number among these places."""
        self._parts.append((places, given))
        self._left -= count
        return not self._left

    def refused(self, row: int, message: str) -> bool:
        self.bad[row] = message
        self._left -= 1
        return not self._left

    @property
    def given(self) -> Given:
        """What the query gave, in the order of the rows."""
        if len(self._parts) == 1 and len(self._parts[0][0]) == len(self.rows):
            return self._parts[0][1]
        rows: list[int] = []
        columns: dict[str, list[Any]] = {}
        for places, part in self._parts:
            rows += [places[row] for row in part.rows]
            for name, values in part.columns.items():
                columns.setdefault(name, []).extend(values)
        order = sorted(range(len(rows)), key=rows.__getitem__)
        return _chosen(Given(rows, columns), order)


def _chosen(given: Given, order: Sequence[int]) -> Given:
    rows, columns = given
    return Given(
        [rows[index] for index in order],
        {name: [values[index] for index in order] for name, values in columns.items()},
    )


class Taker(Protocol):
    """Who has records for a query, and wants to hear what came of them. Called from the loop of the copy task."""

    def next_slice(self) -> Slice | None:
        """The next records, if there are any."""

    def answered(self, piece: Slice) -> None:
        """All is known of it."""

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        """Nothing will be known of it."""

    @property
    def is_wanting(self) -> bool:
        """Whether it has records that were not given out."""


class _Part(NamedTuple):
    """Rows of a slice as they are given out."""

    piece: Slice
    places: Sequence[int]
    alike: tuple[int, ...] = ()
    """Of one row that is tried alone: others that the query raised on with it."""
    crashes: int = 0

    @property
    def rows(self) -> Sequence[ConnectRecord]:
        rows = self.piece.rows
        return rows if len(self.places) == len(rows) else [rows[place] for place in self.places]

    def halves(self) -> tuple[_Part, _Part]:
        middle = len(self.places) // 2
        return _Part(self.piece, self.places[:middle]), _Part(self.piece, self.places[middle:])


@dataclass(slots=True)
class _Query:
    """One query, as the desk knows it.

    Invariants: `again` are parts that were given out in vain, to go out before any other; `out` those that are with job `job`, by
    the number of the slice, with the task that has them. Suspects are given out alone: a job that fails with one of them has
    failed for it.
    """

    prepared: Prepared
    takers: dict[Taker, None] = field(default_factory=dict)
    again: deque[_Part] = field(default_factory=deque)
    suspects: deque[_Part] = field(default_factory=deque)
    job: int = -1
    is_hunting: bool = False
    """Whether that job is for one suspect."""
    crashes: int = 0
    """Of jobs for all, one after the other."""
    losses: int = 0
    """Of any jobs, one after the other, without one that was done."""
    out: dict[int, tuple[int, _Part]] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Which attempt of each task of the job takes."""
    results: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    told: tuple[bool, bool] | None = None
    """What the driver knows that there is: suspects, others. None: nothing."""

    def back(self, task: int | None = None) -> list[_Part]:
        """What is with the job, or one task of it, which will not give anything."""
        lost = {n: part for n, (at, part) in self.out.items() if task is None or at == task}
        for number in lost:
            del self.out[number]
            self.results.pop(number, None)
        return list(lost.values())

    def drop(self, is_gone: Callable[[Slice], bool]) -> None:
        """Give up slices that nobody waits for."""
        self.again = deque(p for p in self.again if not is_gone(p.piece))
        self.suspects = deque(p for p in self.suspects if not is_gone(p.piece))
        self.out = {n: (at, p) for n, (at, p) in self.out.items() if not is_gone(p.piece)}


class Desk:
    """One for a copy task.

    Invariants: a slice is in `again`, in `suspects`, or in `out` of its query, or has been answered. Results are kept by slice
    until their job is done, and dropped with it if it fails.
    """

    def __init__(self, hub: Door, flow: str, limits: QueryLimits) -> None:
        self._hub, self._flow, self._limits = hub, flow, limits
        self._poller = Poller()
        self._line: Line | None = None
        self._door: Door | None = None
        self._listener: _Listener | None = None
        self._number = 0
        self._slices = 0
        self._known: dict[str, Prepared] = {}
        self._queries: dict[int, _Query] = {}
        self._lines: set[Line] = set()
        self._schemas: dict[Line, tuple[int, pa.Schema]] = {}
        self._prepared: Prepared | QueryRefused | None = None

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
        if isinstance(found, QueryRefused):
            raise found
        assert isinstance(found, Prepared)  # noqa: S101 - there is no third
        self._known[terms.text] = found
        self._queries[found.number] = _Query(found)
        return found

    def _connect(self) -> None:
        if self._line is not None and self._line.is_open:
            return
        if self._line is not None:
            raise SparkError("The driver has ended the connection for queries.")
        # The address under which the driver is reached is one under which others on that network can reach us.
        try:
            with_driver = socket.create_connection((self._hub.host, self._hub.port), _CONNECT_S)
        except OSError as error:
            raise SparkError(
                f"The driver does not answer on {self._hub.host}:{self._hub.port}: {error}"
            ) from error
        self._listener = _Listener(str(with_driver.getsockname()[0]), self._accepted)
        token = secrets.token_hex(16)
        self._door = Door(*self._listener.address, token)
        self._line = line = Line(with_driver)
        self._poller.watch(self._listener, self._listener.ready)
        self._poller.watch(line, lambda: self._heard(line))
        line.send(said(Kind.HELLO, token=self._hub.token, door=list(self._door)))

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
            self._poller.wait(0.2)
        return found

    # -- life -----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """False once the driver is gone, if it was ever needed."""
        return self._line is None or self._line.is_open

    def turn(self) -> None:
        """Deal with what has come in."""
        self._poller.wait(0)

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
        query.takers[taker] = None
        self._call_for(query)

    def forget(self, taker: Taker) -> None:
        """Somebody does not wait for answers any more."""
        for query in self._queries.values():
            query.takers.pop(taker, None)
            query.drop(lambda piece: piece.taker is taker)

    def ask(self, prepared: Prepared, rows: Sequence[ConnectRecord]) -> Slice:
        """What comes of these rows, waited for; QueryFailed if that will never be known."""
        asker = _Asker(rows)
        self.offer(prepared, asker)
        try:
            found = self._await(lambda: asker.outcome, _ANSWER_S, "answer")
        finally:
            self.forget(asker)
        if isinstance(found, QueryFailed):
            raise found
        piece: Slice = found
        return piece

    def _call_for(self, query: _Query) -> None:
        """Tell the driver that there are records, unless it knows."""
        there = bool(query.suspects), bool(query.again or query.takers)
        if there == query.told or not any(there):
            return
        query.told = there
        alone, plenty = there
        number = query.prepared.number
        self._tell(said(Kind.WAITING, query=number, alone=alone, plenty=plenty))

    # -- with Spark's steps ---------------------------------------------------------------------

    def _accepted(self, connection: socket.socket) -> None:
        line = Line(connection)
        self._lines.add(line)
        self._poller.watch(line, lambda: self._asked(line))

    def _asked(self, line: Line) -> None:
        for message in line.receive():
            if not line.is_known:
                line.is_known = self._is_password(message)
                if not line.is_known:
                    line.close()
                    break
                continue
            self._serve(line, message)
        if not line.is_open:
            self._lines.discard(line)
            self._schemas.pop(line, None)

    def _is_password(self, message: Message) -> bool:
        door = self._door
        try:
            given = message.fields.get("token") if message.kind is Kind.HELLO else None
        except (TypeError, ValueError):  # anybody may knock
            return False
        return door is not None and secrets.compare_digest(str(given), door.token)

    def _serve(self, line: Line, message: Message) -> None:
        match message.kind:
            case Kind.TAKE:
                line.send(self._next(message.fields))
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

    def _next(self, fields: dict[str, Any]) -> bytes:
        """The next slice for a task of a job."""
        query, job, task = self._queries[fields["query"]], fields["job"], fields["task"]
        if job > query.job and self._line is not None:
            self._heard(self._line)  # the word on the job before may be waiting there
        if job > query.job:  # whatever became of the one before, its slices have not come back
            self._begin(query, job, is_hunting=fields["alone"])
        if job < query.job:
            return frame(Kind.NOTHING)
        attempt, latest = fields["attempt"], query.attempts.setdefault(task, fields["attempt"])
        if attempt < latest:
            return frame(Kind.NOTHING)
        if attempt > latest:  # the one before was lost with what it had
            self._once_more(query, query.back(task))
            query.attempts[task] = attempt
        part = self._pick(query)
        if part is None:
            return frame(Kind.NOTHING)
        self._slices += 1
        number = first_number(self._number, self._slices)
        query.out[slice_of(number)] = task, part
        return frame(Kind.SLICE, to_arrow(part.rows, number, query.prepared.needs))

    def _begin(self, query: _Query, job: int, *, is_hunting: bool) -> None:
        self._once_more(query, query.back())
        query.job, query.is_hunting, query.told = job, is_hunting, None
        query.attempts.clear()
        query.results.clear()

    def _once_more(self, query: _Query, parts: Sequence[_Part]) -> None:
        (query.suspects if query.is_hunting else query.again).extendleft(reversed(parts))

    def _pick(self, query: _Query) -> _Part | None:
        if query.is_hunting:
            return None if query.out or not query.suspects else query.suspects.popleft()
        if query.again:
            return query.again.popleft()
        while query.takers:
            taker = next(iter(query.takers))
            piece = taker.next_slice()
            query.takers.pop(taker, None)
            if taker.is_wanting:
                query.takers[taker] = None  # the others first
            if piece is not None:
                assert len(piece.rows) <= MOST_ROWS  # noqa: S101 - so many fit into a record's number
                return _Part(piece, range(len(piece.rows)))
        return None

    def _take_in(self, job: int, schema: pa.Schema, message: Message) -> None:
        query = next((q for q in self._queries.values() if q.job == job), None)
        if query is None:  # of a job that was given up
            return
        batch = pa.ipc.read_record_batch(pa.py_buffer(message.payload), schema)
        for number, part in _by_slice(batch):
            query.results.setdefault(number, []).append(part)

    # -- outcomes -------------------------------------------------------------------------------

    def _done(self, query: _Query, job: int) -> None:
        if job == query.job:
            query.crashes = query.losses = 0
            results, parts = query.results, query.out
            query.results, query.out = {}, {}
            for number, (_, part) in parts.items():
                self._passed(query, part, from_arrow(results.get(number, ())))
        self._go_on(query, job)

    def _passed(self, query: _Query, part: _Part, given: Given) -> None:
        """A job is done with these rows, but for those that it says it raised on."""
        piece, places = part.piece, part.places
        states, said = given.columns.pop(STATE, []), given.columns.pop(ERROR, [])
        rows = given.rows if states else ()
        bad = {
            places[row]: text
            for row, state, text in zip(rows, states, said, strict=True)
            if state == RAISED
        }
        if bad:
            given = _chosen(given, [at for at, s in enumerate(states) if s != RAISED])
            self._sift(query, piece, bad)
        elif part.alike:  # alone it passes: then nothing is known of those that were bad with it
            log.warning("A record passes alone that did not with others; each of them is tried.")
            query.suspects.append(_Part(piece, part.alike))
        if piece.taken(places, len(places) - len(bad), given):
            piece.taker.answered(piece)

    def _sift(self, query: _Query, piece: Slice, bad: dict[int, str | None]) -> None:
        """Of some it is known what a function said; of the others, one is tried alone to hear what is wrong."""
        for place, text in bad.items():
            if text is not None:
                piece.refused(place, text)
        silent = [place for place, text in bad.items() if text is None]
        if silent:
            query.suspects.append(_Part(piece, silent[:1], tuple(silent[1:])))

    def _failed(self, query: _Query, fields: dict[str, Any]) -> None:
        job, reason = fields["job"], fields["reason"]
        if job == query.job:
            parts = query.back()
            if reason == "crash" and not query.is_hunting:
                query.crashes += 1
            is_due_to_records = reason in ("query", "slow") or (
                reason == "crash" and query.crashes >= _MOST_CRASHES
            )
            if query.is_hunting and reason in ("query", "slow", "crash"):
                error = QueryFailed(fields["message"], fields["remedy"])
                for part in parts:
                    self._accuse(query, part, error, reason)
            elif is_due_to_records:
                query.suspects.extend(parts)
            else:
                self._lost(query, parts, fields)
        self._go_on(query, job)

    def _lost(self, query: _Query, parts: Sequence[_Part], fields: dict[str, Any]) -> None:
        """No record is to blame. What goes wrong all the time must be seen, though."""
        self._once_more(query, parts)
        query.losses += fields["reason"] == "lost"
        if query.losses < _MOST_LOSSES:
            return
        query.losses = 0
        error = QueryFailed(fields["message"], fields["remedy"])
        for piece in {part.piece for part in parts}:
            query.drop(lambda each, gone=piece: each is gone)  # type: ignore[misc]
            piece.taker.failed(piece, error)

    def _accuse(self, query: _Query, part: _Part, error: QueryFailed, reason: str) -> None:
        """The query failed with nothing but these rows: they are tried in halves, until it is known which record it was.

        Not if it did not end: that would take too long.
        """
        piece = part.piece
        if reason == "slow":
            query.drop(lambda each: each is piece)
            piece.taker.failed(piece, error)
        elif len(part.places) > 1:
            query.suspects.extendleft(reversed(part.halves()))
        elif reason == "crash" and part.crashes + 1 < _MOST_CRASHES:
            query.suspects.appendleft(part._replace(crashes=part.crashes + 1))
        else:
            self._refuse(part, error.message)

    def _refuse(self, part: _Part, message: str) -> None:
        piece, place = part.piece, part.places[0]
        is_whole = piece.refused(place, message)
        offset = piece.rows[place].offset
        for other in part.alike:
            alike = f"The query raises on it as well; of offset {offset} it says: {message}"
            is_whole = piece.refused(other, alike)
        if is_whole:
            piece.taker.answered(piece)

    def _go_on(self, query: _Query, job: int) -> None:
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


class _Listener:
    """The desk's door, as the poller sees it."""

    wants_write = False
    is_open = True

    def __init__(self, host: str, accepted: Callable[[socket.socket], None]) -> None:
        self._socket = socket.create_server((host, 0))
        self._socket.setblocking(False)
        self._accepted = accepted

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def fileno(self) -> int:
        return self._socket.fileno()

    def ready(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        self._accepted(connection)

    def flush_quietly(self) -> None:
        """Nothing is ever written to it."""

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


def _by_slice(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A batch cut where the slice changes; the numbers of its rows go up."""
    numbers = [slice_of(number) for number in batch.column(NUMBER).to_pylist()]
    start = 0
    while start < len(numbers):
        end = bisect.bisect_right(numbers, numbers[start], start)
        yield numbers[start], batch.slice(start, end - start)
        start = end
