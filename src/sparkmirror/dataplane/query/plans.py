"""Spark's plans as Python sees them: handles of the JVM in, lists, names and data frames out."""

from __future__ import annotations

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
