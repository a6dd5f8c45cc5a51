"""From recorded positions to positions to copy from: checked against both clusters, numbered, and claimed.

Runs at the start of a task for all its partitions at once, and again for a single one whenever the target refuses a sequence
number. Whatever cannot be copied any more is told as a `Loss`, never passed over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparkmirror.errors import (
    BrokerError,
    KafkaError,
    NumberingLost,
    ReplicationError,
    TopicRecreated,
)
from sparkmirror.formats.position import (
    MAX_EPOCH,
    NO_FINGERPRINT,
    Numbering,
    Position,
    distance,
    next_numbering,
    renumbered,
    unsent_producer_id,
)
from sparkmirror.kafka import admin, log, messages
from sparkmirror.kafka.admin import ProducerState
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster
from sparkmirror.kafka.fetch import TopicPartition

from . import alignment, unnumbered
from .alignment import Aligned, Pair, WithoutNumbers
from .plan import CopySettings, PartitionPlan
from .positions import PositionStore
from .source_identity import recreated, with_other_records

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


class Forgotten(NamedTuple):
    """A numbering that the target's leader refuses to continue."""

    numbering: Numbering
    with_its_epochs: bool = False
    """Whether the next epoch would be refused as well (INVALID_PRODUCER_EPOCH again and again); else it begins at 0
    (UNKNOWN_PRODUCER_ID, before Kafka 2.5)."""


@dataclass(slots=True)
class Outcome:
    """Positions to go on from, partitions that cannot, and what was lost."""

    positions: dict[TopicPartition, Position]
    failed: dict[TopicPartition, ReplicationError | KafkaError]
    losses: list[Loss]


@dataclass(frozen=True, slots=True)
class Facts:
    """What both clusters say of the partitions, asked for all at once."""

    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]
    target_end: dict[TopicPartition, int]
    producers: dict[TopicPartition, dict[int, ProducerState]] | None
    truncated_to: dict[TopicPartition, int]
    recreated: frozenset[TopicPartition] = frozenset()
    """Partitions of source topics without ids that were deleted and created again."""
    earlier_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epoch that the source's log has before a position whose own epoch it does not know."""
    outdated: Mapping[TopicPartition, BrokerError] = field(default_factory=dict)
    """Partitions of which the metadata names a topic id that the leader does not know."""
    other_records: frozenset[TopicPartition] = frozenset()
    """Those of them, and of all where brokers do not tell epochs, whose last copied batch is another in the source's log."""


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
        self._forgotten: dict[TopicPartition, Numbering] = {}
        self._refused: set[Numbering] = set()
        self._behind: dict[str, BrokerError] = {}
        self._target_names: dict[bytes, str] | None = None

    def resume(
        self,
        partitions: Sequence[PartitionPlan],
        known: Mapping[TopicPartition, Position] | None = None,
        forgotten: Mapping[TopicPartition, Forgotten] | None = None,
    ) -> Outcome:
        """Positions in force for all these partitions; claims that others won are taken over and aligned again.

        `known` is what a running task knows better than the store: its last acknowledged positions. `forgotten` are numberings
        that the target's leader refuses to continue: the next one begins at 0 there.
        """
        outcome = Outcome({}, {}, [])
        self._forgotten = {key: one.numbering for key, one in (forgotten or {}).items()}
        self._refused = {one.numbering for one in (forgotten or {}).values() if one.with_its_epochs}
        self._behind = {}
        self._target_names = None
        self._fresh = None  # a numbering that begins anew never has an id that was used before
        open_parts = self._reachable(partitions, outcome)
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

    def _reachable(
        self, partitions: Sequence[PartitionPlan], outcome: Outcome
    ) -> list[PartitionPlan]:
        """Those with a leader on both sides; one without must not hold the others up."""
        if any(self._unreachable(part) for part in partitions):
            self._source.refresh({part.topic for part in partitions})
            self._target.refresh({part.remote for part in partitions})
        reachable = []
        for part in partitions:
            error = self._unreachable(part)
            if error is None:
                reachable.append(part)
            else:
                outcome.failed[part.key] = error
        return reachable

    def _unreachable(self, part: PartitionPlan) -> BrokerError | None:
        try:
            self._source.leader(part.topic, part.partition)
            self._target.leader(part.remote, part.partition)
        except BrokerError as error:
            return error
        return None

    def _round(
        self, parts: list[PartitionPlan], known: dict[TopicPartition, Position], outcome: Outcome
    ) -> list[PartitionPlan]:
        """Decide for each partition; gives those for which somebody else's claim came first."""
        self._store.catch_up()
        self._store.settle(part.key for part in parts)
        try:
            facts = self._gather(parts, known)
        except BrokerError as error:
            if len(parts) > 1:  # one of them: each by itself
                return [again for part in parts for again in self._round([part], known, outcome)]
            outcome.failed[parts[0].key] = error
            return []
        claims = self._decisions(parts, known, facts, outcome)
        granted = self._store.claim(claims)
        again = []
        for part in parts:
            known.pop(part.key, None)
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

    def _decisions(
        self,
        parts: Sequence[PartitionPlan],
        known: Mapping[TopicPartition, Position],
        facts: Facts,
        outcome: Outcome,
    ) -> dict[TopicPartition, tuple[Position, Numbering | None]]:
        """Decide for each partition; gives the claims to be made, each with the numbering that it replaces."""
        claims: dict[TopicPartition, tuple[Position, Numbering | None]] = {}
        for part in parts:
            if part.key in facts.outdated:
                outcome.failed[part.key] = facts.outdated[part.key]
                continue
            try:
                before = self._position(part, known)
                after = self._with_ids(part, self._decide(part, before, facts, outcome))
            except (ReplicationError, BrokerError) as error:
                outcome.failed[part.key] = error
                continue
            if before is not None and after.numbering == before.numbering:
                outcome.positions[part.key] = after
            else:
                recorded = self._store.get(part.key)
                claims[part.key] = (after, None if recorded is None else recorded.numbering)
        return claims

    # -- facts --------------------------------------------------------------------------------

    def _position(
        self, part: PartitionPlan, known: Mapping[TopicPartition, Position]
    ) -> Position | None:
        """The store's position, or the task's own if it is the newer one of the same numbering."""
        stored = self._store.get(part.key)
        own = known.get(part.key)
        if own is None or stored is None or own.numbering != stored.numbering:
            return stored
        return own if distance(own.sequence, stored.sequence) >= 0 else stored

    def _gather(
        self, parts: Sequence[PartitionPlan], known: Mapping[TopicPartition, Position]
    ) -> Facts:
        keys = [part.key for part in parts]
        remotes = {
            (part.remote, part.partition): part.key for part in parts if self._needs_remote(part)
        }
        ends = admin.list_offsets(self._target, remotes, admin.LATEST)
        producers = self._producers(remotes)
        earliest = admin.list_offsets(self._source, keys, admin.EARLIEST)
        latest = admin.list_offsets(self._source, keys, admin.LATEST)
        positions = {
            part: position
            for part in parts
            if (position := self._position(part, known)) is not None
        }
        found = self._epoch_ends(positions)
        epoch_ends = found or {}
        truncated = {
            part.key: end
            for part, (_, end) in epoch_ends.items()
            if end < positions[part].next_offset
        }
        earlier = {
            part: epoch
            for part, (epoch, _) in epoch_ends.items()
            if part.key not in truncated and epoch < positions[part].fingerprint.leader_epoch
        }
        doubtful = earlier if found is not None else self._with_ids_kept(positions)
        return Facts(
            earliest=earliest,
            latest=latest,
            target_end={remotes[key]: end for key, end in ends.items()},
            producers=None
            if producers is None
            else {remotes[key]: states for key, states in producers.items()},
            truncated_to=truncated,
            recreated=recreated(
                self._source, self._without_ids(positions), earliest, latest, truncated
            ),
            outdated=self._outdated(positions),
            earlier_epochs={part.key: epoch for part, epoch in earlier.items()},
            other_records=with_other_records(
                self._source, {part: positions[part] for part in doubtful}, earliest, latest
            ),
        )

    def _producers(
        self, keys: Iterable[TopicPartition]
    ) -> dict[TopicPartition, dict[int, ProducerState]] | None:
        """What the target's leaders remember of producers; None if they cannot tell, or records are sent without numbers."""
        if not self._settings.exactly_once:
            return None
        return admin.describe_producers(self._target, keys)

    def _without_ids(
        self, positions: Mapping[PartitionPlan, Position]
    ) -> dict[PartitionPlan, Position]:
        """The positions of partitions whose source topic no id tells from another.

        Brokers before 2.8 have none, nor do the positions that were written before such brokers were upgraded.
        """
        return {
            part: position
            for part, position in positions.items()
            if position.numbering is not None and position.offset >= 0
            if not position.source_id or not self._source_id(part)
        }

    def _with_ids_kept(self, positions: Mapping[PartitionPlan, Position]) -> list[PartitionPlan]:
        """The partitions of the same source topic as before, by its id."""
        return [
            part
            for part, position in positions.items()
            if position.source_id and position.source_id == self._source_id(part)
        ]

    def _epoch_ends(
        self, positions: Mapping[PartitionPlan, Position]
    ) -> dict[PartitionPlan, tuple[int, int]] | None:
        """For each position the newest leader epoch of the source's log that is not after its own, and where that ends.

        An end below the position: an unclean election took records back. None where the brokers cannot tell: then the checksum
        of the last copied batch tells that it did, but not how far.
        """
        asked = {
            part.key: (part, position.fingerprint.leader_epoch)
            for part, position in positions.items()
            if position.fingerprint.leader_epoch >= 0 and self._same_source(part, position)
        }
        if not asked:
            return {}
        ends = admin.epoch_ends(self._source, {key: epoch for key, (_, epoch) in asked.items()})
        if ends is None:
            return None
        return {asked[key][0]: found for key, found in ends.items() if found[1] >= 0}

    def _outdated(
        self, positions: Mapping[PartitionPlan, Position]
    ) -> dict[TopicPartition, BrokerError]:
        """Partitions of which a broker that is behind names another topic id than the position: their leaders know better."""
        found: dict[TopicPartition, BrokerError] = {}
        for cluster in (self._source, self._target):
            asked: dict[TopicPartition, list[TopicPartition]] = {}
            for part, position in positions.items():
                for key in self._with_other_ids(cluster, part, position):
                    asked.setdefault(key, []).append(part.key)
            if not asked:
                continue
            for topic, partition in log.unknown_ids(cluster, asked):
                topic_id = hex_id(cluster.topic(topic).topic_id)
                error = self._behind_error(
                    cluster, topic, topic_id, "which its leader does not know"
                )
                found |= dict.fromkeys(asked[topic, partition], error)
        return found

    def _with_other_ids(
        self, cluster: Cluster, part: PartitionPlan, position: Position
    ) -> Iterable[TopicPartition]:
        """The partitions on a cluster whose topics the metadata names by another id than the position (if it has any)."""
        if cluster is self._source:
            return () if self._source_id(part) in ("", position.source_id) else (part.key,)
        is_other = position.target_id not in ("", self._target_id(part)) and self._target_id(part)
        return ((part.remote, part.partition),) if is_other else ()

    def _needs_remote(self, part: PartitionPlan) -> bool:
        """Whether what the target says of the remote topic matters."""
        return True

    def _source_id(self, part: PartitionPlan) -> str:
        return hex_id(self._source.topic(part.topic).topic_id)

    def _target_id(self, part: PartitionPlan) -> str:
        return hex_id(self._target.topic(part.remote).topic_id)

    def _same_source(self, part: PartitionPlan, position: Position) -> bool:
        return position.source_id in ("", self._source_id(part)) or not self._source_id(part)

    # -- decisions ----------------------------------------------------------------------------

    def _with_ids(self, part: PartitionPlan, position: Position) -> Position:
        """The position with the topic ids that its clusters did not have when it was first written."""
        if not position.source_id:
            position = replace(position, source_id=self._source_id(part))
        if not position.target_id and position.transforms is None:
            position = replace(position, target_id=self._target_id(part))
        return position

    def _decide(
        self, part: PartitionPlan, position: Position | None, facts: Facts, outcome: Outcome
    ) -> Position:
        """The position to go on from; with another numbering than `position` if a new one must be claimed."""
        if position is None or position.numbering is None:
            return self._begin(part, position, facts, outcome)
        self._check_current(position, part.topic, self._source_id(part), self._source)
        self._check_current(position, part.remote, self._target_id(part), self._target)
        first = facts.earliest[part.key]
        if part.key in facts.recreated or not self._same_source(part, position):
            outcome.losses.append(self._recreated_source(part, first))
            return self._renumber(part, replace(position, target_offset=0), first - 1, facts)
        if position.target_id not in ("", self._target_id(part)) and self._target_id(part):
            return self._other_target(part, position, facts, outcome)
        if self._is_truncated(part, position, facts):
            end = self._truncated(part, position, facts, outcome)
            return self._renumber(part, replace(position, target_offset=0), end - 1, facts)
        position = self._with_known_epoch(part, position, facts, outcome)
        aligned = self._aligned(part, position, facts)
        if aligned.trouble:
            outcome.losses.append(Loss(part.topic, part.partition, aligned.trouble))
        position = aligned.position
        if first > position.next_offset:
            outcome.losses.append(self._retention_loss(part, position.next_offset, first))
            return self._renumber(part, position, first - 1, facts)
        if (
            part.compacted
            or not aligned.keeps_numbering
            or self._is_forgotten(part, position)
            or (position.numbering is not None and not self._is_usable(position.numbering))
        ):
            return self._renumber(part, position, position.offset, facts)
        return position

    def _is_forgotten(self, part: PartitionPlan, position: Position) -> bool:
        return self._forgotten.get(part.key) == position.numbering

    def _check_current(
        self, position: Position, topic: str, topic_id: str, cluster: Cluster
    ) -> None:
        """An error if a cluster named a topic by an id that was replaced before: then a broker is behind."""
        if not position.is_superseded(topic_id, now_ms()):
            return
        error = self._behind_error(cluster, topic, topic_id, "which another one replaced")
        raise error.with_traceback(None)

    def _behind_error(self, cluster: Cluster, topic: str, topic_id: str, why: str) -> BrokerError:
        """One error for all partitions of a topic whose id in the metadata is not to be believed."""
        if topic_id not in self._behind:
            cluster.refresh([topic])
            self._behind[topic_id] = messages.broker_error(
                messages.UNKNOWN_TOPIC_ID,
                f"The metadata of {topic} on {cluster.settings} names topic id {topic_id}, {why}",
                remedy="A broker is behind; the next try asks again. If the clusters were exchanged on purpose, the id counts "
                "an hour after it was replaced, or when the offsets of the partition are set (PATCH /connectors/NAME/offsets).",
            )
        return self._behind[topic_id]

    def _recreated_source(self, part: PartitionPlan, first: int) -> Loss:
        return Loss(
            part.topic,
            part.partition,
            f"topic {part.topic} was deleted and created again on {self._source.settings}; "
            f"its records from offset {first} on are copied behind the old ones.",
        )

    def _retention_loss(self, part: PartitionPlan, start: int, first: int) -> Loss:
        return Loss(
            part.topic,
            part.partition,
            f"records {start} to {first - 1} were deleted by retention on {self._source.settings} before they could be copied.",
            start,
            first - 1,
        )

    def _begin(
        self, part: PartitionPlan, position: Position | None, facts: Facts, outcome: Outcome
    ) -> Position:
        """No numbering yet: a new partition, or one that another program replicated so far, or a reset one."""
        earliest, latest = facts.earliest[part.key], facts.latest[part.key]
        start = latest if self._settings.reset == "latest" else earliest
        if position is not None and position.offset >= 0:
            wanted = position.next_offset
            if wanted < earliest:
                outcome.losses.append(self._retention_loss(part, wanted, earliest))
                start = earliest
            elif wanted > latest:
                outcome.losses.append(
                    Loss(
                        part.topic,
                        part.partition,
                        f"offset {wanted} to go on from is not in the log on {self._source.settings}, which ends at {latest}; "
                        f"copying from offset {start} on (auto.offset.reset).",
                    )
                )
            else:
                start = wanted
        return self._renumber(part, Position(start - 1), start - 1, facts)

    def _renumber(
        self, part: PartitionPlan, position: Position, offset: int, facts: Facts
    ) -> Position:
        states = {} if facts.producers is None else facts.producers.get(part.key, {})
        if offset != position.offset:  # the fingerprint is that of another record
            position = replace(position, fingerprint=NO_FINGERPRINT)
        numbering = position.numbering
        if numbering is not None and numbering.producer_id in states:
            used = max(numbering.epoch, states[numbering.producer_id].epoch)
            position = replace(position, numbering=replace(numbering, epoch=used))
        end = max(facts.target_end.get(part.key, 0), position.target_offset)
        fresh = renumbered(position, self._next(position), offset, end, self._stamp)
        source_id, target_id, now = self._source_id(part), self._target_id(part), now_ms()
        fresh = fresh.superseding(position.source_id, source_id, now)
        fresh = fresh.superseding(position.target_id, target_id, now)
        return replace(fresh, source_id=source_id, target_id=target_id)

    def _next(self, position: Position) -> Numbering:
        used = position.numbering
        if used is not None and used.epoch < MAX_EPOCH and self._is_usable(used):
            return next_numbering(position)
        if self._fresh is None:
            exactly_once = self._settings.exactly_once
            self._fresh = (
                admin.init_producer_id(self._target) if exactly_once else unsent_producer_id()
            )
        return next_numbering(position, self._fresh)

    def _is_usable(self, numbering: Numbering) -> bool:
        """Whether the next epoch of a numbering may be used: it is sent with the records as `mirror.delivery` asks for it, and
        the target does not refuse it."""
        is_refused = numbering in self._refused
        return numbering.is_sent == self._settings.exactly_once and not is_refused

    def _other_target(
        self, part: PartitionPlan, position: Position, facts: Facts, outcome: Outcome
    ) -> Position:
        """The copy so far went to another topic: one of another name, or one that was there before under this name."""
        if self._target_names is None:  # read once for all partitions
            self._target_names = admin.names_by_id(self._target)
        before = self._target_names.get(bytes.fromhex(position.target_id))
        if before is None or before == part.remote:
            return self._recreated_target(part, position, facts)
        outcome.losses.append(
            Loss(
                part.topic,
                part.partition,
                f"records up to offset {position.offset} were copied to {before} on {self._target.settings}, and stay there; "
                f"later ones go to {part.remote} (another replication policy?).",
            )
        )
        # That topic lives on under its name: its id is not one of the past.
        elsewhere = replace(position, target_offset=0, target_id="")
        return self._renumber(part, elsewhere, position.offset, facts)

    def _recreated_target(self, part: PartitionPlan, position: Position, facts: Facts) -> Position:
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

    def _is_truncated(self, part: PartitionPlan, position: Position, facts: Facts) -> bool:
        return part.key in facts.truncated_to or facts.latest[part.key] < position.next_offset

    def _truncated(
        self, part: PartitionPlan, position: Position, facts: Facts, outcome: Outcome
    ) -> int:
        """Where the source's log ends now; what was copied beyond is told."""
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
        return end

    def _with_known_epoch(
        self, part: PartitionPlan, position: Position, facts: Facts, outcome: Outcome
    ) -> Position:
        """The position with the leader epoch that the source's log has there: to a later one, each fetch would be refused."""
        epoch, is_other = facts.earlier_epochs.get(part.key), part.key in facts.other_records
        if is_other:
            was = position.fingerprint.leader_epoch
            epochs = "" if epoch is None else f", of leader epoch {epoch} instead of {was}"
            outcome.losses.append(
                Loss(
                    part.topic,
                    part.partition,
                    f"the log on {self._source.settings} has other records before offset {position.next_offset} than those that "
                    f"were copied{epochs} (unclean leader election). Copying continues there; records before it may be missing "
                    f"in {part.remote}.",
                )
            )
        if epoch is None:
            return replace(position, fingerprint=NO_FINGERPRINT) if is_other else position
        return replace(position, fingerprint=position.fingerprint._replace(leader_epoch=epoch))

    def _aligned(self, part: PartitionPlan, position: Position, facts: Facts) -> Aligned:
        """The position that the target bears out."""
        numbering = position.numbering
        assert numbering is not None  # noqa: S101 - _decide begins unnumbered ones
        pair = Pair(
            self._source,
            self._target,
            part.topic,
            part.remote,
            part.partition,
            self._settings.fetch,
            part.compacted,
        )
        states = {} if facts.producers is None else facts.producers[part.key]
        state = states.get(numbering.producer_id)
        return self._align(pair, position, state, facts.target_end[part.key])

    def _align(
        self, pair: Pair, position: Position, state: ProducerState | None, end: int
    ) -> Aligned:
        """By the numbers of records, or by their content where they carry none."""
        numbering = position.numbering
        if self._settings.exactly_once and numbering is not None and numbering.is_sent:
            try:
                return alignment.align(pair, position, state, end)
            except WithoutNumbers:
                return replace(unnumbered.align(pair, position, end), keeps_numbering=False)
        return unnumbered.align(pair, position, end)


def now_ms() -> int:
    return int(time.time() * 1000)


def hex_id(topic_id: bytes) -> str:
    return "" if topic_id == NO_TOPIC_ID else topic_id.hex()
