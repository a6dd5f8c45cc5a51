"""Where a checkpoint task goes on: the checkpoints topic in, the last checkpoint of each group and partition out."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.kafka import messages
from sparkmirror.offsets.checkpoint_reader import CheckpointReader
from sparkmirror.offsets.internal_topic import InternalTopic


class LastCheckpoints:
    """The checkpoints that a task finds in its topic, which may still be about to be made.

    Invariant: a topic that is missing is waited for, for `patience` seconds from the first look on.
    """

    def __init__(self, topic: InternalTopic, groups: Collection[str], patience: float) -> None:
        self._reader = CheckpointReader(topic, frozenset(groups).__contains__)
        self._patience = patience
        self._give_up_at: float | None = None

    @property
    def checkpoints(self) -> Collection[Checkpoint]:
        return self._reader.checkpoints

    def read(self, stopping: threading.Event) -> None:
        """Read on. An error that is not retriable says that it is in vain."""
        try:
            self._reader.read(stopping.is_set)
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
