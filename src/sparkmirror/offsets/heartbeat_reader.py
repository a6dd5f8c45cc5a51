"""A heartbeats topic in, the last heartbeat of each flow that writes to it out.

Flows beat once a second and the log is compacted late, so it can be long while what it says is short. Its end is read first,
which has the flows that are alive; then its start, where compaction has put those that ended long ago; what lies between as far
as there is time.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from sparkmirror.formats.mirror import Heartbeat, MalformedRecord, decode_heartbeat
from sparkmirror.kafka.records import Record

from .internal_topic import InternalTopic

log = logging.getLogger(__name__)
_TAIL = 5_000
_WAIT = 0.1


@dataclass(slots=True)
class _Newest:
    """The newest heartbeat of each source and target."""

    beats: dict[tuple[str, str], Heartbeat] = field(default_factory=dict)

    def take(self, record: Record, topic: str) -> None:
        if record.key is None or record.value is None:
            return
        try:
            beat = decode_heartbeat(record.key, record.value)
        except MalformedRecord as error:
            log.warning("Offset %d of %s: %s", record.offset, topic, error)
            return
        flow = (beat.source_alias, beat.target_alias)
        known = self.beats.get(flow)
        if known is None or known.timestamp < beat.timestamp:
            self.beats[flow] = beat


def last_heartbeats(topic: InternalTopic, patience: float, tail: int = _TAIL) -> list[Heartbeat]:
    """The last heartbeat of each flow; without flows that were not found within `patience` seconds."""
    deadline = time.monotonic() + patience
    newest = _Newest()
    middle = topic.seek_back(tail)
    end = topic.end()
    _read(topic, end, newest, deadline)
    if end - middle >= tail:  # else that was the whole log
        topic.rewind()
        _read(topic, middle, newest, deadline)
    return list(newest.beats.values())


def _read(topic: InternalTopic, end: int, newest: _Newest, deadline: float) -> None:
    while topic.position < end and time.monotonic() < deadline:
        for record in topic.poll(_WAIT):
            newest.take(record, topic.name)
