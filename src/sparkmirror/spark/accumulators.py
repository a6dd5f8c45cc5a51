"""What a connector copies, in Spark's metrics system: counts in; gauges in every sink that Spark's settings name out.

Spark reads accumulators there (`LongAccumulatorSource`). A name that is registered stays for as long as the application runs, and
another accumulator under it is ignored: so those of a context are kept, and whoever comes later goes on with them.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary, ref

from pyspark import SparkContext

from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, ignoring_gone

from .failures import first_line

log = logging.getLogger(__name__)
RECORDS, BYTES, LAG, NO_LAG = "recordsCopied", "bytesCopied", "lag", "partitionsOfUnknownLag"
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the copy is behind."""

    records: int = UNKNOWN
    """Source records that are not on the target, in the partitions of which that is known."""
    unknown: int = 0
    """How many partitions there are of which it is not known."""


class CopyAccumulators:
    """Those of one connector in one Spark application.

    Invariants: what is counted begins at 0 with the application and never falls. A Spark that is gone is never waited for.
    """

    def __init__(self, context: SparkContext, prefix: str) -> None:
        self._context = ref(context)
        self._lock = threading.Lock()
        self._totals = {RECORDS: 0, BYTES: 0}
        self._shown: dict[str, int] = {}
        self._accumulators = _registered(context, prefix, (RECORDS, BYTES, LAG, NO_LAG))

    def show(self, records: int, bytes_: int, lag: Lag) -> None:
        """Count so much more, and what the lag is now."""
        with self._lock:
            self._totals[RECORDS] += records
            self._totals[BYTES] += bytes_
            now = {**self._totals, LAG: lag.records, NO_LAG: lag.unknown}
            with ignoring_gone(self._context()):
                for name, accumulator in self._accumulators.items():
                    if self._shown.get(name) != now[name]:
                        accumulator.setValue(now[name])
                        self._shown[name] = now[name]


_lock = threading.Lock()
_known: WeakKeyDictionary[SparkContext, dict[str, CopyAccumulators]] = WeakKeyDictionary()


def copy_accumulators(
    context: SparkContext, source: str, target: str, connector: str
) -> CopyAccumulators:
    """Those of a connector between two aliases; the same ones whenever they are asked for."""
    prefix = ".".join(("sparkmirror", *map(_part, (source, target, connector))))
    with _lock:
        known = _known.setdefault(context, {})
        if prefix not in known:
            known[prefix] = CopyAccumulators(context, prefix)
        return known[prefix]


def _part(name: str) -> str:
    """A part of a metric's name: sinks make levels of dots, and files of names."""
    return quote(name, safe="").replace(".", "%2E")


def _registered(context: SparkContext, prefix: str, names: tuple[str, ...]) -> dict[str, Any]:
    """New accumulators by name; none where Spark has no such thing, since nobody should miss a copy for want of its metrics."""
    try:
        jvm: Any = context._jvm
        scala: Any = context._jsc.sc()
        spark = jvm.org.apache.spark
        made = {name: scala.longAccumulator(f"{prefix}.{name}") for name in names}
        by_name = jvm.java.util.HashMap()
        for name, accumulator in made.items():
            accumulator.setValue(UNKNOWN if name == LAG else 0)
            by_name.put(f"{prefix}.{name}", accumulator)
        source = getattr(getattr(spark.metrics.source, "LongAccumulatorSource$"), "MODULE$")
        source.register(scala, spark.api.python.PythonUtils.toScalaMap(by_name))
    except CALL_ERRORS as error:
        log.warning("Spark's metrics do not show %s.*: %s", prefix, first_line(error))
        return {}
    return made
