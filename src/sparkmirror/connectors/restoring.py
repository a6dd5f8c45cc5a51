"""Where a checkpoint task goes on: the checkpoints topic in, the last checkpoint of each group and partition out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.formats.mirror import Checkpoint, MalformedRecord, decode_checkpoint
from sparkmirror.kafka import messages
from sparkmirror.kafka.records import Record
from sparkmirror.offsets.internal_topic import InternalTopic

log = logging.getLogger(__name__)
_WAIT = 0.1


class CheckpointReader:
    """Reads a checkpoints topic once, from its start to where it ended at the first look.

    Invariant: what was read before an error is kept, and the next call goes on behind it.
    """

    def __init__(self, topic: InternalTopic, patience: float) -> None:
        self._topic = topic
        self._patience = patience
        self._give_up_at: float | None = None
        self._end: int | None = None
        self._last: dict[bytes, Checkpoint] = {}

    @property
    def checkpoints(self) -> Collection[Checkpoint]:
        return self._last.values()

    def read(self, stopping: threading.Event) -> None:
        """Read on. An error that is not retriable says that it is in vain."""
        try:
            if self._end is None:
                self._end = self._topic.end()
            while self._topic.position < self._end and not stopping.is_set():
                for record in self._topic.poll(_WAIT):
                    self._take(record)
        except BrokerError as error:
            if error.code == messages.UNKNOWN_TOPIC_OR_PARTITION:
                self._wait_no_longer(error)
            raise

    def _wait_no_longer(self, error: BrokerError) -> None:
        """A topic that is missing is waited for, but one that we may not see looks just the same."""
        now = time.monotonic()
        if self._give_up_at is None:
            self._give_up_at = now + self._patience
        if now > self._give_up_at:
            raise KafkaError(error.message, error.remedy) from error

    def _take(self, record: Record) -> None:
        if record.key is None:
            return
        if record.value is None:
            self._last.pop(record.key, None)
            return
        try:
            self._last[bytes(record.key)] = decode_checkpoint(record.key, record.value)
        except MalformedRecord as error:
            log.warning("Offset %d of %s: %s", record.offset, self._topic.name, error)
