"""A checkpoints topic in, the last checkpoint of each group and partition out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from sparkmirror.formats.mirror import Checkpoint, MalformedRecord, decode_checkpoint
from sparkmirror.kafka.records import Record

from .internal_topic import InternalTopic

log = logging.getLogger(__name__)
_WAIT = 0.1


def _any_group(group: str) -> bool:
    return True


class CheckpointReader:
    """Reads a checkpoints topic from its start, and on from there at each further call.

    Invariants: of the groups that are wanted, `checkpoints` are the last ones of everything before the topic's position; what
    was read before an error is kept, and the next call goes on behind it, to where the log ended at the look that it had then.
    """

    def __init__(self, topic: InternalTopic, is_wanted: Callable[[str], bool] = _any_group) -> None:
        self._topic = topic
        self._topic.on_restart = self._restart
        self._is_wanted = is_wanted
        self._end: int | None = None
        self._last: dict[bytes, Checkpoint] = {}

    @property
    def checkpoints(self) -> Collection[Checkpoint]:
        return self._last.values()

    def read(self, is_stopped: Callable[[], bool]) -> bool:
        """Read on to the end; False if told to stop before."""
        while True:
            if self._end is None:
                self._end = self._topic.end()
            if self._topic.position >= self._end:
                self._end = None
                return True
            if is_stopped():
                return False
            for record in self._topic.poll(_WAIT):
                self._take(record)

    def _restart(self) -> None:
        """The topic was created again: its log has other checkpoints, and another end."""
        self._last.clear()
        self._end = None

    def _take(self, record: Record) -> None:
        if record.key is None:
            return
        if record.value is None:
            self._last.pop(record.key, None)
            return
        try:
            checkpoint = decode_checkpoint(record.key, record.value)
        except MalformedRecord as error:
            log.warning("Offset %d of %s: %s", record.offset, self._topic.name, error)
            return
        if self._is_wanted(checkpoint.group):
            self._last[bytes(record.key)] = checkpoint
