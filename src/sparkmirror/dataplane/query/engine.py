"""Runs queries: what copy tasks ask for in, one short Spark job after the other for each query; word of each job out.

Copy tasks connect to the hub and say which queries they need and when they have records for one. A query is looked at and planned
once. While any copy task has records for it, its jobs follow each other: a first step takes slices from the copy tasks, Spark
does what the query says, a last step gives the results back. The records themselves never come here.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkmirror.errors import QueryRefused, SparkError

from . import steps
from .analysis import Analysed, analyse
from .columns import NUMBERED, Prepared
from .frames import Call, Door, Kind, Message, said
from .functions import load
from .terms import QuerySettings, QueryTerms

log = logging.getLogger(__name__)
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # reaches us as exceptions
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - executors are on other machines then
_JOB_BYTES = 16 << 20
"""Taken by one step in one job: enough to be worth a job, little enough to be through in a moment."""
_MOST_LOSSES = 3
_LOST_WAITS_S = (0.1, 0.5, 2.0)
_HELLO_S = 10.0
_LOST = ("Python worker exited unexpectedly", "Python worker failed to connect", "ExecutorLost")
_SETTINGS = {
    # One plan for all time, in which nothing depends on where it runs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}
_GONE = (Py4JError, OSError, TypeError, AttributeError)


@dataclass(slots=True, eq=False)
class _Link:
    """A copy task, as the hub knows it.

    Invariant: `waiting` holds the queries that it has records for since their last job began; True: these are suspects, which
    want a job for themselves.
    """

    number: int
    call: Call
    door: Door
    waiting: dict[int, bool] = field(default_factory=dict)
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

    def __init__(self, context: SparkContext, host: str, width: int, *, is_local: bool) -> None:
        self.context = context
        self._width = width
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
            link.tell(self._prepared(fields))
        elif message.kind is Kind.WAITING:
            with self._changed:
                link.waiting[fields["query"]] = fields["alone"]
                self._changed.notify_all()

    def _prepared(self, fields: dict[str, Any]) -> bytes:
        terms = QueryTerms.read(json.loads(fields["terms"]))
        try:
            if terms is None:
                raise QueryRefused("There is no query.")
            query = self._query(terms, fields)
        except QueryRefused as error:
            return said(Kind.REFUSED, message=error.message, remedy=error.remedy)
        except _GONE as error:
            return said(Kind.REFUSED, message=f"Spark is gone: {error}", remedy="")
        return said(Kind.PREPARED, **query.prepared.fields)

    def _query(self, terms: QueryTerms, fields: dict[str, Any]) -> _Query:
        flow = fields["flow"]
        with self._preparing:
            known = self._queries.get((flow, terms.text))
            if known is None:
                looked_at = self.analyse(terms, fields["memory"])
                known = _Query(self, next(self._numbers), flow, looked_at)
                self._queries[flow, terms.text] = known
                log.info(
                    "Flow %s: a query was planned; it needs %s.",
                    flow,
                    ", ".join(sorted(looked_at.needs)) or "nothing of a record",
                )
            known.interval, known.limit = fields["interval"], fields["limit"]
            return known

    # -- queries --------------------------------------------------------------------------------

    def check(self, settings: QuerySettings) -> None:
        """QueryRefused if the query of a flow cannot be run."""
        key = settings.terms.text
        if key not in self._checked:
            self.analyse(settings.terms, settings.limits.memory)
            self._checked.add(key)

    def analyse(self, terms: QueryTerms, memory: int) -> Analysed:
        """Look at a query; QueryRefused with the reason if it cannot be run."""
        session = self._new_session()
        for name in terms.functions:
            made = load(name, memory)
            session.udf.register(made._name, made._wrapped())
        width = self._width
        source = mapped(session.range(0, width, 1, width), steps.take, NUMBERED)
        found = analyse(session, terms.sql, source)
        if found.varies and not terms.may_vary:
            raise QueryRefused(
                f"The query asks for {found.varies}, which gives another answer each time: after a failure records would be "
                "written again that look different.",
                "Use the record's own timestamp, or set transform.nondeterministic=allow: then records may come twice.",
            )
        return found

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

    def links(self, query: int, wait: float) -> list[_Link]:
        """The copy tasks that have records for a query, waited for; taken note of. One that has suspects comes alone."""
        with self._changed:
            found = self._waiting(query)
            if not found and not self.is_closed:
                self._changed.wait(wait)
                found = self._waiting(query)
            alone = [link for link in found if link.waiting[query]]
            found = alone[:1] or found
            for link in found:
                del link.waiting[query]
            return found

    def _waiting(self, query: int) -> list[_Link]:
        return [link for link in self._links.values() if query in link.waiting]


class _Query:
    """One query of a flow, and its thread.

    Invariant: the job numbers of all queries of an engine differ, and go up with time.
    """

    def __init__(self, engine: QueryEngine, number: int, flow: str, found: Analysed) -> None:
        self._engine = engine
        self._flow = flow
        self._number = number
        self._found = found
        self._job = given(found.frame)
        self._losses = 0
        self.prepared = Prepared(number, found.needs, found.gives)
        self.interval = 0.3
        self.limit = 60.0
        self._thread = InheritableThread(target=self._run, name=f"query {flow}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = 0.0
        while not self._engine.is_closed:
            time.sleep(max(0.0, began + self.interval - time.monotonic()))
            links = self._engine.links(self._number, 1.0)
            if links:
                began = time.monotonic()
                self._work(links)

    def _work(self, links: list[_Link]) -> None:
        job = self._engine.next_number()
        order = {
            "job": job,
            "query": self._number,
            "limit": _JOB_BYTES,
            "doors": {link.number: list(link.door) for link in links},
        }
        failure = self._collect(job, json.dumps(order))
        if failure is None:
            self._losses = 0
            word = said(Kind.DONE, query=self._number, job=job)
        else:
            word = said(Kind.FAILED, query=self._number, job=job, **failure)
        for link in links:
            link.tell(word)

    def _collect(self, job: int, order: str) -> dict[str, str] | None:
        """Run one job; what went wrong, if anything did."""
        context = self._engine.context
        group = f"sparkmirror query {self._number}.{job}"
        is_slow = threading.Event()

        def give_up() -> None:
            is_slow.set()
            with contextlib.suppress(*_GONE):
                context.cancelJobGroup(group)

        timer = threading.Timer(self.limit, give_up)
        timer.daemon = True
        timer.start()
        try:
            context.setJobGroup(group, f"sparkmirror query of {self._flow}", interruptOnCancel=True)
            context.setLocalProperty(steps.ORDER, order)
            self._job.collect()
            return None
        except (PySparkException, *_GONE) as error:
            if is_slow.is_set():
                return _failure(
                    "slow",
                    f"The query did not get through with a portion of records within {self.limit:g} s.",
                    "Look for a function that does not return; raise transform.timeout.ms if it needs longer.",
                )
            return self._told(error)
        finally:
            timer.cancel()

    def _told(self, error: BaseException) -> dict[str, str]:
        """Whether the query itself failed, or only a job of it."""
        text = str(error)
        is_ours = "sparkmirror.errors.SparkError" in text
        is_crash = any(word in text for word in _LOST)
        if isinstance(error, PySparkException) and not is_ours and not is_crash:
            self._losses = 0
            return _failure("query", cause_of(text), "")
        self._losses += 1
        if is_crash and self._losses >= _MOST_LOSSES:
            return _failure(
                "query",
                "A Python worker ended in the midst of the query, each time it was tried.",
                "Look for a function that ends its process, or takes more memory than there is.",
            )
        waits = _LOST_WAITS_S
        time.sleep(waits[min(self._losses, len(waits)) - 1])
        log.warning(
            "Flow %s: a job of its query was lost and is run again: %s", self._flow, cause_of(text)
        )
        return _failure("lost", cause_of(text), "")


def _failure(reason: str, message: str, remedy: str) -> dict[str, str]:
    return {"reason": reason, "message": message, "remedy": remedy}


def cause_of(text: str) -> str:
    """The line of a Spark error that tells what a record did wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "unknown"


def mapped(frame: DataFrame, step: Callable[..., Any], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, which would ask for pandas though nothing needs it."""
    function = UserDefinedFunction(step, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def given(frame: DataFrame) -> DataFrame:
    """A query with its last step: what a job of it runs."""
    return mapped(frame, steps.give, "records bigint")
