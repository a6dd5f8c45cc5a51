"""Where to go on, told by content: marks of the target's tail and of the source's records in, how many of those are copied out.

For when counting does not tell, because the source is no longer what it was when the tail was copied from it. Every rule errs
towards copying a record again, never towards leaving one out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparkmirror.formats.position import NO_FINGERPRINT, Fingerprint


@dataclass(frozen=True, slots=True)
class Mark:
    """A record of either side, as far as the rules look at it."""

    offset: int
    key: bytes | None
    digest: int
    fingerprint: Fingerprint = NO_FINGERPRINT
    timeless: int | None = None
    """The digest without the time. A source record that has no time has no other; its copy got one."""

    def is_copy_of(self, mark: Mark) -> bool:
        return mark.digest in (self.digest, self.timeless)


def common(source: Sequence[Mark], tail: Sequence[Mark], unseen: int = 0) -> int:
    """The source was cut back and written anew: how many of its records begin the tail as well.

    `unseen` records of the tail's beginning are gone from the target by its own retention, and pass for the same.
    """
    count = min(unseen, len(source))
    for mark, copied in zip(source[unseen:], tail, strict=False):
        if not copied.is_copy_of(mark):
            break
        count += 1
    return count


def overlap(source: Sequence[Mark], tail: Sequence[Mark], surely_copied: int) -> int:
    """The source lost its beginning: how many of the records it has left are the end of the tail.

    What lies at or before offset `surely_copied` was copied, for sequence numbers cannot run ahead of offsets; transaction
    markers in between may mean that a few more were. Of all answers that fit the content, the smallest is taken.
    """
    least = sum(mark.offset <= surely_copied for mark in source)
    for count in range(least, min(len(source), len(tail)) + 1):
        ends_alike = count == 0 or tail[-1].is_copy_of(source[count - 1])
        if ends_alike and all(map(Mark.is_copy_of, tail[len(tail) - count :], source)):
            return count
    return 0


def is_copy(copy: Mark, mark: Mark) -> bool:
    """Whether a record of the target may be the copy of one of the source; times count where both have them."""
    return copy.digest in (mark.digest, mark.timeless) or copy.timeless == mark.digest


def in_order(source: Iterable[Mark], tail: Iterable[Mark]) -> Iterator[tuple[Mark, Mark]]:
    """The source's records that are found in the tail one after the other, each with its copy, whatever lies between them."""
    copies = iter(tail)
    for mark in source:
        found = next((copy for copy in copies if is_copy(copy, mark)), None)
        if found is None:
            return
        yield mark, found


def covered(source: Iterable[Mark], tail: Sequence[Mark]) -> list[tuple[Mark, Mark | None]]:
    """Compaction took records on either side: the source's records up to where the tail covers them all.

    A key is covered if the last that the source has of it is the last that the tail has of it, behind the records before it.
    Cleaners take the older ones of a key first, so one that they left has all later ones behind it. Each record comes with its
    copy; None: a later one of its key stands for it.
    """
    places: dict[int | None, list[int]] = {}
    timeless: dict[int | None, list[int]] = {}
    last: dict[bytes | None, int] = {}
    for place, mark in enumerate(tail):
        for digest in {mark.digest, mark.timeless}:
            places.setdefault(digest, []).append(place)
        if mark.digest == mark.timeless:  # the target stamps its own times
            timeless.setdefault(mark.timeless, []).append(place)
        last[mark.key] = place
    rows: list[tuple[Mark, Mark | None]] = []
    done = reached = 0
    open_keys: set[bytes | None] = set()
    for mark in source:
        found = places.get(mark.digest) or timeless.get(mark.timeless) or []
        index = bisect_left(found, reached)
        is_found = index < len(found)
        if is_found:
            reached = found[index] + 1
        rows.append((mark, tail[found[index]] if is_found else None))
        if mark.key is None:  # replaces nothing: none may be left out
            if not is_found:
                break
        elif is_found and last[mark.key] < reached:
            open_keys.discard(mark.key)
        else:
            open_keys.add(mark.key)
        if not open_keys:
            done = len(rows)
    return rows[:done]
