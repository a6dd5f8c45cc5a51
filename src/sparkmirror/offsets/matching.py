"""Which record of one log is which of the other: both logs' records in, runs of those that are the same out.

For when the offset map was lost. Both logs have records that the other has not (compaction, aborted transactions, retention,
other writers), so at a difference the nearest records that are the same again are looked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from sparkmirror.formats.offset_map import Run

LOOK_AHEAD = 4096


class Seen(NamedTuple):
    """A record of either log, as far as it is compared; `time` tells which log is behind where nothing is the same."""

    offset: int
    digest: int
    time: int
    timeless: int | None = None
    """Of a target record, the digest without its time: that of a source record that has none. Its copy got one."""

    def is_copy_of(self, source: Seen) -> bool:
        return source.digest in (self.digest, self.timeless)


def matched(source: Iterable[Seen], target: Iterable[Seen]) -> Iterator[Run]:
    """The runs, in order. Each pairs records of the same content; some may be missing, none is wrong."""
    ours, theirs = _Ahead(source), _Ahead(target)
    run: Run | None = None
    while (one := ours.first()) is not None and (other := theirs.first()) is not None:
        if not other.is_copy_of(one):
            _catch_up(ours, theirs)
            continue
        if run is not None and (run.source_end, run.target_end) == (one.offset, other.offset):
            run = run._replace(length=run.length + 1)
        else:
            if run is not None:
                yield run
            run = Run(one.offset, other.offset, 1)
        ours.drop(1)
        theirs.drop(1)
    if run is not None:
        yield run


class _Ahead:
    """A log, of which some records are known in advance."""

    def __init__(self, rows: Iterable[Seen]) -> None:
        self._rows = iter(rows)
        self.window: deque[Seen] = deque()

    def first(self) -> Seen | None:
        if not self.window:
            self.window.extend(islice(self._rows, 1))
        return self.window[0] if self.window else None

    def fill(self) -> None:
        self.window.extend(islice(self._rows, LOOK_AHEAD - len(self.window)))

    def drop(self, count: int) -> None:
        for _ in range(min(count, len(self.window))):
            self.window.popleft()


def _catch_up(ours: _Ahead, theirs: _Ahead) -> None:
    """Leave out what stands before the nearest two records that are the same; at least one is left out."""
    ours.fill()
    theirs.fill()
    places: dict[int | None, int] = {}
    for place, row in enumerate(theirs.window):
        places.setdefault(row.digest, place)
        places.setdefault(row.timeless, place)
    best: tuple[int, int] | None = None
    for place, row in enumerate(ours.window):
        if best is not None and place >= sum(best):
            break
        found = places.get(row.digest)
        if found is not None and (best is None or place + found < sum(best)):
            best = place, found
    if best is not None:
        ours.drop(best[0])
        theirs.drop(best[1])
        return
    is_behind = ours.window[0].time < theirs.window[0].time
    is_ahead = ours.window[0].time > theirs.window[0].time
    if not is_ahead:
        ours.drop(max(1, LOOK_AHEAD // 2))
    if not is_behind:
        theirs.drop(max(1, LOOK_AHEAD // 2))
