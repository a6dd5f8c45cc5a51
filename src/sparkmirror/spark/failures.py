"""What pyspark raises: exceptions in, what they mean out."""

from __future__ import annotations

from py4j.protocol import Py4JError

GONE = (Py4JError, OSError, TypeError, AttributeError)
"""Raised when the JVM is gone, or when another thread has stopped the context (pyspark then finds None where it looks)."""


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__


def cause(error: BaseException) -> str:
    """The line of a Spark error that tells something: the last exception of the Python worker, or the first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in reversed(lines):
        if line.startswith("sparkmirror.errors."):
            return line.partition(": ")[2] or line
    for line in lines:
        if "Python worker exited unexpectedly" in line or "crashed" in line:
            return "a Python worker was lost."
    return first_line(error)
