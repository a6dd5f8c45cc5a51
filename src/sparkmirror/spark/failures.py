"""What pyspark raises: exceptions in, the sentence for people out."""

from __future__ import annotations

import logging

import pyspark
from pyspark import SparkContext

from sparkmirror.dataplane.jvm_calls import is_gone, said
from sparkmirror.errors import SparkError, SparkMirrorError

log = logging.getLogger(__name__)


def failure(what: str, error: BaseException, context: SparkContext | None) -> SparkMirrorError:
    """The error to raise for one of `CALL_ERRORS`; retriable only if Spark is gone."""
    if is_gone(error, context):
        return SparkError(f"{what}: {cause(error)}")
    log.error("%s", what, exc_info=error)
    return SparkMirrorError(
        f"{what}: {error!r}",
        f"This is a defect of sparkmirror, or of how it calls PySpark {pyspark.__version__}: report it with the log.",
    )


def first_line(error: BaseException) -> str:
    return said(error).strip().split("\n", 1)[0] or type(error).__name__


def cause(error: BaseException) -> str:
    """The line of a Spark error that tells something: the last exception of the Python worker, or the first line."""
    lines = [line.strip() for line in said(error).splitlines()]
    for line in reversed(lines):
        if line.startswith("sparkmirror.errors."):
            return line.partition(": ")[2] or line
    if any("No module named 'sparkmirror'" in line for line in lines):
        return (
            "sparkmirror is not installed on the executors. Install it there for the Python that PYSPARK_PYTHON or "
            "spark.pyspark.python names, or send it along: sparkmirror pack env.tar.gz."
        )
    for line in reversed(lines):
        if line.startswith("pyspark.errors."):
            return line.partition(": ")[2] or line
    for line in lines:
        if "Python worker exited unexpectedly" in line or "crashed" in line:
            return "a Python worker was lost."
    return first_line(error)
