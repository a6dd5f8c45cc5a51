"""Runs queries: what copy tasks ask for in, one short Spark job after the other for each query; word of each job out.

Copy tasks connect to the driver and say which queries they need and when they have records for one. A query is planned once.
While any copy task has records for it, its jobs follow each other: a first step takes slices from the copy tasks, Spark does what
the query says, a last step gives the results back. The records themselves never come here.
"""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from sparkmirror.dataplane.job_label import JobLabel
from sparkmirror.dataplane.jvm_calls import ignoring_gone
from sparkmirror.dataplane.links.address import Address, Purpose
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.errors import QueryRefused, SparkError

from .analysis import Analysed
from .columns import MOST_DESKS
from .frames import Call, Kind, Message, said
from .links import Link, Waiting
from .planning import Plan, Planner
from .priority import QueryThreads
from .running import RunningQuery
from .stuck import StuckThreads
from .terms import QuerySettings, QueryTerms

log = logging.getLogger(__name__)
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # reaches us as exceptions
_HELLO_S = 10.0
_KEPT_S = 60.0
"""How long a query is kept that no copy task knows any more."""
_MOST_CHECKED = 256
_MOST_KEPT = 16


class QueryEngine:
    """All queries of a Spark session.

    Invariants: a query has one job at a time; a link that is closed is asked for nothing. Threads end with `close`.
    """

    def __init__(
        self,
        context: SparkContext,
        listener: DriverListener,
        width: int,
        *,
        jvm: int | None = None,
        may_call: Callable[[str], None] = lambda function: None,
    ) -> None:
        self.context = context
        self._listener = listener
        self.driver = listener.driver
        self._planner = Planner(context, width, listener.driver.secret, may_call)
        self.threads = QueryThreads(jvm)
        self.stuck = StuckThreads(context, jvm)
        self._changed = threading.Condition()
        self._links: dict[int, Link] = {}
        self._queries: dict[tuple[str, str], RunningQuery] = {}
        self._preparing = threading.Lock()
        self._checked: set[str] = set()
        self._plans: dict[tuple[str, int], Plan] = {}
        """Of queries that were looked at, and not run so far."""
        self._numbers = itertools.count(1)
        self._desks = itertools.cycle(range(1, MOST_DESKS + 1))
        self.is_closed = False
        listener.serve(Purpose.QUERIES, self._serve)

    def next_number(self) -> int:
        return next(self._numbers)

    def given(self, frame: DataFrame) -> DataFrame:
        """A query with its last step: what a job of it runs."""
        return self._planner.given(frame)

    def give_way(self) -> None:
        """Let what the JVM does for this thread come last."""
        with ignoring_gone(self.context):
            jvm: Any = self.context._jvm
            self.threads.give_way_as(str(jvm.java.lang.Thread.currentThread().getName()))
        self.threads.give_way()

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            links = list(self._links.values())
            self._changed.notify_all()
        self._listener.serve(Purpose.QUERIES, None)
        self._planner.close()
        for link in links:
            link.call.close()

    # -- copy tasks -----------------------------------------------------------------------------

    def _serve(self, connection: socket.socket) -> None:
        call = Call(connection)
        link: Link | None = None
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

    def _met(self, message: Message, call: Call) -> Link | None:
        if message.kind is not Kind.HELLO:
            return None
        with self._changed:
            if self.is_closed:
                return None
            number = next(n for n in self._desks if n not in self._links)
            fields = message.fields
            label = JobLabel.read(fields["label"])
            link = self._links[number] = Link(number, call, Address(*fields["address"]), label)
        link.tell(said(Kind.HEARD, desk=link.number))
        return link

    def _heard(self, link: Link, message: Message) -> None:
        fields = message.fields
        if message.kind is Kind.PREPARE:
            link.tell(self._prepared(link, fields))
        elif message.kind is Kind.WAITING:
            with self._changed:
                waiting = Waiting(fields["alone"], fields["plenty"], fields["left"])
                link.waiting[fields["query"]] = waiting
                self._changed.notify_all()

    def _prepared(self, link: Link, fields: dict[str, Any]) -> bytes:
        terms = QueryTerms.read(json.loads(fields["terms"]))
        try:
            if terms is None:
                raise QueryRefused("There is no query.")
            query = self._query(link, terms, fields)
        except QueryRefused as error:
            return said(Kind.REFUSED, message=error.message, remedy=error.remedy)
        except SparkError as error:
            return said(Kind.LOST, message=error.message, remedy=error.remedy)
        return said(Kind.PREPARED, **query.prepared.fields)

    def _query(self, link: Link, terms: QueryTerms, fields: dict[str, Any]) -> RunningQuery:
        flow = fields["flow"]
        with self._preparing:
            known = self._queries.get((flow, terms.text))
            if known is None:
                self.give_way()
                plan = self._plan(terms, fields["memory"])
                known = RunningQuery(self, flow, plan, terms.functions)
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

    def let_go(self, query: RunningQuery) -> bool:
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
            self.analyse(settings.terms, settings.limits.memory, keep=True)
            if len(self._checked) >= _MOST_CHECKED:
                self._checked.clear()
            self._checked.add(key)

    def analyse(self, terms: QueryTerms, memory: int, *, keep: bool = False) -> Analysed:
        """Look at a query; QueryRefused with the reason if it cannot be run, SparkError if Spark is gone.

        `keep`: it is going to be run.
        """
        self.give_way()
        plan = self._planner.plan(terms, memory)
        found = plan()
        if keep:
            with self._changed:
                while len(self._plans) >= _MOST_KEPT:
                    self._plans.pop(next(iter(self._plans)))
                self._plans[terms.text, memory] = plan
        return found

    def _plan(self, terms: QueryTerms, memory: int) -> Plan:
        with self._changed:
            kept = self._plans.pop((terms.text, memory), None)
        return kept or self._planner.plan(terms, memory)

    def pause(self, query: int, seconds: float) -> None:
        """Let records gather for a while, unless there are more already than one job takes."""

        def is_over() -> bool:
            return self.is_closed or any(link.waiting[query].left for link in self._waiting(query))

        with self._changed:
            self._changed.wait_for(is_over, seconds)

    def links(self, query: int, wait: float, *, prefer_alone: bool) -> tuple[list[Link], bool]:
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

    def _waiting(self, query: int) -> list[Link]:
        return [link for link in self._links.values() if query in link.waiting]
