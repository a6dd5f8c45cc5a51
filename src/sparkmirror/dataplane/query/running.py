"""Runs one query: copy tasks that have records for it in, one short Spark job after the other; word of each job out.

When the query raises, the copy tasks hear of it (`queue` says what they make of it). The jobs that follow run the careful plan if
there is one, until for a while no record was bad. Slices of a suspect always get the plain plan, which says what is wrong.
A query that gives another answer each time is planned for each job: its plan holds the time, and what random numbers begin with.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sparkmirror.dataplane.job_label import CALL_SITE, JobLabel
from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, ignoring_gone, is_gone
from sparkmirror.errors import QueryRefused, SparkError

from . import steps
from .causes import why
from .columns import Feed, Prepared
from .frames import Kind, said
from .links import Link
from .planning import Plan
from .priority import QueryThreads
from .stuck import StuckThreads

log = logging.getLogger(__name__)
_FIRST_PORTION, _LEAST_PORTION, _MOST_PORTION = 1 << 20, 64 << 10, 16 << 20
"""Bytes that one step takes in one job: enough to be worth a job, little enough to be through in a moment."""
_SHORT_S, _LONG_S = 0.7, 2.0
_LOST_WAITS_S = (0.1, 0.5, 2.0)
_CANCEL_AGAIN_S = 0.25
_CAREFUL_JOBS = 20
"""So many jobs without a bad record, and the plain plan is tried again."""


class Engine(Protocol):
    """What runs all queries, as one of them sees it."""

    threads: QueryThreads
    stuck: StuckThreads
    context: SparkContext
    is_closed: bool

    def next_number(self) -> int: ...

    def given(self, frame: DataFrame) -> DataFrame: ...

    def give_way(self) -> None: ...

    def pause(self, query: int, seconds: float) -> None: ...

    def links(self, query: int, wait: float, *, prefer_alone: bool) -> tuple[list[Link], bool]: ...

    def let_go(self, query: RunningQuery) -> bool: ...


class RunningQuery:
    """One query of a flow, and its thread.

    Invariants: the job numbers of all queries of an engine differ, and go up with time. The thread ends when no copy task has
    known the query for a while.
    """

    def __init__(
        self, engine: Engine, flow: str, plan: Plan, functions: Sequence[str] = ()
    ) -> None:
        self._engine = engine
        self._flow = flow
        self.number = engine.next_number()
        found = plan()
        self._plan = plan if found.varies else None
        self._plain = engine.given(found.frame)
        self._careful = None if found.careful is None else engine.given(found.careful)
        self._careful_feed = Feed(found.needs)
        self._careful_jobs = 0
        """How many of the next jobs are careful, if no record is bad."""
        self._losses = 0
        self._portion = _FIRST_PORTION
        self.prepared = Prepared(
            self.number,
            found.needs,
            found.gives,
            found.feed,
            found.edits,
            is_steady=is_steady(found.varies, functions),
        )
        self.interval = 0.3
        self.limit = 60.0
        self.known_at = time.monotonic()

    def start(self) -> None:
        InheritableThread(target=self._run, name=f"query {self._flow}", daemon=True).start()

    def _run(self) -> None:
        self._engine.give_way()
        began, was_alone = 0.0, False
        while not self._engine.is_closed:
            if not was_alone:
                self._engine.pause(self.number, began + self.interval - time.monotonic())
            links, is_alone = self._engine.links(self.number, 1.0, prefer_alone=not was_alone)
            if links:
                began = time.monotonic()
                self._work(links, is_alone=is_alone)
            elif self._engine.let_go(self):
                log.debug("Flow %s: nobody asks for one of its queries any more.", self._flow)
                return
            was_alone = is_alone

    def _work(self, links: list[Link], *, is_alone: bool) -> None:
        self._engine.threads.give_way()
        job = self._engine.next_number()
        is_careful = not is_alone and self._careful_jobs > 0
        order = {
            "job": job,
            "query": self.number,
            "alone": is_alone,
            "limit": self._portion,
            "careful": is_careful,
            "feed": (self._careful_feed if is_careful else self.prepared.feed).plain,
            "copy tasks": {link.number: list(link.address) for link in links},
        }
        began = time.monotonic()
        label = JobLabel.joined([link.label for link in links])
        description = label.querying(self.number, len(links))
        failure = self._collect(job, json.dumps(order), description, is_careful=is_careful)
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
        return self._plain if self._plan is None else self._engine.given(self._plan().frame)

    def _collect(
        self, job: int, order: str, description: str, *, is_careful: bool
    ) -> dict[str, str] | None:
        """Run one job; what went wrong, if anything did."""
        context = self._engine.context
        group = f"sparkmirror query {self.number}.{job}"
        is_slow, is_over = threading.Event(), threading.Event()

        def give_up() -> None:
            is_slow.set()
            while (
                not is_over.is_set()
            ):  # Spark knows of a job only some time after it was submitted
                with ignoring_gone(context):
                    context.cancelJobGroup(group)
                is_over.wait(_CANCEL_AGAIN_S)

        timer = threading.Timer(self.limit, give_up)
        timer.daemon = True
        timer.start()
        try:
            context.setJobGroup(group, description, interruptOnCancel=True)
            context.setLocalProperty(CALL_SITE, f"query {self.number}")
            context.setLocalProperty(steps.ORDER, order)
            rows = self._frame(is_careful=is_careful).collect()
        except (PySparkException, QueryRefused, SparkError, *CALL_ERRORS) as error:
            if is_slow.is_set():
                return self._too_slow(group)
            return self._told(error)
        finally:
            is_over.set()
            timer.cancel()
        if is_careful:
            has_bad = any(row["bad"] for row in rows)
            self._careful_jobs = _CAREFUL_JOBS if has_bad else self._careful_jobs - 1
        return None

    def _too_slow(self, group: str) -> dict[str, str]:
        slow = f"The query did not get through with a portion of records within {self.limit:g} s"
        left = self._engine.stuck.given_up(self._flow, group)
        if not left:
            remedy = "Look for a function that does not return; raise transform.timeout.ms if it needs longer."
            return _failure("slow", f"{slow}.", remedy)
        failure = _failure(
            "slow",
            f"{slow}, and Spark cannot end it.",
            "Look for a pattern (RLIKE, regexp_...) that can match a text in many ways, such as '(.*,)*x'; write it so that it "
            "cannot. The partition waits some minutes for its next try, since each one takes more of the processor.",
        )
        return {**failure, "stuck": str(left)}

    def _is_defect(self, error: BaseException) -> bool:
        """Whether pyspark was called in a wrong way, which trying again would hide."""
        if isinstance(error, PySparkException | QueryRefused | SparkError):
            return False
        return not is_gone(error, self._engine.context)

    def _told(self, error: BaseException) -> dict[str, str]:
        """Whether the query itself failed, or only a job of it."""
        reason, message = why(error)
        if self._is_defect(error):
            log.error("Flow %s: a job of its query failed.", self._flow, exc_info=error)
            reason, message = "crash", repr(error)
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


def is_steady(varies: str, functions: Sequence[str]) -> bool:
    """Whether a query surely says the same of what is the same. Who wrote a function may not have told Spark that it goes by more
    than what it is given."""
    return not varies and not functions


def next_portion(portion: int, seconds: float) -> int:
    """How much the next job takes, after one that took so long with `portion`: a slow query gets through with less at a time."""
    if seconds > _LONG_S:
        return max(_LEAST_PORTION, portion // 2)
    return min(_MOST_PORTION, portion * 2) if seconds < _SHORT_S else portion


def _failure(reason: str, message: str, remedy: str) -> dict[str, str]:
    return {"reason": reason, "message": message, "remedy": remedy}
