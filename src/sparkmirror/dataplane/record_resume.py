"""Resuming partitions whose records pass through transforms: a position with several targets in, one that each of them bears out.

Every target is aligned by itself (see `alignment`), with the source as the transforms show it to that target. So each stands at a
source offset of its own; reading begins at the lowest, and what a target has already is not written to it again.

When the transforms of a connector were changed, the records up to where the furthest target stands still pass through the old
ones, which the position holds, and all others through the new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkmirror.errors import BrokerError, ConfigError, TopicRecreated
from sparkmirror.formats.offset_map import NO_ID, Place, Run, TopicIds
from sparkmirror.formats.position import (
    NO_FINGERPRINT,
    Fingerprint,
    Numbering,
    Position,
    TargetPosition,
    distance,
)
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.admin import ProducerState
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition

from .alignment import Aligned, Pair
from .plan import PartitionPlan
from .resume import Facts, Loss, Outcome, Resumer, hex_id, now_ms
from .routing import Routing, Routings
from .shape import Shape, has_query, may_vary
from .stream import Piece
from .tail import written_spans

log = logging.getLogger(__name__)
_MANY_TARGETS = 64


@dataclass(frozen=True, slots=True)
class _Standing:
    """One target: where it stands, and whether the numbering goes on there."""

    target: TargetPosition
    end: int
    epoch: int
    """The newest epoch of our producer that its leader knows of; -1 if none."""
    keeps_numbering: bool
    fingerprint: Fingerprint


class RecordResumer(Resumer):
    """Brings partitions to a position they can be copied from, with transforms or without."""

    def __init__(self, *args: Any, routings: Routings | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._routings = Routings() if routings is None else routings
        self._tails: dict[TopicPartition, tuple[int, Mapping[int, ProducerState]]] = {}
        self._copied_so_far: set[TopicPartition] = set()
        self.found: list[tuple[Place, TopicIds, list[Run]]] = []
        """Runs for the offset map that were found on the way; who writes it empties this."""

    def plain(self, part: PartitionPlan) -> bool:
        """Whether the plan's transforms leave the records of a partition as and where they are."""
        return self._shape(part).is_plain

    def _shape(self, part: PartitionPlan) -> Shape:
        return Shape.of(part, self._settings)

    # -- facts --------------------------------------------------------------------------------

    def _unreachable(self, part: PartitionPlan) -> BrokerError | None:
        if self.plain(part):
            return super()._unreachable(part)
        try:
            self._source.leader(part.topic, part.partition)
        except BrokerError as error:
            return error
        return None

    def _needs_remote(self, part: PartitionPlan) -> bool:
        return part.key in self._copied_so_far or self.plain(part)

    def _target_id(self, part: PartitionPlan) -> str:
        return super()._target_id(part) if self._needs_remote(part) else ""

    def _position(
        self, part: PartitionPlan, known: Mapping[TopicPartition, Position]
    ) -> Position | None:
        own, stored = known.get(part.key), self._store.get(part.key)
        if own is None or stored is None or own.transforms is None:
            return super()._position(part, known)
        return own if own.numbering == stored.numbering and own.offset >= stored.offset else stored

    def _gather(
        self, parts: Sequence[PartitionPlan], known: Mapping[TopicPartition, Position]
    ) -> Facts:
        positions = {part: self._position(part, known) for part in parts}
        targets = [target for found in positions.values() if found for target in found.targets]
        if targets:
            self._target.refresh({target.topic for target in targets})
            self.look_at(target.key for target in targets if self._exists(target.key))
        for part, position in positions.items():
            self._copied_so_far.discard(part.key)
            if self._has_copied(part, position):
                self._copied_so_far.add(part.key)
        return super()._gather(parts, known)

    def _with_other_ids(
        self, cluster: Cluster, part: PartitionPlan, position: Position
    ) -> Iterable[TopicPartition]:
        if cluster is self._source or position.transforms is None:
            return super()._with_other_ids(cluster, part, position)
        topics = cluster.topics
        return [
            target.key
            for target in position.targets
            if self._exists(target.key)
            and "" not in (target.target_id, topic_id := hex_id(topics[target.topic].topic_id))
            and target.target_id != topic_id
        ]

    def _exists(self, key: TopicPartition) -> bool:
        info = self._target.topics.get(key[0])
        return info is not None and key[1] in info.partitions

    def _has_copied(self, part: PartitionPlan, position: Position | None) -> bool:
        """Whether a partition that has transforms now was copied to its remote topic so far, and that is still there."""
        if self.plain(part) or position is None or position.numbering is None:
            return False
        if position.transforms is not None or self._is_gone(part.remote):
            return False
        self._target.refresh([part.remote])
        if self._is_replaced(part, position):
            return False
        self._target.leader(part.remote, part.partition)  # an error if it is only not there now
        return True

    def _is_replaced(self, part: PartitionPlan, position: Position) -> bool:
        """Whether the topic that a partition was copied to was made anew, with any number of partitions, to be placed on."""
        topic = self._routings.of(part, self._shape(part)).topic
        if not part.places or topic != part.remote or not position.target_id:
            return False
        return hex_id(self._target.topic(topic).topic_id) not in ("", position.target_id)

    def _is_gone(self, topic: str) -> bool:
        return (
            admin.topic_errors(self._target, [topic])[topic] == messages.UNKNOWN_TOPIC_OR_PARTITION
        )

    def look_at(self, keys: Iterable[TopicPartition]) -> None:
        """Ask the target for the ends of these partitions, and which producers their leaders remember."""
        wanted = set(keys)
        ends = admin.list_offsets(self._target, wanted, admin.LATEST)
        producers = self._producers(wanted) or {}
        self._tails |= {key: (end, producers.get(key, {})) for key, end in ends.items()}

    def tail(self, key: TopicPartition) -> tuple[int, Mapping[int, ProducerState]]:
        """Where a partition ended when it was last looked at, and the producers it remembered."""
        return self._tails[key]

    # -- decisions ----------------------------------------------------------------------------

    def _decide(
        self, part: PartitionPlan, position: Position | None, facts: Facts, outcome: Outcome
    ) -> Position:
        if self._keeps_to_itself(part):
            return self._decided(part, position, facts, outcome)
        shared, self._fresh = self._fresh, None
        try:
            return self._decided(part, position, facts, outcome)
        finally:
            self._fresh = shared

    def _decided(
        self, part: PartitionPlan, position: Position | None, facts: Facts, outcome: Outcome
    ) -> Position:
        if position is not None and position.transforms is not None:
            return self._decide_routed(part, position, facts, outcome)
        if position is None or position.numbering is None or self._needs_remote(part):
            decided = super()._decide(part, position, facts, outcome)
        elif part.places and self._routings.of(part, self._shape(part)).topic == part.remote:
            return self._recreated(part, position, part.remote, facts)
        else:
            decided = position  # its remote topic is gone, as it may be when transforms rename it
        if self.plain(part) or (position is not None and self._is_newer(position)):
            return decided
        if position is None or position.numbering is None:
            return self._routed(part, decided, ())
        return self._switched(part, decided, decided.offset, facts, ())

    def _is_newer(self, position: Position) -> bool:
        """Whether a newer plan than ours has set the numbering: what it does with records is what should be done."""
        return position.numbering is not None and position.stamp > self._stamp

    def _keeps_to_itself(self, part: PartitionPlan) -> bool:
        """Whether its records go to its own remote partition, if anywhere, where those of no other partition go by policy.

        All others need a producer id of their own: two partitions that feed one must not share its numbers.
        """
        return self._routings.of(part, self._shape(part)).target == (part.remote, part.partition)

    def _routed(
        self, part: PartitionPlan, position: Position, targets: tuple[TargetPosition, ...]
    ) -> Position:
        """The position for the plan's transforms, which apply from here on, or as long as its `since` says."""
        begin = position.next_offset
        return replace(
            position,
            sequence=0,
            target_offset=0,
            target_id="",
            origin=(begin, 0),
            transforms=self._shape(part).text,
            targets=targets,
            since=begin if position.since < 0 else min(position.since, begin),
        )

    def _decide_routed(
        self, part: PartitionPlan, position: Position, facts: Facts, outcome: Outcome
    ) -> Position:
        first = facts.earliest[part.key]
        self._check_current(position, part.topic, self._source_id(part), self._source)
        position = self._superseding_targets(position)
        if part.key in facts.recreated or not self._same_source(part, position):
            outcome.losses.append(self._recreated_source(part, first))
            return self._switched(part, replace(position, since=-1), first - 1, facts, ())
        if self._is_truncated(part, position, facts):
            end = self._truncated(part, position, facts, outcome)
            return self._switched(part, position, end - 1, facts, ())
        position = self._with_known_epoch(part, position, facts, outcome)
        routing = self._routing(part, position, outcome)
        if routing is None:
            return self._switched(part, position, position.offset, facts, ())
        there = [target for target in position.targets if self._is_there(target)]
        if len(there) < len(position.targets) and routing.topic is not None:
            return self._recreated(part, position, routing.topic, facts)
        stands = [self._stand(part, position, target, routing, outcome) for target in there]
        low = self._low(position, stands, routing)
        if first > low + 1:
            outcome.losses.append(self._retention_loss(part, low + 1, first))
            return self._anew(part, position, first - 1, stands, kept=stands)
        return self._settled(part, position, low, facts, stands)

    def _routing(self, part: PartitionPlan, position: Position, outcome: Outcome) -> Routing | None:
        """What was done with the records under the position's numbering; None if that can no longer be told."""
        assert position.transforms is not None  # noqa: S101 - only called for those with transforms
        try:
            return self._routings.of(part, Shape.read(position.transforms))
        except ConfigError as error:
            message = (
                f"the transforms that the position after offset {position.offset} was made with cannot be read "
                f"({error.message}); what was written since is written again."
            )
            outcome.losses.append(Loss(part.topic, part.partition, message))
            return None

    def _superseding_targets(self, position: Position) -> Position:
        """The position that remembers which of its targets were created again; an error if a broker is behind with that."""
        now = now_ms()
        for target in position.targets:
            info = self._target.topics.get(target.topic)
            if info is None:
                continue
            topic_id = hex_id(info.topic_id)
            self._check_current(position, target.topic, topic_id, self._target)
            position = position.superseding(target.target_id, topic_id, now)
        return position

    def _is_there(self, target: TargetPosition) -> bool:
        """Whether the topic is the one that the position speaks of; others are opened anew when a record goes there."""
        info = self._target.topics.get(target.topic)
        is_same = info is not None and target.target_id in ("", hex_id(info.topic_id))
        is_same = is_same and self._exists(target.key)
        if not is_same:
            log.info("Topic %s on %s was deleted.", target.topic, self._target.settings)
        return is_same

    def _stand(
        self,
        part: PartitionPlan,
        position: Position,
        target: TargetPosition,
        routing: Routing,
        outcome: Outcome,
    ) -> _Standing:
        aligned, end, epoch = self.align_target(part, position, target, routing)
        if aligned.trouble:
            outcome.losses.append(Loss(part.topic, part.partition, aligned.trouble))
        found = aligned.position
        moved = replace(
            target,
            offset=found.offset,
            sequence=found.sequence,
            target_offset=found.target_offset,
            target_id=hex_id(self._target.topic(target.topic).topic_id),
        )
        return _Standing(moved, end, epoch, aligned.keeps_numbering, found.fingerprint)

    def align_target(
        self, part: PartitionPlan, position: Position, target: TargetPosition, routing: Routing
    ) -> tuple[Aligned, int, int]:
        numbering = position.numbering
        assert numbering is not None  # noqa: S101 - those with transforms have one
        end, states = self.tail(target.key)
        state = states.get(numbering.producer_id)
        only = routing.only(target.key)
        shape = _Remembering(only) if has_query(position.transforms) else None
        pair = Pair(
            self._source,
            self._target,
            part.topic,
            target.topic,
            part.partition,
            self._settings.fetch,
            part.compacted,
            target.partition,
            shape or only,
            is_shared=routing.target != (part.remote, part.partition),
            is_comparable=not may_vary(position.transforms),
        )
        before = position.at_target(target)
        aligned = self._align(pair, before, state, end)
        if shape is not None and aligned.copies:
            self._found(part, target, [Run(*offsets, 1) for offsets in aligned.copies])
        elif shape is not None:
            self._tell_runs(part, target, before, aligned.position, shape.offsets)
        return aligned, end, -1 if state is None else state.epoch

    def _tell_runs(
        self,
        part: PartitionPlan,
        target: TargetPosition,
        before: Position,
        after: Position,
        offsets: Sequence[int],
    ) -> None:
        """What a task before this one has written and not told of: which record went where only the query can tell."""
        count = distance(after.sequence, before.sequence)
        if not 0 < count <= len(offsets) or offsets[count - 1] != after.offset:
            return
        spans = written_spans(
            self._target, target.topic, target.partition, before, after.target_offset
        )
        runs: list[Run] = []
        at = 0
        for _, offset, length in spans:
            runs += [
                Run(offsets[number], offset + number - at, 1)
                for number in range(at, min(at + length, count))
            ]
            at += length
        self._found(part, target, runs)

    def _found(self, part: PartitionPlan, target: TargetPosition, runs: list[Run]) -> None:
        ids = TopicIds(
            bytes.fromhex(self._source_id(part)) or NO_ID,
            self._target.topic(target.topic).topic_id or NO_ID,
        )
        place = Place(part.topic, part.partition, target.topic, target.partition)
        self.found.append((place, ids, runs))

    def _low(self, position: Position, stands: Sequence[_Standing], routing: Routing) -> int:
        """The offset up to which everything is where it belongs.

        One target that gets all records tells it by itself. Of several, one may have lost records; that another is ahead says
        nothing about those that are not named yet.
        """
        offsets = [standing.target.offset for standing in stands]
        if routing.target is not None and offsets:
            return offsets[0]
        return min([position.offset, *offsets])

    def _settled(
        self,
        part: PartitionPlan,
        position: Position,
        low: int,
        facts: Facts,
        stands: Sequence[_Standing],
    ) -> Position:
        """With the same numbering if everybody still derives the same numbers from it, else with the next."""
        ahead = [standing for standing in stands if standing.target.offset > low]
        shape = self._shape(part)
        is_current = shape.text == position.transforms or self._is_newer(position)
        if not is_current and not ahead:
            return self._switched(part, position, low, facts, stands)
        idle = len(stands) - len(ahead)
        if (
            part.compacted
            or self._is_forgotten(part, position)
            or len(stands) < len(position.targets)
            or (len(stands) > _MANY_TARGETS * max(1, shape.places) and idle > len(stands) // 2)
            or not all(standing.keeps_numbering for standing in stands)
            or (position.numbering is not None and not self._is_usable(position.numbering))
        ):
            kept = stands if len(stands) <= _MANY_TARGETS * max(1, shape.places) else ahead
            return self._anew(part, position, low, stands, kept=kept)
        fingerprint = position.fingerprint
        if low != position.offset:
            fingerprint = next(s.fingerprint for s in stands if s.target.offset == low)
        targets = tuple(standing.target for standing in stands)
        return replace(position, offset=low, fingerprint=fingerprint, targets=targets)

    # -- new numberings -----------------------------------------------------------------------

    def _anew(
        self,
        part: PartitionPlan,
        position: Position,
        offset: int,
        stands: Sequence[_Standing],
        *,
        kept: Sequence[_Standing] = (),
    ) -> Position:
        """The next numbering after `offset`, with the position's transforms, or the plan's if it has none.

        Of the targets those stay that are `kept`: it is known how long their logs must be, and which are ahead. The others are
        named again when they get a record.
        """
        if position.numbering is not None:
            position = _with_used_epoch(position, position.numbering, stands)
        targets = tuple(_begun(s.target, s.end) for s in kept)
        source_id = self._source_id(part)
        fresh = replace(
            position.superseding(position.source_id, source_id, now_ms()),
            offset=offset,
            numbering=self._next(position),
            fingerprint=position.fingerprint if offset == position.offset else NO_FINGERPRINT,
            source_id=source_id,
            origin=(offset + 1, 0),
            stamp=self._stamp,
            targets=targets,
            since=min(position.since, offset + 1),
        )
        return self._routed(part, fresh, targets) if position.transforms is None else fresh

    def _switched(
        self,
        part: PartitionPlan,
        position: Position,
        offset: int,
        facts: Facts,
        stands: Sequence[_Standing],
    ) -> Position:
        """The next numbering after `offset`, with what the plan says of transforms. Nothing is ahead of `offset`."""
        numbering = position.numbering
        assert numbering is not None  # noqa: S101 - one without is begun
        owned = self._owns_numbers(part, position)
        since = position.since if self._does_the_same(part, position) else -1
        position = replace(position, transforms=None, targets=(), since=since)
        if not self._keeps_to_itself(part):
            # With the next epoch of the same producer, who still writes as before is refused where this one has begun.
            before = position if owned else replace(position, numbering=None)
            return self._anew(part, before, offset, stands)
        if not self.plain(part):
            return self._anew(part, position, offset, stands)
        blank = replace(position, sequence=0, target_offset=0, target_id="", since=-1)
        return self._renumber(part, _with_used_epoch(blank, numbering, stands), offset, facts)

    def _does_the_same(self, part: PartitionPlan, position: Position) -> bool:
        """Whether a record becomes by the plan what it became so far, wherever it is placed."""
        if position.transforms is None:
            return False
        try:
            before = Shape.read(position.transforms)
        except ConfigError:
            return False
        return before.what == self._shape(part).what

    def _owns_numbers(self, part: PartitionPlan, position: Position) -> bool:
        """Whether the producer of a position is that of no other partition."""
        if position.transforms is None:
            return False
        try:
            target = self._routings.of(part, Shape.read(position.transforms)).target
        except ConfigError:
            return False
        return target != (part.remote, part.partition)

    def _recreated(
        self, part: PartitionPlan, position: Position, topic: str, facts: Facts
    ) -> Position:
        """The one target of a partition is gone, or another one under its name."""
        self._target.topic(topic)  # an error if it is not there (yet)
        mode = self._settings.recreated_target
        if mode == "restart":
            return self._switched(part, position, facts.earliest[part.key] - 1, facts, ())
        if mode == "continue":
            return self._switched(part, position, position.offset, facts, ())
        raise TopicRecreated(
            f"{part}: topic {topic} was deleted and created again on {self._target.settings}; "
            f"records up to {position.offset} of the source are not in it.",
            "Set mirror.recreated.target=restart to copy the topic again from its beginning, or =continue to go on "
            "from where the copy stood.",
        )


class _Remembering:
    """What goes to a target, and the source offsets of the records that it was asked for from the first on."""

    def __init__(self, shape: Callable[[Sequence[Piece]], list[Piece]]) -> None:
        self._shape = shape
        self.offsets: list[int] = []

    def __call__(self, pieces: Sequence[Piece]) -> list[Piece]:
        found = self._shape(pieces)
        for piece in found:
            for first, count in piece.offset_runs():
                self.offsets.extend(range(first, first + count))
        return found


def _begun(target: TargetPosition, end: int) -> TargetPosition:
    """A target at which a numbering begins, behind what is there."""
    end = max(end, target.target_offset)
    return replace(target, sequence=0, target_offset=end, origin=end)


def _with_used_epoch(
    position: Position, numbering: Numbering, stands: Sequence[_Standing]
) -> Position:
    """The position with the newest epoch that any target has seen of its producer."""
    newest = max([numbering.epoch, *(standing.epoch for standing in stands)])
    return replace(position, numbering=Numbering(numbering.producer_id, newest))
