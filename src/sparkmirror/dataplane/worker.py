"""What a Spark task runs in its Python worker: plans in, ledger rows out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparkmirror.logs import log_to_stderr

from .copy import CopyTask, LedgerRow
from .plan import TaskPlan


def run_plans(plans: Iterable[TaskPlan]) -> Iterator[LedgerRow]:
    """Run each plan to the end of its epoch (there is one per Spark task)."""
    log_to_stderr()
    for plan in plans:
        yield from CopyTask(plan).run()
