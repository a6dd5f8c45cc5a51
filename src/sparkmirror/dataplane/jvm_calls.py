"""Calls into Spark's JVM: what pyspark raises in; whether Spark is gone, or the call was wrong, out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException

_FOUND_NONE = (TypeError, AttributeError, AssertionError)
"""What pyspark's own code raises after another thread has stopped the context: it finds None where it looks."""
JAVA_ERRORS = (Py4JError, CapturedException)
"""What Java threw. As soon as there is a session for SQL in the process, pyspark has other exceptions for some of it."""
CALL_ERRORS = (*JAVA_ERRORS, OSError, *_FOUND_NONE)
"""All that a call may raise; `is_gone` tells which of them mean that Spark is gone."""


def is_gone(error: BaseException, context: SparkContext | None) -> bool:
    """Whether a call failed because the JVM or the context is not there any more, or Java threw.

    A TypeError while the context is there is a defect of sparkmirror, or a version of pyspark that has another interface:
    trying again would hide it.
    """
    if isinstance(error, _FOUND_NONE):
        return context is None or context._jsc is None
    return isinstance(error, (*JAVA_ERRORS, OSError))


def said(error: BaseException) -> str:
    """The words of an error. Those that pyspark makes of Java's ask the JVM when they are printed, which may be gone by then."""
    if not isinstance(error, CapturedException):
        return str(error)
    # `desc` before PySpark 4.
    return str(getattr(error, "_desc", None) or getattr(error, "desc", None) or "")


@contextlib.contextmanager
def ignoring_gone(context: SparkContext | None) -> Iterator[None]:
    """Calls that need not be answered by a Spark that is gone."""
    try:
        yield
    except CALL_ERRORS as error:
        if not is_gone(error, context):
            raise
