"""From recorded positions to positions to copy from: checked against both clusters, numbered, and claimed.

Runs at the start of a task for all its partitions at once, and again for a single one whenever the target refuses a sequence
number. Whatever cannot be copied any more is told as a `Loss`, never passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparkmirror.errors import NumberingLost, ReplicationError, TopicRecreated
from sparkmirror.formats.position import (
    MAX_EPOCH,
    Numbering,
    Position,
    distance,
    next_numbering,
    renumbered,
)
from sparkmirror.kafka import admin
from sparkmirror.kafka.admin import ProducerState
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster
from sparkmirror.kafka.fetch import TopicPartition

from . import alignment
from .alignment import Pair, Verdict
from .plan import CopySettings, PartitionPlan
from .positions import PositionStore

_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that is not as it was: records gone, a log cut, a topic made anew. Always reported."""

    topic: str
    partition: int
    message: str
    first: int = -1
    last: int = -1

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.message}"


@dataclass(frozen=True, slots=True)
class Known:
    """What a running task knows better than the store: its last acknowledged position, and some before it."""

    position: Position
    history: tuple[Position, ...] = ()


@dataclass(slots=True)
class Outcome:
    """Positions to go on from, partitions that cannot, and what was lost."""

    positions: dict[TopicPartition, Position]
    failed: dict[TopicPartition, ReplicationError]
    losses: list[Loss]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What both clusters say of the partitions, asked for all at once."""

    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]
    target_end: dict[TopicPartition, int]
    producers: dict[TopicPartition, dict[int, ProducerState]] | None
    truncated_to: dict[TopicPartition, int]


class Resumer:
    """Brings partitions to a position they can be copied from."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        store: PositionStore,
        settings: CopySettings,
        stamp: int,
    ) -> None:
        self._source = source
        self._target = target
        self._store = store
        self._settings = settings
        self._stamp = stamp
        self._fresh: tuple[int, int] | None = None

    def resume(
        self,
        partitions: Sequence[PartitionPlan],
        known: Mapping[TopicPartition, Known] | None = None,
    ) -> Outcome:
        """Positions in force for all these partitions; claims that others won are taken over and aligned again."""
        outcome = Outcome({}, {}, [])
        open_parts = list(partitions)
        known = dict(known or {})
        for _ in range(_ROUNDS):
            if not open_parts:
                return outcome
            open_parts = self._round(open_parts, known, outcome)
        for part in open_parts:
            outcome.failed[part.key] = NumberingLost(
                f"{part}: another copy of this flow keeps changing the numbering of {part.remote}.",
                "Stop the other copy; this one goes on by itself.",
            )
        return outcome

    def _round(
        self, parts: list[PartitionPlan], known: dict[TopicPartition, Known], outcome: Outcome
    ) -> list[PartitionPlan]:
        """Decide for each partition; gives those for which somebody else's claim came first."""
        self._store.catch_up()
        facts = self._gather(parts, known)
        claims: dict[TopicPartition, tuple[Position, Numbering | None]] = {}
        for part in parts:
            try:
                before = self._position(part, known)
                after = self._decide(part, before, facts, known.get(part.key), outcome)
            except ReplicationError as error:
                outcome.failed[part.key] = error
                continue
            if before is not None and after.numbering == before.numbering:
                outcome.positions[part.key] = after
            else:
                recorded = self._store.get(part.key)
                claims[part.key] = (after, None if recorded is None else recorded.numbering)
        known.clear()
        granted = self._store.claim(claims)
        again = []
        for part in parts:
            if part.key not in claims:
                continue
            mine, theirs = claims[part.key][0], granted.get(part.key)
            if theirs is not None and (theirs.numbering, theirs.origin) == (
                mine.numbering,
                mine.origin,
            ):
                outcome.positions[part.key] = mine
            else:
                again.append(part)
        return again

    # -- facts --------------------------------------------------------------------------------

    def _position(
        self, part: PartitionPlan, known: Mapping[TopicPartition, Known]
    ) -> Position | None:
        """The store's position, or the task's own if it is the newer one of the same numbering."""
        stored = self._store.get(part.key)
        own = known.get(part.key)
        if own is None or stored is None or own.position.numbering != stored.numbering:
            return stored
        ahead = distance(own.position.sequence, stored.sequence)
        return own.position if ahead >= 0 else stored

    def _gather(
        self, parts: Sequence[PartitionPlan], known: Mapping[TopicPartition, Known]
    ) -> _Facts:
        keys = [part.key for part in parts]
        remotes = {(part.remote, part.partition): part.key for part in parts}
        ends = admin.list_offsets(self._target, remotes, admin.LATEST)
        producers = admin.describe_producers(self._target, remotes)
        return _Facts(
            earliest=admin.list_offsets(self._source, keys, admin.EARLIEST),
            latest=admin.list_offsets(self._source, keys, admin.LATEST),
            target_end={remotes[key]: end for key, end in ends.items()},
            producers=None
            if producers is None
            else {remotes[key]: states for key, states in producers.items()},
            truncated_to=self._truncations(parts, known),
        )

    def _truncations(
        self, parts: Sequence[PartitionPlan], known: Mapping[TopicPartition, Known]
    ) -> dict[TopicPartition, int]:
        """Where a source log now ends below what we read of it: an unclean election took records back."""
        positions = {part.key: self._position(part, known) for part in parts}
        epochs = {
            part.key: position.leader_epoch
            for part in parts
            if (position := positions[part.key]) is not None
            and position.leader_epoch >= 0
            and self._same_source(part, position)
        }
        if not epochs:
            return {}
        ends = admin.epoch_ends(self._source, epochs)
        return {
            key: end
            for key, (_, end) in ends.items()
            if 0 <= end < (positions[key] or Position(-1)).next_offset
        }

    def _source_id(self, part: PartitionPlan) -> str:
        return _hex(self._source.topic(part.topic).topic_id)

    def _target_id(self, part: PartitionPlan) -> str:
        return _hex(self._target.topic(part.remote).topic_id)

    def _same_source(self, part: PartitionPlan, position: Position) -> bool:
        return position.source_id in ("", self._source_id(part)) or not self._source_id(part)

    # -- decisions ----------------------------------------------------------------------------

    def _decide(
        self,
        part: PartitionPlan,
        position: Position | None,
        facts: _Facts,
        known: Known | None,
        outcome: Outcome,
    ) -> Position:
        """The position to go on from; with another numbering than `position` if a new one must be claimed."""
        if position is None or position.numbering is None:
            return self._begin(part, position, facts, outcome)
        if not self._same_source(part, position):
            outcome.losses.append(
                Loss(
                    part.topic,
                    part.partition,
                    f"topic {part.topic} was deleted and created again on {self._source.settings}; "
                    f"its records from offset {facts.earliest[part.key]} on are copied behind the old ones.",
                )
            )
            return self._renumber(part, position, facts.earliest[part.key] - 1, facts)
        if position.target_id not in ("", self._target_id(part)) and self._target_id(part):
            return self._recreated_target(part, position, facts)
        if part.key in facts.truncated_to or facts.latest[part.key] < position.next_offset:
            return self._truncated(part, position, facts, outcome)
        position, stale = self._aligned(part, position, facts, known)
        first = facts.earliest[part.key]
        if first > position.next_offset:
            outcome.losses.append(
                Loss(
                    part.topic,
                    part.partition,
                    f"records {position.next_offset} to {first - 1} were deleted by retention on "
                    f"{self._source.settings} before they could be copied.",
                    position.next_offset,
                    first - 1,
                )
            )
            return self._renumber(part, position, first - 1, facts)
        if part.compacted or stale:
            return self._renumber(part, position, position.offset, facts)
        return position

    def _begin(
        self, part: PartitionPlan, position: Position | None, facts: _Facts, outcome: Outcome
    ) -> Position:
        """No numbering yet: a new partition, or one that another program replicated so far, or a reset one."""
        earliest, latest = facts.earliest[part.key], facts.latest[part.key]
        if position is not None and position.offset >= 0:
            start = position.next_offset
            if start < earliest:
                outcome.losses.append(
                    Loss(
                        part.topic,
                        part.partition,
                        f"records {start} to {earliest - 1} were deleted by retention on "
                        f"{self._source.settings} before they could be copied.",
                        start,
                        earliest - 1,
                    )
                )
                start = earliest
            elif start > latest:
                start = earliest
        else:
            start = latest if self._settings.reset == "latest" else earliest
        blank = Position(start - 1)
        return self._renumber(part, blank, start - 1, facts)

    def _renumber(
        self, part: PartitionPlan, position: Position, offset: int, facts: _Facts
    ) -> Position:
        needs_fresh = position.numbering is None or position.numbering.epoch >= MAX_EPOCH
        if needs_fresh and self._fresh is None:
            self._fresh = admin.init_producer_id(self._target)
        numbering = next_numbering(position, self._fresh)
        state = (
            None
            if facts.producers is None
            else facts.producers[part.key].get(numbering.producer_id)
        )
        if state is not None and state.epoch >= numbering.epoch:
            numbering = Numbering(numbering.producer_id, state.epoch + 1)
        end = max(facts.target_end[part.key], position.target_offset)
        fresh = renumbered(position, numbering, offset, end, self._stamp)
        return replace(fresh, source_id=self._source_id(part), target_id=self._target_id(part))

    def _recreated_target(self, part: PartitionPlan, position: Position, facts: _Facts) -> Position:
        mode = self._settings.recreated_target
        blank = replace(position, target_offset=0)
        if mode == "restart":
            return self._renumber(part, blank, facts.earliest[part.key] - 1, facts)
        if mode == "continue":
            return self._renumber(part, blank, position.offset, facts)
        raise TopicRecreated(
            f"{part}: topic {part.remote} was deleted and created again on {self._target.settings}; "
            f"records up to {position.offset} of the source are not in it.",
            "Set mirror.recreated.target=restart to copy the topic again from its beginning, or =continue to go on "
            "from where the copy stood.",
        )

    def _truncated(
        self, part: PartitionPlan, position: Position, facts: _Facts, outcome: Outcome
    ) -> Position:
        end = min(facts.truncated_to.get(part.key, position.next_offset), facts.latest[part.key])
        outcome.losses.append(
            Loss(
                part.topic,
                part.partition,
                f"the log on {self._source.settings} was cut back to offset {end} (unclean leader election); records {end} "
                f"to {position.offset} were copied already and stay in {part.remote}.",
                end,
                position.offset,
            )
        )
        return self._renumber(part, replace(position, leader_epoch=-1), end - 1, facts)

    def _aligned(
        self, part: PartitionPlan, position: Position, facts: _Facts, known: Known | None
    ) -> tuple[Position, bool]:
        """The position that the target bears out, and whether its numbering is out of force there."""
        numbering = position.numbering
        assert numbering is not None  # noqa: S101 - _decide begins unnumbered ones
        pair = Pair(
            self._source,
            self._target,
            part.topic,
            part.remote,
            part.partition,
            self._settings.fetch,
        )
        state = None
        if facts.producers is not None:
            state = facts.producers[part.key].get(numbering.producer_id)
        verdict = alignment.judge(position, state)
        if verdict is Verdict.CURRENT:
            return position, False
        untouched = facts.target_end[part.key] <= position.target_offset
        if verdict is Verdict.UNKNOWN and untouched:
            return position, False
        if verdict is Verdict.STALE or part.compacted:
            return alignment.anchor(pair, position), verdict is Verdict.STALE
        return alignment.align(pair, position, state, () if known is None else known.history), False


def _hex(topic_id: bytes) -> str:
    return "" if topic_id == NO_TOPIC_ID else topic_id.hex()
