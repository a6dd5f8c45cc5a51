"""One partition whose records pass through transforms: fetch answers in, addressed batches for one or more targets out.

Each target partition has a *lane*: an ordinary partition copy that is fed with what the transforms give it, numbered by itself
under the numbering that all lanes share. The position moves over a piece of the source when every lane has that piece's records
acknowledged; dropped records move it without anything being written.

Of Connect's offset syncs only records that went to the topic that the replication policy names get any: for a topic of another
name there is nothing that a checkpoint could translate to. Nor do records that are placed by their keys: one source partition
feeds many, and no pair of offsets tells how far a group is in all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sparkmirror.errors import ConfigError, CorruptBatch, SparkMirrorError
from sparkmirror.formats.offset_map import TopicIds
from sparkmirror.formats.position import Fingerprint, Position, TargetPosition
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import TopicInfo
from sparkmirror.kafka.fetch import Fetched, TopicPartition

from . import routing
from .addressing import Sent
from .partition import Budget, Offers, PartitionCopy, Watcher
from .plan import CopySettings, PartitionPlan
from .routing import Parts, Routing, Routings
from .shape import PLAIN, Shape
from .stream import Piece

_OPEN_PIECES = (
    10  # as many as may be under way: opened records take several times the room of their batch
)
_MERGED_IN_MEMORY = 2  # what small batches take there, as a multiple of their bytes
_NEVER_OLDER = 1 << 62


class RecordWatcher(Watcher, Protocol):
    """The copy task, as a partition with transforms sees it."""

    def unreadable(self, copy: RecordCopy) -> None:
        """Reading has stopped at a batch that cannot be opened (`fetch_error`)."""

    def recovered(self, lane: Lane) -> None:
        """The target has acknowledged a batch of a lane that was retried."""


class Lane(PartitionCopy):
    """The part of a partition that goes to one target partition.

    Invariants: `pushed` counts the records that were given to it, `records` those that the target has acknowledged; of what comes
    in, the records up to the offset it began at are there already. A lane that was replaced is inactive, and nobody hears of it.
    """

    __slots__ = ("_owner", "begin", "pushed")

    def __init__(self, owner: RecordCopy, plan: PartitionPlan, position: Position) -> None:
        super().__init__(plan, owner._settings, owner._budget, owner)
        self._owner = owner
        self.begin = position.offset
        self.pushed = 0
        self.restart(position)

    @property
    def whole(self) -> PartitionCopy:
        return self._owner

    @property
    def retried_as(self) -> str:
        return f"{self.plan} to {self.plan.remote}-{self.plan.at}"

    @property
    def is_home(self) -> bool:
        own = self._owner.plan
        return (self.plan.remote, self.plan.at) == (own.remote, own.partition)

    def take(self, piece: Piece) -> bool:
        """Take in what is not there yet; False if all of it is."""
        left = routing.after(piece, self.begin)
        if left is None:
            return False
        self.push(left)
        self.pushed += left.count
        return True

    def standing(self, offset: int) -> TargetPosition:
        """Where the target stands, when everything up to `offset` is where it belongs."""
        position = self.position
        return TargetPosition(
            self.plan.remote,
            self.plan.at,
            max(offset, position.offset),
            position.sequence,
            position.target_offset,
            position.origin[1],
            position.target_id,
        )


class Counted(Protocol):
    """Somebody who gets records to write."""

    @property
    def records(self) -> int:
        """How many are written so far."""


@dataclass(slots=True)
class _Step:
    """One piece of the source on its way: done when each of these lanes has so many records acknowledged."""

    offset: int
    fingerprint: Fingerprint
    size: int
    """What its records take in memory."""
    lanes: list[tuple[Counted, int]]

    @property
    def is_done(self) -> bool:
        return all(lane.records >= count for lane, count in self.lanes)


class RecordCopy(PartitionCopy):
    """The state of one partition with transforms in a copy task.

    Invariants:
    - `_offset` is the offset up to which every record is acknowledged by its target or dropped; `_steps` are the pieces after
      it, in order, that lanes have; `_held` is the piece after those if it needs a target that has no lane yet (`wanted`); then
      comes `_ready`, which holds pieces as they were fetched.
    - Every lane's target is named in `position`, and was in the store before the lane got its first record.
    - Where the position was made with other transforms than the plan's, those are kept up to `_finish_at`, so that each record
      passes through the one or the other; then reading stops, and resuming takes the plan's. Unless a newer plan has chosen
      them: then this copy is the one that has not heard yet, and goes along.
    """

    __slots__ = (
        "_finish_at",
        "_held",
        "_lane_attempts",
        "_lanes",
        "_routing",
        "_routings",
        "_shape",
        "_stamp",
        "_steps",
        "_task",
        "wanted",
    )

    def __init__(
        self,
        plan: PartitionPlan,
        settings: CopySettings,
        budget: Budget,
        watcher: RecordWatcher,
        stamp: int = _NEVER_OLDER,
        routings: Routings | None = None,
    ) -> None:
        super().__init__(plan, settings, budget, watcher)
        self._task = watcher
        self._stamp = stamp
        self._shape = Shape.of(plan, settings)
        self._routings = Routings() if routings is None else routings
        self._routing = Routing(plan, PLAIN)
        self._lanes: dict[TopicPartition, Lane] = {}
        self._lane_attempts: dict[TopicPartition, int] = {}
        """The retries of lanes that were replaced, for those that take their places."""
        self._steps: deque[_Step] = deque()
        self._held: tuple[int, Fingerprint, Parts] | None = None
        self._finish_at = -1
        self.wanted: tuple[TopicPartition, ...] = ()
        """Targets that must be opened before it can go on."""

    @property
    def routing(self) -> Routing:
        """What is done with its records now."""
        return self._routing

    # -- from the source ----------------------------------------------------------------------

    def feed(self, fetched: Fetched) -> None:
        super().feed(fetched)
        if 0 <= self._finish_at < self.fetch_offset and not self.fetch_trouble:
            # Read no further: what is here is written, then the position is aligned and takes the plan's transforms.
            self.fetch_trouble = messages.OFFSET_OUT_OF_RANGE

    @property
    def lag(self) -> int:
        if self.high_watermark < 0:
            return -1
        done = self.fetch_offset if self.is_idle else self._offset + 1
        return max(0, self.high_watermark - done)

    # -- through the transforms ---------------------------------------------------------------

    def offer_to(self, sender: Offers) -> None:
        self._route()
        for lane in self._lanes.values():
            if lane.has_work:
                sender.offer(lane)

    def _route(self) -> None:
        """Open pieces and give them to their lanes, a few at a time."""
        while self._ready and not self.wanted and self.active and self._has_room():
            piece = self._ready.popleft()
            self._count(-piece.size)
            try:
                parts = self._routing.split(piece)
            except (CorruptBatch, ConfigError) as error:
                self._stop_at(piece, error)
                return
            self._pass_on(piece.last_offset, piece.fingerprint, parts)

    def _pass_on(self, offset: int, fingerprint: Fingerprint, parts: Parts) -> None:
        """What becomes of the source up to an offset goes to its lanes, or is held until all of them are there."""
        wanted = self._without_lanes(parts)
        if wanted:
            self._held, self.wanted = (offset, fingerprint, parts), wanted
        else:
            self._enter(offset, fingerprint, parts)

    def _without_lanes(self, parts: Parts) -> tuple[TopicPartition, ...]:
        """The targets that have no lane yet. Of a topic on which records are placed by key all partitions get one at once."""
        missing = dict.fromkeys(key for key, _ in parts if key not in self._lanes)
        places = self._routing.places
        if missing and places:
            topics = dict.fromkeys(topic for topic, _ in missing)
            keys = ((topic, place) for topic in topics for place in range(places))
            return tuple(key for key in keys if key not in self._lanes)
        return tuple(missing)

    def _has_room(self) -> bool:
        if len(self._steps) < _OPEN_PIECES:
            return sum(step.size for step in self._steps) < self._settings.opened_bytes
        waiting = sum(lane.ready_bytes for lane in self._lanes.values())
        return self._ready[0].is_small and waiting < _MERGED_IN_MEMORY * self._settings.merge_bytes

    def _stop_at(self, piece: Piece, error: SparkMirrorError) -> None:
        self.fetch_trouble = messages.CORRUPT_MESSAGE
        self.fetch_error = CorruptBatch(
            f"{self.plan}: from offset {piece.first_offset} on {error.message}",
            error.remedy
            or "Transforms need records that can be read. To leave the damaged ones out, set the position of the partition "
            "behind them.",
        )
        self._ready.clear()
        self._count(-self.ready_bytes)
        self._task.unreadable(self)

    def _enter(self, offset: int, fingerprint: Fingerprint, parts: Parts) -> None:
        taken: list[tuple[Counted, int]] = []
        for key, part in parts:
            lane = self._lanes[key]
            if lane.take(part):
                taken.append((lane, lane.pushed))
        if taken:
            size = sum(part.size for _, part in parts)
            self._steps.append(_Step(offset, fingerprint, size, taken))
        elif self._steps:  # nothing of it is to be written: it is done with the one before
            self._steps[-1].offset, self._steps[-1].fingerprint = offset, fingerprint
        else:
            self._reach(offset, fingerprint)
            self._pass_over()
            self._task.moved(self)

    def _reach(self, offset: int, fingerprint: Fingerprint) -> None:
        self._offset = offset
        self._leader_epoch, self._crc = fingerprint

    def opened(self, targets: Sequence[TargetPosition]) -> None:
        """Targets that were wanted are in the store now: go on."""
        for target in targets:
            self._add_lane(target)
        self.wanted = ()
        held, self._held = self._held, None
        if held is not None:
            self._enter(*held)

    def _add_lane(self, target: TargetPosition) -> None:
        plan = replace(self.plan, remote=target.topic, remote_partition=target.partition)
        self._put_lane(target.key, Lane(self, plan, self._base.at_target(target)))

    def _put_lane(self, key: TopicPartition, lane: Lane) -> None:
        lane.attempts = self._lane_attempts.pop(key, 0)
        self._lanes[key] = lane

    # -- to the targets -----------------------------------------------------------------------

    @property
    def target_offset(self) -> int:
        lanes = list(self._lanes.values())
        return lanes[0].target_offset if len(lanes) == 1 else -1

    @property
    def routed(self) -> str:
        """The topics that records went to, with a space between."""
        lanes = self._lanes.items()
        return " ".join(sorted({topic for (topic, _), lane in lanes if lane.records}))

    @property
    def places(self) -> int:
        return self._routing.places

    @property
    def finishes_at(self) -> int:
        return self._finish_at

    @property
    def remotes(self) -> list[str]:
        return [self.plan.remote, *(topic for topic, _ in (*self._lanes, *self.wanted))]

    @property
    def topic_ids(self) -> TopicIds:
        lane = self._lanes.get((self.plan.remote, self.plan.partition))
        return super().topic_ids if lane is None else lane.topic_ids

    @property
    def has_work(self) -> bool:
        return bool(self._ready) or any(lane.has_work for lane in self._lanes.values())

    @property
    def is_idle(self) -> bool:
        return not self._ready and self._held is None and not self._steps

    def look_at(self, topics: Mapping[str, TopicInfo]) -> None:
        """Only these topics are on the target: a lane to one that was deleted, or created again, must be opened anew."""
        for lane in list(self._lanes.values()):
            if lane.plan.remote in topics:
                lane.look_at(topics)
            elif lane.has_work and lane.active:
                lane.stalled(messages.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted")

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        """A lane has one more batch acknowledged."""
        lane = self._lanes.get((copy.plan.remote, copy.plan.at))
        if lane is not copy:
            return
        if lane.attempts:
            self._task.recovered(lane)
        self.records += sent.count
        self.bytes += len(sent.buffer)
        self.last_timestamp = copy.last_timestamp
        self._step_on()
        teller = self._teller(copy)
        if teller is None:
            self._task.moved(self)
        else:
            self._task.acknowledged(teller, sent, base_offset)

    def _teller(self, lane: PartitionCopy) -> PartitionCopy | None:
        """Under whose name the offsets of a lane's records are told; None if they tell nothing."""
        is_own = lane.plan.remote == self.plan.remote and not self._routing.places
        return self if is_own else None

    def _step_on(self) -> None:
        while self._steps and self._steps[0].is_done:
            step = self._steps.popleft()
            self._reach(step.offset, step.fingerprint)
        self._pass_over()

    def moved(self, copy: PartitionCopy) -> None:
        """Lanes are given what is copied and nothing else, so that no lane moves by itself."""

    def changed(self, copy: PartitionCopy) -> None:
        """A lane may have more to send, or trouble."""
        if self._is_current(copy):
            self._task.changed(copy if copy.trouble else self)

    def _is_current(self, copy: PartitionCopy) -> bool:
        return self._lanes.get((copy.plan.remote, copy.plan.at)) is copy

    # -- positions ----------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        if (
            self._base.transforms is None
        ):  # no transforms any more: one lane, which stands where the partition does
            standing = next((lane.position for lane in self._lanes.values()), self._base)
            if self._offset <= standing.offset:
                return standing
            return replace(standing, offset=self._offset, fingerprint=self._fingerprint)
        targets = tuple(lane.standing(self._offset) for lane in self._lanes.values())
        return replace(
            self._base,
            offset=self._offset,
            fingerprint=self._fingerprint,
            targets=targets or self._base.targets,
        )

    def take_over(self, position: Position) -> None:
        super().take_over(position)
        for key, lane in self._lanes.items():
            lane.suspend()
            if lane.attempts:
                self._lane_attempts[key] = lane.attempts
        self._lanes.clear()

    def restart(self, position: Position) -> None:
        super().restart(position)
        self._steps.clear()
        self._held, self.wanted, self._finish_at = None, (), -1
        if position.transforms is None:
            self._routing = self._routings.of(self.plan, PLAIN)
            key = self.plan.remote, self.plan.partition
            self._put_lane(key, Lane(self, self.plan, position))
            return
        shape, is_own = self._shape, self._shape.text == position.transforms
        if not is_own:
            shape = Shape.read(position.transforms)
            if position.stamp <= self._stamp:
                self._finish_at = max((target.offset for target in position.targets), default=0)
        self._routing = self._routings.of(self.plan, shape)
        for target in position.targets:
            self._add_lane(target)

    def suspend(self) -> None:
        super().suspend()
        self._held, self.wanted = None, ()
        for lane in self._lanes.values():
            lane.suspend()
