"""What a partition's offset map says of every source offset, as ranges that a join can use: a map in, ranges out.

`PartitionMap.translate` answers for one offset. The ranges give the same answers for all of them: they do not overlap, go up on
the source, and leave out the offsets of which the map says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from .coverage import Coverage
from .offset_map import PartitionMap

NO_END = (1 << 63) - 1
"""The end of a range that all higher offsets belong to."""


class OffsetRange(NamedTuple):
    """Source offsets from `source_start` to before `source_end`, and where a group goes on that reads one of them next.

    That is `target_start + (offset - source_start) * step`.
    """

    source_start: int
    source_end: int
    target_start: int
    step: int
    """1: each offset has its own; 0: all have the same, since none of these records is on the target."""
    is_exact: bool
    """As `Translation` has it."""

    @property
    def length(self) -> int:
        return self.source_end - self.source_start


def ranges(
    known: PartitionMap, log_start: int | None, shared: Coverage | None = None
) -> Iterator[OffsetRange]:
    """The ranges of a partition. `log_start` is where the target's log begins, if that is known.

    `shared`: the target partition holds records of other source partitions, too (see `PartitionMap.translate`).
    """
    return _joined(
        part
        for one in _translated(known, log_start, shared)
        for part in _in_log(one, log_start or 0)  # what was deleted since is not there to be read
    )


def _translated(
    known: PartitionMap, log_start: int | None, shared: Coverage | None
) -> Iterator[OffsetRange]:
    """What the map says of the offsets between two boundaries, asked at both ends."""
    for start, end in pairwise(chain((0,), known.boundaries(), (NO_END,))):
        first = known.translate(start, log_start, shared) if start < end else None
        if first is None:
            continue
        last = known.translate(end - 1, log_start, shared)
        step = int(last is not None and last.offset > first.offset)
        yield OffsetRange(start, end, first.offset, step, first.is_exact)


def _in_log(one: OffsetRange, log_start: int) -> Iterator[OffsetRange]:
    """The range, as far as it leads before the log's beginning with that beginning as its target."""
    missing = min(max(0, log_start - one.target_start), one.length if one.step else 1)
    if not missing:
        yield one
    elif not one.step:
        yield one._replace(target_start=log_start)
    else:
        middle = one.source_start + missing
        yield one._replace(source_end=middle, target_start=log_start, step=0)
        if middle < one.source_end:
            target = one.target_start + missing
            yield one._replace(source_start=middle, target_start=target)


def _joined(found: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Neighbours as one where one formula gives both."""
    last: OffsetRange | None = None
    for one in found:
        if last is None:
            last = one
            continue
        step = _common_step(last, one)
        if step is None:
            yield last
            last = one
        else:
            last = last._replace(source_end=one.source_end, step=step)
    if last is not None:
        yield last


def _common_step(before: OffsetRange, after: OffsetRange) -> int | None:
    if before.source_end != after.source_start or before.is_exact != after.is_exact:
        return None
    for step in _steps(before):
        if (
            step in _steps(after)
            and after.target_start == before.target_start + before.length * step
        ):
            return step
    return None


def _steps(one: OffsetRange) -> Sequence[int]:
    """A range of one offset goes with either."""
    return (0, 1) if one.length == 1 else (one.step,)
