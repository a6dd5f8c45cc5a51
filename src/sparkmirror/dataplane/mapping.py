"""The offset map as a copy task writes it: acknowledged batches in, segments in the map's topic out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sparkmirror.formats import offset_map
from sparkmirror.formats.offset_map import Place, Run, Segment, TopicIds
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka import messages, records
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.offsets.map_writer import MapWriter

from .addressing import Sent
from .partition import PartitionCopy
from .sending import Sender, SideWrite

log = logging.getLogger(__name__)
_BATCH_BYTES = 256 << 10
"""Well below what topics take by default."""


class MapSender:
    """Writes the map beside the data. Without a topic (none is wanted, or there is none) it does nothing.

    Invariant: at most one round of writes is under way, so that of one segment the longest is the last in the log.
    """

    def __init__(self, topic: str, target: Cluster, sender: Sender) -> None:
        self._topic = topic
        self._target = target
        self._sender = sender
        self._writer = MapWriter()
        self._under_way = 0
        self._is_whole = True
        self._then: Callable[[bool], None] | None = None

    def run(self, copy: PartitionCopy, source: int, target: int, count: int) -> None:
        """Records that follow each other on both sides."""
        if self._topic and count > 0:
            self._writer.acknowledged(_place(copy), copy.topic_ids, Run(source, target, count))

    def batch(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        """A batch whose records do not follow each other upstream."""
        if not self._topic:
            return
        place, ids, target = _place(copy), copy.topic_ids, base_offset
        for source, count in sent.offset_runs():
            self._writer.acknowledged(place, ids, Run(source, target, count))
            target += count

    def found(self, place: Place, ids: TopicIds, runs: Iterable[Run]) -> None:
        """Records that a task before this one has written, and not told of."""
        if self._topic:
            for run in runs:
                self._writer.acknowledged(place, ids, run)

    def flush_then(self, written: Callable[[bool], None]) -> None:
        """Send what is new; `written` hears whether all that was acknowledged so far is in the map."""
        if self._under_way:
            written(False)
        elif self._writer.is_idle or self._topic not in self._target.topics:
            written(True)
        else:
            self._is_whole, self._then = True, written
            self.flush()

    def flush(self) -> None:
        """Send what is new, unless the last of it is still on its way."""
        if self._under_way or self._writer.is_idle or self._topic not in self._target.topics:
            return
        parts = list(_parts(self._writer.take()))
        self._under_way = len(parts)
        for segments in parts:
            heard = _Written(self, segments)
            side = SideWrite(self._topic, 0, _batch(segments), heard, None)
            if not self._sender.write(side):
                heard.result(None, messages.UNKNOWN_TOPIC_OR_PARTITION, -1, None)

    def written(self, segments: Sequence[Segment], code: int) -> None:
        self._under_way -= 1
        if code != messages.NONE:
            self._is_whole = False
            log.debug("The offset map could not be written: %s.", messages.error_name(code))
            self._writer.give_back(segments)
        if not self._under_way and self._then is not None:
            then, self._then = self._then, None
            then(self._is_whole)

    def finish(self) -> None:
        """The last of it, waited for. KafkaError: then a hole is left, which is closed by looking at both logs."""
        if self._topic in self._target.topics:
            for segments in _parts(self._writer.take()):
                kafka_log.append(self._target, self._topic, 0, _batch(segments))


class _Written:
    """Hears whether segments were written."""

    def __init__(self, mapping: MapSender, segments: Sequence[Segment]) -> None:
        self._mapping = mapping
        self._segments = segments

    def result(self, sent: Any, code: int, base_offset: int, text: str | None) -> None:
        self._mapping.written(self._segments, code)


def _place(copy: PartitionCopy) -> Place:
    plan = copy.plan
    return Place(plan.topic, plan.partition, plan.remote, plan.at)


def _batch(segments: Sequence[Segment]) -> bytearray:
    rows = [offset_map.encode(segment) for segment in segments]
    return records.control_batch(rows, int(time.time() * 1000))


def _parts(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    part: list[Segment] = []
    size = 0
    for segment in segments:
        part.append(segment)
        size += len(segment.pairs) + len(segment.place.topic) + len(segment.place.remote) + 100
        if size > _BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
