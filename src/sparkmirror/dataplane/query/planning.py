"""Plans queries: their terms in; what Spark runs for them, as often as it is asked, out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, is_gone
from sparkmirror.dataplane.links.address import SessionSecret
from sparkmirror.errors import QueryRefused, SparkError

from . import builtins, steps
from .analysis import TOO_DEEP, Analysed, analyse, is_too_deep, said_by_spark
from .columns import Feed
from .functions import load
from .guards import guarded, is_guardable
from .priority import GIVING_WAY
from .terms import QueryTerms

_SETTINGS = {
    # One plan for all time, in which nothing depends on where it runs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # What it holds to else is looked at for every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}

Plan = Callable[[], Analysed]


class Planner:
    """Looks at queries, each in a session of its own. QueryRefused if one cannot be run, SparkError if Spark is gone."""

    def __init__(
        self,
        context: SparkContext,
        width: int,
        secret: SessionSecret,
        may_call: Callable[[str], None],
    ) -> None:
        """`may_call` raises QueryRefused for a function that no query may call: terms may come from a stored position."""
        self._may_call = may_call
        self._context = context
        self._secret = secret
        self._width = width
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def plan(self, terms: QueryTerms, memory: int) -> Plan:
        """Who looks at a query: once, or as often as it is asked if it varies."""
        for name in terms.functions:
            self._may_call(name)
        with _asking_spark(self._context):
            session = self._new_session()
            functions = [load(name, memory) for name in terms.functions]
            for function in functions:
                _give_way(session.udf.register(function._name, function._wrapped()))
            guards = {f._name: _give_way(guarded(f)) for f in functions if is_guardable(f)}
            width, context = self._width, self._context
            take = partial(steps.take, self._secret)

        def records(feed: Feed) -> DataFrame:
            return mapped(session.range(0, width, 1, width), take, feed.schema)

        known: list[Analysed] = []

        def plan() -> Analysed:
            if known:
                return known[0]
            with _asking_spark(context):
                found = analyse(session, terms.sql, records, guards)
            if found.varies and not terms.may_vary:
                raise QueryRefused(
                    f"The query asks for {found.varies}, which gives another answer each time: after a failure records would be "
                    "written again that look different.",
                    "Use what the record holds (its timestamp for the time, sha2 of its content for an id), or set "
                    "transform.nondeterministic=allow: then records may come twice.",
                )
            if not found.varies:
                known.append(found)
            return found

        return plan

    def given(self, frame: DataFrame) -> DataFrame:
        """A query with its last step: what a job of it runs."""
        return mapped(frame, partial(steps.give, self._secret), "records bigint, bad bigint")

    def close(self) -> None:
        """Let pyspark forget the session, which it would ask for settings when a function is made.

        Without the lock, which somebody may hold who waits for a JVM that says nothing any more.
        """
        SparkSession._instantiatedSession = SparkSession._activeSession = None

    def _new_session(self) -> SparkSession:
        """One with views and functions of its own."""
        with self._lock:
            if self._session is None:
                self._session = SparkSession(self._context)
        session = self._session.newSession()
        for name, value in _SETTINGS.items():
            if self._context.getConf().get(name) is None:
                session.conf.set(name, value)
        builtins.close(session)
        return session


@contextlib.contextmanager
def _asking_spark(context: SparkContext) -> Iterator[None]:
    """What Spark says against a query is a QueryRefused, whatever it was asked; that it is gone a SparkError."""
    try:
        yield
    except PySparkException as error:
        raise QueryRefused(said_by_spark(error)) from error
    except Py4JJavaError as error:
        if is_too_deep(error):
            raise QueryRefused(*TOO_DEEP) from error
        raise SparkError(f"Spark could not look at the query: {error}") from error
    except CALL_ERRORS as error:
        if not is_gone(error, context):
            raise
        raise SparkError(f"Spark could not look at the query: {error}") from error


def mapped(frame: DataFrame, step: Callable[..., Any], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, which would ask for pandas though nothing needs it."""
    function = _give_way(
        UserDefinedFunction(step, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    )
    column = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _give_way(function: Any) -> Any:
    """Have it run in Python workers that give way."""
    function._judf.func().envVars().putAll(GIVING_WAY)
    return function
