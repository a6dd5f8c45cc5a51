"""From pieces of the stream to batches that the target takes: pieces in, batches under consecutive sequence numbers out."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkmirror.errors import CorruptBatch
from sparkmirror.formats.position import Numbering, advance
from sparkmirror.kafka import records
from sparkmirror.kafka.batches import Batch, readdress
from sparkmirror.kafka.compression import opening_limit

from .stream import OPENED_AT_ONCE, Piece

_UNLIMITED = 1 << 31
_UNNUMBERED = (-1, -1, -1)  # producer id, epoch, sequence number

OffsetRecord = tuple[int, records.Record]


class Sent:
    """An addressed batch, kept until it is acknowledged so that exactly the same bytes can be sent again."""

    __slots__ = ("buffer", "count", "first_offset", "last_offset", "pieces", "sequence")

    def __init__(
        self,
        pieces: list[Piece],
        buffer: bytearray | memoryview,
        sequence: int,
        first_offset: int,
        last_offset: int,
        count: int,
    ) -> None:
        self.pieces = pieces
        self.buffer = buffer
        self.sequence = sequence
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.count = count

    @property
    def is_contiguous(self) -> bool:
        return self.last_offset - self.first_offset + 1 == self.count

    def offset_runs(self) -> list[tuple[int, int]]:
        """The source offsets of its records, as first offsets and lengths of runs."""
        if self.is_contiguous:
            return [(self.first_offset, self.count)]
        found = []
        for piece in self.pieces:
            for first, count in piece.offset_runs():
                # Of pieces that were closed as several batches, each has a part.
                start, end = max(first, self.first_offset), min(first + count, self.last_offset + 1)
                if start < end:
                    found.append((start, end - start))
        return found


class Addresser:
    """Numbers the records of one partition.

    Invariants: `_sequence` is the number of the next record; a record is given one number, once, between two calls of `begin`.
    What is kept with the position alone is not sent (`_sent` is None): then the records carry no numbers.
    `limit` is the size above which batches are known to be refused by the target.
    """

    __slots__ = ("_sent", "_sequence", "limit")

    def __init__(self) -> None:
        self._sent: Numbering | None = None
        self._sequence = 0
        self.limit = _UNLIMITED

    def begin(self, numbering: Numbering, sequence: int) -> None:
        self._sent = numbering if numbering.is_sent else None
        self._sequence = sequence
        self.limit = _UNLIMITED  # it may have been raised meanwhile

    def address(self, pieces: list[Piece]) -> list[Sent]:
        """Give the pieces their sequence numbers: one batch, or several where the target takes only smaller ones."""
        size = sum(len(piece.view) for piece in pieces)
        if len(pieces) == 1 and pieces[0].batch is not None and size < self.limit:
            return [self.verbatim(pieces[0], pieces[0].batch)]
        if len(pieces) > 1 and size >= self.limit:
            return [sent for piece in pieces for sent in self.address([piece])]
        parts = 1 if size < self.limit else 2 * size // self.limit + 1
        try:
            return self._rebuild(pieces, parts)
        except CorruptBatch:  # one cannot be opened: as long as nobody must, it is copied as it is
            return [
                self._rebuild([piece], 1)[0]
                if piece.batch is None
                else self.verbatim(piece, piece.batch)
                for piece in pieces
            ]

    def verbatim(self, piece: Piece, batch: Batch) -> Sent:
        sequence = self._sequence
        sent = self._sent
        if sent is None:
            readdress(batch, *_UNNUMBERED)
        else:
            readdress(batch, sent.producer_id, sent.epoch, sequence)
        self._sequence = advance(sequence, batch.count)
        return Sent(
            [piece], piece.view, sequence, piece.first_offset, piece.last_offset, batch.count
        )

    def again(self, sent: Sent, parts: int) -> list[Sent]:
        """Records that have their numbers already, closed anew through the codec as `parts` batches under the same numbers."""
        opened = [record for piece in sent.pieces for record in piece.records_with_offsets()]
        inside = [row for row in opened if sent.first_offset <= row[0] <= sent.last_offset]
        return self._close_in_parts(sent.pieces, inside, parts, sent.sequence)

    def _rebuild(self, pieces: list[Piece], parts: int) -> list[Sent]:
        """Open the batches and close their records again as `parts` gapless ones."""
        if parts == 1:
            return self._merged(pieces)
        opened = [record for piece in pieces for record in piece.records_with_offsets()]
        sent = self._close_in_parts(pieces, opened, parts, self._sequence)
        self._sequence = advance(self._sequence, len(opened))
        return sent

    def _merged(self, pieces: list[Piece]) -> list[Sent]:
        """All records as one batch, of a size that may be opened again; what is behind goes as it is, or by itself."""
        first = pieces[0]
        opened = first.records()
        count = 1
        if len(pieces) > 1:
            opened, held = [*opened], first.held
            most = min(OPENED_AT_ONCE, opening_limit().bytes)
            for piece in pieces[1:]:
                found = piece.records()
                held += piece.held
                if held > most:
                    break
                opened += found
                count += 1
        sent = [self._closed(pieces[:count], opened)]
        for piece in pieces[count:]:
            if piece.batch is None:  # it is open already
                sent.append(self._closed([piece], piece.records()))
            else:
                sent.append(self.verbatim(piece, piece.batch))
        return sent

    def _closed(self, pieces: list[Piece], opened: Sequence[records.Record]) -> Sent:
        """One batch: the offsets of the pieces tell its own, no record is asked."""
        first, last = pieces[0], pieces[-1]
        sequence = self._sequence
        buffer = self._encode(opened, first.codec, sequence)
        self._sequence = advance(sequence, len(opened))
        return Sent(pieces, buffer, sequence, first.first_offset, last.last_offset, len(opened))

    def _close_in_parts(
        self, pieces: list[Piece], opened: list[OffsetRecord], parts: int, sequence: int
    ) -> list[Sent]:
        size = max(1, -(-len(opened) // parts))
        codec = pieces[0].codec
        sent = []
        for start in range(0, len(opened), size):
            chunk = opened[start : start + size]
            buffer = self._encode([record for _, record in chunk], codec, sequence)
            first, last = chunk[0][0], chunk[-1][0]
            own = [p for p in pieces if p.last_offset >= first and p.first_offset <= last]
            sent.append(Sent(own, buffer, sequence, first, last, len(chunk)))
            sequence = advance(sequence, len(chunk))
        return sent

    def _encode(self, opened: Sequence[records.Record], codec: int, sequence: int) -> bytearray:
        """Records without a time get that of this moment, as MirrorMaker 2's producer gives it to them."""
        sent = self._sent
        numbers = _UNNUMBERED if sent is None else (sent.producer_id, sent.epoch, sequence)
        return records.encode(opened, codec, *numbers, now=int(time.time() * 1000))
