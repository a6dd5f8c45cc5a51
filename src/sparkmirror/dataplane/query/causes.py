"""Why a job of a query failed: what Spark raised in; whether the query is to blame, and the one line that tells out."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .functions import FunctionFailed, shown

_CRASHED = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect",
    "ExecutorLost",
    "Job aborted due to stage failure",
)
_OURS = "sparkmirror.errors.SparkError: "
_MOST_TEXT = 1000
_FUNCTION = f"{FunctionFailed.__module__}.{FunctionFailed.__qualname__}: "
_ABORTED, _LOST = "Job aborted due to stage failure: ", "Lost task "
_RAISED = re.compile(r"[A-Za-z_][\w.]*(: |$)")


def why(error: BaseException) -> tuple[str, str]:
    """`query`, `crash` or `lost`; and what is said of it."""
    try:
        text = str(error)
    except (Py4JError, OSError):  # to say it, Spark would have to be asked, which is gone
        return "lost", "Spark is gone."
    message = cause_of(text)[:_MOST_TEXT]  # Spark quotes the value of a record
    if _FUNCTION in text:
        return "query", message
    if _OURS in text:
        return "lost", message
    if "Python worker exited" in text:
        message = "A Python worker ended in the midst of the query, each time it was tried."
    if any(word in text for word in _CRASHED):
        return "crash", message
    return ("query" if isinstance(error, PySparkException) else "lost"), message


def cause_of(text: str) -> str:
    """The line that tells: what a function raised, or what Spark says, without its trace and the query around it."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for mark in (_FUNCTION, _OURS):
        for line in lines:
            if line.startswith(mark):
                return shown(FunctionFailed(line.removeprefix(mark)))
    for line in lines:
        _, _, aborted = line.partition(_ABORTED)
        lost = aborted.rfind(_LOST, 0, max(0, aborted.rfind("): ")))
        if lost >= 0 and (cause := aborted[lost:].partition("): ")[2]):
            return f"Spark fails with {cause}"
    traces = [at for at, line in enumerate(lines) if line.startswith("Traceback ")]
    if traces:
        raised = [line for line in lines[traces[-1] + 1 :] if _RAISED.match(line)]
        return raised[0] if raised else lines[0]
    return lines[0].strip() if lines else "unknown"
