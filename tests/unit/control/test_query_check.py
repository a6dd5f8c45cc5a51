"""What is said of a query before it runs, as far as that needs no Spark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkmirror.config.query import FUNCTIONS, QueryConfig
from sparkmirror.control.query_check import SparkCheck
from sparkmirror.errors import QueryRefused, SparkError
from sparkmirror.spark.session import SparkSession


class NoSpark(SparkSession):
    """A session that cannot be started."""

    def __init__(self) -> None:
        super().__init__({})
        self.starts = 0

    def start(self, *, queries: bool = False, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self.starts += 1
        raise SparkError("Spark could not be started (local[*]): no Java.")


def query(**keys: str) -> QueryConfig:
    sql = {"transform.sql": "SELECT value FROM records"}
    found = QueryConfig.parse(sql | {key.replace("_", "."): value for key, value in keys.items()})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.such.module:f", "module no.such.module cannot be imported"),
        ("json:nothing", "module json has no nothing"),
        ("json:dumps", "does not say what it returns"),
        ("json", "package.module:name"),
    ],
)
def test_functions_that_cannot_be_loaded_are_known_without_spark(name: str, said: str) -> None:
    spark = NoSpark()
    (problem,) = SparkCheck(spark)(query(transform_functions=name))
    assert problem.key == FUNCTIONS
    assert said in problem.message
    assert spark.starts == 0


def test_without_spark_nothing_is_held_against_a_query(caplog: pytest.LogCaptureFixture) -> None:
    spark = NoSpark()
    with caplog.at_level(logging.WARNING):
        assert SparkCheck(spark)(query()) == []
    assert spark.starts == 1
    assert "could not be looked at" in caplog.text
    assert "no Java" in caplog.text


def test_a_function_is_asked_for_before_its_module_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "runs_when_imported.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))

    def refuse(name: str) -> None:
        raise QueryRefused(f"{name} is not for you.")

    spark = NoSpark()
    spark.may_call = refuse
    (problem,) = SparkCheck(spark)(query(transform_functions="runs_when_imported:f"))
    assert problem.key == FUNCTIONS
    assert "is not for you" in problem.message
    assert "runs_when_imported" not in sys.modules
