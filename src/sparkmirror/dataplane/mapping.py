"""The offset map as a copy task writes it: acknowledged batches in, segments in the map's topic out."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from sparkmirror.errors import KafkaError
from sparkmirror.formats import offset_map
from sparkmirror.formats.offset_map import Place, Run, Segment, TopicIds
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka import records
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.row_batches import Row, append_in_batches
from sparkmirror.offsets.map_writer import MapWriter

from .addressing import Sent
from .partition import PartitionCopy
from .sending import Sender
from .side_writes import Kind, Outcome, SideWriter

_KIND = Kind(
    "offset map segments",
    "They are written again with the next report; until then group offsets are translated without them.",
    "The source connector creates the topic again when it looks at the topics next (refresh.topics.interval.seconds); if it may "
    "not, create it yourself, compacted and with one partition.",
)
_SEGMENT_BYTES = 100  # of a segment beside its pairs and names, about
_FIRST_RETRY_S, _MOST_RETRY_S = 2.5, 60.0


class MapSender:
    """Writes the map beside the data. Without a topic (none is wanted, or it is hidden from us) it does nothing.

    A topic that is missing is tried from time to time. If it was there before (`_was_there`), positions that follow the map wait
    for it; if not, nobody may be able to create it, and they do not.

    Invariant: at most one round of writes is under way (`_under_way` segments of it), so that of one segment the longest is the
    last in the log.
    """

    def __init__(self, topic: str, target: Cluster, sender: Sender) -> None:
        self._topic = topic
        self._target = target
        self._side = SideWriter(sender, topic, _KIND, _size, _rows)
        self._writer = MapWriter()
        self._under_way = 0
        self._is_whole = True
        self._is_split = False
        self._then: Callable[[bool], None] | None = None
        self._was_there = False
        self._retry_at = 0.0
        self._retry_s = _FIRST_RETRY_S

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

    def interrupt(self, partitions: Collection[TopicPartition]) -> None:
        """These source partitions resume where they did not stop, on whichever targets."""
        self._writer.interrupt(partitions)

    def found(self, place: Place, ids: TopicIds, runs: Iterable[Run]) -> None:
        """Records that a task before this one has written, and not told of."""
        if self._topic:
            for run in runs:
                self._writer.acknowledged(place, ids, run)

    def flush_then(self, written: Callable[[bool], None]) -> None:
        """Send what is new; `written` hears whether all that was acknowledged so far is in the map."""
        is_there = self._is_there()
        if self._under_way:
            written(False)
        elif not self._was_there:
            written(True)
        elif self._writer.dropped or not (is_there or self._writer.is_idle):
            written(False)
        elif self._writer.is_idle:
            written(True)
        else:
            self._is_whole, self._then = True, written
            self.flush()

    def flush(self) -> None:
        """Send what is new, unless the last of it is still on its way."""
        is_there = self._is_there()
        if self._under_way or self._writer.is_idle:
            return
        if not is_there:
            if not self._was_there and self._target.is_hidden(self._topic):
                self._writer.take()
                return
            now = time.monotonic()
            if now < self._retry_at:
                return
            self._retry_at, self._retry_s = (
                now + self._retry_s,
                min(2 * self._retry_s, _MOST_RETRY_S),
            )
        # To see whether the topic is there again, and to have it logged if not, one is enough.
        segments = self._writer.take() if is_there else self._writer.take_one()
        self._under_way = len(segments)
        self._is_split = False
        self._side.write(0, segments, self._heard)

    def _is_there(self) -> bool:
        """Whether the topic was there when the metadata was read last."""
        is_there = self._topic in self._target.topics
        self._was_there |= is_there
        if is_there:
            self._retry_s = _FIRST_RETRY_S
        return is_there

    def _heard(self, segments: Sequence[Segment], outcome: Outcome) -> None:
        self._under_way -= len(segments)
        if outcome is not Outcome.WRITTEN:
            self._is_whole = False
            self._is_split |= outcome is Outcome.SPLIT
            self._writer.give_back(segments)
        if self._under_way:
            return
        if self._then is not None:
            then, self._then = self._then, None
            then(self._is_whole)
        if self._is_split:
            self.flush()

    def finish(self) -> None:
        """The last of it, waited for. KafkaError: then a hole is left, which is closed by looking at both logs."""
        is_there = self._is_there()
        if is_there:
            append_in_batches(self._topic, _rows(self._writer.take()), self._append)
        if self._was_there and (self._writer.dropped or not is_there):
            raise KafkaError(
                f"Topic {self._topic} on {self._target.settings} was deleted: it does not have all segments of the offset map."
            )

    def _append(self, rows: Sequence[Row]) -> None:
        batch = records.control_batch(rows, int(time.time() * 1000))
        kafka_log.append(self._target, self._topic, 0, batch)


def _place(copy: PartitionCopy) -> Place:
    plan = copy.plan
    return Place(plan.topic, plan.partition, plan.remote, plan.at)


def _rows(segments: Sequence[Segment]) -> list[Row]:
    return [offset_map.encode(segment) for segment in segments]


def _size(segment: Segment) -> int:
    place = segment.place
    return len(segment.pairs) + len(place.topic) + len(place.remote) + _SEGMENT_BYTES
