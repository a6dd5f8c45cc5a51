"""Opening targets: topics that transforms send records to for the first time in; created, and named in the positions, out.

A target is named in the stored position before it gets its first record. So whoever resumes the partition knows all targets that
may hold records of its numbering, and from where on to look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sparkmirror.errors import BrokerError, KafkaError, NumberingLost, ReplicationError
from sparkmirror.formats.position import Entry, Position, TargetPosition
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition

from .plan import CopySettings
from .positions import PositionStore
from .record_path import RecordCopy
from .record_resume import RecordResumer
from .resume import hex_id

log = logging.getLogger(__name__)

Opened = list[TargetPosition]


@dataclass(slots=True)
class _Wish:
    """What is wanted of a topic."""

    width: int = 0
    """The number of partitions that it should have."""
    last: int = 0
    """The last partition that a record goes to."""
    is_ours: bool = False
    """Whether records are sent there one by one, so that nobody else creates it."""


class TargetOpener:
    """Opens what partitions want."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        store: PositionStore,
        settings: CopySettings,
        resumer: RecordResumer,
    ) -> None:
        self._source = source
        self._target = target
        self._store = store
        self._settings = settings
        self._resumer = resumer

    def open(
        self, copies: Iterable[RecordCopy]
    ) -> dict[TopicPartition, Opened | ReplicationError | KafkaError]:
        """What became of each partition's wish: the new targets, or why there are none. NumberingLost: it must be resumed."""
        found: dict[TopicPartition, Opened | ReplicationError | KafkaError] = {}
        waiting = {copy.key: copy for copy in copies}
        for topic, error in self._provide(waiting.values()).items():
            for copy in [c for c in waiting.values() if topic in dict(c.wanted)]:
                found[copy.key] = error
                del waiting[copy.key]
        if not waiting:
            return found
        self._resumer.look_at(key for copy in waiting.values() for key in copy.wanted)
        self._store.catch_up()
        entries: list[tuple[TopicPartition, Entry]] = []
        for copy in waiting.values():
            try:
                stored = self._stored(copy)
                found[copy.key] = opened = [
                    self._new_target(copy, key, stored) for key in copy.wanted
                ]
            except (ReplicationError, BrokerError) as error:
                found[copy.key] = error
                continue
            others = (target for target in stored.targets if target.key not in copy.wanted)
            entries.append((copy.key, Entry(replace(stored, targets=(*others, *opened)))))
        self._store.write(entries)
        return found

    def _stored(self, copy: RecordCopy) -> Position:
        """The position as it is in the store. It may be behind: what was acknowledged since may not be in the offset map yet."""
        stored = self._store.get(copy.key)
        if stored is None or stored.numbering != copy.position.numbering:
            raise NumberingLost(f"{copy.plan}: another numbering is in force.")
        return stored

    def _new_target(
        self, copy: RecordCopy, key: TopicPartition, stored: Position
    ) -> TargetPosition:
        """Where a target begins: behind what is there, unless another copy of the flow has begun with it already."""
        position = copy.position
        topic_id = hex_id(self._target.topic(key[0]).topic_id)
        known = stored.target(key)
        is_known = known is not None and known.target_id == topic_id
        begin = known.origin if known is not None and is_known else self._begin(position, key)
        new = TargetPosition(*key, position.offset, 0, begin, begin, topic_id)
        aligned, _, _ = self._resumer.align_target(copy.plan, position, new, copy.routing)
        if not aligned.keeps_numbering:
            raise NumberingLost(f"{copy.plan}: {key[0]} holds records of another numbering.")
        if aligned.trouble:
            log.warning("%s: %s", copy.plan, aligned.trouble)
        moved = aligned.position
        return replace(
            new,
            offset=moved.offset,
            sequence=moved.sequence,
            target_offset=moved.target_offset,
        )

    def _begin(self, position: Position, key: TopicPartition) -> int:
        numbering = position.numbering
        assert numbering is not None  # noqa: S101 - a partition at work has one
        end, states = self._resumer.tail(key)
        state = states.get(numbering.producer_id)
        is_used = state is not None and state.epoch == numbering.epoch and state.last_sequence >= 0
        return 0 if is_used else end

    # -- topics -------------------------------------------------------------------------------

    def _provide(self, copies: Iterable[RecordCopy]) -> dict[str, KafkaError]:
        """Create and widen topics that are missing, as wide as they should be; gives those that cannot be had, with the error."""
        wishes = self._wishes(copies)
        errors: dict[str, KafkaError] = {}
        for name in wishes.keys() & self._settings.reserved:
            errors[name] = _reserved(name, self._target)
            del wishes[name]
        self._target.refresh(wishes.keys())
        existing = {name: info for name, info in self._target.topics.items() if name in wishes}
        for name, wish in wishes.items():
            if wish.is_ours:
                continue
            # The connector creates and widens it, with the configs of the source's.
            if name not in existing:
                errors[name] = _missing(name, self._target)
            elif len(existing[name].partitions) <= wish.last:
                errors[name] = _narrow(
                    name, len(existing[name].partitions), wish.last, self._target
                )
        ours = {name: wish.width for name, wish in wishes.items() if wish.is_ours}
        errors |= self._create({n: width for n, width in ours.items() if n not in existing})
        narrow = {
            name: width
            for name, width in ours.items()
            if name in existing and len(existing[name].partitions) < width
        }
        widened = admin.create_partitions(self._target, narrow)
        errors |= {name: error for name, error in widened.items() if error is not None}
        self._await_leaders(copies, errors)
        return errors

    def _wishes(self, copies: Iterable[RecordCopy]) -> dict[str, _Wish]:
        found: dict[str, _Wish] = {}
        for copy in copies:
            # Where records are placed by their keys, each of their partitions is wanted: that is wide enough.
            places = copy.routing.places
            count = 0 if places else len(self._source.topic(copy.plan.topic).partitions)
            for topic, partition in copy.wanted:
                wish = found.setdefault(topic, _Wish())
                wish.width = max(wish.width, count, partition + 1)
                wish.last = max(wish.last, partition)
                wish.is_ours |= copy.routing.topic is None
        return found

    def _create(
        self, counts: Mapping[str, int], factor: int | None = None
    ) -> dict[str, KafkaError]:
        wanted = self._settings.replication_factor if factor is None else factor
        new = [NewTopic(name, count, wanted, {}) for name, count in counts.items()]
        failed: dict[str, KafkaError] = {}
        again: dict[str, int] = {}
        for name, error in admin.create_topics(self._target, new).items():
            if error is None:
                log.info("Created topic %s on %s.", name, self._target.settings)
            elif (
                error.code == messages.INVALID_REPLICATION_FACTOR
                and factor is None
                and self._settings.may_lower_factor
            ):
                again[name] = counts[name]
            else:
                failed[name] = error
        if again:
            failed |= self._create(again, len(self._target.brokers))
        return failed

    def _await_leaders(
        self, copies: Iterable[RecordCopy], errors: Mapping[str, KafkaError]
    ) -> None:
        """Until every partition that is wanted has a leader: brokers hear of new topics one after the other."""
        keys = [key for copy in copies for key in copy.wanted if key[0] not in errors]

        def look() -> None:
            if any(not self._is_led(key) for key in keys):
                self._target.refresh({topic for topic, _ in keys})
            for key in keys:
                self._target.leader(*key)

        self._target.retrying(look, time.monotonic() + self._target.settings.request_timeout)

    def _is_led(self, key: TopicPartition) -> bool:
        info = self._target.topics.get(key[0])
        part = None if info is None else info.partitions.get(key[1])
        return part is not None and part.leader in self._target.brokers


def _reserved(topic: str, cluster: Cluster) -> KafkaError:
    return messages.broker_error(
        messages.TOPIC_AUTHORIZATION_FAILED,
        f"Writing to topic {topic} on {cluster.settings}",
        "transforms or a query send records there, and the worker keeps its state in it",
        "Let them name another topic.",
    )


def _missing(topic: str, cluster: Cluster) -> KafkaError:
    return messages.broker_error(
        messages.UNKNOWN_TOPIC_OR_PARTITION,
        f"Writing to topic {topic} on {cluster.settings}",
        "transforms send records there, and it does not exist",
        "The connector creates it when it looks at the topics next; create it yourself if the connector may not.",
    )


def _narrow(topic: str, count: int, partition: int, cluster: Cluster) -> KafkaError:
    return messages.broker_error(
        messages.UNKNOWN_TOPIC_OR_PARTITION,
        f"Writing to topic {topic} on {cluster.settings}",
        f"it has {count} partition(s), and a record goes to partition {partition}",
        "The connector widens it when it looks at the topics next; widen it yourself if the connector may not.",
    )
