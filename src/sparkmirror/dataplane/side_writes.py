"""What a copy task writes beside the data: items of one kind in, batches that their topic takes out, and what became of them.

Nothing here waits. What is not written goes back to who wrote it, and is written as it is by then: so nothing old comes after
something new.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sparkmirror.kafka import messages, records
from sparkmirror.kafka.cluster import QUIET_TRIES
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.row_batches import BATCH_BYTES, TOO_LARGE, Row, cut, too_large_remedy
from sparkmirror.kafka.settings import ClientSettings

from .sending import NETWORK_EXCEPTION, Sender, SideWrite

log = logging.getLogger(__name__)
T = TypeVar("T")

_TELL_AGAIN_S: Final = 600.0


class Outcome(Enum):
    """What became of items."""

    WRITTEN = "written"
    SPLIT = "refused as too large together: written again, they go in smaller batches"
    FAILED = "not written"


Heard = Callable[[Sequence[T], Outcome], None]


class Kind(NamedTuple):
    """What is written, and what happens after it was refused; all for log lines."""

    what: str
    after: str
    if_missing: str = ""
    """What helps where there is no such topic."""


class SideWriter(Generic[T]):
    """Writes items of one kind to one topic.

    Invariants: of each item that is written `heard` is called exactly once, with others or alone; `_most` only gets smaller (an
    epoch begins with a new one).
    """

    def __init__(
        self,
        sender: Sender,
        topic: str,
        kind: Kind,
        size: Callable[[T], int],
        rows: Callable[[Sequence[T]], Sequence[Row]],
    ) -> None:
        """`size`: the bytes of an item in a batch, about; `rows`: items as the records that they become."""
        self._sender = sender
        self._topic = topic
        self._size = size
        self._rows = rows
        self._most = BATCH_BYTES
        self._refusals = RefusalLog(topic, kind, sender.settings)

    def write(self, partition: int, items: Sequence[T], heard: Heard[T]) -> None:
        """Send items in their order."""
        now = int(time.time() * 1000)
        for part in list(cut(items, self._size, self._most)):
            batch = records.control_batch(self._rows(part), now)
            owner = _Part(self, partition, part, heard)
            if not self._sender.write(SideWrite(self._topic, partition, batch, owner, None)):
                owner.result(None, messages.UNKNOWN_TOPIC_OR_PARTITION, -1, None)

    def answered(self, partition: int, part: Sequence[T], code: int, text: str | None) -> Outcome:
        """What the broker's answer means for these items."""
        if code == messages.NONE:
            self._refusals.passed(partition)
            return Outcome.WRITTEN
        outcome = Outcome.SPLIT if code in TOO_LARGE and len(part) > 1 else Outcome.FAILED
        if outcome is Outcome.SPLIT:
            self._most = min(self._most, sum(map(self._size, part)) // 2)
        self._refusals.refused(partition, code, text, outcome, time.monotonic())
        return outcome


class _Part(Generic[T]):
    """Hears what became of one batch."""

    __slots__ = ("_heard", "_items", "_partition", "_writer")

    def __init__(
        self, writer: SideWriter[T], partition: int, items: Sequence[T], heard: Heard[T]
    ) -> None:
        self._writer = writer
        self._partition = partition
        self._items = items
        self._heard = heard

    def result(self, sent: Any, code: int, base_offset: int, text: str | None) -> None:
        outcome = self._writer.answered(self._partition, self._items, code, text)
        self._heard(self._items, outcome)


class RefusalLog:
    """Logs refused writes to one topic: each error at once, then one line every ten minutes with their number.

    Retriable errors are logged when more than three writes to a partition had them, one after the other; broken connections
    never, since the sender logs those. Invariants: `_tries` has the partitions whose last write failed, with how many did;
    `_told` has each error by its code and level (a batch that is split is less than a row that is not written), with when a line
    told of it and how many came since.
    """

    def __init__(self, topic: str, kind: Kind, cluster: ClientSettings) -> None:
        self._topic = topic
        self._kind = kind
        self._cluster = cluster
        self._tries: dict[int, int] = {}
        self._told: dict[tuple[int, int], tuple[float, int]] = {}

    def passed(self, partition: int) -> None:
        self._tries.pop(partition, None)

    def refused(
        self, partition: int, code: int, text: str | None, outcome: Outcome, now: float
    ) -> None:
        tries = self._tries.get(partition, 0) + (code != NETWORK_EXCEPTION)
        self._tries[partition] = tries
        level = self._level(code, outcome, tries)
        error = self._error(code, text, outcome)
        if level == logging.DEBUG:
            log.debug("%s", error)
            return
        told, untold = self._told.get((code, level), (-math.inf, 0))
        if now - told < _TELL_AGAIN_S:
            self._told[code, level] = told, untold + 1
            return
        after = "Smaller batches follow." if outcome is Outcome.SPLIT else self._kind.after
        more = f" {untold} more refusals since the last such line." if untold else ""
        log.log(level, "%s %s%s", error, after, more)
        self._told[code, level] = now, 0

    @staticmethod
    def _level(code: int, outcome: Outcome, tries: int) -> int:
        if code == NETWORK_EXCEPTION:
            return logging.DEBUG
        if messages.is_retriable(code):
            return logging.WARNING if tries > QUIET_TRIES else logging.DEBUG
        return logging.WARNING if outcome is Outcome.SPLIT else logging.ERROR

    def _error(self, code: int, text: str | None, outcome: Outcome) -> Exception:
        is_single = code in TOO_LARGE and outcome is Outcome.FAILED
        is_missing = code == messages.UNKNOWN_TOPIC_OR_PARTITION
        return messages.broker_error(
            code,
            f"Writing {self._kind.what} to topic {self._topic} on {self._cluster}",
            text,
            too_large_remedy(self._topic) if is_single else self._kind.if_missing * is_missing,
            needs("Write", "topic", self._topic, self._cluster.security),
        )
