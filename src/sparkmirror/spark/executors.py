"""The executors of a cluster: a context in; who takes tasks, and whether a job should be planned again, out.

They are asked for, not listened to: a listener would need a server for calls from the JVM, and asking takes two calls of a
millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from .session_config import LocalMaster

_DRIVER = "driver"
_INSTANCES = 2
_LOST_STEADY_S, _LOST_AT_MOST_S = 3.0, 7.0


@dataclass(frozen=True, slots=True)
class Executors:
    """Those that are registered and take tasks; one that is being decommissioned does not."""

    slots: int
    """How many tasks run at once: the cores of each, divided by `spark.task.cpus`, added up."""
    ids: frozenset[str]


def registered(context: SparkContext) -> Executors:
    """What the scheduler has now; raises what pyspark raises."""
    scala: Any = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    slots = int(scala.maxNumConcurrentTasks(profile))
    if str(context.master).startswith("local"):
        return Executors(slots, frozenset({_DRIVER}))
    ids = str(scala.getExecutorIds().mkString(","))
    return Executors(slots, frozenset(ids.split(",")) - {""})


def described(context: SparkContext) -> str:
    """For people: how many executors with how many cores are registered, and where."""
    scala: Any = context._jsc.sc()
    found = scala.statusStore().executorList(True)
    executors = [found.apply(index) for index in range(int(found.size()))]
    is_local = str(context.master).startswith("local")  # where the driver is the executor
    cores = [int(e.totalCores()) for e in executors if is_local or str(e.id()) != _DRIVER]
    return f"{_counted(cores)} registered at {context.master}"


def _counted(cores: list[int]) -> str:
    if not cores:
        return "no executor is"
    if len(cores) == 1:
        return f"1 executor with {_of(cores[0])} is"
    each = f"{_of(cores[0])} each" if len(set(cores)) == 1 else f"{_of(sum(cores))} in all"
    return f"{len(cores)} executors with {each} are"


def _of(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def promised(settings: Mapping[str, str]) -> int | None:
    """How many slots the settings ask the cluster manager for at most; None if they do not say.

    YARN and Kubernetes give an application two executors by default; `spark.cores.max` is of standalone clusters only.
    """
    has_instances = settings.get("spark.master", "").startswith(("yarn", "k8s://"))
    per_task = max(1, _number(settings, "spark.task.cpus") or 1)
    each = _number(settings, "spark.executor.cores") or 1
    count = _number(
        settings,
        "spark.dynamicAllocation.maxExecutors"
        if is_dynamic(settings)
        else "spark.executor.instances",
    )
    if has_instances and not count and not is_dynamic(settings):
        count = _INSTANCES
    most = 0 if has_instances else _number(settings, "spark.cores.max")
    cores = [most, count and count * each]
    asked = [number // per_task for number in cores if number]
    return max(1, min(asked)) if asked else None


def _number(settings: Mapping[str, str], key: str) -> int:
    """0 if it is not set, or not to a number (`spark.dynamicAllocation.maxExecutors=infinity`)."""
    value = settings.get(key, "").strip()
    return int(value) if value.isdecimal() else 0


def is_dynamic(settings: Mapping[str, str]) -> bool:
    """Whether Spark asks for executors by itself while tasks wait for a slot; on a local master it never does."""
    if LocalMaster.parse(settings.get("spark.master", "local[*]")) is not None:
        return False
    return settings.get("spark.dynamicAllocation.enabled", "false").strip().lower() == "true"


class ExecutorWatch:
    """Tells when a job of `tasks` Spark tasks should be planned again because executors, or its share of the slots, changed.

    At once when it may have fewer slots than tasks, since a task would wait for one for as long as the others run. After a lost
    executor when nothing has changed for 3 s, and after 7 s in any case. Else, where there is more room, when nothing has
    changed for `steady` seconds, so that executors that come one after the other cost one planning.
    """

    def __init__(self, planned: Executors, tasks: int, share: int, steady: float) -> None:
        self._planned = planned
        self._tasks = tasks
        self._share = share
        self._steady = steady
        self._last = planned, share
        self._since = 0.0
        self._lost_at: float | None = None

    def is_due(self, there: Executors, share: int, now: float) -> bool:
        """`share`: how many slots of these executors the job may use now."""
        if (there, share) != self._last:
            self._last, self._since = (there, share), now
        if share < self._tasks:
            return True
        if self._planned.ids - there.ids:
            self._lost_at = now if self._lost_at is None else self._lost_at
            return now - self._since >= _LOST_STEADY_S or now - self._lost_at >= _LOST_AT_MOST_S
        self._lost_at = None
        is_changed = there != self._planned or share > self._share
        return is_changed and now - self._since >= self._steady
