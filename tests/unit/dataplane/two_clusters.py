"""Two clusters without brokers: logs in lists, leaders that follow Kafka's rules, and one copy of a partition between them.

What `resume`, `opening` and `alignment` ask of a cluster is answered from the lists; everything else is the code under test.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.addressing import Sent
from sparkmirror.dataplane.opening import TargetOpener
from sparkmirror.dataplane.partition import Budget, PartitionCopy
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.positions import PositionStore, StoreAddress
from sparkmirror.dataplane.record_path import Lane, RecordCopy
from sparkmirror.dataplane.record_resume import RecordResumer
from sparkmirror.dataplane.resume import Loss
from sparkmirror.dataplane.routing import Routings
from sparkmirror.errors import BrokerError, KafkaError, NumberingLost, ReplicationError
from sparkmirror.formats import position as formats
from sparkmirror.formats.offset_map import Run
from sparkmirror.formats.position import Entry, Fold
from sparkmirror.kafka import admin, log, messages
from sparkmirror.kafka.admin import EARLIEST, NewTopic, ProducerState
from sparkmirror.kafka.batches import Batch
from sparkmirror.kafka.cluster import Cluster, PartitionInfo, TopicInfo
from sparkmirror.kafka.fetch import Fetched, FetchLimits, TopicPartition
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.transforms.chain import TransformChain
from tests.unit.making import Content, content, fetched, independent, sealed

NETWORK_EXCEPTION = 13
PLAN = PartitionPlan("t", 0, "A.t")


@dataclass
class _Producer:
    epoch: int
    next: int
    last: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


class SimulatedLog:
    """One partition and its leader."""

    def __init__(self) -> None:
        self.batches: list[memoryview] = []
        self.start = 0
        self.end = 0
        self.producers: dict[int, _Producer] = {}
        self.keeps_numbers = True
        """Whether producer ids and sequence numbers are kept with the records."""

    def add(self, batch: memoryview) -> None:
        """A batch of the source, at its own offsets."""
        self.batches.append(batch)
        self.end = Batch(batch).last_offset + 1

    def produce(self, buffer: bytearray | memoryview) -> tuple[int, int]:
        """What a leader answers to a batch: error code and base offset."""
        header = Batch(memoryview(bytes(buffer)))
        assert header.base_offset == 0
        assert header.is_verbatim
        if not self.keeps_numbers:
            kept = bytearray(buffer)
            struct.pack_into(">qhi", kept, 43, -1, -1, -1)
            return messages.NONE, self._append(bytearray(sealed(kept)), header.count)
        if header.producer_id < 0:
            return messages.NONE, self._append(bytearray(buffer), header.count)
        state = self.producers.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            return messages.INVALID_PRODUCER_EPOCH, -1
        if state is None or header.producer_epoch > state.epoch:
            if state is not None and header.base_sequence != 0:
                return messages.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            state = _Producer(header.producer_epoch, header.base_sequence)
            self.producers[header.producer_id] = state
        for sequence, count, base in state.last:
            if (sequence, count) == (header.base_sequence, header.count):
                return messages.NONE, base
        if header.base_sequence != state.next:
            return messages.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = self._append(bytearray(buffer), header.count)
        state.last.append((header.base_sequence, header.count, base))
        state.next = (state.next + header.count) % (1 << 31)
        return messages.NONE, base

    def _append(self, kept: bytearray, count: int) -> int:
        base = self.end
        struct.pack_into(">q", kept, 0, base)
        self.batches.append(memoryview(kept))
        self.end += count
        return base

    def lose(self, count: int) -> None:
        """Lose the last batches and what was known of producers, as an unclean election does."""
        if count:
            self.end = Batch(self.batches[-count:][0]).base_offset if self.batches else self.end
            del self.batches[-count:]
        self.producers.clear()
        for view in self.batches:
            batch = Batch(view)
            end = (batch.base_sequence + batch.count) % (1 << 31)
            self.producers[batch.producer_id] = _Producer(batch.producer_epoch, end)

    def contents(self) -> list[Content]:
        return [content(row) for view in self.batches for row in independent(view)]


class Side:
    """One cluster."""

    def __init__(self, alias: str) -> None:
        self.settings = ClientSettings(alias, (("h", 1),))
        self.logs: dict[TopicPartition, SimulatedLog] = {}
        self.ids: dict[str, bytes] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.brokers = {1: None}
        self._made = 0

    def create(self, topic: str, partitions: int = 1) -> None:
        self._made += 1
        self.ids[topic] = bytes([self._made]) * 16
        self.logs |= {(topic, p): SimulatedLog() for p in range(partitions)}
        self.refresh([topic])

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        self.logs = {key: found for key, found in self.logs.items() if key[0] != topic}
        self.topics.pop(topic, None)

    def refresh(self, topics: Collection[str] | None) -> None:
        for topic in self.ids if topics is None else topics:
            if topic in self.ids:
                parts = {p: PartitionInfo(p, 1, 0) for name, p in self.logs if name == topic}
                self.topics[topic] = TopicInfo(topic, self.ids[topic], False, parts)
            else:
                self.topics.pop(topic, None)

    topic = Cluster.topic
    leader = Cluster.leader

    def retrying(self, action: Callable[[], Any], deadline: float) -> Any:
        return action()

    def call_any(self, request: Any) -> Any:
        codes = {t.name: 0 if t.name in self.ids else 3 for t in request.topics}
        return SimpleNamespace(
            topics=[SimpleNamespace(name=name, error_code=code) for name, code in codes.items()]
        )

    def contents(self) -> dict[str, list[Content]]:
        rows = {topic: found.contents() for (topic, _), found in self.logs.items()}
        return {topic: found for topic, found in rows.items() if found}


class SharedPositions(PositionStore):
    """The store as one copy sees it: positions in a list that several share, as the bytes that are written."""

    def __init__(self, shared: list[tuple[TopicPartition, bytes | None]]) -> None:
        super().__init__(cast("Cluster", None), StoreAddress("offsets", "c", "A"))
        self._shared = shared
        self._place = 0

    def catch_up(self) -> None:
        for partition, value in self._shared[self._place :]:
            fold = self._folds.setdefault(self.key(partition), Fold())
            fold.apply(formats.decode(value))
        self._place = len(self._shared)

    def write(self, entries: Iterable[tuple[TopicPartition, Entry]]) -> None:
        self._shared += [(key, formats.encode(entry)) for key, entry in entries]


class World:
    """A source, a target, and the positions."""

    def __init__(self, *, compacted: bool = False) -> None:
        self.source, self.target = Side("A"), Side("B")
        self.source.create("t")
        self.target.create("A.t")
        self.shared: list[tuple[TopicPartition, bytes | None]] = []
        self.mapped: dict[tuple[str, int, int], int] = {}
        """What the offset map tells: the source offset of a target topic, partition and offset."""
        self.plan = replace(PLAN, compacted=compacted)

    @property
    def log(self) -> SimulatedLog:
        return self.source.logs["t", 0]

    def copier(self, chain: TransformChain | None, **settings: Any) -> Copier:
        return Copier(self, CopySettings(transforms=chain, **settings), self.plan)

    def converge(self, chain: TransformChain | None, **settings: Any) -> Copier:
        """A copy that is left alone until nothing is left to do."""
        copier = self.copier(chain, **settings)
        for _ in range(500):
            copier.feed(5)
            copier.send(9)
            copier.answer(9)
            if copier.is_done:
                return copier
        raise AssertionError("it does not converge")


class Copier:
    """One copy task's work on the partition, step by step, with its troubles dealt with as the task does."""

    def __init__(
        self,
        world: World,
        settings: CopySettings,
        plan: PartitionPlan,
        stamp: int = 77,
        routings: Routings | None = None,
    ) -> None:
        self._world = world
        self._plan = plan
        self._store = SharedPositions(world.shared)
        source, target = cast("Cluster", world.source), cast("Cluster", world.target)
        self._resumer = RecordResumer(
            source, target, self._store, settings, stamp, routings=routings
        )
        self._opener = TargetOpener(source, target, self._store, settings, self._resumer)
        self.copy = self._new_copy(plan, settings, stamp)
        self._offered: dict[PartitionCopy, None] = {}
        self._wire: deque[tuple[PartitionCopy, Sent]] = deque()
        self.losses: list[Loss] = []
        self.error: Exception | None = None
        self.acks: list[tuple[int, int]] = []
        self._told: dict[tuple[str, int, int], int] = {}
        self.resume()

    def _new_copy(self, plan: PartitionPlan, settings: CopySettings, stamp: int) -> RecordCopy:
        return RecordCopy(plan, settings, Budget(1 << 30), self, stamp)

    # -- what a partition calls --------------------------------------------------------------

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        self.acks.append((sent.first_offset, base_offset))
        for source, count in sent.offset_runs():
            self._tell(copy.plan.remote, copy.plan.at, Run(source, base_offset, count))
            base_offset += count

    def _tell(self, topic: str, partition: int, run: Run) -> None:
        """What the offset map is to tell, before the next position is written."""
        for number in range(run.length):
            self._told[topic, partition, run.target + number] = run.source + number

    def _tell_found(self) -> None:
        for place, _, runs in self._resumer.found:
            for run in runs:
                self._tell(place.remote, place.remote_partition, run)
        self._resumer.found.clear()

    def changed(self, copy: PartitionCopy) -> None:
        if not copy.trouble:
            copy.offer_to(self)

    def moved(self, copy: PartitionCopy) -> None: ...

    def unreadable(self, copy: RecordCopy) -> None:
        self.error = copy.fetch_error

    def recovered(self, lane: Lane) -> None: ...

    def offer(self, copy: PartitionCopy) -> None:
        self._offered[copy] = None

    # -- steps --------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return (
            self.error is not None
            or (self.copy.is_idle and self.copy.fetch_offset >= self._world.log.end)
        ) and not self.copy.fetch_trouble

    def resume(self) -> None:
        known = {PLAN.key: self.copy.position} if self.copy.numbering is not None else {}
        outcome = self._resumer.resume([self._plan], known)
        self._tell_found()
        self.losses += outcome.losses
        if outcome.failed:
            self.error = outcome.failed[PLAN.key]
            self.copy.suspend()
        else:
            self.copy.restart(outcome.positions[PLAN.key])

    def feed(self, count: int) -> None:
        copy = self.copy
        if copy.active and not copy.fetch_trouble:
            views = [
                v for v in self._world.log.batches if Batch(v).last_offset >= copy.fetch_offset
            ]
            if views:
                copy.feed(
                    fetched([bytes(v) for v in views[:count]], high_watermark=self._world.log.end)
                )
        if copy.active:
            copy.offer_to(self)
        self._settle()

    def send(self, count: int) -> None:
        self.copy.offer_to(self)
        for lane in list(self._offered)[:count]:
            del self._offered[lane]
            sent = lane.next_batch()
            if sent is not None:
                self._wire.append((lane, sent))

    def answer(self, count: int) -> None:
        for _ in range(min(count, len(self._wire))):
            lane, sent = self._wire.popleft()
            found = self._log_of(lane)
            code, base = (messages.UNKNOWN_TOPIC_OR_PARTITION, -1)
            if found is not None:
                code, base = found.produce(sent.buffer)
            lane.result(sent, code, base, None)
        self._settle()

    def break_off(self, written: int) -> None:
        """The connection breaks: the first few were written, none is answered."""
        for lane, sent in list(self._wire)[:written]:
            found = self._log_of(lane)
            if found is not None:
                found.produce(sent.buffer)
        while self._wire:
            lane, sent = self._wire.popleft()
            lane.result(sent, NETWORK_EXCEPTION, -1, None)
        self._settle()

    def flush(self) -> None:
        if self.copy.numbering is not None:
            self._world.mapped |= self._told
            self._store.write([(PLAN.key, Entry(self.copy.position))])

    def _log_of(self, lane: PartitionCopy) -> SimulatedLog | None:
        return self._world.target.logs.get((lane.plan.remote, lane.plan.at))

    def _settle(self) -> None:
        """Deal with troubles and wishes, as `troubles` does."""
        copy = self.copy
        troubled = [lane for lane in copy._lanes.values() if lane.trouble and not lane.outstanding]
        for lane in troubled:
            if lane.trouble == NETWORK_EXCEPTION and not lane.is_forgettable:
                lane.resend()
                self.offer(lane)
            else:
                self.resume()
                return
        if copy.fetch_trouble == messages.OFFSET_OUT_OF_RANGE and copy.is_idle:
            self.resume()
        if copy.wanted:
            found = self._opener.open([copy])[PLAN.key]
            self._tell_found()
            if isinstance(found, NumberingLost):
                self.resume()
            elif isinstance(found, Exception):
                self.error = found
            else:
                copy.opened(found)


def simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything that asks a cluster ask a `Side`."""
    made = iter(range(100, 1 << 30))

    def list_offsets(
        side: Side, keys: Iterable[TopicPartition], timestamp: int, isolation: int = 0
    ) -> dict[TopicPartition, int]:
        logs = {key: _log(side, key) for key in keys}
        return {key: f.start if timestamp == EARLIEST else f.end for key, f in logs.items()}

    def describe_producers(
        side: Side, keys: Iterable[TopicPartition]
    ) -> dict[TopicPartition, dict[int, ProducerState]]:
        return {
            key: {
                pid: ProducerState(p.epoch, (p.next - 1) % (1 << 31) if p.last or p.next else -1)
                for pid, p in _log(side, key).producers.items()
            }
            for key in keys
        }

    def create_topics(side: Side, topics: Sequence[NewTopic]) -> dict[str, BrokerError | None]:
        for topic in topics:
            if topic.name not in side.ids:
                side.create(topic.name, topic.partitions)
        return {topic.name: None for topic in topics}

    def read(
        side: Side, topic: str, partition: int, offset: int, end: int, limits: FetchLimits
    ) -> Iterator[Fetched]:
        for view in _log(side, (topic, partition)).batches:
            if Batch(view).last_offset >= offset and Batch(view).base_offset < end:
                yield fetched([bytes(view)])

    monkeypatch.setattr(admin, "list_offsets", list_offsets)
    monkeypatch.setattr(admin, "describe_producers", describe_producers)
    monkeypatch.setattr(admin, "init_producer_id", lambda _: (next(made), 0))
    monkeypatch.setattr(admin, "epoch_ends", lambda *_: {})
    monkeypatch.setattr(admin, "create_topics", create_topics)
    monkeypatch.setattr(admin, "create_partitions", lambda *_: {})
    monkeypatch.setattr(log, "read", read)
    monkeypatch.setattr(log, "unknown_ids", lambda *_: frozenset())


def _log(side: Side, key: TopicPartition) -> SimulatedLog:
    found = side.logs.get(key)
    if found is None:
        raise BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION", f"{key} is gone", retriable=True)
    return found


Failure = ReplicationError | KafkaError
