"""Records on which a query raises: in; log lines and a topic of dead letters, as Connect's `errors.*` keys say, out.

Dead letters are written at least once: who copies a partition again after a failure writes them again. The slice of the source
that they belong to waits until they are written. What the target refuses for good fails the partition; what may pass is tried
again. Their topic is created when the first of them is there. How many records are left out is counted, and told at most once a
minute, so that none goes unseen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.record_path import Counted
from sparkmirror.dataplane.sending import Sender, SideWrite
from sparkmirror.errors import BrokerError, KafkaError, RecordTooLarge, ReplicationError
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka import admin, messages, records
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.records import Headers, NewRecord
from sparkmirror.veil import VEIL

from .routing import BadRecord
from .terms import BadRecords

log = logging.getLogger(__name__)
_PREFIX = "__connect.errors."
_CLASS = "sparkmirror.transform.sql"
_EXCEPTION = "sparkmirror.errors.QueryFailed"
_BATCH_BYTES = 512 << 10
_TELL_S = 60.0
_AGAIN_S = 1.0
"""Until what the target has refused is tried again."""
_TOO_LARGE_CODES = {messages.MESSAGE_TOO_LARGE, messages.RECORD_LIST_TOO_LARGE}
_FACTOR = "errors.deadletterqueue.topic.replication.factor"
_TIMES = "raise message.timestamp.before.max.ms / message.timestamp.after.max.ms of it"
_REMEDIES = {
    messages.INVALID_TIMESTAMP: f"To have times as they are at the source, {_TIMES}.",
    messages.INVALID_RECORD: (
        "If the topic is compacted, records without a key are refused: set cleanup.policy=delete on it. If it limits times, "
        f"{_TIMES}."
    ),
    messages.INVALID_REPLICATION_FACTOR: f"Lower {_FACTOR}, or create the topic yourself.",
}
_REMEDY = "Create the topic yourself if it is missing, or name another one in errors.deadletterqueue.topic.name."


class Writer(Protocol):
    """Whose letters they are. Called from the loop, never from within `take` or `pending`."""

    @property
    def plan(self) -> PartitionPlan: ...
    def letters_written(self) -> None:
        """Some more of them are written."""

    def letters_refused(
        self, letters: Counted, number: int, offset: int, error: ReplicationError
    ) -> None:
        """The letter of this number, counted from 0, cannot be written; whoever waits for it waits in vain.

        It is of the record at this offset. Those before it are written, or under way.
        """


class _Letter(NamedTuple):
    """A record on its way, and where it comes from."""

    number: int
    offset: int
    row: NewRecord


class _Box:
    """The letters of one partition.

    Invariants: `waiting` are in none of the writes that are under way, and in order. The first `records` letters are written, and
    of those behind them the ones in `_ahead`: a later letter does not stand in for an earlier one. From `refused` on none is
    sent again.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.waiting: list[_Letter] = []
        self.taken = 0
        self.records = 0
        self.refused: int | None = None
        self._ahead: set[int] = set()
        self.again_at = 0.0
        self.flying = 0
        """How many writes are under way."""
        self.is_single = False
        """Whether each letter goes by itself, behind the one before: several at once were refused, and perhaps only one of them
        is at fault. Those behind it are not to be written at every try."""

    def put(self, offset: int, row: NewRecord) -> None:
        self.waiting.append(_Letter(self.taken, offset, row))
        self.taken += 1

    def wrote(self, letters: list[_Letter]) -> bool:
        """Whether more is written now than before, from the first letter on."""
        before = self.records
        self._ahead.update(letter.number for letter in letters)
        while self.records in self._ahead:
            self._ahead.remove(self.records)
            self.records += 1
        return self.records > before

    def refuse(self, number: int) -> bool:
        """Give up this letter and those behind it; False if that is so already."""
        is_new = self.refused is None or number < self.refused
        if is_new:
            self.refused = number
        self.waiting = [letter for letter in self.waiting if letter.number < number]
        return is_new


@dataclass(slots=True)
class LeftOut:
    """The records of one partition that did not go on."""

    count: int
    first: int
    """The offset of the first."""
    message: str
    told: int = 0
    told_at: float = float("-inf")


class DeadLetters:
    """All letters of a copy task."""

    def __init__(
        self, settings: BadRecords, connector: str, target: Cluster, sender: Sender
    ) -> None:
        self._settings = settings
        self._connector = connector
        self._target = target
        self._sender = sender
        self._boxes: dict[Writer, _Box] = {}
        self.left_out: dict[TopicPartition, LeftOut] = {}
        self._create_at = 0.0
        self._denial: KafkaError | None = None
        """Why the topic cannot be created, if that will not pass by itself."""
        self._warned_at = float("-inf")

    @property
    def topic(self) -> str:
        return self._settings.dead_letters

    def take(self, writer: Writer, bad: BadRecord) -> None:
        """One record that does not go on."""
        settings, record = self._settings, bad.record
        if settings.are_logged:
            what = (
                f": key {record.key!r}, value {record.value!r}"
                if settings.are_logged_in_full
                else ""
            )
            log.error(
                "%s: the record at offset %d is left out: %s%s",
                writer.plan,
                record.offset,
                VEIL.hide(bad.message),
                what,
            )
        self._count(writer.plan, bad)
        if not settings.dead_letters:
            return
        headers: Headers = list(record.headers)
        if settings.with_context:
            headers += self._context(writer.plan, bad)
        box = self._boxes.get(writer)
        if box is None:
            box = self._boxes[writer] = _Box(writer)
        box.put(record.offset, NewRecord(0, record.timestamp, record.key, record.value, headers))

    def _count(self, plan: PartitionPlan, bad: BadRecord) -> None:
        found = self.left_out.get(plan.key)
        if found is None:
            found = self.left_out[plan.key] = LeftOut(0, bad.record.offset, bad.message)
        found.count += 1

    def _tell(self, now: float) -> None:
        """How many were left out, where that is news."""
        for (topic, partition), found in self.left_out.items():
            if found.count > found.told and now - found.told_at >= _TELL_S:
                found.told, found.told_at = found.count, now
                log.warning(
                    "%d record(s) of %s-%d left out so far, the first at offset %d: %s",
                    found.count,
                    topic,
                    partition,
                    found.first,
                    VEIL.hide(found.message),
                )

    def _context(self, plan: PartitionPlan, bad: BadRecord) -> Iterator[tuple[str, bytes]]:
        fields = {
            "topic": plan.topic,
            "partition": str(plan.partition),
            "offset": str(bad.record.offset),
            "connector.name": self._connector,
            "task.id": str(plan.task),
            "stage": "TRANSFORMATION",
            "class.name": _CLASS,
            "exception.class.name": _EXCEPTION,
            "exception.message": bad.message,
            "exception.stacktrace": f"{_EXCEPTION}: {bad.message}",
        }
        for name, value in fields.items():
            yield _PREFIX + name, value.encode()

    def pending(self, writer: Writer) -> list[tuple[Counted, int]]:
        """Send what was taken; gives what must be written before the partition may go on behind it."""
        box = self._boxes.get(writer)
        if box is None or box.records >= box.taken:
            return []
        if time.monotonic() >= box.again_at:
            self._send(box)
        return [(box, box.taken)]

    def forget(self, writer: Writer) -> None:
        self._boxes.pop(writer, None)

    def turn(self) -> None:
        """Try again what could not be sent, and tell what was left out."""
        now = time.monotonic()
        self._tell(now)
        for box in list(self._boxes.values()):
            if box.waiting and now >= box.again_at:
                self._send(box)
            if box.waiting and self._denial is not None:
                self._refuse(box, box.waiting[0], self._denial)

    def _send(self, box: _Box) -> None:
        count = self._partitions()
        if not count:
            return
        if box.is_single and box.flying:
            return
        number = 1 if box.is_single else len(box.waiting)
        waiting, box.waiting = box.waiting[:number], box.waiting[number:]
        for place, letters in self._placed(box, waiting, count):
            now = int(time.time() * 1000)
            batch = records.encode([letter.row for letter in letters], 0, now=now)
            heard = _Heard(self, box, letters, len(batch))
            if self._sender.write(SideWrite(self.topic, place, batch, heard, None)):
                box.flying += 1
            else:
                box.waiting = sorted(box.waiting + letters)
                box.again_at = time.monotonic() + _AGAIN_S

    # -- the topic ------------------------------------------------------------------------------

    def _partitions(self) -> int:
        """Of the topic of dead letters, which is created if it is not there; 0 while it cannot be had."""
        info = self._target.topics.get(self.topic)
        now = time.monotonic()
        if info is None and now >= self._create_at:
            self._create_at = now + _AGAIN_S
            self._denial = None
            try:
                self._target.refresh([self.topic])
                if self.topic not in self._target.topics:
                    self._create(self._settings.factor)
                    self._target.refresh([self.topic])
                if self._target.is_hidden(self.topic):  # who may write to it may see it
                    raise self._denied(messages.TOPIC_AUTHORIZATION_FAILED, None)
            except KafkaError as error:
                if error.retriable:
                    self._warn(str(error))
                else:
                    self._denial = error
            info = self._target.topics.get(self.topic)
        if info is None or not info.partitions:
            self._sender.stale = True
            return 0
        self._denial = None
        return len(info.partitions)

    def _create(self, factor: int) -> None:
        """With one partition, as Connect does. KafkaError if that cannot be."""
        error = admin.create_topics(self._target, [NewTopic(self.topic, 1, factor, {})])[self.topic]
        brokers = len(self._target.brokers)
        if error is None:
            log.info("Created topic %s on %s for dead letters.", self.topic, self._target.settings)
        elif (
            error.code == messages.INVALID_REPLICATION_FACTOR
            and self._settings.may_lower_factor
            and factor > brokers
        ):
            log.warning(
                "Topic %s on %s gets a replication factor of %d, not %d: there are no more brokers.",
                self.topic,
                self._target.settings,
                brokers,
                factor,
            )
            self._create(brokers)
        else:
            raise error

    def _warn(self, reason: str) -> None:
        """The partitions wait meanwhile; one line a while is enough."""
        now = time.monotonic()
        if now - self._warned_at >= _TELL_S / 6:
            self._warned_at = now
            log.error(
                "Dead letters cannot be written to %s, and their partitions wait: %s",
                self.topic,
                reason,
            )

    def _placed(
        self, box: _Box, letters: list[_Letter], count: int
    ) -> Iterator[tuple[int, list[_Letter]]]:
        """By partition, in batches that any topic takes."""
        found: dict[int, list[_Letter]] = {}
        for letter in letters:
            own, key = box.writer.plan.partition % count, letter.row.key
            place = own if key is None else default_partition(key, count)
            found.setdefault(place, []).append(letter)
        for place, group in found.items():
            part: list[_Letter] = []
            size = 0
            for letter in group:
                length = len(letter.row.key or b"") + len(letter.row.value or b"")
                if part and (box.is_single or size + length > _BATCH_BYTES):
                    yield place, part
                    part, size = [], 0
                part.append(letter)
                size += length
            yield place, part

    # -- what becomes of them -------------------------------------------------------------------

    def heard(
        self, box: _Box, letters: list[_Letter], size: int, code: int, text: str | None
    ) -> None:
        """What the target said of a batch of so many bytes."""
        if self._boxes.get(box.writer) is not box:
            return  # its partition begins anew, and writes them again
        box.flying -= 1
        if code == messages.NONE:
            if box.waiting:
                self._send(box)
            else:
                box.is_single = False
            if box.wrote(letters):
                box.writer.letters_written()
            return
        box.waiting = sorted(letters + box.waiting)
        if messages.is_retriable(code):
            box.again_at = time.monotonic() + _AGAIN_S
            self._warn(messages.error_name(code))
        elif len(letters) > 1:
            box.is_single = True
        elif code in _TOO_LARGE_CODES:
            self._too_large(box, letters[0], size)
        else:
            self._refuse(box, letters[0], self._denied(code, text))

    def _denied(self, code: int, text: str | None) -> BrokerError:
        settings = self._target.settings
        access = needs("Write", "topic", self.topic, settings.security)
        what = f"Writing to {self.topic} on {settings}"
        return messages.broker_error(code, what, text, access=access)

    def _too_large(self, box: _Box, letter: _Letter, size: int) -> None:
        if box.refuse(letter.number):
            error = RecordTooLarge(
                f"{box.writer.plan}: the record at offset {letter.offset} makes a dead letter of {size:,} bytes, more than topic "
                f"{self.topic} takes.",
                f"Raise max.message.bytes of {self.topic} (and, for followers, replica.fetch.max.bytes) above {size:,}; the copy "
                "goes on by itself.",
            )
            box.writer.letters_refused(box, letter.number, letter.offset, error)

    def _refuse(self, box: _Box, letter: _Letter, cause: KafkaError) -> None:
        """Its partition fails, and is tried again: the cause may be mended meanwhile."""
        if box.refuse(letter.number):
            remedy = cause.remedy
            if not remedy and isinstance(cause, BrokerError):
                remedy = _REMEDIES.get(cause.code, "")
            error = ReplicationError(
                f"{box.writer.plan}: the record at offset {letter.offset} cannot be written to {self.topic}, the topic of dead "
                f"letters: {cause.message}",
                remedy or _REMEDY,
            )
            box.writer.letters_refused(box, letter.number, letter.offset, error)


class _Heard:
    """Hears whether letters were written."""

    def __init__(self, letters: DeadLetters, box: _Box, batch: list[_Letter], size: int) -> None:
        self._letters, self._box, self._batch, self._size = letters, box, batch, size

    def result(self, sent: Any, code: int, base_offset: int, text: str | None) -> None:
        self._letters.heard(self._box, self._batch, self._size, code, text)
