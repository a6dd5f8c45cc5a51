"""A demand for slots: a number in; Spark tasks that do nothing and wait, so that dynamic allocation asks for executors.

Copy tasks never wait behind each other for executors that may not come: they run on the slots that are there, and this waits in
their place. Its tasks end as soon as they begin; the new executors are noticed, and the copy is planned again.
"""

from __future__ import annotations

import uuid

from pyspark import InheritableThread, SparkContext

from sparkmirror.dataplane.jvm_calls import ignoring_gone


class Demand:
    """Stands until `close`, or until as many slots were free."""

    def __init__(self, context: SparkContext, slots: int) -> None:
        self._context = context
        self._slots = slots
        self._id = str(uuid.uuid4())
        InheritableThread(target=self._run, daemon=True, name="spark demand").start()

    def _run(self) -> None:
        context = self._context
        with ignoring_gone(context):
            context.setJobGroup(self._id, f"sparkmirror asks for {self._slots} more slots")
            # In the JVM alone: no Python worker is started for it.
            context._jsc.parallelize(list(range(self._slots)), self._slots).count()

    def close(self) -> None:
        with ignoring_gone(self._context):
            self._context.cancelJobGroup(self._id)
