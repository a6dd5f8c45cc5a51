"""A Spark program that reads the tables of the data source, as a child process: a page of docs and questions in, answers out.

Run with the directory of an mm2.properties as working directory. `questions.json` holds the offsets of the user's table, and the
options of reads that are to fail; the answers go to `answers.json`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tables.md"


def blocks() -> list[str]:
    """The Python of the page, as it stands there."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def answers_in(
    directory: Path, questions: Mapping[str, Any], environment: Mapping[str, str]
) -> Any:
    """What the program finds there."""
    (directory / "questions.json").write_text(json.dumps(questions))
    command = [sys.executable, str(Path(__file__).resolve())]
    ran = subprocess.run(
        command, cwd=directory, env=dict(environment), capture_output=True, text=True, timeout=1200
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads((directory / "answers.json").read_text())


def main() -> None:
    questions = json.loads(Path("questions.json").read_text())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "Asia/Kolkata")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    offsets = spark.createDataFrame(
        questions["offsets"], "topic STRING, partition INT, offset BIGINT"
    )
    offsets.createOrReplaceTempView("offsets")
    answers: dict[str, Any] = {}
    for table in ("lag", "positions", "offset_map", "groups"):
        reader = spark.read.format("sparkmirror").option("file", "mm2.properties")
        answers[table] = rows(reader.option("table", table).load())
    found: dict[str, Any] = {"spark": spark}
    for block in blocks():
        exec(block, found)  # noqa: S102 - what the page says
    answers["behind"] = rows(found["behind"])
    answers["translated"] = rows(found["translated"])
    answers["errors"] = [error(spark, options) for options in questions["wrong"]]
    spark.sql(
        "CREATE TEMPORARY VIEW g USING sparkmirror OPTIONS (file 'mm2.properties', table 'groups')"
    )
    answers["sql"] = rows(spark.sql("SELECT DISTINCT flow, group FROM g ORDER BY group"))
    Path("answers.json").write_text(json.dumps(answers))
    spark.stop()


def rows(frame: DataFrame) -> dict[str, Any]:
    """The rows of a table, and what it says of its columns; times as Spark's own seconds since 1970."""
    names = [
        f"unix_micros({name}) / 1e6 AS {name}" if kind == "timestamp" else f"`{name}`"
        for name, kind in frame.dtypes
    ]
    return {
        "columns": [[name, kind.upper()] for name, kind in frame.dtypes],
        "rows": [row.asDict() for row in frame.selectExpr(*names).collect()],
    }


def error(spark: SparkSession, options: Mapping[str, str]) -> str:
    try:
        spark.read.format("sparkmirror").options(**options).load().collect()
    except PySparkException as raised:
        return str(raised)
    return "no error"


if __name__ == "__main__":
    main()
