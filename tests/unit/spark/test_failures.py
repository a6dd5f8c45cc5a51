"""What pyspark raises: Spark that is gone is tried again, a wrong call is not."""

from __future__ import annotations

from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from sparkmirror.dataplane.jvm_calls import ignoring_gone
from sparkmirror.errors import SparkError
from sparkmirror.spark.failures import cause, failure


class Context:
    def __init__(self, *, is_stopped: bool) -> None:
        self._jsc: Any = None if is_stopped else object()


def context(*, is_stopped: bool) -> SparkContext:
    return cast(SparkContext, Context(is_stopped=is_stopped))


@pytest.mark.parametrize("error", [TypeError("no such argument"), AttributeError("no such method")])
def test_a_wrong_call_is_never_taken_for_a_spark_that_is_gone(error: Exception) -> None:
    found = failure("The job ended", error, context(is_stopped=False))
    assert not found.retriable
    assert repr(error) in str(found)
    with pytest.raises(type(error)), ignoring_gone(context(is_stopped=False)):
        raise error


@pytest.mark.parametrize("error", [TypeError("None"), AttributeError("None"), AssertionError()])
def test_what_pyspark_raises_behind_a_stop_means_that_it_is_gone(error: Exception) -> None:
    found = failure("The job ended", error, context(is_stopped=True))
    assert isinstance(found, SparkError)
    assert found.retriable
    with ignoring_gone(context(is_stopped=True)):
        raise error


def test_a_jvm_that_does_not_answer_is_gone() -> None:
    found = failure("The job ended", Py4JNetworkError("reset"), context(is_stopped=False))
    assert found.retriable
    assert str(found) == "The job ended: reset"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
            "  File worker.py, line 3\n"
            "sparkmirror.errors.SparkError: node1 cannot connect to the driver at d:1: refused.\n"
            "\tat org.apache.spark.Foo",
            "node1 cannot connect to the driver at d:1: refused.",
        ),
        (
            "An error occurred while calling z.\nError from python worker:\n  /usr/bin/python3: Error while finding module "
            "specification for 'sparkmirror.spark.worker_daemon' (ModuleNotFoundError: No module named 'sparkmirror')",
            "sparkmirror is not installed on the executors.",
        ),
        (
            "An error occurred while calling z.\npyspark.errors.exceptions.base.PySparkRuntimeError: "
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11",
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10",
        ),
        (
            "An error occurred.\nPython worker exited unexpectedly (crashed)",
            "a Python worker was lost.",
        ),
        ("Job aborted.\nmore", "Job aborted."),
    ],
)
def test_of_what_spark_says_the_cause_is_shown(said: str, told: str) -> None:
    assert cause(RuntimeError(said)).startswith(told)
