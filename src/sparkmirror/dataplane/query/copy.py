"""One partition whose records may pass through a query: fetch answers in, slices for the desk, answers in, batches out.

What came of a slice enters the lanes in the order of the slices, however they are answered. A record on which the query raises
is dealt with as Connect's `errors.*` keys say; if it is not tolerated, all before it is written and the partition stops there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sparkmirror.dataplane.partition import Budget, PartitionCopy
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.record_path import Counted, RecordCopy, RecordWatcher
from sparkmirror.dataplane.routing import Routings, opened
from sparkmirror.dataplane.stream import Piece
from sparkmirror.errors import CorruptBatch, QueryFailed
from sparkmirror.formats.position import Position, TargetPosition
from sparkmirror.kafka import messages

from .dead_letters import DeadLetters
from .desk import Desk, Slice
from .routing import Outcome, Portion, QueryRouting

log = logging.getLogger(__name__)
_SLICE_BYTES = 1 << 20
_SLICE_ROWS = 1 << 16
_MOST_ASKED = 8
"""Slices of a partition that are with the query or behind it, waiting for the ones before."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A slice, and what it was made of."""

    portion: Portion
    piece: Slice
    is_answered: bool = False


class QueryCopy(RecordCopy):
    """The state of one partition that may have a query.

    Invariant: `_asked` are the slices behind `_steps`, in order; they come before `_held` has been entered, and `_ready`.
    """

    __slots__ = ("_asked", "_dead", "_desk")

    def __init__(
        self,
        plan: PartitionPlan,
        settings: CopySettings,
        budget: Budget,
        watcher: RecordWatcher,
        stamp: int,
        routings: Routings,
        desk: Desk,
        dead: DeadLetters,
    ) -> None:
        super().__init__(plan, settings, budget, watcher, stamp, routings)
        self._desk = desk
        self._dead = dead
        self._asked: deque[_Asked] = deque()

    # -- to the query -----------------------------------------------------------------------------

    def _route(self) -> None:
        routing = self._routing
        if not isinstance(routing, QueryRouting):
            super()._route()
        elif self.is_wanting:
            self._desk.offer(routing.prepared, self)

    @property
    def is_wanting(self) -> bool:
        return bool(
            self._ready
            and self.active
            and len(self._asked) + len(self._steps) < _MOST_ASKED
            and isinstance(self._routing, QueryRouting)
        )

    def next_slice(self) -> Slice | None:
        """The next records for the query."""
        routing = self._routing
        while self.is_wanting and isinstance(routing, QueryRouting):
            try:
                portion = routing.open(self._next_pieces())
            except CorruptBatch as error:
                self._stop_at(self._ready[0], error)
                return None
            for piece, _ in portion.pieces:
                self._ready.popleft()
                self._count(-len(piece.view))
            asked = _Asked(portion, Slice(portion.rows, self))
            self._asked.append(asked)
            if portion.rows:
                return asked.piece
            asked.is_answered = True  # the transforms have dropped all of it
            self._go_on()
        return None

    def _next_pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        size = count = 0
        for piece in self._ready:
            size += len(piece.view)
            count += piece.count
            if pieces and (size > _SLICE_BYTES or count > _SLICE_ROWS):
                break
            pieces.append(piece)
        return pieces

    # -- from the query ---------------------------------------------------------------------------

    def answered(self, piece: Slice) -> None:
        for asked in self._asked:
            if asked.piece is piece:
                asked.is_answered = True
        self._go_on()
        self._task.changed(self)

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        """Everything before it is written; then the partition stops."""
        first = piece.rows[0].offset
        while self._asked and self._asked[-1].piece is not piece:
            self._asked.pop()
        if self._asked:
            self._asked.pop()
        self._stop(first, error.message, error.remedy)
        self._task.changed(self)

    def _go_on(self) -> None:
        """Pass on what is answered, in order, until a target is wanted that has no lane."""
        routing = self._routing
        while self._asked and self._asked[0].is_answered and not self.wanted and self.active:
            asked = self._asked.popleft()
            assert isinstance(routing, QueryRouting)  # noqa: S101 - only those have slices
            outcome = routing.outcome(asked.portion, asked.piece)
            last = asked.portion.pieces[-1][0]
            if outcome.bad and not self._tolerates():
                self._stop_before(outcome)
                return
            for bad in outcome.bad:
                self._dead.take(self, bad)
            self._pass_on(last.last_offset, last.leader_epoch, outcome.parts)

    def opened(self, targets: Sequence[TargetPosition]) -> None:
        super().opened(targets)
        self._go_on()

    def _entered(self) -> list[tuple[Counted, int]]:
        return self._dead.pending(self)

    def letters_written(self) -> None:
        self._step_on()
        self._task.moved(self)

    def _teller(self, lane: PartitionCopy) -> PartitionCopy | None:
        """Each lane tells of its own: the query alone decides which records go there."""
        return lane if self.maps_first else super()._teller(lane)

    @property
    def maps_first(self) -> bool:
        return isinstance(self._routing, QueryRouting)

    # -- bad records ------------------------------------------------------------------------------

    def _tolerates(self) -> bool:
        query = self._settings.query
        return query is not None and query.bad.are_tolerated

    def _stop_before(self, outcome: Outcome) -> None:
        """Write what comes before the first bad record, and stop."""
        bad = outcome.bad[0]
        parts = []
        for key, piece in outcome.parts:
            rows = [row for row in piece.records() if row.offset < bad.record.offset]
            if len(rows) == piece.count:
                parts.append((key, piece))
            elif rows:
                parts.append((key, opened(piece, rows)))
        self._asked.clear()
        self._stop(bad.record.offset, bad.message, "")
        if parts:
            self._pass_on(bad.record.offset - 1, -1, parts)

    def _stop(self, offset: int, message: str, remedy: str) -> None:
        """Read no further; when all that is under way is written, the partition fails with this."""
        self.fetch_trouble = messages.INVALID_RECORD
        self.fetch_error = QueryFailed(
            f"{self.plan}: the query fails at offset {offset}: {message}",
            remedy
            or "Correct the query; or set errors.tolerance=all, and errors.deadletterqueue.topic.name, to go on without such "
            "records.",
        )
        self._ready.clear()
        self._count(-self.ready_bytes)
        self._task.unreadable(self)

    # -- state ------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._asked

    def restart(self, position: Position) -> None:
        self._forget()
        super().restart(position)

    def suspend(self) -> None:
        self._forget()
        super().suspend()

    def _forget(self) -> None:
        self._desk.forget(self)
        self._dead.forget(self)
        self._asked.clear()
