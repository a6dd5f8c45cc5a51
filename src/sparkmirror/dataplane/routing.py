"""Where the records of a piece go: a piece of the stream in, a piece for each target partition out.

What goes out is a function of what comes in and of the transforms alone, so that whoever copies the partition gives every target
the same records in the same order: that is what lets a sequence number stand for a record there, too.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkmirror.kafka.batches import HEADER_SIZE
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.records import Record
from sparkmirror.transforms.chain import TopicChain, TransformChain
from sparkmirror.transforms.record import ConnectRecord

from .plan import PartitionPlan
from .stream import Piece

Parts = list[tuple[TopicPartition, Piece]]


class Routing:
    """What is done with the records of one source partition."""

    __slots__ = ("_chain", "_partition", "target")

    def __init__(self, plan: PartitionPlan, transforms: TransformChain | None) -> None:
        self._partition = plan.partition
        self._chain: TopicChain | None = None if transforms is None else transforms.on(plan.remote)
        topic = plan.remote if self._chain is None else self._chain.target
        self.target: TopicPartition | None = None if topic is None else (topic, plan.partition)
        """The one that all records go to which are not dropped; None if that is up to each record."""

    def split(self, piece: Piece) -> Parts:
        """The records of a piece by target, in their order; CorruptBatch if it must be opened and cannot be."""
        chain = self._chain
        if self.target is not None and (chain is None or not chain.steps):
            return [(self.target, piece)]
        assert chain is not None  # noqa: S101 - without one there is a target
        apply, topic, partition = chain.apply, chain.topic, self._partition
        found: dict[str, list[ConnectRecord]] = {}
        is_whole = True  # every record is kept, and as it was but for its topic
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
            rows = found.get(routed.topic)
            if rows is None:
                found[routed.topic] = [routed]
            else:
                rows.append(routed)
        if is_whole and len(found) == 1:  # then it need not be written anew
            return [((name, partition), piece) for name in found]
        return [((name, partition), _opened(piece, rows)) for name, rows in found.items()]

    def only(self, target: TopicPartition) -> Callable[[Piece], Piece | None]:
        """What one target gets of a piece; None if nothing."""

        def part(piece: Piece) -> Piece | None:
            return next((found for key, found in self.split(piece) if key == target), None)

        return part


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
    return _opened(piece, rows)


def _opened(piece: Piece, rows: list[ConnectRecord]) -> Piece:
    """A piece of these records, to be written anew; its share of the bytes tells how large it is, the header all the rest."""
    body = max(0, len(piece.view) - HEADER_SIZE)
    view = piece.view[: HEADER_SIZE + body * len(rows) // piece.count]
    newest = max(row.timestamp for row in rows)
    first, last = rows[0].offset, rows[-1].offset
    opened: list[Record] = [*rows]
    return Piece(view, None, first, last, len(rows), newest, opened)
