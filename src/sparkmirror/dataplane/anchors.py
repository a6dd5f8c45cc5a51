"""Where to go on, told by content: digests of the target's tail and of the source's records in, how many of those are copied out.

For when counting does not tell, because the source is no longer what it was when the tail was copied from it. Every rule errs
towards copying a record again, never towards leaving one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A source record, as far as the rules look at it."""

    offset: int
    key: bytes | None
    digest: int
    leader_epoch: int = -1


def common(source: Sequence[Mark], tail: Sequence[int], unseen: int = 0) -> int:
    """The source was cut back and written anew: how many of its records begin the tail as well.

    `unseen` records of the tail's beginning are gone from the target by its own retention, and pass for the same.
    """
    count = min(unseen, len(source))
    for mark, digest in zip(source[unseen:], tail, strict=False):
        if mark.digest != digest:
            break
        count += 1
    return count


def overlap(source: Sequence[Mark], tail: Sequence[int], surely_copied: int) -> int:
    """The source lost its beginning: how many of the records it has left are the end of the tail.

    What lies at or before offset `surely_copied` was copied, for sequence numbers cannot run ahead of offsets; transaction
    markers in between may mean that a few more were. Of all answers that fit the content, the smallest is taken.
    """
    least = sum(mark.offset <= surely_copied for mark in source)
    digests = [mark.digest for mark in source]
    for count in range(least, min(len(source), len(tail)) + 1):
        ends_alike = count == 0 or digests[count - 1] == tail[-1]
        if ends_alike and digests[:count] == list(tail[len(tail) - count :]):
            return count
    return 0


def covered(source: Iterable[Mark], tail: set[int]) -> int:
    """Compaction took records on either side: up to how many of the source's records the tail covers them all.

    A record is covered if it is in the tail, or if a later one of its key is, which may be why the target has it no longer.
    """
    done = 0
    open_keys: set[bytes] = set()
    for count, mark in enumerate(source, 1):
        if mark.digest in tail:
            if mark.key is not None:
                open_keys.discard(mark.key)
            if not open_keys:
                done = count
        elif mark.key is None:
            break
        else:
            open_keys.add(mark.key)
    return done
