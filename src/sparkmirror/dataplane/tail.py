"""The end of the target's log: a position in, what of its numbering lies there out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparkmirror.formats.position import (
    NO_FINGERPRINT,
    Fingerprint,
    Numbering,
    Position,
    advance,
    distance,
)
from sparkmirror.kafka import admin, legacy, log, records
from sparkmirror.kafka.batches import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Batch,
    magic_of,
    whole_batches,
)
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits

from .anchors import Mark

_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)
_FIRST_STEP = 256


@dataclass(frozen=True, slots=True)
class Tail:
    """What of a numbering lies in the target's log from a position on, without a gap."""

    count: int
    end_sequence: int
    end_offset: int
    last: records.Record | None
    missing: int = 0
    """How many records are not there though later ones are: a leader takes any first number from a producer it does not know."""
    repeated: int = 0
    """How many were written a second time, by a copy that came late to a leader that had forgotten them."""
    is_cut: bool = False
    """Whether the log before the position is not the one that was written: it was cut back and went on from there."""
    is_pruned: bool = False
    """Whether the beginning of the tail is gone by the target's own retention."""
    has_numbers: bool = True
    """Whether anything of the numbering was seen."""
    unnumbered: tuple[Mark | None, Mark | None] = (None, None)
    """Records without numbers: the last before the position since the numbering began, and the first behind it."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of the tail, of the numbering and later epochs of it."""

    count: int
    marks: tuple[Mark, ...]
    end_offset: int
    has_times: bool
    """False if the target stamps its own times (LogAppendTime), so that times cannot be compared."""
    is_mixed: bool
    """Whether there are several epochs, so that the count says nothing about the source."""


class _Log:
    """One partition of the target."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster, self._key = cluster, (topic, partition)

    def start(self) -> int:
        return admin.list_offsets(self._cluster, [self._key], admin.EARLIEST)[self._key]

    def end(self) -> int:
        return admin.list_offsets(self._cluster, [self._key], admin.LATEST)[self._key]

    def batches(self, start: int, end: int) -> Iterator[Batch]:
        for fetched in log.read(self._cluster, *self._key, start, end, _LIMITS):
            for view in whole_batches(fetched.records):
                if magic_of(view) < 2:
                    continue  # it has no place for numbers, so it is of no numbering
                batch = Batch(view)
                if start <= batch.last_offset and batch.base_offset < end:
                    yield batch


def read_tail(cluster: Cluster, topic: str, partition: int, position: Position) -> Tail:
    """Read the target from just before the position's target offset to its end."""
    target = _Log(cluster, topic, partition)
    end, wanted = target.end(), position.target_offset
    first = target.start()
    reader = _TailReader(position)
    for batch in target.batches(max(wanted - 1, first), end):
        reader.take(batch)
        if reader.is_cut or reader.missing:
            break
    return Tail(
        distance(reader.sequence, position.sequence),
        reader.sequence,
        end,
        _last_record(reader.last),
        reader.missing,
        reader.repeated,
        reader.is_cut,
        is_pruned=first > wanted,
        has_numbers=reader.has_numbers,
        unnumbered=(reader.unnumbered_before, reader.unnumbered_behind),
    )


def written_spans(
    cluster: Cluster, topic: str, partition: int, position: Position, end: int
) -> list[tuple[int, int, int]]:
    """What of a position's numbering lies in the target's log behind it: sequence number, offset and length of each batch."""
    numbering = position.numbering
    assert numbering is not None  # noqa: S101 - callers align only numbered positions
    target = _Log(cluster, topic, partition)
    found: list[tuple[int, int, int]] = []
    sequence = position.sequence
    for batch in target.batches(max(position.target_offset, target.start()), end):
        if _is_of(batch, numbering) and batch.base_sequence == sequence:
            found.append((sequence, batch.base_offset, batch.last_offset_delta + 1))
            sequence = end_sequence(batch)
    return found


def _last_record(batch: Batch | None) -> records.Record | None:
    """The last record of a batch, unless compaction took it."""
    if batch is None:
        return None
    found = records.decode(batch.view)
    return found[-1] if found and found[-1].offset == batch.last_offset else None


class _TailReader:
    """Goes through batches in log order.

    Invariants: `sequence` is the number after the last one that is there without a gap; `_reached` the offset up to which no
    record can have been removed from what was read, or -1 if some were.
    """

    def __init__(self, position: Position) -> None:
        numbering = position.numbering
        assert numbering is not None  # noqa: S101 - callers align only numbered positions
        self._numbering = numbering
        self._position = position
        self._reached = position.target_offset
        self.sequence = position.sequence
        self.last: Batch | None = None
        self.missing = 0
        self.repeated = 0
        self.is_cut = False
        self.has_numbers = False
        self.unnumbered_before: Mark | None = None
        self.unnumbered_behind: Mark | None = None

    def take(self, batch: Batch) -> None:
        if self._reached >= 0:
            dense = batch.base_offset <= self._reached
            self._reached = max(self._reached, batch.last_offset + 1) if dense else -1
        if batch.producer_id < 0 and self.unnumbered_behind is None:
            self._note_unnumbered(batch)
        if not _is_of(batch, self._numbering):
            return
        self.has_numbers = True
        if batch.base_offset < self._position.target_offset:
            self._check(batch)
            return
        end = end_sequence(batch)
        if distance(end, self.sequence) <= 0:
            self.repeated += batch.count
            return
        skipped = distance(batch.base_sequence, self.sequence)
        if skipped > 0 and self._reached >= 0:
            self.missing = skipped
            return
        self.sequence = end
        self.last = batch

    def _note_unnumbered(self, batch: Batch) -> None:
        has_times = not batch.attributes & LOG_APPEND_TIME
        for record in records.decode(batch.view):
            mark = mark_of(record, has_times)
            if record.offset >= self._position.target_offset:
                self.unnumbered_behind = mark
                return
            if record.offset >= self._position.origin[1]:
                self.unnumbered_before = mark

    def _check(self, batch: Batch) -> None:
        """What lies before the position is the last that was acknowledged, or the target lost that."""
        if batch.last_offset == self._position.target_offset - 1:
            self.is_cut = end_sequence(batch) != self._position.sequence
        else:
            self.is_cut = distance(end_sequence(batch), self._position.sequence) > 0


def last_held(
    cluster: Cluster, topic: str, partition: int, position: Position, expected: int | None
) -> Position:
    """Search the target back from the position for the last batch, at or before it, that is still there.

    Gives the position with the sequence number and target offset behind that batch. If the target's own retention took all of
    them, the leader's word is taken (`expected`: the number it wants next).
    """
    numbering = position.numbering
    assert numbering is not None  # noqa: S101 - callers align only numbered positions
    target = _Log(cluster, topic, partition)
    end = target.end()
    first = max(target.start(), min(position.origin[1], end))
    high, step = min(position.target_offset, end), _FIRST_STEP
    while high > first:
        low = max(first, high - step)
        found: Batch | None = None
        for batch in target.batches(low, high):
            if _is_of(batch, numbering) and distance(end_sequence(batch), position.sequence) <= 0:
                found = batch
        if found is not None:
            sequence, offset = end_sequence(found), found.last_offset + 1
            return replace(position, sequence=sequence, target_offset=offset)
        high, step = low, step * 4
    if first <= position.origin[1]:
        return replace(position, sequence=0, target_offset=first)
    sequence = position.sequence if expected is None else expected
    return replace(position, sequence=sequence, target_offset=end)


def begins_below(cluster: Cluster, topic: str, partition: int, position: Position) -> int | None:
    """Where the first batch of the numbering lies if that is before its origin: the log was cut back to there. Else None."""
    numbering = position.numbering
    assert numbering is not None  # noqa: S101 - callers align only numbered positions
    target = _Log(cluster, topic, partition)
    start, end = target.start(), target.end()
    first, high, step = None, min(position.origin[1], end), _FIRST_STEP
    while high > start:
        low = max(start, high - step)
        ours = [b.base_offset for b in target.batches(low, high) if _is_of(b, numbering)]
        if not ours:
            break
        first = ours[0]
        high, step = min(low, first), step * 4
    return first


def read_content(cluster: Cluster, topic: str, partition: int, position: Position) -> Content:
    """The content of the tail, whatever gaps it has."""
    numbering = position.numbering
    assert numbering is not None  # noqa: S101 - callers align only numbered positions
    target = _Log(cluster, topic, partition)
    end = target.end()
    found: list[Mark] = []
    epochs: set[int] = set()
    sequence, has_times = position.sequence, True
    for batch in target.batches(max(position.target_offset, target.start()), end):
        if batch.producer_id != numbering.producer_id or batch.is_control:
            continue
        if batch.producer_epoch < numbering.epoch:
            continue
        if _is_of(batch, numbering) and distance(end_sequence(batch), position.sequence) <= 0:
            continue
        epochs.add(batch.producer_epoch)
        has_times = not batch.attributes & LOG_APPEND_TIME
        found += [mark_of(record, has_times) for record in records.decode(batch.view)]
        sequence = end_sequence(batch)
    is_mixed = bool(epochs - {numbering.epoch})
    count = len(found) if is_mixed else max(0, distance(sequence, position.sequence))
    return Content(count, tuple(found), end, has_times, is_mixed)


def everything(cluster: Cluster, topic: str, partition: int, start: int) -> Iterator[Mark]:
    """The content of the log from an offset to its end as it is now, whoever wrote it."""
    target = _Log(cluster, topic, partition)
    end = target.end()
    start = max(start, target.start())
    for fetched in log.read(cluster, topic, partition, start, end, _LIMITS):
        for view in whole_batches(fetched.records):
            has_times, rows = _opened(view)
            yield from (mark_of(row, has_times) for row in rows if start <= row.offset < end)


def _opened(view: memoryview) -> tuple[bool, Sequence[records.Record]]:
    """The records of a batch, or of a message set of an old format, and whether they have times of their own."""
    if magic_of(view) < 2:
        return False, legacy.messages(view)
    batch = Batch(view)
    return not batch.attributes & LOG_APPEND_TIME, [] if batch.is_control else records.decode(view)


def end_sequence(batch: Batch) -> int:
    """The number after the batch's last; compaction may have taken records out of it, but not their numbers."""
    return advance(batch.base_sequence, batch.last_offset_delta + 1)


def mark_of(
    record: records.Record, has_times: bool, fingerprint: Fingerprint = NO_FINGERPRINT
) -> Mark:
    """A record by its content; without its time where it has none, or the target stamps its own."""
    content = record.key, record.value, tuple(record.headers)
    timeless = hash((NO_TIMESTAMP, *content))
    digest = hash((record.timestamp, *content)) if has_times else timeless
    return Mark(record.offset, record.key, digest, fingerprint, timeless)


def _is_of(batch: Batch, numbering: Numbering) -> bool:
    return (
        batch.producer_id == numbering.producer_id
        and batch.producer_epoch == numbering.epoch
        and not batch.is_control
    )
