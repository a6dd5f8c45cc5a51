"""All that a copy task needs for queries, made when there is one: the plan in; copies of partitions that have a query out."""

from __future__ import annotations

from sparkmirror.dataplane.job_label import JobLabel
from sparkmirror.dataplane.links.address import Driver
from sparkmirror.dataplane.partition import Budget
from sparkmirror.dataplane.plan import PartitionPlan, TaskPlan
from sparkmirror.dataplane.poller import Poller
from sparkmirror.dataplane.record_path import RecordWatcher
from sparkmirror.dataplane.routing import Routing, Routings
from sparkmirror.dataplane.sending import Sender
from sparkmirror.dataplane.shape import Shape
from sparkmirror.errors import SparkError
from sparkmirror.kafka.cluster import Cluster

from .copy import QueryCopy
from .dead_letters import DeadLetters
from .desk import Desk
from .routing import QueryRouting
from .terms import QueryLimits


class QueryPath:
    """The desk of a copy task, and what goes with it."""

    def __init__(
        self,
        plan: TaskPlan,
        driver: Driver,
        target: Cluster,
        sender: Sender,
        poller: Poller,
        watcher: RecordWatcher,
    ) -> None:
        query = plan.settings.query
        self._plan, self._watcher = plan, watcher
        limits = QueryLimits() if query is None else query.limits
        self.desk = Desk(driver, plan.flow, limits, JobLabel.of([plan], queried=True))
        self.dead_letters = DeadLetters(plan.settings.bad, plan.store.connector, target, sender)
        self.routings = Routings(self._routing)
        poller.watch(self.desk, self.desk.turn)

    def _routing(self, plan: PartitionPlan, shape: Shape) -> Routing:
        return QueryRouting(plan, shape, self._plan.settings, self.desk)

    def copy(self, part: PartitionPlan, budget: Budget) -> QueryCopy:
        plan = self._plan
        return QueryCopy(
            part,
            plan.settings,
            budget,
            self._watcher,
            plan.stamp,
            self.routings,
            self.desk,
            self.dead_letters,
        )

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do, whatever comes in."""
        return self.desk.is_busy

    def turn(self) -> None:
        """Once a turn of the loop. SparkError when the driver is gone: nothing comes of any query then."""
        self.desk.turn()
        self.dead_letters.turn()
        if not self.desk.is_open:
            raise SparkError("The driver has ended the connection for queries.")

    def close(self) -> None:
        self.desk.close()
