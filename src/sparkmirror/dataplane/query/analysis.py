"""What Spark makes of a query: SQL in; a plan that carries every record's number, and what it needs and gives, out.

A query must work record by record, so that its answer is the same whoever asks and in whatever portions: its plan may only choose
columns and rows of the view `records`. Spark's own optimizer first takes out what is only a way of writing (sub-selects, WITH).
Then each projection on the way from `records` to the result gets the columns to carry that the query left out.

A query also gets a second plan, `careful`, which never raises: it tells of every record whether the query keeps it, drops it or
raises on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, transform
from pyspark.sql.functions import struct as struct_of
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)
from pyspark.sql.udf import UserDefinedFunction

from sparkmirror.errors import QueryRefused

from .builtins import REFUSED_WORDS, refused_in
from .careful import Careful
from .carrying import RULE, Carrying
from .columns import ERROR, GIVEN, NUMBER, STATE, TYPES, VIEW, Edit, Feed
from .lifting import Lifted, lifted
from .narrowing import Narrowing, needed
from .plans import class_of, dataset, expressions, seq
from .varying import varying


@dataclass(frozen=True, slots=True)
class Analysed:
    """A query that can be run."""

    frame: DataFrame
    """The number of every record that is kept, and the columns that the query gives anew."""
    needs: frozenset[str]
    gives: frozenset[str]
    varies: str
    """What gives another answer each time; empty if there is no such thing. Spark puts some of it in when it plans: the time, and
    what random numbers begin with."""
    feed: Feed
    """What it is given of a record; made of what it needs."""
    edits: Mapping[str, Edit] = field(default_factory=dict)
    """Of what it gives, that which is made behind Spark of the records that it keeps."""
    careful: DataFrame | None = None
    """The same for every record, also those that are dropped or that it raises on, with what became of it; None if there is no
    such plan. It is given what the query needs as it is."""


def analyse(
    session: SparkSession,
    sql: str,
    given: Callable[[Feed], DataFrame],
    guarded: Mapping[str, UserDefinedFunction] | None = None,
) -> Analysed:
    """Look at a query; QueryRefused if it cannot be run.

    `given` are the records, with as much of them as it is told, and the number. The result is over those that the query looks at.
    `guarded` are its functions as the careful plan calls them.
    """
    source = given(Feed())
    source.select(*TYPES).createOrReplaceTempView(VIEW)
    result = _parsed(session, sql)
    analyzed = result._jdf.queryExecution().analyzed()
    varies = varying(session, analyzed)
    _check_subqueries(analyzed)
    _check_words(analyzed)
    leaf = source._jdf.queryExecution().analyzed()
    plan = result._jdf.queryExecution().optimizedPlan()
    attributes = {a.name(): a for a in seq(leaf.output())}
    outputs = seq(plan.output())
    if len(outputs) != len(result.schema.fields):
        raise QueryRefused("The query gives other columns than it says.", RULE)
    changed = {
        name: index
        for name, index in _chosen(result.schema).items()
        # What varies may be the record's own today, and something else tomorrow.
        if varies or outputs[index].exprId().id() != attributes[name].exprId().id()
    }
    if _is_empty(plan):
        return _keeping_nothing(given, changed, varies)
    number = attributes[NUMBER]
    carried = Carrying(session, leaf, [number]).through(plan)
    places = itertools.count()  # two columns may be one and the same to Spark
    names = [
        NUMBER if a.exprId().id() == number.exprId().id() else f"c{next(places)}"
        for a in seq(carried.output())
    ]
    frame = dataset(session, carried).toDF(*names)
    columns = [
        _fitted(name, result.schema.fields[index].dataType, f"c{index}")
        for name, index in changed.items()
    ]
    frame = frame.select(NUMBER, *columns)
    final = frame._jdf.queryExecution().optimizedPlan()
    if _is_empty(final):
        return _keeping_nothing(given, changed, varies)
    if varies:  # what Spark makes of it, and so what it looks at, may be another at another time
        return Analysed(frame, frozenset(TYPES), frozenset(changed), varies, Feed())
    needs = frozenset(needed(final, leaf) - {NUMBER})
    narrowing = Narrowing(session, leaf, given(Feed(needs)))
    narrow = narrowing.of(final)
    made = Careful(session, narrowing.leaf, number, guarded or {}).over(narrow)
    careful = None if made is None else dataset(session, made).select(STATE, ERROR, *frame.columns)
    plain = lifted(session, final, leaf, given) or Lifted(narrow, Feed(needs), {})
    frame = dataset(session, plain.plan)
    gives = frozenset(changed)
    return Analysed(frame, needs, gives, varies, plain.feed, plain.edits, careful)


def _keeping_nothing(
    given: Callable[[Feed], DataFrame], changed: Collection[str], varies: str
) -> Analysed:
    """A query of which Spark has found out that it keeps no record. They are taken all the same: else nobody would hear of it.

    A number is never negative, which Spark does not know. What varies may keep some at another time, and must look alike then.
    """
    needs, gives = (frozenset(TYPES), frozenset(changed)) if varies else (frozenset(), frozenset())
    feed = Feed(needs)
    return Analysed(given(feed).where(col(NUMBER) < 0).select(NUMBER), needs, gives, varies, feed)


def _parsed(session: SparkSession, sql: str) -> DataFrame:
    """The query as Spark understands it. Commands are no queries, and are not run."""
    try:
        session._jsparkSession.sessionState().sqlParser().parseQuery(sql)
        return session.sql(sql)
    except PySparkException as error:
        said = said_by_spark(error)
        if name := refused_in(said):
            raise _reaches_outside(name) from error
        raise QueryRefused(said) from error
    except Py4JJavaError as error:
        if is_too_deep(error):
            raise QueryRefused(*TOO_DEEP) from error
        raise QueryRefused(str(error.java_exception).strip()) from error


TOO_DEEP = (
    "The query is nested too deeply for Spark.",
    "Write long chains of OR as IN (...), or set spark.driver.extraJavaOptions=-Xss8m.",
)


def is_too_deep(error: Py4JJavaError) -> bool:
    return "StackOverflowError" in str(error.java_exception.getClass().getName())


def said_by_spark(error: PySparkException) -> str:
    """What Spark says of a query, with line and position, without its plan and where in its own code that was."""
    text = str(error).split("\n\nJVM stacktrace:")[0]
    lines = text.split(";\n")[0].rstrip()
    return lines


def _chosen(schema: StructType) -> dict[str, int]:
    """Which column of the result is which of a record; of two with one name the last counts, as in `SELECT *, … AS value`."""
    found: dict[str, int] = {}
    for index, each in enumerate(schema.fields):
        name = each.name.lower()
        if name in GIVEN:
            found[name] = index
        elif name != "offset":
            raise QueryRefused(
                f"The query gives a column {each.name!r}, which a record does not have.",
                f"Name the columns {', '.join(GIVEN)}; those that are left out stay as they are.",
            )
    if "value" not in found:
        raise QueryRefused(
            "The query gives no column value.", "Add value, or * for all columns as they are."
        )
    for name, index in found.items():
        _check_type(name, schema.fields[index].dataType)
    return found


def _check_type(name: str, kind: DataType) -> None:
    fits = isinstance(kind, NullType)
    match name:
        case "topic":
            fits = isinstance(kind, StringType)
        case "partition":
            fits |= isinstance(kind, IntegralType)
        case "timestamp":
            fits |= isinstance(kind, TimestampType)
        case "key" | "value":
            fits |= isinstance(kind, (BinaryType, StringType))
        case _:
            fits |= isinstance(kind, ArrayType) and _is_header(kind.elementType)
    if not fits:
        raise QueryRefused(
            f"The query gives {name} as {kind.simpleString().upper()}; it must be {_WANTED[name]}.",
            _REMEDIES.get(name, ""),
        )


_WANTED = {
    "topic": "STRING",
    "partition": "INT",
    "timestamp": "TIMESTAMP",
    "key": "BINARY or STRING",
    "value": "BINARY or STRING",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_REMEDIES = {
    "value": "Write to_json(...) for a structure, CAST(... AS STRING) for a number.",
    "key": "Write to_json(...) for a structure, CAST(... AS STRING) for a number.",
    "timestamp": "Write timestamp_millis(...) for a number of milliseconds.",
    "headers": "Write array_append(headers, named_struct('key', 'name', 'value', CAST('text' AS BINARY))) to add one.",
}


def _is_header(kind: DataType) -> bool:
    if isinstance(kind, NullType):  # array(): no headers at all
        return True
    if not isinstance(kind, StructType) or len(kind.fields) != 2:
        return False
    name, value = kind.fields
    return isinstance(name.dataType, StringType) and isinstance(
        value.dataType, (BinaryType, StringType, NullType)
    )


def _fitted(name: str, kind: DataType, column: str) -> Any:
    """A column of the result in the type that a record has there."""
    if (
        name == "headers"
        and isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
    ):
        first, second = kind.elementType.names

        def header(each: Any) -> Any:
            value = each[second].cast("binary")
            return struct_of(each[first].alias("key"), value.alias("value"))

        return transform(col(column), header).alias(name)
    return col(column).cast(TYPES[name]).alias(name)


# -- plans ----------------------------------------------------------------------------------------


def _check_subqueries(plan: Any) -> None:
    for each in expressions(plan):
        if class_of(each) in (
            "ScalarSubquery",
            "Exists",
            "InSubquery",
            "ListQuery",
            "LateralSubquery",
        ):
            raise QueryRefused(
                "The query cannot be run: it asks another query for every record (a sub-select in an expression).",
                RULE,
            )


def _check_words(plan: Any) -> None:
    """Some functions that are not there have words that Spark reads without looking for a function."""
    for each in expressions(plan):
        if name := REFUSED_WORDS.get(class_of(each)):
            raise _reaches_outside(name)


def _reaches_outside(name: str) -> QueryRefused:
    return QueryRefused(
        f"The query calls {name}, which reaches outside of the record.",
        "Use what the record holds, or a function of yours (transform.functions).",
    )


def _is_empty(plan: Any) -> bool:
    """Whether Spark has found out that no record is ever kept."""
    return class_of(plan) == "LocalRelation" and not seq(plan.data())
