"""Records on which a query raises: in; log lines and a topic of dead letters, as Connect's `errors.*` keys say, out.

Dead letters are written at least once: who copies a partition again after a failure writes them again. The step of the source
that they belong to is done when they are written. Their topic is created when the first of them is there. How many records are
left out is counted, and told at most once a minute, so that none goes unseen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.record_path import Counted
from sparkmirror.dataplane.sending import Sender, SideWrite
from sparkmirror.errors import KafkaError
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka import admin, messages, records
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
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


class Writer(Protocol):
    """Whose letters they are. Called from the loop when some of them were written."""

    @property
    def plan(self) -> PartitionPlan: ...
    def letters_written(self) -> None: ...


class _Box:
    """The letters of one partition.

    Invariant: `waiting` are in none of the writes that are under way; `records` counts those that were written.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.waiting: list[NewRecord] = []
        self.taken = 0
        self.records = 0
        self.again_at = 0.0
        self.is_single = False
        """Whether each letter goes by itself: several at once were too large."""


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
        letter = NewRecord(0, record.timestamp, record.key, record.value, headers)
        box.waiting.append(letter)
        box.taken += 1

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
        """What must be written before the next step of a partition is done."""
        box = self._boxes.get(writer)
        if box is None or box.records >= box.taken:
            return []
        self._send(box)
        return [(box, box.taken)]

    def forget(self, writer: Writer) -> None:
        self._boxes.pop(writer, None)

    def turn(self) -> None:
        """Try again what could not be sent, and tell what was left out."""
        now = time.monotonic()
        self._tell(now)
        for box in self._boxes.values():
            if box.waiting and now >= box.again_at:
                self._send(box)

    def _send(self, box: _Box) -> None:
        count = self._partitions()
        if not count:
            return
        waiting, box.waiting = box.waiting, []
        for place, letters in self._placed(box, waiting, count):
            batch = records.encode(letters, 0)
            side = SideWrite(self.topic, place, batch, _Heard(self, box, letters), None)
            if not self._sender.write(side):
                box.waiting += letters

    # -- the topic ------------------------------------------------------------------------------

    def _partitions(self) -> int:
        """Of the topic of dead letters, which is created if it is not there; 0 while it cannot be had."""
        info = self._target.topics.get(self.topic)
        now = time.monotonic()
        if info is None and now >= self._create_at:
            self._create_at = now + _AGAIN_S
            try:
                self._target.refresh([self.topic])
                if self.topic not in self._target.topics:
                    self._create(self._settings.factor)
                    self._target.refresh([self.topic])
            except KafkaError as error:
                self._warn(str(error))
            info = self._target.topics.get(self.topic)
        if info is None or not info.partitions:
            self._sender.stale = True
            return 0
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
        self, box: _Box, letters: list[NewRecord], count: int
    ) -> Iterator[tuple[int, list[NewRecord]]]:
        """By partition, in batches that any topic takes."""
        found: dict[int, list[NewRecord]] = {}
        for letter in letters:
            own = box.writer.plan.partition % count
            place = own if letter.key is None else default_partition(letter.key, count)
            found.setdefault(place, []).append(letter)
        for place, group in found.items():
            part: list[NewRecord] = []
            size = 0
            for letter in group:
                length = len(letter.key or b"") + len(letter.value or b"")
                if part and (box.is_single or size + length > _BATCH_BYTES):
                    yield place, part
                    part, size = [], 0
                part.append(letter)
                size += length
            yield place, part

    def heard(self, box: _Box, letters: list[NewRecord], code: int) -> None:
        if code != messages.NONE:
            box.waiting = letters + box.waiting
            if code == messages.MESSAGE_TOO_LARGE and len(letters) > 1:
                box.is_single = True
                return
            box.again_at = time.monotonic() + _AGAIN_S
            self._warn(messages.error_name(code))
            return
        box.records += len(letters)
        if self._boxes.get(box.writer) is box:
            box.writer.letters_written()


class _Heard:
    """Hears whether letters were written."""

    def __init__(self, letters: DeadLetters, box: _Box, rows: list[NewRecord]) -> None:
        self._letters, self._box, self._rows = letters, box, rows

    def result(self, sent: Any, code: int, base_offset: int, text: str | None) -> None:
        self._letters.heard(self._box, self._rows, code)
