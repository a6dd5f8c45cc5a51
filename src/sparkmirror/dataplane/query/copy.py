"""One partition whose records may pass through a query: fetch answers in, slices for the desk, answers in, batches out.

What came of a slice enters the lanes in the order of the slices, however they are answered. A record on which the query raises
is dealt with as Connect's `errors.*` keys say; if it is not tolerated, all before it is written and the partition stops there.

Dead letters are written before anything of their slice. Whoever resumes a partition may take what the target has for the measure
of how far it is: what is not there behind it would never be written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from sparkmirror.dataplane.partition import Budget, PartitionCopy
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.record_path import Counted, RecordCopy, RecordWatcher
from sparkmirror.dataplane.routing import Routings, opened
from sparkmirror.dataplane.stream import Piece
from sparkmirror.errors import CorruptBatch, QueryFailed, ReplicationError
from sparkmirror.formats.position import NO_FINGERPRINT, Position, TargetPosition
from sparkmirror.kafka import messages
from sparkmirror.transforms.record import ConnectRecord

from .dead_letters import DeadLetters
from .desk import Desk
from .parts import Slice
from .routing import BadRecord, Outcome, Portion, QueryRouting, portions

log = logging.getLogger(__name__)
_MOST_ASKED = 8
"""Slices of a partition that are with the query or behind it, waiting for the ones before."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A slice, and what it was made of."""

    portion: Portion
    piece: Slice
    size: int
    """What its records take in memory."""
    is_answered: bool = False
    outcome: Outcome | None = None
    """What becomes of it, when that is known of all slices before it as well."""
    letters: list[tuple[Counted, int]] = field(default_factory=list)
    """What must be written first."""
    cut: int | None = None
    """The offset before which it ends, since the dead letter of that record was refused."""

    @property
    def is_ready(self) -> bool:
        written = all(letters.records >= count for letters, count in self.letters)
        return written and self.outcome is not None

    def awaits(self, letters: Counted, number: int) -> bool:
        """Whether the letter of this number, counted from 0, is among those."""
        return any(found is letters and count > number for found, count in self.letters)


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
            and self._opened_bytes() < self._settings.opened_bytes
            and isinstance(self._routing, QueryRouting)
        )

    def _opened_bytes(self) -> int:
        asked = sum(each.size for each in self._asked)
        return asked + sum(step.size for step in self._steps)

    def next_slice(self) -> Slice | None:
        """The next records for the query."""
        routing = self._routing
        while self.is_wanting and isinstance(routing, QueryRouting):
            try:
                portion = _opened(routing, next(portions(self._ready), []))
            except CorruptBatch as error:
                self._stop_at(self._ready[0], error)
                return None
            for piece, _ in portion.pieces:
                self._ready.popleft()
                self._count(-piece.size)
            asked = _Asked(
                portion, Slice(portion.rows, self), sum(p.held for p, _ in portion.pieces)
            )
            self._asked.append(asked)
            if portion.rows:
                return asked.piece
            asked.is_answered = True  # the transforms have dropped all of it
            self._go_on()
            self._task.changed(self)  # there is room for more
        return None

    # -- from the query ---------------------------------------------------------------------------

    def answered(self, piece: Slice) -> None:
        for asked in self._asked:
            if asked.piece is piece:
                asked.is_answered = True
        self._go_on()
        self._task.changed(self)

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        """Everything before it is written; then the partition stops."""
        if all(asked.piece is not piece for asked in self._asked):
            return  # one before it has failed
        first = piece.rows[0].offset
        while self._asked and self._asked[-1].piece is not piece:
            self._asked.pop()
        if self._asked:
            self._asked.pop()
        self._stop(first, error.message, error.remedy, type(error))
        self._task.changed(self)

    def _go_on(self) -> None:
        """Pass on what is answered, in order, until a target is wanted that has no lane."""
        self._judge()
        while self._asked and self._asked[0].is_ready and not self.wanted and self.active:
            asked = self._asked.popleft()
            outcome, last = asked.outcome, asked.portion.pieces[-1][0]
            assert outcome is not None  # noqa: S101 - it would not be ready
            if outcome.bad and not self._tolerates():
                bad = outcome.bad[0]
                self._asked.clear()
                self._stop(bad.record.offset, bad.message, "")
                self._pass_on_before(bad.record.offset, outcome)
                return
            if asked.cut is not None:
                self._pass_on_before(asked.cut, outcome)
                return
            self._pass_on(last.last_offset, last.fingerprint, outcome.parts)

    def _judge(self) -> None:
        """See what becomes of the slices that are answered, and have dead letters sent.

        Not those of slices behind one that waits for its own: if one of these is refused, the others would be sent at every try.
        """
        routing = self._routing
        for asked in takewhile(lambda each: each.is_answered, self._asked):
            if asked.outcome is not None:
                if not asked.is_ready:
                    return
                continue
            assert isinstance(routing, QueryRouting)  # noqa: S101 - only those have slices
            asked.outcome = routing.outcome(asked.portion, asked.piece)
            if asked.outcome.bad and self._tolerates():
                for bad in self._as_read(routing, asked.portion, asked.outcome.bad):
                    self._dead.take(self, bad)
                asked.letters = self._dead.pending(self)
                if not asked.is_ready:
                    return

    def opened(self, targets: Sequence[TargetPosition]) -> None:
        super().opened(targets)
        self._go_on()

    def letters_written(self) -> None:
        self._go_on()
        self._task.changed(self)

    def letters_refused(
        self, letters: Counted, number: int, offset: int, error: ReplicationError
    ) -> None:
        """Everything before the record of that letter is written, other letters too; then the partition stops."""
        asked = next((each for each in self._asked if each.awaits(letters, number)), None)
        if asked is None:
            return
        while self._asked[-1] is not asked:
            self._asked.pop()
        asked.letters, asked.cut = [(letters, number)], offset
        self._desk.forget(self)
        self._halt(error)
        self._go_on()

    def _teller(self, lane: PartitionCopy) -> PartitionCopy | None:
        """Each lane tells of its own: the query alone decides which records go there."""
        return lane if self.maps_first else super()._teller(lane)

    @property
    def maps_first(self) -> bool:
        return isinstance(self._routing, QueryRouting)

    # -- bad records ------------------------------------------------------------------------------

    def _tolerates(self) -> bool:
        return self._settings.bad.are_tolerated

    def _as_read(
        self, routing: QueryRouting, portion: Portion, bad: Sequence[BadRecord]
    ) -> Iterator[BadRecord]:
        """Bad records as the source has them, whatever transforms have made of them before the query."""
        if routing._chain is None:
            yield from bad
            return
        said = {each.record.offset: each.message for each in bad}
        topic, number = self.plan.key
        for piece, _ in portion.pieces:
            if not any(piece.first_offset <= offset <= piece.last_offset for offset in said):
                continue
            for offset, row in piece.records_with_offsets():
                if offset in said:
                    read = row.timestamp, row.key, row.value, row.headers
                    yield BadRecord(ConnectRecord(topic, number, offset, *read), said[offset])

    def _pass_on_before(self, end: int, outcome: Outcome) -> None:
        """What comes of the records before an offset, and no more."""
        parts = []
        for key, piece in outcome.parts:
            rows = [row for row in piece.records() if row.offset < end]
            if len(rows) == piece.count:
                parts.append((key, piece))
            elif rows:
                parts.append((key, opened(piece, rows)))
        if parts or outcome.bad[0].record.offset < end:
            self._pass_on(end - 1, NO_FINGERPRINT, parts)

    def _stop(
        self, offset: int, message: str, remedy: str, kind: type[QueryFailed] = QueryFailed
    ) -> None:
        self._halt(
            kind(
                f"{self.plan}: the query fails at offset {offset}: {message}",
                remedy
                or "Correct the query; or set errors.tolerance=all, and errors.deadletterqueue.topic.name, to go on without such "
                "records.",
            )
        )

    def _halt(self, error: ReplicationError) -> None:
        """Read no further; when all that is under way is written, the partition fails with this."""
        self.fetch_trouble, self.fetch_error = messages.INVALID_RECORD, error
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


def _opened(routing: QueryRouting, pieces: Sequence[Piece]) -> Portion:
    """The records of some pieces, up to the first that cannot be read; CorruptBatch if that comes first."""
    try:
        return routing.open(pieces)
    except CorruptBatch:
        whole = list(takewhile(lambda piece: _is_readable(routing, piece), pieces))
        return routing.open(whole or pieces[:1])


def _is_readable(routing: QueryRouting, piece: Piece) -> bool:
    try:
        routing.open([piece])
    except CorruptBatch:
        return False
    return True
