"""What Spark makes of a query, for people: its terms in; the columns that it gives with their types, and Spark's plan, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .engine import QueryEngine
from .terms import QueryTerms


@dataclass(frozen=True, slots=True)
class Described:
    """A query as Spark understands it."""

    columns: tuple[tuple[str, str], ...]
    """The names and types that it gives, as it is written."""
    plan: str


def described(engine: QueryEngine, terms: QueryTerms, memory: int) -> Described:
    """QueryRefused with what Spark says if the query cannot be run; SparkError if Spark is gone."""
    frame = engine.analyse(terms, memory).frame
    session = frame.sparkSession  # where the view that the query reads is
    columns = [(each.name, each.dataType.simpleString()) for each in session.sql(terms.sql).schema]
    jvm: Any = session._jvm
    plan = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "formatted")
    return Described(tuple(columns), str(plan).strip())
