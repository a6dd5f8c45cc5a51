"""A demand for slots: a number in; Spark tasks that do nothing and wait, so that dynamic allocation asks for executors.

Copy tasks never wait behind each other for executors that may not come: they run on the slots that are there, and this job waits
in their place. Its tasks end as soon as they begin; the new executors are noticed, and the copy is planned again.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

from sparkmirror.dataplane.jvm_calls import ignoring_gone

_DESCRIPTION = "spark.job.description"


class Demand:
    """Stands until `close`.

    Invariant: at most one job asks. It can end without a new executor, on slots that are free for a moment: before the copy
    tasks have begun, or while one of them is restarted. `renew` then asks again.
    """

    def __init__(self, context: SparkContext, slots: int) -> None:
        self._context = context
        self._slots = slots
        self._job: Any = None
        self.renew()

    def renew(self) -> None:
        """Ask again if what was asked has been answered."""
        with ignoring_gone(self._context):
            if self._job is None or self._job.isDone():
                self._job = self._submit()

    def _submit(self) -> Any:
        """In the JVM alone: no Python worker is started for it."""
        java: Any = self._context._jsc
        before = java.getLocalProperty(_DESCRIPTION)
        java.setLocalProperty(_DESCRIPTION, f"sparkmirror asks for {self._slots} more slots")
        try:
            return java.parallelize(list(range(self._slots)), self._slots).countAsync()
        finally:
            java.setLocalProperty(_DESCRIPTION, before)

    def close(self) -> None:
        with ignoring_gone(self._context):
            if self._job is not None:
                self._job.cancel(True)
