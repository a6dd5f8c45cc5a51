"""The copy task: a plan in; records from the source's leaders to the target's, positions, syncs and progress; a ledger out.

Runs on a Spark executor, in one thread, over non-blocking sockets. Nothing in it needs to be shut down in order: whoever comes
after a killed task aligns with what the target holds (see `resume`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkmirror.errors import KafkaError, ReplicationError, Superseded
from sparkmirror.formats.position import Position
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster, back_off

from .fetching import Fetcher
from .partition import Budget, PartitionCopy, Sent
from .plan import PartitionPlan, TaskPlan
from .poller import Poller
from .positions import PositionStore
from .reporting import Reporter
from .resume import Outcome, Resumer
from .sending import Sender

log = logging.getLogger(__name__)

_NUMBERING_CODES = {
    messages.OUT_OF_ORDER_SEQUENCE_NUMBER,
    messages.DUPLICATE_SEQUENCE_NUMBER,
    messages.INVALID_PRODUCER_EPOCH,
    messages.UNKNOWN_PRODUCER_ID,
    messages.PRODUCER_FENCED,
}
_FENCED_CODES = {messages.INVALID_PRODUCER_EPOCH, messages.PRODUCER_FENCED}
_INVALID_CODES = {messages.INVALID_RECORD, messages.CORRUPT_MESSAGE}
_TOO_LARGE_CODES = {messages.MESSAGE_TOO_LARGE, messages.RECORD_LIST_TOO_LARGE}
_UNKNOWN_CODES = {
    messages.UNKNOWN_TOPIC_OR_PARTITION,
    messages.UNKNOWN_TOPIC_ID,
    messages.INCONSISTENT_TOPIC_ID,
}
_DRAIN_S = 5.0
_TICK_S = 0.2
_REFRESH_S = 0.2
_QUICK_TRIES = 3
# Until a failed partition is tried again, at first and at most: what needs a person, and what may pass by itself.
_FAILED_WAITS_S, _PASSING_WAITS_S = (5.0, 60.0), (0.5, 5.0)


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


class CopyTask:
    """Copies the partitions of one plan until its epoch ends or `stopped` says so.

    Invariants: every partition is either active (copying, or in `_troubled` with a time to act) or in `_failed` with a time to
    try again; a position is reported only after the target acknowledged it.
    """

    def __init__(self, plan: TaskPlan, stopped: Callable[[], bool] = lambda: False) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._stopped = stopped
        self._source = Cluster(plan.source)
        self._target = Cluster(plan.target)
        self._poller = Poller()
        self._store = PositionStore(self._target, plan.store)
        self._resumer = Resumer(self._source, self._target, self._store, plan.settings, plan.stamp)
        self._budget = Budget(plan.settings.buffer_bytes)
        self._fetcher = Fetcher(
            self._source, self._poller, plan.settings, self._budget.has_room, self._fetched
        )
        self._sender = self._new_sender(self._target)
        self._side_sender = self._new_sender(self._source)
        self._wire = (self._fetcher, self._sender, self._side_sender)
        self._copies = {
            part.key: PartitionCopy(part, plan.settings, self._budget, self)
            for part in plan.partitions
        }
        self._reporter = Reporter(plan, self._store, self._sender, self._syncs_sender())
        self._troubled: dict[PartitionCopy, float] = {}
        self._failed: dict[PartitionCopy, tuple[ReplicationError | KafkaError, float, float]] = {}
        self._waits: dict[PartitionCopy, float] = {}
        self._told: Exception | None = None
        self._refreshed_at = 0.0
        self._refresh_due = False

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
            self._resume(list(self._copies.values()))
            log.info(
                "Flow %s, task %d: copying %d partition(s).",
                self._plan.flow,
                self._plan.index,
                len(self._copies) - len(self._failed),
            )
            while time.monotonic() < deadline and not self._stopped():
                self._turn()
            self._drain()
            return self._ledger()
        finally:
            self._close()

    def _turn(self) -> None:
        self._sender.pump()
        self._fetcher.pump()
        self._side_sender.pump()
        self._poller.wait(_TICK_S)
        self._reporter.turn()
        now = time.monotonic()
        if self._troubled:
            self._deal_with_trouble(now)
        if self._refresh_due or any(part.stale for part in self._wire):
            self._refresh(now)
        if self._reporter.is_due(now):
            self._tick(now)

    def _tick(self, now: float) -> None:
        self._reporter.report(now, self._copies.values(), self._errors())
        self._fetcher.expire(self._plan.source.request_timeout)
        self._sender.expire(self._plan.target.request_timeout)
        self._side_sender.expire(self._plan.source.request_timeout)
        if now - self._refreshed_at > self._plan.source.metadata_max_age:
            self._refresh_due = True
        due = [copy for copy, (_, at, _) in self._failed.items() if at <= now]
        if due:
            self._retry(due)

    def _drain(self) -> None:
        """Wait for what is in flight, then write the last positions."""
        for copy in self._copies.values():
            copy.suspend()
            self._fetcher.forget(copy)
        deadline = time.monotonic() + _DRAIN_S
        self._sender.pump()  # positions may be waiting to be sent
        while time.monotonic() < deadline and self._sender.in_flight:
            self._poller.wait(_TICK_S)
            self._sender.pump()
        self._reporter.finish(self._copies.values())

    def _close(self) -> None:
        for part in (*self._wire, self._source, self._target):
            part.close()
        self._poller.close()

    def _ledger(self) -> list[LedgerRow]:
        errors = self._errors()
        return [
            LedgerRow(
                copy.plan.topic,
                copy.plan.partition,
                copy.plan.task,
                copy.records,
                copy.bytes,
                copy.position.offset,
                copy.position.target_offset,
                errors.get(copy.key, ""),
            )
            for copy in self._copies.values()
        ]

    def _errors(self) -> dict[tuple[str, int], str]:
        return {copy.key: str(error) for copy, (error, _, _) in self._failed.items()}

    # -- metadata -----------------------------------------------------------------------------

    def _topics(self) -> tuple[set[str], set[str]]:
        """What must be known of the source and of the target."""
        source = {part.topic for part in self._plan.partitions}
        target = {part.remote for part in self._plan.partitions} | {self._plan.store.topic}
        if self._settings.progress_topic:
            target.add(self._settings.progress_topic)
        if self._settings.offset_syncs_topic:
            at = source if self._settings.offset_syncs_at_source else target
            at.add(self._settings.offset_syncs_topic)
        return source, target

    def _until_reachable(self) -> None:
        """Read the metadata of both clusters, however long it takes them to be there; one line a try."""
        source, target = self._topics()
        for cluster, topics in ((self._source, source), (self._target, target)):
            for wait in back_off(0.5, cluster.settings.reconnect_backoff_max):
                try:
                    cluster.refresh(topics)
                    break
                except KafkaError as error:
                    log.warning("%s Trying again in %.1f s.", error, wait)
                    if self._stopped():
                        raise
                    time.sleep(wait)
        self._refreshed_at = time.monotonic()

    def _refresh(self, now: float) -> None:
        if now - self._refreshed_at < _REFRESH_S:
            return
        self._refreshed_at = now
        source, target = self._topics()
        try:
            self._source.refresh(source)
            self._target.refresh(target)
        except KafkaError as error:
            log.warning("%s Trying again.", error)
            self._refresh_due = True
            self._refreshed_at += self._plan.source.retry_backoff_max  # one line a second is enough
            return
        self._refresh_due = False
        for part in self._wire:
            part.refreshed()
        for copy in self._copies.values():
            if copy.active:
                self._fetcher.want(copy)
                if copy.has_work and not copy.trouble:
                    self._sender.offer(copy)

    # -- events -------------------------------------------------------------------------------

    def _fetched(self, copy: PartitionCopy) -> None:
        if copy.fetch_trouble:
            self._troubled.setdefault(copy, 0.0)
        if copy.has_work:
            self._sender.offer(copy)

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        self._waits.pop(copy, None)
        self._reporter.acknowledged(copy, sent, base_offset)

    def changed(self, copy: PartitionCopy) -> None:
        if copy.trouble:
            self._troubled.setdefault(copy, 0.0)
            return
        if copy.has_work:
            self._sender.offer(copy)
        has_room = copy.ready_bytes * 2 < self._settings.partition_buffer_bytes
        if has_room and copy.active and not self._fetcher.is_wanted(copy):
            self._fetcher.want(copy)

    # -- trouble ------------------------------------------------------------------------------

    def _deal_with_trouble(self, now: float) -> None:
        to_resume: list[PartitionCopy] = []
        for copy in [copy for copy, at in self._troubled.items() if at <= now]:
            if copy.trouble:
                if copy.outstanding == 0 and self._target_trouble(copy, now):
                    to_resume.append(copy)
            elif copy.fetch_trouble:
                if self._source_trouble(copy, now):
                    to_resume.append(copy)
            else:
                del self._troubled[copy]
        if to_resume:
            for copy in to_resume:
                self._troubled.pop(copy, None)
            self._resume(to_resume)

    def _target_trouble(self, copy: PartitionCopy, now: float) -> bool:
        """Deal with what the target refused; True if the partition must be aligned anew."""
        code = copy.trouble
        try:
            if code in _NUMBERING_CODES:
                return self._renumber_trouble(copy, code, now)
            if code in _TOO_LARGE_CODES:
                copy.split_head()
            elif code in _INVALID_CODES and copy.reclose_head():
                log.info(
                    "%s: the target refused a batch as invalid; it is written anew.", copy.plan
                )
            elif messages.is_retriable(code):
                if self._wait_or_resume(copy, code, now, at_target=True):
                    return True
                if self._troubled.get(copy, 0.0) > now:
                    return False
                if copy.is_forgettable:  # sent again, it could be taken again
                    return True
            else:
                raise messages.broker_error(
                    code,
                    f"{copy.plan}: writing to {copy.plan.remote} on {self._plan.target}",
                    copy.trouble_text,
                    _REMEDIES.get(code, ""),
                )
        except (ReplicationError, KafkaError) as error:
            self._fail(copy, error)
            return False
        copy.resend()
        self._troubled.pop(copy, None)
        self._sender.offer(copy)
        return False

    def _renumber_trouble(self, copy: PartitionCopy, code: int, now: float) -> bool:
        if copy.attempts > _QUICK_TRIES and self._troubled.get(copy, 0.0) == 0.0:
            self._troubled[copy] = now + self._plan.target.retry_backoff_max
            return False
        self._give_way(copy, code)
        copy.attempts = min(copy.attempts + 1, 10)
        return True

    def _give_way(self, copy: PartitionCopy, code: int) -> None:
        """Stop a partition that another copy writes as well, where the target's leader cannot hold the two apart for long."""
        is_fenced = code in _FENCED_CODES and copy.plan.compacted
        is_passed = code == messages.OUT_OF_ORDER_SEQUENCE_NUMBER and copy.is_forgettable
        if not is_fenced and not is_passed:
            return
        self._store.catch_up()
        position = self._store.get(copy.key)
        if position is None or (is_fenced and not self._is_newer(copy, position)):
            return
        copy.take_over(position)  # to see whether the other one moves from there
        if is_fenced:
            raise Superseded(
                f"{copy.plan}: a newer copy of flow {self._plan.flow} writes this partition.",
                "Nothing to do if that is intended; else stop the other one.",
            )
        raise Superseded(
            f"{copy.plan}: another copy of flow {self._plan.flow} writes this partition; its records are so old that the "
            "target may forget which ones it took.",
            "Nothing to do if the other one is intended; this one goes on when it stops.",
        )

    def _is_newer(self, copy: PartitionCopy, position: Position) -> bool:
        return position.numbering != copy.numbering and position.stamp >= self._plan.stamp

    def _source_trouble(self, copy: PartitionCopy, now: float) -> bool:
        """Deal with what the source refused; True if the partition must be aligned anew."""
        code = copy.fetch_trouble
        if code == messages.OFFSET_OUT_OF_RANGE:
            return copy.is_idle  # first everything that was read is written
        if not messages.is_retriable(code):
            if copy.is_idle:  # first everything that was read is written
                what = f"{copy.plan}: reading on {self._plan.source}"
                remedy = _REMEDIES.get(code, "")
                error = copy.fetch_error or messages.broker_error(code, what, remedy=remedy)
                self._fail(copy, error)
            return False
        if self._wait_or_resume(copy, code, now, at_target=False):
            return copy.is_idle
        if self._troubled[copy] <= now:
            copy.fetch_trouble = messages.NONE
            self._troubled.pop(copy)
            self._fetcher.want(copy)
        return False

    def _wait_or_resume(
        self, copy: PartitionCopy, code: int, now: float, *, at_target: bool
    ) -> bool:
        """Back off once per trouble, with fresh metadata; True if the topic turned out to be another one."""
        if messages.is_stale_metadata(code):
            self._refresh_due = True
        if self._troubled.get(copy, 0.0) == 0.0:
            settings = self._plan.target if at_target else self._plan.source
            wait = min(settings.retry_backoff * 2**copy.attempts, settings.retry_backoff_max)
            copy.attempts = min(copy.attempts + 1, 10)
            self._troubled[copy] = now + wait
            return False
        if code in _UNKNOWN_CODES:
            cluster = self._target if at_target else self._source
            name = copy.plan.remote if at_target else copy.plan.topic
            recorded = copy.position.target_id if at_target else copy.position.source_id
            info = cluster.topics.get(name)
            if info is None:  # deleted, or not visible yet: look again
                self._refresh_due = True
                self._troubled[copy] = now + cluster.settings.retry_backoff_max
                return False
            return recorded not in ("", info.topic_id.hex())
        return False

    def _fail(self, copy: PartitionCopy, error: ReplicationError | KafkaError) -> None:
        """Stop one partition with its error, and try it again later: the cause may be mended meanwhile."""
        first, most = _PASSING_WAITS_S if error.retriable else _FAILED_WAITS_S
        wait = min(self._waits.get(copy, first), most)
        self._waits[copy] = wait * 2
        if error is not self._told:  # one that many partitions share is one line
            log.error("%s Next try in %g s.", error, wait)
            self._told = error
        self._refresh_due |= error.retriable  # what was not there may be by then
        self._reporter.urge()
        copy.suspend()
        self._fetcher.forget(copy)
        self._troubled.pop(copy, None)
        self._failed[copy] = (error, time.monotonic() + wait, wait)

    def _retry(self, copies: Sequence[PartitionCopy]) -> None:
        due: list[PartitionCopy] = []
        for copy in copies:
            error, _, wait = self._failed[copy]
            if isinstance(error, Superseded) and self._moves(copy):
                self._failed[copy] = (error, time.monotonic() + wait, wait)
            else:
                due.append(copy)
        if due:
            self._resume(due)

    def _moves(self, copy: PartitionCopy) -> bool:
        """Whether the copy that took over is still at work: its position changed since the last look."""
        self._store.catch_up()
        position = self._store.get(copy.key)
        moved = position is not None and position != copy.position
        if position is not None:
            copy.take_over(position)
        return moved

    def _resume(self, copies: list[PartitionCopy]) -> None:
        """Find out where these partitions stand, and go on from there."""
        plans: list[PartitionPlan] = [copy.plan for copy in copies]
        known = {copy.key: copy.position for copy in copies if copy.numbering is not None}
        try:
            outcome = self._resumer.resume(plans, known)
        except KafkaError as error:  # of all of them: a cluster, or the store of positions
            self._refresh_due = True
            outcome = Outcome({}, dict.fromkeys((copy.key for copy in copies), error), [])
        for loss in outcome.losses:
            log.warning("%s", loss)
            self._reporter.lost((loss.topic, loss.partition), loss.message)
        for copy in copies:
            if copy.key in outcome.failed:
                self._fail(copy, outcome.failed[copy.key])
                continue
            self._failed.pop(copy, None)
            copy.restart(outcome.positions[copy.key])
            self._fetcher.forget(copy)
            self._fetcher.want(copy)


_REMEDIES = {
    messages.TOPIC_AUTHORIZATION_FAILED: "Allow the principal Read (source) or Write (target) on the topic.",
    messages.INVALID_TIMESTAMP: "Raise message.timestamp.before.max.ms / message.timestamp.after.max.ms of the remote topic.",
    messages.INVALID_RECORD: (
        "If the remote topic is compacted, records without a key are refused: set cleanup.policy=delete on it. If it limits "
        "timestamps, raise message.timestamp.before.max.ms / message.timestamp.after.max.ms."
    ),
}
