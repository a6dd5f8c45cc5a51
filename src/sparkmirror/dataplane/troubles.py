"""What the clusters refuse: partitions in trouble in; each sent again, waited for, aligned anew, or stopped with its error.

Kept apart from the copy loop, which only carries what goes well.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sparkmirror.errors import (
    AccessFailed,
    BrokerError,
    KafkaError,
    NumberingLost,
    QueryStuck,
    ReplicationError,
    Superseded,
)
from sparkmirror.formats.position import Position
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import NO_TOPIC_ID, QUIET_TRIES, Cluster
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.veil import VEIL

from .fetching import Fetcher
from .opening import TargetOpener
from .partition import PartitionCopy
from .plan import TaskPlan
from .positions import PositionStore
from .record_path import RecordCopy
from .record_resume import RecordResumer
from .reporting import Reporter, Standing
from .resume import Forgotten, Outcome, now_ms
from .retries import Cause, RetryLog
from .routing import Routings
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
_WAITED_FOR = {
    messages.LEADER_NOT_AVAILABLE: "waiting for a leader",
    messages.UNKNOWN_TOPIC_ID: "waiting for metadata of the right topic",
}
_NONE: Mapping[TopicPartition, Forgotten] = {}
# Until a failed partition is tried again, at first and at most: what needs a person, and what may pass by itself.
_FAILED_WAITS_S, _PASSING_WAITS_S = (5.0, 60.0), (0.5, 5.0)
_STUCK_WAITS_S = (300.0, 3600.0)
_RESUMES_AT_ONCE = 2


class Ends(NamedTuple):
    """Both clusters, and who reads from the one and writes to the other."""

    source: Cluster
    target: Cluster
    fetcher: Fetcher
    sender: Sender


class Troubles:
    """The partitions of a task that do not simply go on.

    Invariants: a partition is in `_troubled` (with the time to act, 0 for at once) or in `_failed` (with its error and the time
    to try again) or in neither, never in both; one in `_failed` is suspended. Nothing of `_troubled` is due before `_due_at`.
    """

    def __init__(
        self,
        plan: TaskPlan,
        ends: Ends,
        store: PositionStore,
        reporter: Reporter,
        fitting: Callable[[PartitionCopy, Position], PartitionCopy],
        routings: Routings,
    ) -> None:
        self._plan = plan
        self._ends = ends
        self._store = store
        self._reporter = reporter
        self._fitting = fitting
        self._resumer = RecordResumer(
            ends.source, ends.target, store, plan.settings, plan.stamp, routings=routings
        )
        self._opener = TargetOpener(ends.source, ends.target, store, plan.settings, self._resumer)
        self._troubled: dict[PartitionCopy, float] = {}
        self._due_at = math.inf
        self._failed: dict[PartitionCopy, tuple[ReplicationError | KafkaError, float, float]] = {}
        self._waits: dict[PartitionCopy, float] = {}
        self._attempts: dict[PartitionCopy, int] = {}
        """How often those that stand still were tried again."""
        self._told: Exception | None = None
        self._retries = RetryLog(plan.flow)
        self.stale = False
        """Set when the metadata should be read anew before the next try."""

    def refreshed(self) -> None:
        """The metadata was read anew."""
        self.stale = False

    @property
    def standing(self) -> dict[tuple[str, int], Standing]:
        """Which partitions stand still, and why."""
        return {
            copy.key: Standing(VEIL.hide(str(error)), self._attempts.get(copy, 0))
            for copy, (error, _, _) in self._failed.items()
        }

    def add(self, copy: PartitionCopy) -> None:
        """Something of this partition was refused."""
        self._due_at = min(self._due_at, self._troubled.setdefault(copy, 0.0))

    def passed(self, copy: PartitionCopy) -> None:
        """It goes on: the next trouble is a new one."""
        self._waits.pop(copy, None)
        self._attempts.pop(copy, None)
        self._retries.passed(copy.plan)

    def recovered(self, copy: PartitionCopy) -> None:
        """A part of a partition that was retried by itself goes on."""
        self._retries.passed(copy.retried_as)

    def look_for_refusals(self, copies: Iterable[PartitionCopy]) -> None:
        """Stop those whose leaders do not let us in (any more): a person has to see to that, and must see it."""
        for copy in copies:
            refused = self._refusal(copy) if copy.active else None
            if refused is not None:
                self._fail(copy, refused)

    def _refusal(self, copy: PartitionCopy) -> AccessFailed | None:
        plan, ends = copy.plan, self._ends
        return ends.source.refusal(plan.topic, plan.partition) or ends.target.refusal(
            plan.remote, plan.at
        )

    def turn(self, now: float) -> None:
        """Deal with what is due. Called in every turn of the loop."""
        if now < self._due_at:
            return
        to_resume: dict[PartitionCopy, None] = {}
        forgotten: dict[TopicPartition, Forgotten] = {}
        for copy in [copy for copy, at in self._troubled.items() if at <= now]:
            if copy.trouble:
                code, numbering = copy.trouble, copy.numbering
                if copy.outstanding == 0 and self._target_trouble(copy, now):
                    to_resume[copy.whole] = None
                    if numbering is not None and code == messages.UNKNOWN_PRODUCER_ID:
                        forgotten[copy.key] = Forgotten(numbering)
                    elif numbering is not None and self._is_shut_out(copy, code):
                        forgotten[copy.key] = Forgotten(numbering, with_its_epochs=True)
            elif copy.fetch_trouble:
                if self._source_trouble(copy, now):
                    to_resume[copy] = None
            else:
                self._troubled.pop(copy, None)
        if to_resume:
            self.resume(list(to_resume), forgotten)
        self._due_at = min(self._troubled.values(), default=math.inf)

    def _is_shut_out(self, copy: PartitionCopy, code: int) -> bool:
        """Whether a target keeps refusing an epoch though nobody has claimed a newer one.

        Some brokers keep one epoch for a producer, and not one for each of its partitions.
        """
        return code in _FENCED_CODES and copy.attempts > QUIET_TRIES

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
                    needs("Write", "topic", copy.plan.remote, self._plan.target.security),
                )
        except (ReplicationError, KafkaError) as error:
            self._fail(copy, error)
            return False
        copy.resend()
        if copy.fetch_trouble:  # the source has refused it meanwhile
            self._troubled[copy] = 0.0
        else:
            self._troubled.pop(copy, None)
        self._ends.sender.offer(copy)
        return False

    def _renumber_trouble(self, copy: PartitionCopy, code: int, now: float) -> bool:
        if copy.attempts > QUIET_TRIES and self._troubled.get(copy, 0.0) == 0.0:
            wait = self._plan.target.retry_backoff_max
            self._troubled[copy] = now + wait
            self._note_retry(copy, code, copy.attempts, wait, at_target=True)
            return False
        self._give_way(copy, code)
        copy.attempts += 1
        return True

    def _note_retry(
        self, copy: PartitionCopy, code: int, tries: int, wait: float, *, at_target: bool
    ) -> None:
        name = messages.error_name(code)
        if at_target:
            text = copy.trouble_text
            cause = Cause(
                f"writing to {self._plan.target}", name if text is None else f"{name} ({text})"
            )
        else:
            cause = Cause(f"reading from {self._plan.source}", name)
        self._retries.failed(copy.retried_as, cause, tries, wait)

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
        copy.whole.take_over(position)  # to see whether the other one moves from there
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
        if self._ends.fetcher.must_validate(copy):
            if (
                not copy.is_idle
            ):  # those that a lost broker led are resumed together, not each in a turn of its own
                self._troubled[copy] = now + self._plan.source.retry_backoff
            return copy.is_idle
        if code == messages.OFFSET_OUT_OF_RANGE:
            return copy.is_idle and self._may_resume(copy, code, now)  # first, all is written
        if not messages.is_retriable(code):
            if copy.is_idle:  # first everything that was read is written
                what = f"{copy.plan}: reading on {self._plan.source}"
                remedy = _REMEDIES.get(code, "")
                access = needs("Read", "topic", copy.plan.topic, self._plan.source.security)
                error = copy.fetch_error or messages.broker_error(code, what, None, remedy, access)
                self._fail(copy, error)
            return False
        if self._wait_or_resume(copy, code, now, at_target=False):
            return copy.is_idle
        if self._troubled[copy] <= now:
            copy.fetch_trouble = messages.NONE
            self._troubled.pop(copy)
            self._ends.fetcher.want(copy)
        return False

    def _may_resume(self, copy: PartitionCopy, code: int, now: float) -> bool:
        """Whether a refused offset is resumed now: at once, or with a wait where resuming has not helped."""
        if copy.fetch_attempts < _RESUMES_AT_ONCE:
            copy.fetch_attempts += 1
            return True
        if self._troubled[copy] == 0.0:
            self._wait(copy, code, now, self._back_off(copy, at_target=False), at_target=False)
            return False
        return True

    def _back_off(self, copy: PartitionCopy, *, at_target: bool) -> float:
        settings = self._plan.target if at_target else self._plan.source
        tries = copy.attempts if at_target else copy.fetch_attempts
        wait: float = min(settings.retry_backoff * 2 ** min(tries, 10), settings.retry_backoff_max)
        return wait

    def _wait_or_resume(
        self, copy: PartitionCopy, code: int, now: float, *, at_target: bool
    ) -> bool:
        """Back off once per trouble, with fresh metadata; True if the topic turned out to be another one."""
        if messages.is_stale_metadata(code):
            self.stale = True
        if self._troubled.get(copy, 0.0) == 0.0:
            wait = self._back_off(copy, at_target=at_target)
            self._wait(copy, code, now, wait, at_target=at_target)
            return False
        if code in _UNKNOWN_CODES:
            cluster = self._ends.target if at_target else self._ends.source
            name = copy.plan.remote if at_target else copy.plan.topic
            recorded = copy.position.target_id if at_target else copy.position.source_id
            info = cluster.topics.get(name)
            if info is None and copy.whole is not copy:
                return True  # what a transform names may be deleted at any time: resuming opens it anew
            if info is None or self._is_behind(copy, info.topic_id):
                # Deleted, or not visible yet, or the broker has not heard of the new one: look again.
                self.stale = True
                wait = cluster.settings.retry_backoff_max
                self._wait(copy, code, now, wait, at_target=at_target)
                return False
            if info.topic_id == NO_TOPIC_ID or not recorded:
                return True  # it may be another one: its records tell
            return recorded != info.topic_id.hex()
        return False

    def _wait(
        self, copy: PartitionCopy, code: int, now: float, wait: float, *, at_target: bool
    ) -> None:
        """Let a partition wait until its next try."""
        if at_target:
            copy.attempts += 1
        else:
            copy.fetch_attempts += 1
        self._troubled[copy] = now + wait
        tries = copy.attempts if at_target else copy.fetch_attempts
        self._note_retry(copy, code, tries, wait, at_target=at_target)

    def _is_behind(self, copy: PartitionCopy, topic_id: bytes) -> bool:
        return copy.whole.position.is_superseded(topic_id.hex(), now_ms())

    def _fail(self, copy: PartitionCopy, error: ReplicationError | KafkaError) -> None:
        """Stop one partition with its error, and try it again later: the cause may be mended meanwhile."""
        copy = copy.whole
        error = self._refusal(copy) or error  # says more than what comes of it
        first, most = _waits(error)
        wait = min(self._waits.get(copy, first), most)
        self._waits[copy] = wait * 2
        self._tell(copy, error, wait)
        self.stale |= error.retriable  # what was not there may be by then
        self._reporter.urge()
        copy.suspend()
        self._ends.fetcher.forget(copy)
        self._drop_troubles([copy])
        self._failed[copy] = (error, time.monotonic() + wait, wait)

    def _tell(self, copy: PartitionCopy, error: ReplicationError | KafkaError, wait: float) -> None:
        if isinstance(error, BrokerError) and error.code in _WAITED_FOR:
            name = f"{error.name} ({error.remedy})" if error.remedy else error.name
            cause = Cause(_WAITED_FOR[error.code], name)
            self._retries.failed(copy.plan, cause, self._attempts.get(copy, 0) + 1, wait)
        elif error is not self._told:  # one that many partitions share is one line
            log.error("%s Next try in %g s.", error, wait)
            self._told = error

    def _drop_troubles(self, copies: list[PartitionCopy]) -> None:
        """What these were in trouble with, as a whole or in parts, is dealt with."""
        dealt_with = set(copies)
        for copy in [copy for copy in self._troubled if copy.whole in dealt_with]:
            del self._troubled[copy]

    def open(self, copies: list[RecordCopy]) -> None:
        """Open the targets that these partitions want, and let them go on."""
        try:
            outcome = self._opener.open(copies)
        except KafkaError as error:  # of all of them
            self.stale = True
            outcome = dict.fromkeys((copy.key for copy in copies), error)
        self._tell_found()
        to_resume: list[PartitionCopy] = []
        for copy in copies:
            opened = outcome[copy.key]
            if isinstance(opened, NumberingLost):
                to_resume.append(copy)
            elif isinstance(opened, Exception):
                self._fail(copy, opened)
            else:
                copy.opened(opened)
                copy.offer_to(self._ends.sender)
        if to_resume:
            self.resume(to_resume)

    def _tell_found(self) -> None:
        """What was found in the target's logs on the way is for the offset map."""
        for run in self._resumer.found:
            self._reporter.found(*run)
        self._resumer.found.clear()

    def retry(self, now: float) -> None:
        """Try again those whose time has come."""
        self._retries.tell(now)
        due: list[PartitionCopy] = []
        for copy, (error, at, wait) in list(self._failed.items()):
            if at > now:
                continue
            if isinstance(error, Superseded) and self._moves(copy):
                self._failed[copy] = (error, time.monotonic() + wait, wait)
            else:
                due.append(copy)
                self._attempts[copy] = self._attempts.get(copy, 0) + 1
        if due:
            self.resume(due)

    def _moves(self, copy: PartitionCopy) -> bool:
        """Whether the copy that took over is still at work: its position changed since the last look."""
        self._store.catch_up()
        position = self._store.get(copy.key)
        moved = position is not None and position != copy.position
        if position is not None:
            copy.take_over(position)
        return moved

    def resume(
        self, copies: list[PartitionCopy], forgotten: Mapping[TopicPartition, Forgotten] = _NONE
    ) -> None:
        """Find out where these partitions stand, and go on from there; `forgotten` are numberings that leaders do not know."""
        self._drop_troubles(copies)
        plans = [copy.plan for copy in copies]
        known = {copy.key: copy.position for copy in copies if copy.numbering is not None}
        epochs = [
            self._source_epoch(copy) for copy in copies
        ]  # a leader elected meanwhile is asked again
        try:
            outcome = self._resumer.resume(plans, known, forgotten)
        except KafkaError as error:  # of all of them: a cluster, or the store of positions
            self.stale = True
            outcome = Outcome({}, dict.fromkeys((copy.key for copy in copies), error), [])
        self._reporter.resumed(copies)
        self._tell_found()
        for loss in outcome.losses:
            log.warning("%s", loss)
            self._reporter.lost((loss.topic, loss.partition), loss.message)
        for copy, epoch in zip(copies, epochs, strict=True):
            if copy.key in outcome.failed:
                self._fail(copy, outcome.failed[copy.key])
                continue
            self._failed.pop(copy, None)
            position = outcome.positions[copy.key]
            fitting = self._fitting(copy, position)
            fitting.restart(position)
            fitting.source_epoch = epoch
            self._ends.fetcher.forget(fitting)
            self._ends.fetcher.want(fitting)

    def _source_epoch(self, copy: PartitionCopy) -> int:
        info = self._ends.source.topics.get(copy.plan.topic)
        part = None if info is None else info.partitions.get(copy.plan.partition)
        return -1 if part is None else part.leader_epoch


def _waits(error: ReplicationError | KafkaError) -> tuple[float, float]:
    """How long a partition that failed with this waits for its next try: at first, and at most."""
    if isinstance(error, QueryStuck):
        return _STUCK_WAITS_S
    return _PASSING_WAITS_S if error.retriable else _FAILED_WAITS_S


_REMEDIES = {
    messages.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The remote topic keeps its records in a format of before Kafka 0.11, which has no place for the sequence numbers that "
        "exact copying needs. Set message.format.version=0.11.0 or later on the remote topic, or take it back there and set "
        "log.message.format.version in the settings of the target's brokers."
    ),
    messages.INVALID_TIMESTAMP: "Raise message.timestamp.before.max.ms / message.timestamp.after.max.ms of the remote topic.",
    messages.INVALID_RECORD: (
        "If the remote topic is compacted, records without a key are refused: set cleanup.policy=delete on it. If it limits "
        "timestamps, raise message.timestamp.before.max.ms / message.timestamp.after.max.ms."
    ),
}
