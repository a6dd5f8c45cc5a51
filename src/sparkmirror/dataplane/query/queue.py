"""The slices of one query at a copy task: who has records in; parts of slices for jobs out; what became of a job in.

The driver says why a job failed:
- *lost*: that had nothing to do with records. They are given out once more; if it is so all the time, the slices fail as a whole.
- *sift*: some record was to blame; the jobs that follow look at each record by itself (`careful`). They are given out once more,
  and the answer tells which ones the query raises on, and what a function said. If it was none, the first of a slice is tried
  alone, to hear what is wrong with it.
- *query*: some record was to blame, and there is no such plan. The slices become suspects. Each gets a job alone; one that fails
  is cut in halves, until it is known which record it was.
- *crash*: a Python worker ended in the midst, which may or may not be due to a record. Taken for *query* when it happens again
  and again; of a single record only after it alone has done it so often.
- *slow*: the job did not end in time. As *query*, but a slice that does it alone fails as a whole.

Other slices go on meanwhile: jobs for suspects take turns with jobs for all.
"""

from __future__ import annotations

import bisect
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from sparkmirror.errors import QueryFailed

from .answers import Answers, Keys
from .columns import ERROR, NUMBER, RAISED, STATE, Prepared, slice_of
from .edits import completed
from .feeding import Feeder, weight
from .parts import Part, Slice, Taker, chosen, parts_of
from .slices import Given, from_arrow

log = logging.getLogger(__name__)
_MOST_LOSSES = 10
_MOST_RESTS = 16
"""Slices of which something is left for a job, while others are answered without one."""
_MOST_CRASHES = 3
"""So often a Python worker may end in the midst before somebody is to blame."""


class _Out(NamedTuple):
    """A part that is with a job."""

    task: int
    part: Part
    keys: Keys | None = None
    """What the query is given of its rows, if its answers are to be learned."""


@dataclass(slots=True)
class SliceQueue:
    """One query, as a copy task knows it.

    Invariants: a slice is in `_again`, in `_suspects` or in `_out`, or has been answered. `_again` are parts that were given out
    in vain, to go out before any other; `_out` those that are with job `job`, by the number of the slice, with the task that has
    them. Suspects are given out alone: a job that fails with one of them has failed for it. Results are kept by slice until their
    job is done, and dropped with it if it fails.
    """

    prepared: Prepared
    job: int = -1
    told: tuple[bool, bool] | None = None
    """What the driver knows that there is: suspects, others. None: nothing."""
    _takers: dict[Taker, None] = field(default_factory=dict)
    _again: deque[Part] = field(default_factory=deque)
    _suspects: deque[Part] = field(default_factory=deque)
    _is_hunting: bool = False
    """Whether the job is for one suspect."""
    _crashes: int = 0
    """Of jobs for all, one after the other."""
    _losses: int = 0
    """Of any jobs, one after the other, without one that was done."""
    _out: dict[int, _Out] = field(default_factory=dict)
    _attempts: dict[int, int] = field(default_factory=dict)
    """Which attempt of each task of the job takes."""
    _results: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    _was_emptied: bool = False
    """Whether the job has found nothing more to take."""
    _is_left: bool = False
    """Whether it is done and did not; not known before."""
    _feeder: Feeder = field(init=False)
    _answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        self._feeder, self._answers = Feeder(self.prepared), Answers(self.prepared)

    # -- who has records --------------------------------------------------------------------------

    def offer(self, taker: Taker) -> None:
        self._takers[taker] = None

    def forget(self, taker: Taker) -> None:
        """Somebody does not wait for answers any more."""
        self._takers.pop(taker, None)
        self._drop(lambda piece: piece.taker is taker)

    @property
    def there(self) -> tuple[bool, bool]:
        """Whether there are suspects, and whether there is anything else."""
        others = self._again or (self._takers and not self._answers.are_of_use)
        return bool(self._suspects), bool(others)

    @property
    def is_left(self) -> bool:
        """Whether the last job could not take all that there was."""
        return self._is_left and self.there[1]

    # -- without a job ----------------------------------------------------------------------------

    @property
    def may_answer(self) -> bool:
        """Whether somebody has records of which the query may have said already what becomes of them.

        Not while too much of others is left for jobs: all that is opened is held until it is known.
        """
        is_room = len(self._again) + len(self._out) < _MOST_RESTS
        return is_room and bool(self._takers) and self._answers.are_of_use

    def answer(self) -> None:
        """Answer the next slice by what the query has said already; what is left of it goes to a job."""
        piece = self._next_slice()
        if piece is None:
            return
        given, unknown = self._answers.of(self._feeder.fed(piece.rows).keys)
        if unknown:
            self._again.extend(parts_of(piece, unknown))
        count = len(piece.rows)
        if count > len(unknown):
            given = completed(given, piece.rows, self.prepared.edits)
            if piece.taken(range(count), count - len(unknown), given):
                piece.taker.answered(piece)

    # -- to a job ---------------------------------------------------------------------------------

    def begin(self, job: int, *, is_hunting: bool) -> None:
        """Another job takes. Whatever became of the one before, its slices have not come back."""
        self._once_more(self._back())
        self.job, self._is_hunting, self.told = job, is_hunting, None
        self._is_left = self._was_emptied = False
        self._attempts.clear()
        self._results.clear()

    def is_latest(self, task: int, attempt: int) -> bool:
        """Whether this attempt of a task is the one that counts; what a former one had got is given out once more."""
        latest = self._attempts.setdefault(task, attempt)
        if attempt > latest:
            self._once_more(self._back(task))
            self._attempts[task] = attempt
        return attempt >= latest

    def pick(self, first: int, task: int, *, is_careful: bool) -> tuple[int, memoryview] | None:
        """The next rows for a task, numbered from `first` on: how much they are, and what the query is given of them."""
        part = self._next_part()
        if part is None:
            self._was_emptied = True
            return None
        rows = part.rows
        fed = self._feeder.fed(rows, is_careful=is_careful, is_rest=not part.is_whole)
        is_lesson = self._answers.may_be_kept and not is_careful
        self._out[slice_of(first)] = _Out(task, part, fed.keys if is_lesson else None)
        return weight(rows), fed.arrow(first)

    def _next_part(self) -> Part | None:
        if self._is_hunting:
            return None if self._out or not self._suspects else self._suspects.popleft()
        if not self._again and not self._answers.are_of_use:
            piece = self._next_slice()
            if piece is not None:
                self._answers.pass_by(len(piece.rows))
                self._again.extend(parts_of(piece, range(len(piece.rows))))
        return self._again.popleft() if self._again else None

    def _next_slice(self) -> Slice | None:
        while self._takers:
            taker = next(iter(self._takers))
            piece = taker.next_slice()
            self._takers.pop(taker, None)
            if taker.is_wanting:
                self._takers[taker] = None  # the others first
            if piece is not None:
                return piece
        return None

    def take_in(self, batch: pa.RecordBatch) -> None:
        """Results of the job."""
        for number, part in _by_slice(batch):
            self._results.setdefault(number, []).append(part)

    def _back(self, task: int | None = None) -> list[Part]:
        """What is with the job, or one task of it, which will not give anything."""
        lost = {n: out.part for n, out in self._out.items() if task is None or out.task == task}
        for number in lost:
            del self._out[number]
            self._results.pop(number, None)
        return list(lost.values())

    def _once_more(self, parts: Sequence[Part]) -> None:
        (self._suspects if self._is_hunting else self._again).extendleft(reversed(parts))

    def _drop(self, is_gone: Callable[[Slice], bool]) -> None:
        """Give up slices that nobody waits for."""
        self._again = deque(p for p in self._again if not is_gone(p.piece))
        self._suspects = deque(p for p in self._suspects if not is_gone(p.piece))
        self._out = {n: out for n, out in self._out.items() if not is_gone(out.part.piece)}

    # -- a job that is done -----------------------------------------------------------------------

    def done(self) -> None:
        self._crashes = self._losses = 0
        self._is_left = not self._was_emptied
        results, parts = self._results, self._out
        self._results, self._out = {}, {}
        for number, out in parts.items():
            given = from_arrow(results.get(number, ()))
            if out.keys is not None:
                self._answers.learn(out.keys, given, is_rest=not out.part.is_whole)
            self._passed(out.part, given)

    def _passed(self, part: Part, given: Given) -> None:
        """A job is done with these rows, but for those that it says it raised on."""
        piece, places = part.piece, part.places
        states, said = given.columns.pop(STATE, []), given.columns.pop(ERROR, [])
        rows = given.rows if states else ()
        if not states:  # the careful plan has made all
            given = completed(given, part.rows, self.prepared.edits)
        bad = {
            places[row]: text
            for row, state, text in zip(rows, states, said, strict=True)
            if state == RAISED
        }
        if bad:
            given = chosen(given, [at for at, s in enumerate(states) if s != RAISED])
            self._sift(piece, bad)
        elif part.alike:  # alone it passes: then nothing is known of those that were bad with it
            log.warning("A record passes alone that did not with others; each of them is tried.")
            self._suspects.append(Part(piece, part.alike))
        if piece.taken(places, len(places) - len(bad), given):
            piece.taker.answered(piece)

    def _sift(self, piece: Slice, bad: dict[int, str | None]) -> None:
        """Of some it is known what a function said; of the others, one is tried alone to hear what is wrong."""
        for place, text in bad.items():
            if text is not None:
                piece.refused(place, text)
        silent = [place for place, text in bad.items() if text is None]
        if silent:
            self._suspects.append(Part(piece, silent[:1], tuple(silent[1:])))

    # -- a job that failed ------------------------------------------------------------------------

    def failed(self, reason: str, error: QueryFailed) -> None:
        parts = self._back()
        if reason == "crash" and not self._is_hunting:
            self._crashes += 1
        is_due_to_records = reason in ("query", "slow") or (
            reason == "crash" and self._crashes >= _MOST_CRASHES
        )
        if self._is_hunting and reason in ("query", "slow", "crash"):
            for part in parts:
                self._accuse(part, error, reason)
        elif is_due_to_records:
            self._suspects.extend(parts)
        else:
            self._lost(parts, error, reason)

    def _lost(self, parts: Sequence[Part], error: QueryFailed, reason: str) -> None:
        """No record is to blame. What goes wrong all the time must be seen, though."""
        self._once_more(parts)
        self._losses += reason == "lost"
        if self._losses < _MOST_LOSSES:
            return
        self._losses = 0
        # The last first: what is told in the end is where the first begins.
        for piece in reversed(dict.fromkeys(part.piece for part in parts)):
            self._fail(piece, error)

    def _accuse(self, part: Part, error: QueryFailed, reason: str) -> None:
        """The query failed with nothing but these rows: they are tried in halves, until it is known which record it was.

        Not if it did not end: that would take too long.
        """
        if reason == "slow":
            self._fail(part.piece, error)
        elif len(part.places) > 1:
            self._suspects.extendleft(reversed(part.halves()))
        elif reason == "crash" and part.crashes + 1 < _MOST_CRASHES:
            self._suspects.appendleft(part._replace(crashes=part.crashes + 1))
        else:
            _refuse(part, error.message)

    def _fail(self, piece: Slice, error: QueryFailed) -> None:
        self._drop(lambda each: each is piece)
        piece.taker.failed(piece, error)


def _refuse(part: Part, message: str) -> None:
    """The query raises on this record, and on those that are like it."""
    piece, place = part.piece, part.places[0]
    is_whole = piece.refused(place, message)
    offset = piece.rows[place].offset
    alike = f"The query raises on it as well; of offset {offset} it says: {message}"
    for other in part.alike:
        is_whole = piece.refused(other, alike)
    if is_whole:
        piece.taker.answered(piece)


def _by_slice(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A batch cut where the slice changes; the numbers of its rows go up."""
    numbers = [slice_of(number) for number in batch.column(NUMBER).to_pylist()]
    start = 0
    while start < len(numbers):
        end = bisect.bisect_right(numbers, numbers[start], start)
        yield numbers[start], batch.slice(start, end - start)
        start = end
