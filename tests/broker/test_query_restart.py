"""Spark that ends and is started again, as queries see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkmirror.dataplane.query.functions import load
from sparkmirror.dataplane.query.terms import QueryTerms
from sparkmirror.spark.session import SparkSession

pytestmark = pytest.mark.slow
MEMORY = 1 << 40
MODULE = """
from pyspark.sql.functions import udf

@udf("string")
def masked(value):
    return "***"
"""


def test_functions_are_looked_at_also_after_spark_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "after_spark.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    session = SparkSession({"spark.master": "local[1]"})
    session.start()
    session.queries.analyse(QueryTerms("SELECT value FROM records"), MEMORY)
    session.stop()
    load("after_spark:masked", MEMORY)
    session.start()
    terms = QueryTerms("SELECT masked(value) AS value FROM records", ("after_spark:masked",))
    assert session.queries.analyse(terms, MEMORY).gives == {"value"}
    session.stop()
