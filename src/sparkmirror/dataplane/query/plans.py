"""Spark's plans as Python sees them: handles of the JVM in, lists, names and data frames out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def seq(items: Any) -> list[Any]:
    """What a Scala sequence holds."""
    return [items.apply(index) for index in range(items.size())]


def class_of(thing: Any) -> str:
    """The name of the class, without its package."""
    return str(thing.getClass().getSimpleName()).rstrip("$")


def dataset(session: SparkSession, plan: Any) -> DataFrame:
    """What a logical plan gives."""
    jvm: Any = session._jvm
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(made, session)


def nodes(plan: Any) -> Iterator[Any]:
    """A plan and all below it."""
    yield plan
    for child in seq(plan.children()):
        yield from nodes(child)
    for child in seq(plan.innerChildren()):
        if hasattr(child, "nodeName"):
            yield from nodes(child)


def expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan, with those that they are made of."""
    for node in nodes(plan):
        yield from expressions_of(node)


def expressions_of(node: Any) -> Iterator[Any]:
    """Those of a node alone."""
    todo = seq(node.expressions())
    while todo:
        each = todo.pop()
        yield each
        todo += seq(each.children())
