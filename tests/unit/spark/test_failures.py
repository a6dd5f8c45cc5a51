"""What pyspark raises: Spark that is gone is tried again, a wrong call is not."""

from __future__ import annotations

from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from sparkmirror.dataplane.jvm_calls import ignoring_gone
from sparkmirror.errors import SparkError
from sparkmirror.spark.failures import failure


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
