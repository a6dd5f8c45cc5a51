"""Runs queries: what copy tasks ask for in, one short Spark job after the other for each query; word of each job out.

Copy tasks connect to the hub and say which queries they need and when they have records for one. A query is looked at and planned
once. While any copy task has records for it, its jobs follow each other: a first step takes slices from the copy tasks, Spark
does what the query says, a last step gives the results back. The records themselves never come here.

When the query raises, the copy tasks hear of it (`desk` tells what they make of it). The jobs that follow run the careful plan if
there is one, until for a while no record was bad. Slices of a suspect always get the plain plan, which says what is wrong.
A query that asks for the time is planned for each job.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkmirror.errors import QueryRefused, SparkError

from . import steps
from .analysis import Analysed, analyse, said_by_spark
from .causes import why
from .columns import NUMBERED, Prepared
from .frames import Call, Door, Kind, Message, said
from .functions import load
from .guards import guarded, is_guardable
from .priority import TaskThreads
from .terms import QuerySettings, QueryTerms

log = logging.getLogger(__name__)
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # reaches us as exceptions
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - executors are on other machines then
_FIRST_PORTION, _LEAST_PORTION, _MOST_PORTION = 1 << 20, 64 << 10, 16 << 20
"""Bytes that one step takes in one job: enough to be worth a job, little enough to be through in a moment."""
_SHORT_S, _LONG_S = 0.7, 2.0
_LOST_WAITS_S = (0.1, 0.5, 2.0)
_HELLO_S = 10.0
_CANCEL_AGAIN_S = 0.25
_CAREFUL_JOBS = 20
"""So many jobs without a bad record, and the plain plan is tried again."""
_KEPT_S = 60.0
"""How long a query is kept that no copy task knows any more."""
_MOST_CHECKED = 256
_SETTINGS = {
    # One plan for all time, in which nothing depends on where it runs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # What it holds to else is looked at for every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
_GONE = (Py4JError, OSError, TypeError, AttributeError)


class _Waiting(NamedTuple):
    """What a copy task has for a query: suspects, which want a job alone, and others."""

    alone: bool
    plenty: bool


@dataclass(slots=True, eq=False)
class _Link:
    """A copy task, as the hub knows it.

    Invariants: `waiting` holds the queries that it has records for since their last job began; `queries` all that it knows.
    """

    number: int
    call: Call
    door: Door
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    queries: set[int] = field(default_factory=set)
    is_open: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, data: bytes) -> None:
        try:
            with self._lock:
                self.call.send(data)
        except SparkError:
            self.is_open = False


class QueryEngine:
    """All queries of a Spark session.

    Invariants: a query has one job at a time; a link that is closed is asked for nothing. Threads end with `close`.
    """

    def __init__(
        self,
        context: SparkContext,
        host: str,
        width: int,
        *,
        is_local: bool,
        jvm: int | None = None,
    ) -> None:
        self.context = context
        self._width = width
        self.task_threads = TaskThreads(jvm)
        self._listener = socket.create_server((host if is_local else _ANY_ADDRESS, 0))
        self.door = Door(host, self._listener.getsockname()[1], secrets.token_hex(16))
        self._changed = threading.Condition()
        self._links: dict[int, _Link] = {}
        self._queries: dict[tuple[str, str], _Query] = {}
        self._preparing, self._sessions = threading.Lock(), threading.Lock()
        self._checked: set[str] = set()
        self._numbers = itertools.count(1)
        self._session: SparkSession | None = None
        self.is_closed = False
        threading.Thread(target=self._accept, name="query hub", daemon=True).start()

    def next_number(self) -> int:
        return next(self._numbers)

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            links = list(self._links.values())
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in links:
            link.call.close()

    # -- copy tasks -----------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Call(connection),), daemon=True).start()

    def _serve(self, call: Call) -> None:
        link: _Link | None = None
        try:
            call.patience(_HELLO_S)
            link = self._met(call.receive(), call)
            call.patience(None)
            while link is not None:
                self._heard(link, call.receive())
        except (SparkError, OSError, ValueError, KeyError) as error:
            log.debug("A copy task has left the queries: %s", error)
        finally:
            call.close()
            if link is not None:
                with self._changed:
                    link.is_open = False
                    self._links.pop(link.number, None)
                    self._changed.notify_all()

    def _met(self, message: Message, call: Call) -> _Link | None:
        fields = message.fields
        if message.kind is not Kind.HELLO or not secrets.compare_digest(
            str(fields.get("token")), self.door.token
        ):
            return None
        link = _Link(next(self._numbers), call, Door(*fields["door"]))
        with self._changed:
            self._links[link.number] = link
        link.tell(said(Kind.HEARD, desk=link.number))
        return link

    def _heard(self, link: _Link, message: Message) -> None:
        fields = message.fields
        if message.kind is Kind.PREPARE:
            link.tell(self._prepared(link, fields))
        elif message.kind is Kind.WAITING:
            with self._changed:
                link.waiting[fields["query"]] = _Waiting(fields["alone"], fields["plenty"])
                self._changed.notify_all()

    def _prepared(self, link: _Link, fields: dict[str, Any]) -> bytes:
        terms = QueryTerms.read(json.loads(fields["terms"]))
        try:
            if terms is None:
                raise QueryRefused("There is no query.")
            query = self._query(link, terms, fields)
        except QueryRefused as error:
            return said(Kind.REFUSED, message=error.message, remedy=error.remedy)
        except SparkError as error:
            return said(Kind.REFUSED, message=error.message, remedy=error.remedy)
        return said(Kind.PREPARED, **query.prepared.fields)

    def _query(self, link: _Link, terms: QueryTerms, fields: dict[str, Any]) -> _Query:
        flow = fields["flow"]
        with self._preparing:
            known = self._queries.get((flow, terms.text))
            if known is None:
                known = _Query(self, flow, self._planner(terms, fields["memory"]))
                self._queries[flow, terms.text] = known
                known.start()
                log.info(
                    "Flow %s: a query was planned; it needs %s.",
                    flow,
                    ", ".join(sorted(known.prepared.needs)) or "nothing of a record",
                )
            known.interval, known.limit = fields["interval"], fields["limit"]
            link.queries.add(known.number)
            return known

    def let_go(self, query: _Query) -> bool:
        """Whether a query is to end, because nobody has known it for a while."""
        with self._preparing:
            now = time.monotonic()
            with self._changed:
                if any(query.number in link.queries for link in self._links.values()):
                    query.known_at = now
            if not self.is_closed and now - query.known_at < _KEPT_S:
                return False
            for key in [key for key, each in self._queries.items() if each is query]:
                del self._queries[key]
            return True

    # -- queries --------------------------------------------------------------------------------

    def check(self, settings: QuerySettings) -> None:
        """QueryRefused if the query of a flow cannot be run; SparkError if Spark is gone."""
        key = settings.terms.text
        if key not in self._checked:
            self.analyse(settings.terms, settings.limits.memory)
            if len(self._checked) >= _MOST_CHECKED:
                self._checked.clear()
            self._checked.add(key)

    def analyse(self, terms: QueryTerms, memory: int) -> Analysed:
        """Look at a query; QueryRefused with the reason if it cannot be run, SparkError if Spark is gone."""
        return self._planner(terms, memory)()

    def _planner(self, terms: QueryTerms, memory: int) -> Callable[[], Analysed]:
        """Who looks at a query, as often as it is asked."""
        with _asking_spark():
            session = self._new_session()
            functions = [load(name, memory) for name in terms.functions]
            for function in functions:
                session.udf.register(function._name, function._wrapped())
            guards = {f._name: guarded(f) for f in functions if is_guardable(f)}
            width = self._width
            source = mapped(session.range(0, width, 1, width), steps.take, NUMBERED)

        def plan() -> Analysed:
            with _asking_spark():
                found = analyse(session, terms.sql, source, guards)
            if found.varies and not terms.may_vary:
                raise QueryRefused(
                    f"The query asks for {found.varies}, which gives another answer each time: after a failure records would be "
                    "written again that look different.",
                    "Use the record's own timestamp, or set transform.nondeterministic=allow: then records may come twice.",
                )
            return found

        return plan

    def _new_session(self) -> SparkSession:
        """One with views and functions of its own."""
        with self._sessions:
            if self._session is None:
                self._session = SparkSession(self.context)
        session = self._session.newSession()
        for name, value in _SETTINGS.items():
            if self.context.getConf().get(name) is None:
                session.conf.set(name, value)
        return session

    def links(self, query: int, wait: float, *, prefer_alone: bool) -> tuple[list[_Link], bool]:
        """The copy tasks that have records for a query, waited for; taken note of. One for its suspects (True), or all others."""
        with self._changed:
            found = self._waiting(query)
            if not found and not self.is_closed:
                self._changed.wait(wait)
                found = self._waiting(query)
            alone = [link for link in found if link.waiting[query].alone]
            plenty = [link for link in found if link.waiting[query].plenty]
            is_alone = bool(alone) and (prefer_alone or not plenty)
            chosen = alone[:1] if is_alone else plenty
            for link in chosen:
                waiting = link.waiting.pop(query)
                if not is_alone and waiting.alone:  # it is still to be told of
                    link.waiting[query] = waiting._replace(plenty=False)
            return chosen, is_alone

    def _waiting(self, query: int) -> list[_Link]:
        return [link for link in self._links.values() if query in link.waiting]


class _Query:
    """One query of a flow, and its thread.

    Invariants: the job numbers of all queries of an engine differ, and go up with time. The thread ends when no copy task has
    known the query for a while.
    """

    def __init__(self, engine: QueryEngine, flow: str, plan: Callable[[], Analysed]) -> None:
        self._engine = engine
        self._flow = flow
        self.number = engine.next_number()
        found = plan()
        self._plan = plan if found.is_dated else None
        self._plain = given(found.frame)
        self._careful = None if found.careful is None else given(found.careful)
        self._careful_jobs = 0
        """How many of the next jobs are careful, if no record is bad."""
        self._losses = 0
        self._portion = _FIRST_PORTION
        self.prepared = Prepared(self.number, found.needs, found.gives)
        self.interval = 0.3
        self.limit = 60.0
        self.known_at = time.monotonic()

    def start(self) -> None:
        InheritableThread(target=self._run, name=f"query {self._flow}", daemon=True).start()

    def _run(self) -> None:
        began, was_alone = 0.0, False
        while not self._engine.is_closed:
            if not was_alone:
                time.sleep(max(0.0, began + self.interval - time.monotonic()))
            links, is_alone = self._engine.links(self.number, 1.0, prefer_alone=not was_alone)
            if links:
                began = time.monotonic()
                self._work(links, is_alone=is_alone)
            elif self._engine.let_go(self):
                log.debug("Flow %s: nobody asks for one of its queries any more.", self._flow)
                return
            was_alone = is_alone

    def _work(self, links: list[_Link], *, is_alone: bool) -> None:
        self._engine.task_threads.give_way()
        job = self._engine.next_number()
        order = {
            "job": job,
            "query": self.number,
            "alone": is_alone,
            "limit": self._portion,
            "doors": {link.number: list(link.door) for link in links},
        }
        is_careful = not is_alone and self._careful_jobs > 0
        began = time.monotonic()
        failure = self._collect(job, json.dumps(order), is_careful=is_careful)
        self._portion = next_portion(self._portion, time.monotonic() - began)
        if failure is None:
            self._losses = 0
            word = said(Kind.DONE, query=self.number, job=job)
        else:
            if failure["reason"] == "query" and not is_alone and not is_careful and self._careful:
                failure["reason"], self._careful_jobs = "sift", _CAREFUL_JOBS
            word = said(Kind.FAILED, query=self.number, job=job, **failure)
        for link in links:
            link.tell(word)

    def _frame(self, *, is_careful: bool) -> DataFrame:
        if is_careful and self._careful is not None:
            return self._careful
        return self._plain if self._plan is None else given(self._plan().frame)

    def _collect(self, job: int, order: str, *, is_careful: bool) -> dict[str, str] | None:
        """Run one job; what went wrong, if anything did."""
        context = self._engine.context
        group = f"sparkmirror query {self.number}.{job}"
        is_slow, is_over = threading.Event(), threading.Event()

        def give_up() -> None:
            is_slow.set()
            while (
                not is_over.is_set()
            ):  # Spark knows of a job only some time after it was submitted
                with contextlib.suppress(*_GONE):
                    context.cancelJobGroup(group)
                is_over.wait(_CANCEL_AGAIN_S)

        timer = threading.Timer(self.limit, give_up)
        timer.daemon = True
        timer.start()
        try:
            context.setJobGroup(group, f"sparkmirror query of {self._flow}", interruptOnCancel=True)
            context.setLocalProperty(steps.ORDER, order)
            rows = self._frame(is_careful=is_careful).collect()
        except (PySparkException, QueryRefused, SparkError, *_GONE) as error:
            if is_slow.is_set():
                return _failure(
                    "slow",
                    f"The query did not get through with a portion of records within {self.limit:g} s.",
                    "Look for a function that does not return; raise transform.timeout.ms if it needs longer.",
                )
            return self._told(error)
        finally:
            is_over.set()
            timer.cancel()
        if is_careful:
            has_bad = any(row["bad"] for row in rows)
            self._careful_jobs = _CAREFUL_JOBS if has_bad else self._careful_jobs - 1
        return None

    def _told(self, error: BaseException) -> dict[str, str]:
        """Whether the query itself failed, or only a job of it."""
        reason, message = why(error)
        if reason == "query":
            self._losses = 0
            return _failure(reason, message, "")
        self._losses += 1
        time.sleep(_LOST_WAITS_S[min(self._losses, len(_LOST_WAITS_S)) - 1])
        log.warning(
            "Flow %s: a job of its query was lost and is run again: %s", self._flow, message
        )
        if reason == "crash":
            return _failure(
                reason,
                message,
                "Look for a function that ends its process, or takes more memory than there is.",
            )
        return _failure(reason, message, "")


@contextlib.contextmanager
def _asking_spark() -> Iterator[None]:
    """What Spark says against a query is a QueryRefused, whatever it was asked; that it is gone a SparkError."""
    try:
        yield
    except PySparkException as error:
        raise QueryRefused(said_by_spark(error)) from error
    except _GONE as error:
        raise SparkError(f"Spark is gone: {error}") from error


def next_portion(portion: int, seconds: float) -> int:
    """How much the next job takes, after one that took so long with `portion`: a slow query gets through with less at a time."""
    if seconds > _LONG_S:
        return max(_LEAST_PORTION, portion // 2)
    return min(_MOST_PORTION, portion * 2) if seconds < _SHORT_S else portion


def _failure(reason: str, message: str, remedy: str) -> dict[str, str]:
    return {"reason": reason, "message": message, "remedy": remedy}


def mapped(frame: DataFrame, step: Callable[..., Any], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, which would ask for pandas though nothing needs it."""
    function = UserDefinedFunction(step, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def given(frame: DataFrame) -> DataFrame:
    """A query with its last step: what a job of it runs."""
    return mapped(frame, steps.give, "records bigint, bad bigint")
