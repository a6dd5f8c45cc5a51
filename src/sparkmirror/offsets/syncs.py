"""When an offset sync is due: acknowledged records come in, the syncs to send go out.

The rules are those of MirrorMaker 2's `OffsetSyncWriter`, told for runs of consecutive records
instead of single ones, since batches are acknowledged as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkmirror.formats.mirror import OffsetSync

MAX_IN_FLIGHT = 10
TopicPartition = tuple[str, int]
Pair = tuple[int, int]

_NONE = -1


class PartitionSyncs:
    """What is known of one partition since its task started.

    Invariants: `previous_*` are the offsets of the last record seen; `last_sync_downstream` is the
    downstream offset of the last record for which a sync was due. All are -1 before the first.
    """

    __slots__ = (
        "_last_sync_downstream",
        "_max_lag",
        "_previous_downstream",
        "_previous_upstream",
    )

    def __init__(self, max_lag: int) -> None:
        self._max_lag = max_lag
        self._previous_upstream = _NONE
        self._previous_downstream = _NONE
        self._last_sync_downstream = _NONE

    def update(self, upstream: int, downstream: int) -> bool:
        """Take note of one record; True if a sync of it is due.

        Due are the first record, one that is too far from the last sync, one that does not follow
        its predecessor upstream (gap or rewind), and one that went back downstream.
        """
        last = self._last_sync_downstream
        due = (
            last == _NONE
            or downstream - (last + 1) >= self._max_lag
            or upstream - self._previous_upstream != 1
            or downstream < self._previous_downstream
        )
        if due:
            self._last_sync_downstream = downstream
        self._previous_upstream = upstream
        self._previous_downstream = downstream
        return due

    def update_run(self, upstream: int, downstream: int, count: int) -> list[Pair]:
        """Take note of `count` records in a row on both sides; the offsets of those that are due.

        The same as `update` for each of them, but its cost is the number of due syncs.
        """
        due = self.due_in_run(upstream, downstream, count)
        return [(upstream + position, downstream + position) for position in due]

    def due_in_run(self, upstream: int, downstream: int, count: int) -> range:
        """Like `update_run`, as positions within the run, in constant time."""
        if count <= 0:
            return range(0)
        first_due = self.update(upstream, downstream)
        # Within a run nothing but the lag makes a record due, so due ones are evenly spaced.
        step = max(1, self._max_lag + 1)
        next_due = self._last_sync_downstream + step - downstream
        later = range(next_due, count, step)
        if later:
            self._last_sync_downstream = downstream + later[-1]
        self._previous_upstream = upstream + count - 1
        self._previous_downstream = downstream + count - 1
        # The first being due, the next is one step on: both make one range.
        return range(0, count, step) if first_due else later


class OffsetSyncQueue:
    """Which syncs wait, and which may be sent now.

    Invariants: at most `MAX_IN_FLIGHT` syncs are in flight. A partition has at most one *pending*
    entry (due, to be sent as soon as possible: the first and the last due sync of one run) and at
    most one *delayed* sync (not due, sent at the next commit); a newer one replaces it. A delayed
    sync is newer than its partition's pending ones.
    """

    __slots__ = ("_delayed", "_in_flight", "_max_lag", "_partitions", "_pending")

    def __init__(self, max_lag: int) -> None:
        self._max_lag = max_lag
        self._partitions: dict[TopicPartition, PartitionSyncs] = {}
        self._pending: dict[TopicPartition, list[OffsetSync]] = {}
        self._delayed: dict[TopicPartition, OffsetSync] = {}
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """How many syncs were taken and not yet done."""
        return self._in_flight

    def acked(
        self, partition_key: TopicPartition, upstream: int, downstream: int, count: int
    ) -> None:
        """The target has `count` records in a row of that source partition."""
        if count <= 0:
            return
        syncs = self._partitions.get(partition_key)
        if syncs is None:
            syncs = self._partitions[partition_key] = PartitionSyncs(self._max_lag)
        due = syncs.due_in_run(upstream, downstream, count)
        topic, partition = partition_key

        def sync(position: int) -> OffsetSync:
            return OffsetSync(topic, partition, upstream + position, downstream + position)

        if due:
            # Those in between would be replaced by the last before they could be sent.
            ends = [due[0]] if len(due) == 1 else [due[0], due[-1]]
            self._pending[partition_key] = [sync(position) for position in ends]
            self._delayed.pop(partition_key, None)
        if not due or due[-1] != count - 1:
            self._delayed[partition_key] = sync(count - 1)

    def take_ready(self) -> list[OffsetSync]:
        """The syncs to send now, oldest partition first; each is in flight until `sent_done`."""
        ready: list[OffsetSync] = []
        while self._pending and self._in_flight < MAX_IN_FLIGHT:
            partition_key, waiting = next(iter(self._pending.items()))
            ready.append(waiting.pop(0))
            self._in_flight += 1
            if not waiting:
                del self._pending[partition_key]
        return ready

    def sent_done(self, n: int = 1) -> None:
        """`n` syncs that were taken have been sent, or have failed: both free their places."""
        if not 0 <= n <= self._in_flight:
            raise ValueError(f"{n} syncs done, but {self._in_flight} are in flight")
        self._in_flight -= n

    def give_back(self, syncs: Iterable[OffsetSync]) -> None:
        """These were taken and not sent: send them again, but for those that a newer one replaces."""
        again: dict[TopicPartition, list[OffsetSync]] = {}
        for sync in syncs:
            self.sent_done()
            again.setdefault((sync.topic, sync.partition), []).append(sync)
        self._pending = again | self._pending

    def promote(self) -> None:
        """At a commit: what was not due is to be sent now, so that idle partitions catch up."""
        for partition_key, sync in self._delayed.items():
            self._pending[partition_key] = [sync]
        self._delayed.clear()
