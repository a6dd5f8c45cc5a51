"""The position of a partition: what is written about it in the Connect offsets topic, and which writer's word counts.

The value is MM2's `{"offset": last}` with fields of ours beside it; a Java worker reads `offset` alone. Our fields keep the
*numbering*: under which producer id and epoch, and from which sequence number on, the partition is being copied.

Several writers may write at once (a retry, a speculative twin, a second copy of the flow). Who may set a *new* numbering is
decided by the log itself, as compare-and-set: a claim names the numbering that it replaces, and counts only if that one is in
force where the claim stands in the log. Everybody reads the same log, so everybody finds the same numbering.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

SEQUENCES: Final = 1 << 31  # sequence numbers run from 0 to 2^31 - 1 and start over
MAX_EPOCH: Final = 32_767


@dataclass(frozen=True, slots=True)
class Numbering:
    """One immutable numbering of a partition's records."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}/{self.epoch}"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition has been copied. `offset` is the last replicated upstream offset, as MM2 has it (-1: none)."""

    offset: int
    numbering: Numbering | None = None
    sequence: int = 0
    """Sequence number of the next record."""
    target_offset: int = 0
    """Where the next record is expected on the target, or any earlier offset."""
    leader_epoch: int = -1
    """Leader epoch of the last source batch, to notice a truncated source."""
    source_id: str = ""
    target_id: str = ""
    origin: tuple[int, int] = (0, 0)
    """Source and target offset at which the numbering began with sequence 0."""
    stamp: int = 0
    """When the plan was made whose task took this numbering (ms)."""

    @property
    def next_offset(self) -> int:
        return self.offset + 1

    @property
    def is_origin(self) -> bool:
        """Whether nothing has been written under the numbering yet."""
        return self.sequence == 0 and self.next_offset == self.origin[0]


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
            "seq": position.sequence,
            "target": position.target_offset,
            "leader": position.leader_epoch,
            "sid": position.source_id,
            "tid": position.target_id,
            "origin": list(position.origin),
            "stamp": position.stamp,
        }
    if entry.is_claim:
        value["replaces"] = "" if entry.replaces is None else str(entry.replaces)
    return json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes | None) -> Entry:
    """The entry of a record's value; what does not have all our fields is a plain position."""
    if value is None:
        return Entry(None)
    try:
        fields = json.loads(value)
        plain = Position(int(fields["offset"]))
    except (ValueError, TypeError, KeyError):
        return Entry(None)
    try:
        return _numbered(plain.offset, fields)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return Entry(plain)


def _numbered(offset: int, fields: dict[str, Any]) -> Entry:
    position = Position(
        offset=offset,
        numbering=Numbering(int(fields["pid"]), int(fields["epoch"])),
        sequence=int(fields["seq"]),
        target_offset=int(fields["target"]),
        leader_epoch=int(fields["leader"]),
        source_id=str(fields["sid"]),
        target_id=str(fields["tid"]),
        origin=(int(fields["origin"][0]), int(fields["origin"][1])),
        stamp=int(fields["stamp"]),
    )
    replaced = fields.get("replaces")
    if replaced is None:
        return Entry(position)
    pid, _, epoch = replaced.partition("/")
    return Entry(position, True, Numbering(int(pid), int(epoch)) if pid else None)


class Fold:
    """The state of one key, record after record.

    Invariants: a claim counts only if it replaces the numbering in force; a progress report counts only under the numbering in
    force or a later epoch of it (then its claim is gone from the log, and fencing has settled the matter); a reset or a plain
    offset (a person, or a Java worker) always counts and ends the numbering. The first record that is seen counts as it
    stands, because compaction may have taken the ones before it. Compaction keeps the last record whether it counts or not:
    while `is_settled` is False, the position in force should be stated once more.
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
        if self.is_settled:
            self.position = entry.position
        return self.is_settled

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
    """The numbering after this position's: the next epoch, or `fresh` where there is none or epochs have run out."""
    current = position.numbering
    if current is not None and current.epoch < MAX_EPOCH:
        return Numbering(current.producer_id, current.epoch + 1)
    if fresh is None:
        raise ValueError("a fresh producer id is needed")
    return Numbering(*fresh)


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
