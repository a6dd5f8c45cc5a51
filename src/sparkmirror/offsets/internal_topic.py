"""MirrorMaker's own topics, which have one partition: records in and out, in order, by waiting for the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sparkmirror.errors import BrokerError, ConnectionFailed, CorruptBatch, KafkaError
from sparkmirror.kafka import admin, messages, records
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka.batches import end_offset, is_control, whole_batches
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster
from sparkmirror.kafka.denials import Operation, needs, sentence
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits
from sparkmirror.kafka.records import Record, held_bytes
from sparkmirror.kafka.row_batches import Row, append_in_batches

log = logging.getLogger(__name__)
T = TypeVar("T")

_LIMITS = FetchLimits(isolation=READ_UNCOMMITTED, max_bytes=4 << 20, partition_max_bytes=4 << 20)
_OPENED_AT_ONCE = 16 << 20
_UNKNOWN = -1


class InternalTopic:
    """One such topic on one cluster.

    Invariants: `position` is the offset after the last record that `poll` gave, -1 until it is known where the log starts; it
    belongs to the topic with `_topic_id`, and a topic that is created again under the name is read from its start. Before the
    first record of such a reading `on_restart` is called: offsets of the log that was read before mean nothing in the new one.
    A leader that did not answer is looked up again before the next try.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.on_restart: Callable[[], None] = lambda: None
        self.position = _UNKNOWN
        self._topic_id = NO_TOPIC_ID
        self._cluster = cluster

    def end(self) -> int:
        """The offset that the next record will get. Before `position`: the log is another one, and read from its start."""
        return self._asking(self._end, "Read")

    def seek_back(self, records: int) -> int:
        """Let `poll` go on at most so many offsets before the end, and not before the start; gives the position."""
        return self._asking(lambda: self._seek_back(records), "Read")

    def rewind(self) -> None:
        """Let `poll` begin at the start again."""
        self.position = _UNKNOWN

    def poll(self, wait: float) -> list[Record]:
        """The next records; none if nothing comes within `wait` seconds."""
        try:
            return self._asking(lambda: self._fetch(wait), "Read")
        except BrokerError as error:
            if error.code != messages.OFFSET_OUT_OF_RANGE:
                raise
        log.warning(
            "Topic %s on %s no longer holds offset %d: it is read from its start again.",
            self.name,
            self._cluster.settings,
            self.position,
        )
        self.position = _UNKNOWN
        return []

    def append(self, rows: Sequence[Row], timestamp: int) -> None:
        """Write rows in order and wait until every replica in sync has them."""

        def append(part: Sequence[Row]) -> None:
            batch = records.control_batch(part, timestamp)
            self._asking(lambda: self._append(batch), "Write")

        append_in_batches(self.name, rows, append)

    # -- one request each ---------------------------------------------------------------------

    def _offset(self, timestamp: int) -> int:
        key = (self.name, 0)
        return admin.list_offsets(self._cluster, [key], timestamp)[key]

    def _end(self) -> int:
        end = self._offset(admin.LATEST)
        if end < self.position or self._topic_id != self._cluster.topic(self.name).topic_id:
            self.position = _UNKNOWN
        return end

    def _seek_back(self, records: int) -> int:
        topic_id = self._cluster.topic(self.name).topic_id
        self.position = max(self._offset(admin.EARLIEST), self._offset(admin.LATEST) - records)
        self._topic_id = topic_id
        return self.position

    def _fetch(self, wait: float) -> list[Record]:
        topic_id = self._cluster.topic(self.name).topic_id
        if self.position == _UNKNOWN or self._topic_id != topic_id:
            self.position = self._offset(admin.EARLIEST)
            self._topic_id = topic_id
            self.on_restart()
        limits = replace(_LIMITS, max_wait_ms=max(0, int(wait * 1000)))
        fetched = kafka_log.fetch_once(self._cluster, self.name, 0, self.position, limits)
        found: list[Record] = []
        held = 0
        for view in whole_batches(fetched.records):
            if not is_control(view):
                read = self._read(view)
                found += read
                held += held_bytes([r.key for r in read], [r.value for r in read])
            self.position = end_offset(view)
            if held > _OPENED_AT_ONCE:
                break  # the next poll goes on from here
        return found

    def _read(self, view: memoryview) -> list[Record]:
        try:
            return [r for r in records.decode_internal(view) if r.offset >= self.position]
        except (
            CorruptBatch
        ) as error:  # whoever may write to the topic must not stop those who read it
            log.error(
                "Topic %s, from offset %d: %s These records are skipped.",
                self.name,
                self.position,
                error.message,
            )
            return []

    def _append(self, batch: bytearray) -> int:
        return kafka_log.append(self._cluster, self.name, 0, batch)

    def _asking(self, action: Callable[[], T], right: Operation) -> T:
        try:
            if self.name not in self._cluster.topics:
                self._look_up()
            return action()
        except ConnectionFailed:
            self._forget_leader()
            raise
        except BrokerError as error:
            if error.code == messages.UNKNOWN_TOPIC_OR_PARTITION and self._topic_id == NO_TOPIC_ID:
                # Without ids, the next topic of this name looks like the one before.
                self.position = _UNKNOWN
            access = needs(right, "topic", self.name, self._cluster.settings.security)
            raise _with_remedy(error, sentence(access)) from error

    def _look_up(self) -> None:
        """Learn of the topic; one that is missing is said at once to be so, and not waited for."""
        self._cluster.refresh([self.name])
        if self.name not in self._cluster.topics:
            request = messages.MetadataRequest
            topic = request.MetadataRequestTopic(name=self.name)
            answer = self._cluster.call_any(
                request(topics=[topic], allow_auto_topic_creation=False)
            )
            if answer.topics[0].error_code == messages.TOPIC_AUTHORIZATION_FAILED:
                raise messages.broker_error(
                    messages.TOPIC_AUTHORIZATION_FAILED,
                    f"Looking for topic {self.name} on {self._cluster.settings}",
                )
        self._cluster.topic(self.name)

    def _forget_leader(self) -> None:
        try:
            self._cluster.refresh([self.name])
        except KafkaError:  # nobody answers: what failed first says it all
            self._cluster.topics.pop(self.name, None)


def _with_remedy(error: BrokerError, remedy: str) -> BrokerError:
    if error.code != messages.TOPIC_AUTHORIZATION_FAILED or error.remedy:
        return error
    return BrokerError(error.code, error.name, error.message, remedy, retriable=error.retriable)
