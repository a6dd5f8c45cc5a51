"""What a Spark task runs in its Python worker: rows with plans in, ledger rows out."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator

from pyspark import TaskContext

from sparkmirror.dataplane.copy import CopyTask, LedgerRow
from sparkmirror.dataplane.links.driver_link import DriverLink
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.dataplane.query import memory
from sparkmirror.errors import SparkError
from sparkmirror.formats.progress import RunsOn
from sparkmirror.logs import log_to_stderr
from sparkmirror.veil import VEIL

from .versions import require_same, versions

PlanRow = tuple[dict[str, str], bytes]
"""The driver's versions, and a pickled plan: an executor with other versions may not be able to read it."""
_INIT = 1


def plan_row(plan: TaskPlan) -> PlanRow:
    return versions(), pickle.dumps(plan)


def read_plan(row: PlanRow) -> TaskPlan:
    """SparkError if the driver has other versions."""
    driver, pickled = row
    require_same(driver, versions(), socket.gethostname())
    plan: TaskPlan = pickle.loads(pickled)  # noqa: S301 - Spark's own way to hand it over
    return plan


def run_plans(rows: Iterable[PlanRow]) -> Iterator[LedgerRow]:
    """Run each plan to the end of its epoch (there is one per Spark task).

    Workers are forked from Spark's Python daemon, which ends with the JVM. A worker without its daemon must not go on unseen, nor
    be given another task.
    """
    log_to_stderr()
    memory.lift()
    # What was imported stays, and batches make no cycles: looking for garbage at Python's usual pace costs a tenth of the copy.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    daemon = os.getppid()

    def is_orphan() -> bool:
        return os.getppid() != daemon or daemon == _INIT

    for row in rows:
        plan = read_plan(row)
        for cluster in plan.clients:
            VEIL.learn(cluster.security.given())
        with contextlib.closing(DriverLink(plan.driver, plan.job, plan.index)) as link, veiled():
            ledger = _run(plan, lambda: is_orphan() or link.is_cut, _runs_on(link), link)
        if is_orphan():
            raise SparkError("The Python daemon of the Spark executor is gone.")
        yield from ledger


@contextlib.contextmanager
def veiled() -> Iterator[None]:
    """Spark logs what a task fails with, and shows it on its page: no secret may be in it, not even by a defect."""
    try:
        yield
    except Exception as error:
        said = str(error)
        if VEIL.hide(said) == said:
            raise
        raise SparkError(f"{type(error).__name__}: {VEIL.hide(said)}") from None


def _runs_on(link: DriverLink) -> RunsOn:
    context = TaskContext.get()
    host = link.host or socket.gethostname()
    if context is None:
        return RunsOn(host)
    return RunsOn(host, context.partitionId(), context.attemptNumber())


def _run(
    plan: TaskPlan, stopped: Callable[[], bool], runs_on: RunsOn, link: DriverLink
) -> list[LedgerRow]:
    return [] if stopped() else CopyTask(plan, stopped, runs_on, link).run()
