"""Spark's Python daemon with the copy task already imported: workers are forked, so they start at once and share its memory.

Spark puts pyspark as a zip file in front of the path. Modules in a zip are compiled anew by every process that imports them,
seconds of CPU each; the installed package beside it is the same code, compiled once.
"""

from __future__ import annotations

import gc
import importlib.util
import sys

_without_zips = [entry for entry in sys.path if not entry.endswith(".zip")]
_with_zips = sys.path[:]
sys.path[:] = _without_zips
if importlib.util.find_spec("pyspark") is None:
    sys.path[:] = _with_zips

import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import sparkmirror.spark.worker  # noqa: E402, F401
from sparkmirror.dataplane.query.priority import give_way_if_told  # noqa: E402
from sparkmirror.processes import leave_no_core  # noqa: E402

if __name__ == "__main__":
    leave_no_core()
    give_way_if_told()
    # Workers look for garbage after every task: what was imported is none.
    gc.collect()
    gc.freeze()
    # Nor are the thousands of records of a slice, which are gone when they are written: to look for cycles among them costs much.
    gc.set_threshold(50_000, 20, 100)
    manager()
