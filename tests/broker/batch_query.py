"""Batch queries over whole topics, by plain PySpark: `python batch_query.py IN OUT` reads rows and SQL and writes what comes out.

Nothing of this project is imported here: what a flow has written is held against what this says. IN is a list in JSON of
`{"sql": …, "rows": [[topic, partition, offset, milliseconds, key, value, [[name, value], …]], …]}`, bytes in base64. OUT has for
each of them a list of `[[topic, partition, offset], {column: value}]`, first the record that a row came of: to know that, one
column is added to the query's own.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StringType, TimestampType

_ROW = (
    "topic string, partition int, offset bigint, ms bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
_RECORD = "topic, partition, offset, timestamp_millis(ms) AS timestamp, key, value, headers"
_SOURCE = "named_struct('topic', topic, 'partition', partition, 'offset', offset)"


def main(asked: Path, answered: Path) -> None:
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(answered.parent / "warehouse"),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    queries = json.loads(asked.read_text(encoding="ascii"))
    answers = [answer(session, each["sql"], each["rows"]) for each in queries]
    session.stop()
    answered.write_text(json.dumps(answers), encoding="ascii")


def answer(session: SparkSession, sql: str, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """What one query gives over these records."""
    records = session.createDataFrame([_decoded(row) for row in rows], _ROW)
    records.selectExpr(*_RECORD.split(", ")).createOrReplaceTempView("records")
    found = session.sql(_with_source(sql))
    names = [name.lower() for name in found.columns]
    kinds = [field.dataType for field in found.schema.fields]
    numbered = found.toDF(*(f"c{i}" for i in range(len(names))))
    made = []
    for row in numbered.selectExpr(*map(_plain, range(len(names)), names, kinds)).collect():
        source, *values = row
        # Of two columns with one name the later is kept.
        given = {name: _encoded(value) for name, value in zip(names[1:], values, strict=True)}
        made.append([[source.topic, source.partition, source.offset], given])
    return made


def _plain(index: int, name: str, kind: DataType) -> str:
    """A column as it can be told: times in milliseconds, keys and values as bytes."""
    if isinstance(kind, TimestampType):
        return f"unix_millis(c{index}) AS c{index}"
    if name in ("key", "value") and isinstance(kind, StringType):
        return f"CAST(c{index} AS BINARY) AS c{index}"
    return f"c{index}"


def _with_source(sql: str) -> str:
    changed, count = re.subn(r"^\s*SELECT\b", f"SELECT {_SOURCE} AS source,", sql, flags=re.I)
    if not count:
        raise ValueError(f"does not begin with SELECT: {sql}")
    return changed


def _decoded(row: Sequence[Any]) -> tuple[Any, ...]:
    topic, partition, offset, ms, key, value, headers = row
    pairs = [(name, _bytes(each)) for name, each in headers]
    return topic, partition, offset, ms, _bytes(key), _bytes(value), pairs


def _bytes(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(base64.b64decode(text))


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [[name, _encoded(_as_bytes(each))] for name, each in value]
    return value


def _as_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
