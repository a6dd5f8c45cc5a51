"""Records on which a query raises: in; log lines and a topic of dead letters, as Connect's `errors.*` keys say, out.

Dead letters are written at least once: who copies a partition again after a failure writes them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Protocol

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.record_path import Counted
from sparkmirror.dataplane.sending import Sender, SideWrite
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka import messages, records
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.records import Headers, NewRecord
from sparkmirror.veil import VEIL

from .routing import BadRecord
from .terms import BadRecords

log = logging.getLogger(__name__)
_PREFIX = "__connect.errors."
_CLASS = "sparkmirror.transform.sql"
_EXCEPTION = "sparkmirror.errors.QueryFailed"
_BATCH_BYTES = 512 << 10


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
        """Try again what could not be sent."""
        for box in self._boxes.values():
            if box.waiting:
                self._send(box)

    def _send(self, box: _Box) -> None:
        info = self._target.topics.get(self.topic)
        if info is None or not info.partitions:
            self._sender.stale = True
            return
        waiting, box.waiting = box.waiting, []
        for place, letters in self._placed(box, waiting, len(info.partitions)):
            batch = records.encode(letters, 0)
            side = SideWrite(self.topic, place, batch, _Heard(self, box, letters), None)
            if not self._sender.write(side):
                box.waiting += letters

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
                if part and size + length > _BATCH_BYTES:
                    yield place, part
                    part, size = [], 0
                part.append(letter)
                size += length
            yield place, part

    def heard(self, box: _Box, letters: list[NewRecord], code: int) -> None:
        if code != messages.NONE:
            log.warning(
                "Dead letters could not be written to %s: %s.",
                self.topic,
                messages.error_name(code),
            )
            box.waiting = letters + box.waiting
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
