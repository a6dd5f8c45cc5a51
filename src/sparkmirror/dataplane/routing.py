"""Where the records of a piece go: a piece of the stream in, a piece for each target partition out.

What goes out is a function of what comes in, of the transforms and of the number of partitions alone, so that whoever copies the
partition gives every target the same records in the same order: that lets a sequence number stand for a record there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

from sparkmirror.errors import SparkError
from sparkmirror.kafka.batches import HEADER_SIZE
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.records import Record, RecordColumns, held_bytes
from sparkmirror.transforms.chain import TopicChain
from sparkmirror.transforms.record import ConnectRecord

from .placing import Placing
from .plan import PartitionPlan
from .shape import Shape
from .stream import Piece

Parts = list[tuple[TopicPartition, Piece]]


class Routing:
    """What is done with the records of one source partition."""

    __slots__ = ("_chain", "_partition", "_placing", "places", "target", "topic")

    def __init__(self, plan: PartitionPlan, shape: Shape) -> None:
        self._partition = plan.partition
        self._chain = None if shape.chain is None else shape.chain.on(plan.remote)
        self.topic: str | None = plan.remote if self._chain is None else self._chain.target
        """The topic that all records go to which are not dropped; None if that is up to each record."""
        self.places = shape.places
        """The number of partitions on which records are placed by their keys; 0: they stay in their own."""
        self._placing = Placing(plan.partition, shape.places) if shape.places else None
        one = self.topic is not None and not shape.places
        self.target: TopicPartition | None = (self.topic or "", plan.partition) if one else None
        """The one that all records go to which are not dropped; None if that is up to each record."""

    def split(self, piece: Piece) -> Parts:
        """The records of a piece by target, in their order; CorruptBatch if it must be opened and cannot be."""
        chain = self._chain
        if self.topic is not None and (chain is None or not chain.steps):
            if self.target is not None:
                return [(self.target, piece)]
            return self._placed(piece, self.topic)
        assert chain is not None  # noqa: S101 - without one there is a topic
        kept, is_whole = self._transformed(piece, chain)
        if not kept:
            return []
        found: dict[TopicPartition, list[ConnectRecord]] = {}
        places = repeat(self._partition) if self._placing is None else self._placing.of(kept)
        for row, place in zip(kept, places, strict=False):
            target = row.topic, place
            rows = found.get(target)
            if rows is None:
                found[target] = [row]
            else:
                rows.append(row)
        if is_whole and len(found) == 1:  # then it need not be written anew
            return [(target, piece) for target in found]
        return [(target, opened(piece, rows)) for target, rows in found.items()]

    def _transformed(self, piece: Piece, chain: TopicChain) -> tuple[list[ConnectRecord], bool]:
        """What the transforms keep; and whether that is every record, as it was but for its topic."""
        apply, topic, partition = chain.apply, chain.topic, self._partition
        kept: list[ConnectRecord] = []
        is_whole = True
        for offset, row in piece.records_with_offsets():
            record = ConnectRecord(
                topic, partition, offset, row.timestamp, row.key, row.value, row.headers
            )
            routed = apply(record)
            if routed is None:
                is_whole = False
                continue
            if routed is not record and routed[3:] != record[3:]:
                is_whole = False
            kept.append(routed)
        return kept, is_whole

    def _placed(self, piece: Piece, topic: str) -> Parts:
        """By key alone: the records are as they were read."""
        assert self._placing is not None  # noqa: S101 - only called where records are placed
        rows = piece.records()
        found: dict[int, list[Record]] = {}
        for row, place in zip(rows, self._placing.of(rows), strict=True):
            part = found.get(place)
            if part is None:
                found[place] = [row]
            else:
                part.append(row)
        if len(found) == 1:
            return [((topic, place), piece) for place in found]
        return [((topic, place), opened(piece, part)) for place, part in found.items()]

    def only(self, target: TopicPartition) -> Callable[[Sequence[Piece]], list[Piece]]:
        """What one target gets of some pieces."""

        def parts(pieces: Sequence[Piece]) -> list[Piece]:
            return [found for part in self.splits(pieces) for key, found in part if key == target]

        return parts

    def splits(self, pieces: Sequence[Piece]) -> Iterator[Parts]:
        """The records of several pieces that follow each other."""
        return map(self.split, pieces)


class Routings:
    """Who knows how a shape is carried out. A query takes more than there is here: somebody who has it makes those routings."""

    def __init__(self, queried: Callable[[PartitionPlan, Shape], Routing] | None = None) -> None:
        self._queried = queried

    def of(self, plan: PartitionPlan, shape: Shape) -> Routing:
        """QueryRefused (a ConfigError) if its query cannot be run."""
        if shape.query is None:
            return Routing(plan, shape)
        if self._queried is None:
            raise SparkError(f"{plan}: its records pass through a query, and nobody runs it.")
        return self._queried(plan, shape)


def after(piece: Piece, offset: int) -> Piece | None:
    """The part of a piece behind an offset; None if there is none."""
    if piece.first_offset > offset:
        return piece
    if piece.last_offset <= offset:
        return None
    rows = [
        ConnectRecord("", -1, place, row.timestamp, row.key, row.value, row.headers)
        for place, row in piece.records_with_offsets()
        if place > offset
    ]
    return opened(piece, rows)


def opened(piece: Piece, rows: Sequence[Record]) -> Piece:
    """A piece of these records, to be written anew; its share of the bytes tells how large it is, the header all the rest."""
    body = max(0, len(piece.view) - HEADER_SIZE)
    view = piece.view[: HEADER_SIZE + body * len(rows) // piece.count]
    if isinstance(rows, RecordColumns):
        offsets, newest = rows.offsets, max(rows.timestamps)
        held = held_bytes(rows.keys, rows.values)
        return Piece(view, None, offsets[0], offsets[-1], len(rows), newest, rows, held=held)
    newest = max(row.timestamp for row in rows)
    first, last = rows[0].offset, rows[-1].offset
    held = piece.held * len(rows) // piece.count
    return Piece(view, None, first, last, len(rows), newest, [*rows], held=held)
