"""A Spark session for queries, without brokers: its master in; the session, a desk at it, and records in both their hands out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql import SparkSession as Session
from pyspark.sql.functions import col

from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.terms import QueryLimits, QueryTerms
from sparkmirror.spark.session import SparkSession
from sparkmirror.transforms.record import ConnectRecord

MEMORY = 1 << 40


@contextlib.contextmanager
def started(master: str) -> Iterator[SparkSession]:
    session = SparkSession({"spark.master": master})
    session.start()
    yield session
    session.stop()


@contextlib.contextmanager
def desk_at(spark: SparkSession) -> Iterator[Desk]:
    made = Desk(spark.queries.driver, "A->B", QueryLimits(interval=0.0, memory=MEMORY))
    yield made
    made.close()


def in_spark(spark: SparkSession, path: Path, values: Sequence[bytes | None]) -> DataFrame:
    """Records with these values, and as keys those of the next, as Spark alone reads them."""
    count = len(values)
    columns = {
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "key": pa.array([*values[1:], values[0]], pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    parquet.write_table(pa.table(columns), path / "records.parquet")
    session = Session(spark.queries.context).newSession()
    frame = session.read.parquet(str(path / "records.parquet")).coalesce(1)
    frame.createOrReplaceTempView("records")
    return frame


def in_records(values: Sequence[bytes | None]) -> list[ConnectRecord]:
    """The same records, for the desk."""
    keys = [*values[1:], values[0]]
    both = enumerate(zip(keys, values, strict=True))
    return [ConnectRecord("t", 0, n, 1, key, value, []) for n, (key, value) in both]


def as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def assert_as_in_spark_alone(
    spark: SparkSession, desk: Desk, path: Path, sql: str, values: Sequence[bytes | None]
) -> None:
    """A query gives what Spark says that it gives, record by record; and again when it has said so before."""
    prepared = desk.prepare(QueryTerms(sql))
    records = in_records(values)
    session = in_spark(spark, path, values).sparkSession
    found = session.sql(sql.replace("SELECT", "SELECT offset AS n,", 1))
    given = [col(name).cast("binary").alias(name) for name in sorted(prepared.gives)]
    expected = found.select("n", *given).collect()  # text that is none would become another
    for _ in range(3):
        answer = desk.ask(prepared, records)
        assert not answer.bad
        assert answer.given.rows == [row["n"] for row in expected]
        for name in sorted(prepared.gives):
            assert answer.given.columns[name] == [as_bytes(row[name]) for row in expected]
