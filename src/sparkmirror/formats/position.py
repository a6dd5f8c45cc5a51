"""The position of a partition: what is written about it in the Connect offsets topic, and which writer's word counts.

The value is MM2's `{"offset": last}` with fields of ours beside it; a Java worker reads `offset` alone, and takes the value only
if every field is a number or a text. Our fields keep the *numbering*: under which producer id and epoch, and from which sequence
number on, the partition is being copied.

A partition whose records pass through transforms may feed several target partitions. Then each of those has a place of its own
(`targets`) under the one numbering, and `offset` is the one up to which every record is where it belongs, or was dropped.

Several writers may write at once (a retry, a speculative twin, a second copy of the flow). Who may set a *new* numbering is
decided by the log itself, as compare-and-set: a claim names the numbering that it replaces, and counts only if that one is in
force where the claim stands in the log. Everybody reads the same log, so everybody finds the same numbering.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sparkmirror.formats import java_json

SUPERSEDED_MS: Final = 3_600_000
"""How long an answer with the id of a topic that was replaced is taken for one of a broker that is behind."""
_MOST_SUPERSEDED = 4
SEQUENCES: Final = 1 << 31  # sequence numbers run from 0 to 2^31 - 1 and start over
MAX_EPOCH: Final = 32_767
UNSENT_IDS: Final = 1 << 62  # far beyond what brokers give out


@dataclass(frozen=True, slots=True)
class Numbering:
    """One immutable numbering of a partition's records."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}/{self.epoch}"

    @property
    def is_sent(self) -> bool:
        """Whether records carry it; else it is kept with the position alone, and the target knows nothing of it."""
        return self.producer_id < UNSENT_IDS


class Superseded(NamedTuple):
    """The id of a topic, on either side, that was deleted and created again, and when that was noticed (ms)."""

    topic_id: str
    at: int


class Fingerprint(NamedTuple):
    """What tells the source batch that holds the last copied record from one of another log; -1: not known."""

    leader_epoch: int = -1
    crc: int = -1


NO_FINGERPRINT: Final = Fingerprint()


@dataclass(frozen=True, slots=True)
class TargetPosition:
    """How far one target partition has come with the records that transforms send there."""

    topic: str
    partition: int
    offset: int
    """It holds all its records up to this source offset; those of later ones, none."""
    sequence: int = 0
    target_offset: int = 0
    origin: int = 0
    """Target offset at which the numbering began with sequence 0."""
    target_id: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return (self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition has been copied.

    `offset` is the last replicated upstream offset, as MM2 has it (-1: none), or that of a control batch or aborted record
    behind it, which nobody copies.
    """

    offset: int
    numbering: Numbering | None = None
    sequence: int = 0
    """Sequence number of the next record."""
    target_offset: int = 0
    """Where the next record is expected on the target, or any earlier offset."""
    fingerprint: Fingerprint = NO_FINGERPRINT
    """Of the source batch that holds `offset`, to notice a log that was cut back or belongs to a topic created again."""
    source_id: str = ""
    target_id: str = ""
    origin: tuple[int, int] = (0, 0)
    """Source and target offset at which the numbering began with sequence 0."""
    stamp: int = 0
    """When the plan was made whose task took this numbering (ms)."""
    transforms: str | None = None
    """What is done with records under this numbering: the transforms, and the number of partitions on which they are placed by
    key, as text; None: nothing, all go to the same partition of the remote topic."""
    targets: tuple[TargetPosition, ...] = ()
    """With transforms: every target partition that may hold records of this numbering. One is named here before it gets any."""
    since: int = -1
    """With transforms: the source offset from which records pass through them; -1 if that is not known."""
    superseded: tuple[Superseded, ...] = ()
    """Topics that others of the same name have taken the place of: a broker that still names one of them is behind."""

    @property
    def next_offset(self) -> int:
        return self.offset + 1

    @property
    def is_origin(self) -> bool:
        """Whether nothing has been written under the numbering yet (sequence numbers come back to 0 after 2^31 records)."""
        source, target = self.origin
        return self.sequence == 0 and (self.next_offset == source or self.target_offset <= target)

    def is_superseded(self, topic_id: str, now: int) -> bool:
        """Whether an answer at `now` (ms) that names this id is out of date."""
        return any(
            old.topic_id == topic_id and now - old.at < SUPERSEDED_MS for old in self.superseded
        )

    def superseding(self, old: str, new: str, now: int) -> Position:
        """The position that remembers that topic `new` has taken the place of `old`, if both are known and differ."""
        if not old or not new or old == new:
            return self
        others = [known for known in self.superseded if known.topic_id not in (old, new)]
        kept = (*others, Superseded(old, now))[-_MOST_SUPERSEDED:]
        return replace(self, superseded=kept)

    def target(self, key: tuple[str, int]) -> TargetPosition | None:
        return next((target for target in self.targets if target.key == key), None)

    def at_target(self, target: TargetPosition) -> Position:
        """The position as that one target sees it, as if it were the only one."""
        offset = max(self.offset, target.offset)
        begin = offset + 1 if target.sequence == 0 else self.origin[0]
        return replace(
            self,
            offset=offset,
            sequence=target.sequence,
            target_offset=target.target_offset,
            fingerprint=self.fingerprint if offset == self.offset else NO_FINGERPRINT,
            target_id=target.target_id,
            origin=(begin, target.origin),
            transforms=None,
            targets=(),
            since=-1,
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the offsets topic: a position, a claim of a new numbering, or a reset (no position)."""

    position: Position | None
    is_claim: bool = False
    replaces: Numbering | None = None


def advance(sequence: int, count: int) -> int:
    """The sequence number `count` records later."""
    return (sequence + count) % SEQUENCES


def distance(later: int, earlier: int) -> int:
    """How many records lie between two sequence numbers; negative if `later` is really the earlier one."""
    gap = (later - earlier) % SEQUENCES
    return gap - SEQUENCES if gap > SEQUENCES // 2 else gap


def encode(entry: Entry) -> bytes | None:
    """The value of the record; None is a tombstone."""
    position = entry.position
    if position is None:
        return None
    value: dict[str, Any] = {"offset": position.offset}
    if position.numbering is not None:
        value |= {
            "pid": position.numbering.producer_id,
            "epoch": position.numbering.epoch,
            "leader": position.fingerprint.leader_epoch,
            "crc": position.fingerprint.crc,
            "sid": position.source_id,
            "stamp": position.stamp,
            "origin": f"{position.origin[0]}/{position.origin[1]}",
        }
        value |= _where(position)
        if position.superseded:
            value["was"] = " ".join(f"{old.topic_id}@{old.at}" for old in position.superseded)
    if entry.is_claim:
        value["replaces"] = "" if entry.replaces is None else str(entry.replaces)
    return json.dumps(value, separators=(",", ":")).encode()


def _where(position: Position) -> dict[str, Any]:
    """Where the next records go: the place in the one target, or those in several (as text: see above)."""
    if position.transforms is None:
        return {
            "seq": position.sequence,
            "target": position.target_offset,
            "tid": position.target_id,
        }
    targets = {
        f"{t.topic}/{t.partition}": [t.offset, t.sequence, t.target_offset, t.origin, t.target_id]
        for t in position.targets
    }
    since = {"since": position.since} if position.since >= 0 else {}
    return {
        "transforms": position.transforms,
        "targets": json.dumps(targets, separators=(",", ":")),
        **since,
    }


def decode(value: bytes | None) -> Entry:
    """The entry of a record's value; what does not have all our fields is a plain position."""
    if value is None:
        return Entry(None)
    try:
        fields = java_json.decode(value)
        plain = Position(_number(fields["offset"]))
    except (ValueError, TypeError, KeyError, OverflowError):
        return Entry(None)
    try:
        return _numbered(plain.offset, fields)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
        return Entry(plain)


def _number(value: Any, bits: int = 64) -> int:
    """ValueError (or OverflowError, or TypeError) where Kafka has no such number."""
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} does not fit into {bits} bits")
    return number


def _topic_id(value: Any) -> str:
    """ValueError where it is none: some other text."""
    text = str(value)
    bytes.fromhex(text)
    return text


def _numbered(offset: int, fields: dict[str, Any]) -> Entry:
    origin = fields["origin"]  # a list in positions of the first version
    source_origin, target_origin = origin.split("/") if isinstance(origin, str) else origin
    position = Position(
        offset=offset,
        numbering=Numbering(_number(fields["pid"]), _number(fields["epoch"], 16)),
        fingerprint=Fingerprint(_number(fields["leader"], 32), _number(fields.get("crc", -1))),
        source_id=_topic_id(fields["sid"]),
        origin=(_number(source_origin), _number(target_origin)),
        stamp=_number(fields["stamp"]),
        superseded=tuple(_superseded(text) for text in str(fields.get("was", "")).split()),
    )
    if "transforms" in fields:
        targets = java_json.decode(fields["targets"])
        position = replace(
            position,
            transforms=str(fields["transforms"]),
            targets=tuple(_target(key, row) for key, row in targets.items()),
            since=_number(fields.get("since", -1)),
        )
    else:
        position = replace(
            position,
            sequence=_number(fields["seq"], 32),
            target_offset=_number(fields["target"]),
            target_id=_topic_id(fields["tid"]),
        )
    replaced = fields.get("replaces")
    if replaced is None:
        return Entry(position)
    pid, _, epoch = replaced.partition("/")
    return Entry(position, True, Numbering(_number(pid), _number(epoch, 16)) if pid else None)


def _superseded(text: str) -> Superseded:
    topic_id, _, at = text.partition("@")
    return Superseded(_topic_id(topic_id), _number(at))


def _target(key: str, row: list[Any]) -> TargetPosition:
    topic, _, partition = key.rpartition("/")
    offset, sequence, target_offset, origin, target_id = row
    return TargetPosition(
        topic,
        _number(partition, 32),
        _number(offset),
        _number(sequence, 32),
        _number(target_offset),
        _number(origin),
        _topic_id(target_id),
    )


class Fold:
    """The state of one key, record after record.

    Invariants: a claim counts only if it replaces the numbering in force; a progress report counts only under the numbering in
    force or a later epoch of it (then its claim is gone from the log, and fencing has settled the matter); a reset or a plain
    offset (a person, or a Java worker) always counts and ends the numbering. The first record that is seen counts as it
    stands, because compaction may have taken the ones before it. Compaction keeps the last record whether it counts or not:
    while `is_settled` is False, the position in force should be stated once more. Under one numbering no target is ever
    forgotten: one that a report does not name yet, because another writer found it first, stays where the numbering began there.
    """

    __slots__ = ("_seen", "is_settled", "position")

    def __init__(self) -> None:
        self.position: Position | None = None
        self.is_settled = True
        self._seen = False

    @classmethod
    def taken_over(cls, position: Position | None) -> Fold:
        """The fold of somebody who has read every record so far."""
        fold = cls()
        fold.position = position
        fold._seen = True
        return fold

    def apply(self, entry: Entry) -> bool:
        """Take a record in; False if it does not count."""
        first, self._seen = not self._seen, True
        self.is_settled = first or self._counts(entry)
        if not self.is_settled:
            return False
        joined = entry.position if first or entry.is_claim else self._joined(entry.position)
        self.is_settled = joined == entry.position
        self.position = joined
        return True

    def _joined(self, position: Position | None) -> Position | None:
        """A report with the targets that only earlier ones of the same numbering name."""
        before = self.position
        if position is None or before is None or position.numbering != before.numbering:
            return position
        named = {target.key for target in position.targets}
        missing = tuple(
            replace(target, offset=position.offset, sequence=0, target_offset=target.origin)
            for target in before.targets
            if target.key not in named
        )
        return replace(position, targets=position.targets + missing) if missing else position

    def _counts(self, entry: Entry) -> bool:
        force = None if self.position is None else self.position.numbering
        new = None if entry.position is None else entry.position.numbering
        if new is None:
            return True
        if entry.is_claim:
            return entry.replaces == force
        if force is None:
            return False
        return new.producer_id == force.producer_id and new.epoch >= force.epoch


def next_numbering(position: Position, fresh: tuple[int, int] | None = None) -> Numbering:
    """The numbering after this position's: `fresh` if it is given, else the next epoch."""
    current = position.numbering
    if fresh is None and current is not None and current.epoch < MAX_EPOCH:
        return Numbering(current.producer_id, current.epoch + 1)
    if fresh is None:
        raise ValueError("a fresh producer id is needed")
    return Numbering(*fresh)


def unsent_producer_id() -> tuple[int, int]:
    """An id, with its epoch, for a numbering that is kept with the position alone."""
    return UNSENT_IDS + secrets.randbelow(UNSENT_IDS - 1), 0


def renumbered(
    position: Position, numbering: Numbering, offset: int, target_offset: int, stamp: int
) -> Position:
    """A position that begins a numbering: sequence 0 is the record after `offset`."""
    return replace(
        position,
        offset=offset,
        numbering=numbering,
        sequence=0,
        target_offset=target_offset,
        origin=(offset + 1, target_offset),
        stamp=stamp,
    )
