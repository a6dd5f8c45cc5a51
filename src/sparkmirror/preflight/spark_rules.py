"""Spark's settings before anything runs: `spark.*` keys and the queries of a file in; memory and disk that will not do out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from sparkmirror.config.keys import parse_boolean
from sparkmirror.preflight.findings import Finding, note, some, warning
from sparkmirror.spark.session_config import LocalMaster

_CHECK = "spark"
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)
_DAY_MS = 86_400_000
_CORES, _MEMORY = "spark.executor.cores", "spark.executor.memory"
_OVERHEAD, _PYTHON = "spark.executor.memoryOverhead", "spark.executor.pyspark.memory"
_LOG = "spark.eventLog.enabled"

PLAIN_MIB, QUERY_MIB = 125, 220
"""What Python workers take in one slot, at most: that of a copy task; with a query the two of one of its Spark tasks, which take
more. Resident memory, as YARN counts it; docs/how-to/spark-clusters.md names the runs."""
DAEMON_MIB = 75
"""Of the process that workers are forked from: one an executor, three with a query."""
SPACE_MIB = {False: 120, True: 1320}
"""The address space of one worker, by whether there is a query; from the same run."""
_JVM_MIB = 384
"""What an executor's JVM takes beside its heap: Spark's own least overhead."""
_JOB_MS = 100
"""A job takes longer than this, however short the interval."""
EVENT_BYTES = 40_000
"""What one job of a query writes into an event log that is not compressed; from the same run, with two Spark tasks a job."""


def spark_findings(spark: Mapping[str, str], intervals_ms: Sequence[int]) -> list[Finding]:
    """Of a session; `intervals_ms`: how often each of the queries on it runs a job."""
    return [
        *_memory(spark, has_query=bool(intervals_ms)),
        *_event_log(spark, intervals_ms),
        *_executor_logs(spark),
    ]


def _memory(spark: Mapping[str, str], *, has_query: bool) -> list[Finding]:
    """Whether the Python workers of an executor have room beside its JVM, where a cluster manager holds it to its memory."""
    master = spark.get("spark.master", "local[*]")
    if LocalMaster.parse(master) is not None:
        return []
    is_standalone = master.startswith("spark://")
    slots = _slots(spark, None if is_standalone else 1)
    if slots is None:  # all cores of a node, which may have any number
        return []
    if spark.get(_PYTHON):
        return _address_space(spark, _count(spark.get(_CORES)) or 1, has_query=has_query)
    needed = needed_mib(slots, has_query=has_query)
    text = f"Python workers need up to {needed} MiB on an executor with {_counted(slots, 'slot')}"
    text += " for a query" if has_query else ""
    if is_standalone:
        memory = _mib(spark.get(_MEMORY)) or 1024
        return [
            note(
                _CHECK,
                f"{text}, beside its {memory} MiB of {_MEMORY}; a standalone cluster counts only the latter.",
                "Leave as much free on its nodes: SPARK_WORKER_MEMORY is what they give to executors.",
            )
        ]
    room = _overhead(spark, master)
    if room is None or needed <= room:
        return []
    origin = "" if spark.get(_OVERHEAD) else " by default"
    return [
        warning(
            _CHECK,
            f"{text}, but {_OVERHEAD} is {room} MiB{origin}: the cluster manager kills executors that take more.",
            f"Set {_OVERHEAD} to {needed + _JVM_MIB}m, or fewer {_CORES}.",
        )
    ]


def _address_space(spark: Mapping[str, str], cores: int, *, has_query: bool) -> list[Finding]:
    """Spark holds each Python worker to its share of the memory that is set apart for them."""
    room, each = _mib(spark.get(_PYTHON)), SPACE_MIB[has_query]
    if room is None or room // cores >= each:
        return []
    query = "with a query " if has_query else ""
    return [
        warning(
            _CHECK,
            f"{_PYTHON} lets each Python worker have {room // cores} MiB of address space; {query}it needs up to {each} MiB.",
            f"Set {_PYTHON} to {cores * each}m; or leave it out and set {_OVERHEAD} instead.",
        )
    ]


def needed_mib(slots: int, *, has_query: bool) -> int:
    """What the Python processes of an executor take at most."""
    if has_query:
        return slots * QUERY_MIB + 3 * DAEMON_MIB
    return slots * PLAIN_MIB + DAEMON_MIB


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _slots(spark: Mapping[str, str], default: int | None) -> int | None:
    cores = _count(spark.get(_CORES)) or default
    return None if cores is None else max(1, cores // (_count(spark.get("spark.task.cpus")) or 1))


def _overhead(spark: Mapping[str, str], master: str) -> int | None:
    """What Spark asks for beside the heap; None for what Spark refuses."""
    if given := spark.get(_OVERHEAD, "").strip():
        return _mib(given)
    memory = _mib(spark.get(_MEMORY, "1g"))
    least = _mib(spark.get("spark.executor.minMemoryOverhead", "384m"))
    factor = _factor(spark, master)
    if memory is None or least is None or factor is None:
        return None
    return max(least, int(memory * factor))


def _factor(spark: Mapping[str, str], master: str) -> float | None:
    is_kubernetes = master.startswith("k8s://")
    # Only where the driver is in a pod does Spark know that executors run Python.
    in_pod = spark.get("spark.submit.deployMode", "client").strip() == "cluster"
    default = "0.4" if is_kubernetes and in_pod else "0.1"
    old = spark.get("spark.kubernetes.memoryOverheadFactor") if is_kubernetes else None
    try:
        factor = float(spark.get("spark.executor.memoryOverheadFactor") or old or default)
    except ValueError:
        return None
    return factor if math.isfinite(factor) else None


def _event_log(spark: Mapping[str, str], intervals_ms: Sequence[int]) -> Iterator[Finding]:
    """How much the queries, which run a job at each of these intervals, make Spark write."""
    if not intervals_ms or parse_boolean(spark.get(_LOG, "false").strip()) is not True:
        return
    is_compressed = parse_boolean(spark.get("spark.eventLog.compress", "true").strip()) is not False
    jobs = sum(_DAY_MS // max(_JOB_MS, interval) for interval in intervals_ms)
    yield warning(
        _CHECK,
        f"{_LOG}=true: while records come all the time, queries run up to {jobs:,} jobs a day, which write up to "
        f"{jobs * EVENT_BYTES / 1e9:.1f} GB into Spark's event log{', before compression' if is_compressed else ''}.",
        f"Set {_LOG}=false; or raise transform.interval.ms; or have the History Server delete the old files of a rolling log "
        "(spark.eventLog.rolling.enabled=true, and spark.history.fs.eventLog.rolling.maxFilesToRetain there).",
    )


def _executor_logs(spark: Mapping[str, str]) -> Iterator[Finding]:
    """Keys that the nodes of a standalone cluster read from their own settings alone."""
    rolling = [key for key in spark if key.startswith("spark.executor.logs.rolling.")]
    if rolling and spark.get("spark.master", "").startswith("spark://"):
        yield warning(
            _CHECK,
            f"{some(rolling)} {'has' if len(rolling) == 1 else 'have'} no effect here: the nodes of a standalone cluster rotate "
            "the logs of executors by settings of their own.",
            "Set them for the nodes: SPARK_WORKER_OPTS=-Dspark.executor.logs.rolling.strategy=size and so on.",
        )


def _mib(text: str | None) -> int | None:
    """A size as Spark reads it: in MiB unless it says otherwise."""
    match = _SIZE.fullmatch((text or "").strip())
    return None if match is None else math.ceil(int(match[1]) * _UNITS[(match[2] or "m").lower()])


def _count(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdecimal() else None
