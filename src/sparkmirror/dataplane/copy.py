"""The copy task: a plan in; records from the source's leaders to the target's, positions, syncs and progress; a ledger out.

Runs on a Spark executor, in one thread, over non-blocking sockets. Nothing in it needs to be shut down in order: whoever comes
after a killed task aligns with what the target holds (see `resume`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkmirror.errors import KafkaError
from sparkmirror.formats.position import Position
from sparkmirror.formats.progress import RunsOn
from sparkmirror.kafka.cluster import Cluster, back_off
from sparkmirror.kafka.compression import limit_opening

from .addressing import Sent
from .fetching import Fetcher
from .mapping import MapSender
from .partition import Budget, PartitionCopy
from .plan import PartitionPlan, TaskPlan
from .poller import Poller
from .positions import PositionStore
from .rate_limits import MessageLink, ShareExchange, TaskLimits
from .record_path import Lane, RecordCopy
from .reporting import Reporter
from .routing import Routings
from .sending import Sender
from .shape import Shape
from .troubles import Ends, Troubles

if TYPE_CHECKING:
    from .links.address import Driver
    from .query.path import QueryPath

log = logging.getLogger(__name__)

_DRAIN_S = 5.0
_TICK_S = 0.2
_REFRESH_S = 0.2


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What a task did with one partition."""

    topic: str
    partition: int
    task: int
    records: int
    bytes: int
    offset: int
    target_offset: int
    error: str = ""
    since: int = -1
    """When the task began, in milliseconds, as in its progress reports."""


class CopyTask:
    """Copies the partitions of one plan until its epoch ends or `stopped` says so.

    Invariants: every partition is copied, or dealt with in `_troubles`; a position is reported only after the target
    acknowledged it.
    """

    def __init__(
        self,
        plan: TaskPlan,
        stopped: Callable[[], bool] = lambda: False,
        runs_on: RunsOn = RunsOn(),  # noqa: B008 - it cannot be changed
        link: MessageLink | None = None,
    ) -> None:
        """`link`: to the driver, who shares rate limits out; None: every task keeps the share that it begins with."""
        self._plan = plan
        self._settings = plan.settings
        limit_opening(plan.settings.opening)  # a process runs one task
        self._stopped = stopped
        self._source = Cluster(plan.source)
        self._target = Cluster(plan.target)
        self._poller = Poller()
        self._home = self._target if plan.store_cluster is None else Cluster(plan.store_cluster)
        self._store = PositionStore(self._home, plan.store)
        self._budget = Budget(plan.settings.buffer_bytes)
        now = time.monotonic()
        self._limits = TaskLimits(plan, now) if plan.limits else None
        self._exchange: ShareExchange | None = None
        if self._limits is not None and self._limits.is_shared and link is not None:
            self._exchange = ShareExchange(self._limits, link, now)
        self._fetcher = Fetcher(
            self._source,
            self._poller,
            plan.settings,
            self._budget.has_room,
            self._fetched,
            self._limits,
        )
        self._sender = self._new_sender(self._target)
        self._side_sender = self._new_sender(self._source)
        self._store_sender = (
            self._sender if self._home is self._target else self._new_sender(self._home)
        )
        self._senders = tuple(dict.fromkeys((self._sender, self._store_sender, self._side_sender)))
        self._wire: tuple[Fetcher | Sender, ...] = (self._fetcher, *self._senders)
        self._with_records: list[RecordCopy] = []
        self._queries = (
            self._query_path(plan.driver)
            if plan.driver is not None and plan.needs_queries
            else None
        )
        self._copies = {part.key: self._new_copy(part) for part in plan.partitions}
        mapping = MapSender(plan.settings.offset_map_topic, self._target, self._sender)
        self._reporter = Reporter(
            plan,
            self._store,
            self._sender,
            self._store_sender,
            self._syncs_sender(),
            mapping,
            runs_on,
            self._limits,
        )
        ends = Ends(self._source, self._target, self._fetcher, self._sender)
        routings = Routings() if self._queries is None else self._queries.routings
        self._troubles = Troubles(plan, ends, self._store, self._reporter, self._fitting, routings)
        self._readers: tuple[Fetcher | Sender | Troubles, ...] = (*self._wire, self._troubles)
        self._refreshed_at = 0.0
        self._refresh_due = False
        self._told: KafkaError | None = None

    def _new_copy(self, part: PartitionPlan) -> PartitionCopy:
        if Shape.of(part, self._settings).is_plain:
            return PartitionCopy(part, self._settings, self._budget, self)
        return self._new_record_copy(part)

    def _new_record_copy(self, part: PartitionPlan) -> RecordCopy:
        copy: RecordCopy
        if self._queries is None:
            copy = RecordCopy(part, self._settings, self._budget, self, self._plan.stamp)
        else:
            copy = self._queries.copy(part, self._budget)
        self._with_records.append(copy)
        return copy

    def _fitting(self, copy: PartitionCopy, position: Position) -> PartitionCopy:
        """The copy that can go on from a position: transforms that are no longer wanted must be brought to their end first."""
        if position.transforms is None or isinstance(copy, RecordCopy):
            return copy
        copy.suspend()
        self._copies[copy.key] = fitting = self._new_record_copy(copy.plan)
        return fitting

    def _query_path(self, driver: Driver) -> QueryPath:
        # Arrow is large, and nobody without a query needs it.
        from .query.path import QueryPath

        return QueryPath(self._plan, driver, self._target, self._sender, self._poller, self)

    def _new_sender(self, cluster: Cluster) -> Sender:
        return Sender(
            cluster,
            self._poller,
            self._settings.max_in_flight,
            self._settings.max_request_bytes,
        )

    def _syncs_sender(self) -> Sender:
        return self._side_sender if self._settings.offset_syncs_at_source else self._sender

    # -- life ---------------------------------------------------------------------------------

    def run(self) -> list[LedgerRow]:
        """Copy until the end of the epoch; gives the ledger."""
        deadline = time.monotonic() + self._settings.epoch
        try:
            self._until_reachable()
            self._store.seed(dict(self._plan.positions), dict(self._plan.read_to))
            self._troubles.resume(list(self._copies.values()))
            log.info(
                "Flow %s, task %d: copying %d partition(s).",
                self._plan.flow,
                self._plan.index,
                len(self._copies) - len(self._troubles.standing),
            )
            while time.monotonic() < deadline and not self._stopped():
                self._turn()
            self._drain()
            return self._ledger()
        finally:
            self._close()

    def _turn(self) -> None:
        for sender in self._senders:
            sender.pump()
        self._fetcher.pump()
        is_busy = self._queries is not None and self._queries.is_busy
        self._poller.wait(0 if is_busy else _TICK_S)
        self._reporter.turn()
        now = time.monotonic()
        if self._exchange is not None:
            self._exchange.turn(now)
        if self._queries is not None:
            self._queries.turn()
        if self._with_records:
            self._open_targets()
        self._troubles.turn(now)
        if self._refresh_due or any(part.stale for part in self._readers):
            self._refresh(now)
        if self._reporter.is_due(now):
            self._tick(now)

    def _open_targets(self) -> None:
        waiting = [copy for copy in self._with_records if copy.wanted]
        if waiting:
            self._troubles.open(waiting)

    def _tick(self, now: float) -> None:
        self._reporter.report(now, self._copies.values(), self._troubles.standing)
        for part in self._wire:
            part.expire()
        if now - self._refreshed_at > self._plan.source.metadata_max_age:
            self._refresh_due = True
        self._troubles.look_for_refusals(self._copies.values())
        self._troubles.retry(now)

    def _drain(self) -> None:
        """Wait for what is in flight, then write the last positions."""
        for copy in self._copies.values():
            copy.suspend()
            self._fetcher.forget(copy)
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            for sender in self._senders:
                sender.pump()  # positions may be waiting to be sent
            if not any(sender.in_flight for sender in (self._sender, self._store_sender)):
                break
            self._poller.wait(_TICK_S)
        self._reporter.finish(self._copies.values())

    def _close(self) -> None:
        for part in (*self._wire, self._source, self._target, self._home):
            part.close()
        if self._queries is not None:
            self._queries.close()
        self._poller.close()

    def _ledger(self) -> list[LedgerRow]:
        standing = self._troubles.standing
        return [
            LedgerRow(
                copy.plan.topic,
                copy.plan.partition,
                copy.plan.task,
                copy.records,
                copy.bytes,
                copy.position.offset,
                copy.target_offset,
                standing[copy.key].error if copy.key in standing else "",
                self._reporter.since,
            )
            for copy in self._copies.values()
        ]

    # -- metadata -----------------------------------------------------------------------------

    def _topics(self) -> dict[Cluster, set[str]]:
        """What must be known of each cluster."""
        source = {part.topic for part in self._plan.partitions}
        target = {name for copy in self._copies.values() for name in copy.remotes}
        target |= {self._settings.progress_topic, self._settings.offset_map_topic} - {""}
        if self._queries is not None:
            target |= {self._queries.dead_letters.topic} - {""}
        if self._settings.offset_syncs_topic:
            at = source if self._settings.offset_syncs_at_source else target
            at.add(self._settings.offset_syncs_topic)
        topics = {self._source: source, self._target: target}
        topics.setdefault(self._home, set()).add(self._plan.store.topic)
        return topics

    def _until_reachable(self) -> None:
        """Read the metadata of all clusters, however long it takes them to be there; one line a try.

        One that does not let us in is left to `_troubles`, who tell why.
        """
        for cluster, topics in self._topics().items():
            for wait in back_off(0.5, cluster.settings.reconnect_backoff_max):
                try:
                    cluster.refresh(topics)
                    break
                except KafkaError as error:
                    if not error.retriable:
                        self._refresh_due = True
                        break
                    log.warning("%s Trying again in %.1f s.", error, wait)
                    if self._stopped():
                        raise
                    time.sleep(wait)
        self._refreshed_at = time.monotonic()

    def _refresh(self, now: float) -> None:
        if now - self._refreshed_at < _REFRESH_S:
            return
        self._refreshed_at = now
        try:
            for cluster, topics in self._topics().items():
                cluster.refresh(topics)
        except KafkaError as error:
            if (
                error is not self._told
            ):  # a cluster that refuses us repeats itself until it is asked again
                log.warning("%s Trying again.", error)
            self._told = error
            self._refresh_due = True
            self._refreshed_at += self._plan.source.retry_backoff_max  # one line a second is enough
            return
        self._refresh_due = False
        for part in self._readers:
            part.refreshed()
        for copy in self._copies.values():
            if copy.active:
                copy.look_at(self._target.topics)
                self._fetcher.want(copy)
                if copy.has_work and not copy.trouble:
                    copy.offer_to(self._sender)

    # -- events -------------------------------------------------------------------------------

    def _fetched(self, copy: PartitionCopy) -> None:
        if copy.fetch_trouble:
            self._troubles.add(copy)
        if copy.has_work:
            copy.offer_to(self._sender)

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        self._troubles.passed(copy.whole)
        self._reporter.acknowledged(copy, sent, base_offset)

    def moved(self, copy: PartitionCopy) -> None:
        self._troubles.passed(copy)
        self._reporter.moved(copy)

    def unreadable(self, copy: RecordCopy) -> None:
        self._fetcher.forget(copy)
        self._troubles.add(copy)

    def recovered(self, lane: Lane) -> None:
        self._troubles.recovered(lane)

    def changed(self, copy: PartitionCopy) -> None:
        if copy.trouble:
            self._troubles.add(copy)
            return
        if copy.has_work:
            copy.offer_to(self._sender)
        has_room = copy.ready_bytes * 2 < self._settings.partition_buffer_bytes
        if has_room and copy.active and not self._fetcher.is_wanted(copy):
            self._fetcher.want(copy)
