"""Which offset syncs are kept, and what a group's offset is downstream: syncs come in, translations go out.

The rules are those of MirrorMaker 2's `OffsetSyncStore`. Each source partition has 64 slots that hold syncs ever farther
apart the older they are, so that recent offsets are translated well and old ones at all.
"""

from __future__ import annotations

from sparkmirror.formats.mirror import OffsetSync

SLOTS = 64
TOO_OLD = -1
_LAST = SLOTS - 1
_POWERS = tuple(1 << slot for slot in range(SLOTS))
_GAPS = tuple(1 << max(slot - 2, 0) for slot in range(SLOTS))
_WRAP = 1 << 64
_LIMIT = 1 << 63
Slots = list[OffsetSync]


class OffsetSyncStore:
    """The syncs of all source partitions.

    Invariants, per partition: slot 0 is the newest sync and slot 63 the oldest that can be used; between slots i < j that hold
    different syncs, the distance upstream is at most 2^j - 2^i and at least 2^max(i-2, 0). Syncs are told apart by identity:
    two that are equal are still two.

    Nothing is translated before the log has been read to its end once (`finish_loading`). A store that `must_read_to_end`
    keeps only the newest sync of that first reading: it is used where the last checkpoints are not known, so that what is
    written next cannot be behind them.
    """

    __slots__ = ("_is_loaded", "_must_read_to_end", "_partitions")

    def __init__(self, *, must_read_to_end: bool) -> None:
        self._must_read_to_end = must_read_to_end
        self._is_loaded = False
        self._partitions: dict[tuple[str, int], Slots] = {}

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    def finish_loading(self) -> None:
        """All syncs that were there at the beginning have been added."""
        self._is_loaded = True

    def add(self, sync: OffsetSync) -> None:
        """Take the next sync of the log."""
        key = (sync.topic, sync.partition)
        slots = self._partitions.get(key)
        starts_over = (
            slots is None
            or (self._must_read_to_end and not self._is_loaded)
            or sync.upstream_offset < slots[0].upstream_offset
        )
        if slots is None or starts_over:
            self._partitions[key] = [sync] * SLOTS
        else:
            _push(slots, sync)

    def newest(self, topic: str, partition: int) -> OffsetSync | None:
        """The last sync that came; None if none has."""
        slots = self._partitions.get((topic, partition))
        return None if slots is None else slots[0]

    def forget(self, topic: str, partition: int) -> None:
        """The syncs of a partition say nothing any more."""
        self._partitions.pop((topic, partition), None)

    def slots(self, topic: str, partition: int) -> tuple[OffsetSync, ...]:
        """What is kept of a partition, newest first; nothing if no sync has come."""
        return tuple(self._partitions.get((topic, partition), ()))

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        """The downstream offset; `TOO_OLD` before the oldest sync, None if nothing is known (yet).

        Past a sync it is the one behind the sync and never more: whether the records after it were copied, nobody told.
        """
        slots = self._partitions.get((topic, partition))
        if slots is None or not self._is_loaded:
            return None
        sync = next((s for s in slots if s.upstream_offset <= offset), None)
        if sync is None:
            return TOO_OLD
        return sync.downstream_offset + (0 if sync.upstream_offset == offset else 1)


def _push(slots: Slots, newest: OffsetSync) -> None:
    """Put the newest sync in front and move the others back as far as it takes to keep the distances."""
    old = list(slots)
    slots[0] = replacement = newest
    candidate = 0
    for current in range(1, SLOTS):
        previous = current - 1
        while True:
            sync = old[candidate]
            is_apart = _far_enough(slots[previous], sync, previous)
            is_fit = (
                is_apart
                and _near_enough(slots[previous], sync, previous, current)
                and (current == _LAST or _far_enough(sync, slots[current + 1], current))
            )
            if is_fit:
                replacement = sync
            is_doubled = candidate < _LAST and sync is old[candidate + 1]
            skips = is_doubled or not is_apart
            if is_fit or skips:
                candidate += 1
            if candidate >= current or not skips:
                break
        if _near_enough(slots[previous], slots[current], previous, current):
            return
        slots[current] = replacement


def _near_enough(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    if newer is older:
        return True
    bound = _wrapped(older.upstream_offset + _POWERS[j] - _POWERS[i])
    return bound < 0 or newer.upstream_offset <= bound


def _far_enough(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    if newer is older:
        return True
    bound = _wrapped(older.upstream_offset + _GAPS[i])
    return bound >= 0 and newer.upstream_offset >= bound


def _wrapped(number: int) -> int:
    """A sum as 64 bits hold it: the greatest slots reach beyond."""
    return number if number < _LIMIT else number - _WRAP
