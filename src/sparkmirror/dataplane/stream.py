"""The mirrored stream of a partition: fetch answers in, pieces to copy out.

The stream is the source log without control batches and aborted transactions. It is the same for whoever reads it, from
whichever offset: that is what lets a sequence number stand for a record (see `positions`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from sparkmirror.errors import CorruptBatch
from sparkmirror.formats.position import NO_FINGERPRINT, Fingerprint
from sparkmirror.kafka import records
from sparkmirror.kafka.batches import (
    LOG_APPEND_TIME,
    Batch,
    crc_matches,
    crc_of,
    end_offset,
    leader_epoch_of,
    magic_of,
    whole_batches,
)
from sparkmirror.kafka.fetch import READ_COMMITTED, Fetched
from sparkmirror.kafka.gaps import close_gaps
from sparkmirror.kafka.records import Record, RecordColumns

_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0
SMALL_BATCH = 4096
_FEW_RECORDS = 8
OPENED_AT_ONCE = 16 << 20
"""What the records take in memory of batches that are opened together; one batch may be more (see `compression`)."""


class Piece:
    """One batch of the stream, or the part of it from `first_offset` on. Plain for speed; treat it as data."""

    __slots__ = (
        "batch",
        "count",
        "first_offset",
        "held",
        "last_offset",
        "max_timestamp",
        "opened",
        "original",
        "size",
        "stretches",
        "view",
    )

    def __init__(
        self,
        view: memoryview,
        batch: Batch | None,
        first_offset: int,
        last_offset: int,
        count: int,
        max_timestamp: int,
        opened: Sequence[Record] | None = None,
        original: memoryview | None = None,
        stretches: list[tuple[int, int]] | None = None,
        held: int = 0,
    ) -> None:
        self.view = view
        self.batch = batch
        """The header if the whole batch can go verbatim, else None: it must be rebuilt."""
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.count = count
        self.max_timestamp = max_timestamp
        self.opened = opened
        """The records, where the batch had to be opened to see what of it is to be copied."""
        self.original = original
        """The batch as it was read, where gaps were closed: only there do the records have their offsets."""
        self.stretches = stretches
        """Where gaps were closed: the numbers and the offsets of the records before which they were."""
        self.held = held
        """What its records take in memory, once they are read."""
        self.size = len(view)
        """What it takes in memory itself."""
        if opened is not None:
            self.size += held
        if original is not None:
            self.size += len(original)

    @property
    def is_small(self) -> bool:
        """Whether opening the batch to join it with others costs less than a place of its own in a request."""
        return self.count <= _FEW_RECORDS and len(self.view) <= SMALL_BATCH

    @property
    def is_contiguous(self) -> bool:
        return self.last_offset - self.first_offset + 1 == self.count

    @property
    def fingerprint(self) -> Fingerprint:
        """That of the batch as it was read, though it may be re-addressed by now."""
        batch = self.batch
        if batch is not None and self.original is None:
            return Fingerprint(batch.leader_epoch, batch.crc)
        view = self.view if self.original is None else self.original
        return Fingerprint(leader_epoch_of(view), crc_of(view))

    @property
    def codec(self) -> int:
        """Compression of the batch; message sets of old brokers are written anew without."""
        return self.view[22] & 7 if magic_of(self.view) == 2 else 0

    def records(self) -> Sequence[Record]:
        """The records, with their source offsets as long as the batch was not re-addressed."""
        if self.opened is not None:
            return self.opened
        view = self.view if self.original is None else self.original
        found, self.held = records.decode_sized(view)
        return found

    def offsets(self, found: Sequence[Record]) -> Sequence[int]:
        """The source offsets of its records, which are these; a verbatim batch may be re-addressed by now (see below)."""
        if self.opened is None and self.original is None:
            return range(self.first_offset, self.first_offset + len(found))
        if isinstance(found, RecordColumns):
            return found.offsets
        return [record.offset for record in found]

    def records_with_offsets(self) -> list[tuple[int, Record]]:
        """Records with their source offsets; a verbatim batch may be re-addressed by now, so it is counted from its first."""
        found = self.records()
        return list(zip(self.offsets(found), found, strict=True))

    def offset_runs(self) -> list[tuple[int, int]]:
        """The source offsets of its records, as first offsets and lengths of runs."""
        if self.is_contiguous:
            return [(self.first_offset, self.count)]
        stretches = self.stretches
        if stretches is None:
            offsets = self.offsets(self.records())
            stretches = [
                (number, offset)
                for number, offset in enumerate(offsets)
                if number == 0 or offset != offsets[number - 1] + 1
            ]
        ends = [number for number, _ in stretches[1:]] + [self.count]
        return [
            (offset, end - number) for (number, offset), end in zip(stretches, ends, strict=True)
        ]


class _EnoughError(Exception):
    """As much of an answer is open as may be at once."""


class Stream:
    """Reads one partition from an offset on.

    Invariants: `next_offset` is the offset after everything that was fed and understood; it never goes back, and no record
    below the offset it began with is ever given out. `leader_epoch` and `crc` are those of the last batch before `next_offset`,
    copied or not: offset and epoch go to the broker together, which would else take its own log for one that was cut back.
    """

    __slots__ = ("_committed_only", "_opened", "crc", "leader_epoch", "next_offset")

    def __init__(
        self, next_offset: int, isolation: int, fingerprint: Fingerprint = NO_FINGERPRINT
    ) -> None:
        self.next_offset = next_offset
        self.leader_epoch, self.crc = fingerprint
        self._committed_only = isolation == READ_COMMITTED
        self._opened = 0
        """What the records take in memory that were opened of the answer at hand."""

    def feed(self, fetched: Fetched) -> list[Piece]:
        """The pieces of one fetch answer, up to the first damaged batch; an error if that comes first.

        Where batches must be opened, not all at once: what is left is fetched again.
        """
        pieces: list[Piece] = []
        self._opened = 0
        try:
            self._feed(fetched, pieces)
        except _EnoughError:
            return pieces
        except CorruptBatch:
            if not pieces:
                raise
        return pieces

    def skip(self, fetched: Fetched) -> tuple[int, int] | None:
        """Pass the batch that is next in this answer, which cannot be opened; its first offset, and the one behind it.

        None if it is damaged: another replica may have it whole.
        """
        for view in whole_batches(fetched.records):
            end = end_offset(view)
            if end <= self.next_offset:
                continue
            if magic_of(view) >= 2 and not crc_matches(view):
                return None
            first, self.next_offset = self.next_offset, end
            self.leader_epoch, self.crc = leader_epoch_of(view), crc_of(view)
            return first, end
        return None

    def _feed(self, fetched: Fetched, pieces: list[Piece]) -> None:
        aborted = sorted(fetched.aborted, key=lambda row: -row[1]) if self._committed_only else []
        dropping: set[int] = set()
        for view in whole_batches(fetched.records):
            if magic_of(view) < 2:
                self._cut(view, pieces)
                continue
            batch = Batch(view)
            last = batch.base_offset + batch.last_offset_delta
            if last < self.next_offset:
                continue
            if not crc_matches(view):
                raise CorruptBatch(
                    f"the batch at offset {batch.base_offset} does not have the checksum that it carries.",
                )
            if batch.is_plain and batch.base_offset >= self.next_offset:
                first, count = batch.base_offset, batch.count
                pieces.append(Piece(view, batch, first, last, count, batch.max_timestamp))
                self.next_offset = last + 1
                self.leader_epoch = batch.leader_epoch
                self.crc = batch.crc
                continue
            if batch.attributes & 0x30:  # transactional or control
                while aborted and aborted[-1][1] <= last:
                    dropping.add(aborted.pop()[0])
                if batch.is_control and _is_abort_marker(view):
                    dropping.discard(batch.producer_id)
            is_dropped = batch.is_control or (
                batch.is_transactional and batch.producer_id in dropping
            )
            if not is_dropped:
                self._add(view, batch, pieces)
            self.next_offset = last + 1
            self.leader_epoch = batch.leader_epoch
            self.crc = batch.crc

    def _add(self, view: memoryview, batch: Batch, pieces: list[Piece]) -> None:
        has_own_times = not batch.attributes & LOG_APPEND_TIME and not batch.is_timeless
        if batch.base_offset < self.next_offset or not has_own_times:
            self._cut(view, pieces)
        elif batch.is_verbatim:
            first, last = batch.base_offset, batch.last_offset
            pieces.append(Piece(view, batch, first, last, batch.count, batch.max_timestamp))
        else:
            self._close(batch, pieces)

    def _close(self, batch: Batch, pieces: list[Piece]) -> None:
        """A batch with gaps: its records are as they were, but for their offsets."""
        gapless = close_gaps(batch)
        if gapless is None:  # compaction leaves empty batches behind
            return
        whole = Batch(memoryview(gapless.batch))
        pieces.append(
            Piece(
                whole.view,
                whole,
                gapless.first_offset,
                gapless.last_offset,
                batch.count,
                batch.max_timestamp,
                original=batch.view,
                stretches=gapless.stretches,
            )
        )

    def _cut(self, view: memoryview, pieces: list[Piece]) -> None:
        """A batch that must be opened: it begins too early, has the broker's time or none, or is of an old format."""
        if self._opened > OPENED_AT_ONCE:
            raise _EnoughError
        found, held = records.decode_sized(view)
        self._opened += held
        if found and found[0].offset < self.next_offset:
            found = [record for record in found if record.offset >= self.next_offset]
        if not found:  # compaction leaves empty batches behind
            return
        first, last = found[0].offset, found[-1].offset
        end, newest = last + 1, found[-1].timestamp
        if magic_of(view) >= 2:
            batch = Batch(view)
            end, newest = batch.last_offset + 1, batch.max_timestamp
        self.crc = crc_of(view)
        pieces.append(Piece(view, None, first, last, len(found), newest, found, held=held))
        self.next_offset = end


def _is_abort_marker(view: memoryview) -> bool:
    control = records.decode(view)
    if not control or control[0].key is None or len(control[0].key) < _CONTROL_KEY.size:
        return False
    _, kind = _CONTROL_KEY.unpack_from(control[0].key)
    return bool(kind == _ABORT)
