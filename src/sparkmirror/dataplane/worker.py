"""What a Spark task runs in its Python worker: plans in, ledger rows out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator

from .copy import CopyTask, LedgerRow
from .plan import TaskPlan

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def run_plans(plans: Iterable[TaskPlan]) -> Iterator[LedgerRow]:
    """Run each plan to the end of its epoch (there is one per Spark task)."""
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    for plan in plans:
        yield from CopyTask(plan).run()
