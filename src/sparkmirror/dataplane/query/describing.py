"""What Spark makes of a query, for people: its terms in; the columns that it gives with their types, and Spark's plan, out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .analysis import Analysed
from .answers import are_few
from .columns import left, missing, unfit
from .engine import QueryEngine
from .running import is_steady
from .terms import QueryTerms


@dataclass(frozen=True, slots=True)
class Described:
    """A query as Spark understands it."""

    columns: tuple[tuple[str, str], ...]
    """The names and types that it gives, as it is written."""
    plan: str
    """Spark's own, and what is done beside it."""


def described(engine: QueryEngine, terms: QueryTerms, memory: int) -> Described:
    """QueryRefused with what Spark says if the query cannot be run; SparkError if Spark is gone."""
    found = engine.analyse(terms, memory)
    frame = found.frame
    session = frame.sparkSession  # where the view that the query reads is
    columns = [(each.name, each.dataType.simpleString()) for each in session.sql(terms.sql).schema]
    jvm: Any = session._jvm
    plan = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "formatted")
    beside = list(_beside_spark(found))
    if is_steady(found.varies, terms.functions) and are_few(found.feed):
        beside.append(
            "What Spark says of a record is kept, and holds for all others of which it is given the same."
        )
    return Described(tuple(columns), "\n".join([str(plan).strip(), *beside]))


def _beside_spark(found: Analysed) -> Iterator[str]:
    """What of the query is not in Spark's plan, and what columns stand there instead."""
    for column, paths in found.feed.fields.items():
        yield (
            f"Read before Spark from the JSON in {column}: {', '.join(paths)}; {left(column)} holds the documents that are left "
            "to Spark."
        )
    for column in sorted(found.feed.nulls):
        yield f"Said of each record before Spark: whether it has no {column} ({missing(column)})."
    for name, edit in found.edits.items():
        yield (
            f"Made behind Spark by regexp_replace of {edit.column}: {name}; {unfit(edit.column)} holds what is not UTF-8, which "
            "is left to Spark."
        )
