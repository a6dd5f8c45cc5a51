"""What a copy task tells about itself: acknowledged batches in; positions, offset syncs, offset map and progress records out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparkmirror.errors import KafkaError
from sparkmirror.formats import progress
from sparkmirror.formats.mirror import OffsetSync, encode_offset_sync
from sparkmirror.formats.offset_map import Place, Run, TopicIds
from sparkmirror.formats.position import Entry, Position
from sparkmirror.formats.progress import PartitionProgress, RunsOn
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.row_batches import Row, row_size
from sparkmirror.offsets.syncs import OffsetSyncQueue

from .addressing import Sent
from .mapping import MapSender
from .partition import PartitionCopy
from .plan import TaskPlan
from .positions import PositionStore
from .rate_limits import TaskLimits
from .sending import Sender
from .shape import has_query
from .side_writes import Kind, Outcome, SideWriter

log = logging.getLogger(__name__)
_FULL_REPORT_EVERY = 30
_POSITIONS = Kind(
    "positions",
    "They are written again with the next ones; a restart before that reads more of the target's log.",
)
_PROGRESS = Kind("progress", "It is reported again in a second; copying goes on.")
_SYNCS = Kind("offset syncs", "The next ones make up for them; copying goes on.")
_SYNC_BYTES = 60  # of a sync beside its topic, about
_PositionRow = tuple[PartitionCopy, Row]
_ProgressRow = tuple[PartitionCopy, bytes]


class Standing(NamedTuple):
    """Why a partition stands still, and how often it was tried again since."""

    error: str
    attempts: int


_GOES_ON = Standing("", 0)


@dataclass(slots=True)
class _Run:
    """Acknowledged records that follow each other on both sides."""

    upstream: int
    downstream: int
    count: int
    mapped: int = 0
    """How many of them, from the first on, the offset map has already."""


class Reporter:
    """Writes what is due, without ever holding the data up.

    Invariants: `_dirty` holds the partitions whose newest position is not (known to be) written; at most one write of positions
    is under way per partition of the offsets topic; a failed write leaves its partitions dirty.
    """

    def __init__(
        self,
        plan: TaskPlan,
        store: PositionStore,
        sender: Sender,
        store_sender: Sender,
        syncs_sender: Sender,
        mapping: MapSender,
        runs_on: RunsOn = RunsOn(),  # noqa: B008 - it cannot be changed
        limits: TaskLimits | None = None,
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._store = store
        self._mapping = mapping
        self._positions_side = SideWriter(
            store_sender, plan.store.topic, _POSITIONS, _position_size, _position_rows
        )
        self._progress_side = SideWriter(
            sender, plan.settings.progress_topic, _PROGRESS, _progress_size, self._progress_rows
        )
        self._syncs_side = SideWriter(
            syncs_sender, plan.settings.offset_syncs_topic, _SYNCS, _sync_size, _sync_rows
        )
        self._syncs = OffsetSyncQueue(plan.settings.offset_lag_max)
        self._dirty: dict[TopicPartition, PartitionCopy] = {}
        self._stirred: set[TopicPartition] = set()
        self._flush_at = 0.0
        self._progress_at = 0.0
        self._reports = 0
        self.since = int(time.time() * 1000)
        """When the task began."""
        self._runs_on = runs_on
        self._limits = limits
        self._ages: dict[TopicPartition, int] = {}
        self._syncs_wait = False
        self._runs: dict[PartitionCopy, _Run] = {}
        self._losses: dict[TopicPartition, str] = {}

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        """The target holds one more batch, of a partition or of one lane of it.

        Called for every batch: runs are only joined here, and looked at once a turn.
        """
        run = self._runs.get(copy)
        first, count = sent.first_offset, sent.count
        if (
            run is not None
            and run.upstream + run.count == first
            and run.downstream + run.count == base_offset
            and sent.last_offset - first + 1 == count
        ):
            run.count += count
            return
        if run is not None:
            self._take_note(copy, run)
        if sent.last_offset - first + 1 == count:
            self._runs[copy] = _Run(first, base_offset, count)
        else:
            # With gaps upstream only the ends are synced: each is a pair that holds. The map has all that lies between.
            self._mapping.batch(copy, sent, base_offset)
            self._take_note(copy, _Run(first, base_offset, 1, mapped=1))
            self._runs[copy] = _Run(sent.last_offset, base_offset + count - 1, 1, mapped=1)

    def moved(self, copy: PartitionCopy) -> None:
        """The position of a partition has moved with nothing to be told of offsets."""
        self._dirty[copy.key] = copy
        self._stirred.add(copy.key)
        if copy.last_timestamp >= 0:
            self._ages[copy.key] = int(time.time() * 1000) - copy.last_timestamp

    def _take_note(self, copy: PartitionCopy, run: _Run) -> None:
        if self._settings.offset_syncs_topic and copy.is_home:
            self._syncs.acked(copy.key, run.upstream, run.downstream, run.count)
            self._syncs_wait = True
        mapped = run.mapped
        self._mapping.run(copy, run.upstream + mapped, run.downstream + mapped, run.count - mapped)

    def turn(self) -> None:
        """Once a turn of the loop: take note of what was acknowledged, and send the offset syncs that are due, together."""
        if self._runs:
            now = int(time.time() * 1000)
            for copy, run in self._runs.items():
                self._dirty[copy.key] = copy.whole
                self._stirred.add(copy.key)
                if copy.last_timestamp >= 0:  # records without a time have no age
                    self._ages[copy.key] = now - copy.last_timestamp
                self._take_note(copy, run)
            self._runs.clear()
        if self._syncs_wait:
            self._syncs_wait = False
            self._send_syncs()

    def resumed(self, copies: Iterable[PartitionCopy]) -> None:
        """These were aligned: another task has perhaps written what they would have written next."""
        self.turn()
        self._mapping.interrupt({copy.key for copy in copies})

    def found(self, place: Place, ids: TopicIds, runs: Sequence[Run]) -> None:
        """Records that a task before this one has written: the map is to tell of them."""
        self._mapping.found(place, ids, runs)

    def lost(self, partition: TopicPartition, message: str) -> None:
        """Something of this partition is gone: it stays in the reports of this task."""
        self._losses[partition] = message
        self._stirred.add(partition)
        self.urge()

    def urge(self) -> None:
        """Something changed that people wait for: report at the next turn."""
        self._progress_at = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._flush_at or now >= self._progress_at

    def report(
        self,
        now: float,
        copies: Collection[PartitionCopy],
        standing: Mapping[TopicPartition, Standing],
    ) -> None:
        if now >= self._flush_at:
            self._flush_at = now + self._settings.flush_interval
            self._flush()
        if now >= self._progress_at:
            self._progress_at = now + self._settings.progress_interval
            self._report_progress(copies, standing)
            self._mapping.flush()  # group offsets are translated every few seconds, however seldom positions are written

    def finish(self, copies: Iterable[PartitionCopy]) -> None:
        """The last positions, written and waited for; a failure only means a longer tail to align at the next start."""
        self.turn()
        is_mapped = _is_written(self._mapping.finish)
        entries = [
            (copy.key, Entry(copy.position))
            for copy in copies
            if copy.key in self._dirty and copy.numbering is not None
            if is_mapped or not copy.maps_first
        ]
        _is_written(lambda: self._store.write(entries))

    # -- positions ----------------------------------------------------------------------------

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        self._write([c for c in dirty.values() if not c.maps_first])
        after = [c for c in dirty.values() if c.maps_first]
        if after:
            positions = {copy.key: copy.position for copy in after}

            def mapped(is_whole: bool) -> None:
                if is_whole:
                    self._write(after, positions)
                else:
                    self.not_written(after)

            self._mapping.flush_then(mapped)
        if self._settings.offset_syncs_topic:
            self._syncs.promote()
            self._send_syncs()

    def _write(
        self,
        dirty: Sequence[PartitionCopy],
        positions: Mapping[TopicPartition, Position] | None = None,
    ) -> None:
        """Write positions as they are, or as they were."""
        homes: dict[int, list[PartitionCopy]] = {}
        try:
            for copy in dirty:
                homes.setdefault(self._store.home(copy.key), []).append(copy)
        except KafkaError:
            self.not_written(dirty)
            return
        for home, copies in homes.items():
            known = positions or {}
            rows = [
                (copy, self._store.row(copy.key, Entry(known.get(copy.key) or copy.position)))
                for copy in copies
            ]
            self._positions_side.write(home, rows, self._positions_heard)

    def _positions_heard(self, rows: Sequence[_PositionRow], outcome: Outcome) -> None:
        if outcome is not Outcome.WRITTEN:
            self.not_written(copy for copy, _ in rows)
        if outcome is Outcome.SPLIT:
            self._flush_at = 0.0

    def not_written(self, copies: Iterable[PartitionCopy]) -> None:
        for copy in copies:
            self._dirty.setdefault(copy.key, copy)

    # -- offset syncs -------------------------------------------------------------------------

    def _send_syncs(self) -> None:
        ready = self._syncs.take_ready()
        if ready:
            self._syncs_side.write(0, ready, self._syncs_heard)

    def _syncs_heard(self, syncs: Sequence[OffsetSync], outcome: Outcome) -> None:
        if outcome is Outcome.SPLIT:
            self._syncs.give_back(syncs)
        else:
            self._syncs.sent_done(len(syncs))
        self._syncs_wait = True

    # -- progress -----------------------------------------------------------------------------

    def _report_progress(
        self, copies: Collection[PartitionCopy], standing: Mapping[TopicPartition, Standing]
    ) -> None:
        if not self._settings.progress_topic:
            return
        full = self._reports % _FULL_REPORT_EVERY == 0
        self._reports += 1
        rows: list[_ProgressRow] = []
        for copy in copies:
            if full or copy.key in self._stirred or copy.key in standing:
                row = self._row(copy, standing.get(copy.key, _GOES_ON))
                rows.append((copy, progress.encode_partition(row)))
        self._stirred.clear()
        if rows:
            self._progress_side.write(0, rows, self._progress_heard)

    def _progress_rows(self, rows: Sequence[_ProgressRow]) -> Sequence[Row]:
        """One record for each task."""
        partitions = ((copy.plan.task, row) for copy, row in rows)
        now, connector = int(time.time() * 1000), self._plan.store.connector
        return progress.encode_tasks(connector, self.since, now, partitions, self._runs_on)

    def _progress_heard(self, rows: Sequence[_ProgressRow], outcome: Outcome) -> None:
        """What was not written is in the next report."""
        if outcome is not Outcome.WRITTEN:
            self._stirred.update(copy.key for copy, _ in rows)
        if outcome is Outcome.SPLIT:
            self.urge()

    def _row(self, copy: PartitionCopy, standing: Standing) -> PartitionProgress:
        position: Position = copy.position
        state = "FAILED" if standing.error else "RUNNING"
        return PartitionProgress(
            copy.plan.topic,
            copy.plan.partition,
            copy.plan.remote,
            position.next_offset,
            copy.target_offset,
            copy.records,
            copy.bytes,
            copy.lag,
            self._ages.get(copy.key, -1),
            state,
            standing.error,
            self._losses.get(copy.key, ""),
            standing.attempts,
            copy.routed,
            copy.places,
            position.since if has_query(position.transforms) else -1,
            copy.finishes_at,
            self._held_back_by(copy),
        )

    def _held_back_by(self, copy: PartitionCopy) -> str:
        if self._limits is None or copy.lag <= 0:
            return ""
        return self._limits.holding_back(copy.plan.topic, time.monotonic())


def _is_written(write: Callable[[], object]) -> bool:
    """Whether something of the last was written; if not, its tail is longer at the next start."""
    try:
        write()
    except KafkaError as error:
        log.warning("The last positions could not be written: %s", error)
        return False
    return True


def _position_size(row: _PositionRow) -> int:
    return row_size(row[1])


def _position_rows(rows: Sequence[_PositionRow]) -> list[Row]:
    return [row for _, row in rows]


def _progress_size(row: _ProgressRow) -> int:
    return len(row[1]) + 1


def _sync_size(sync: OffsetSync) -> int:
    return len(sync.topic) + _SYNC_BYTES


def _sync_rows(syncs: Sequence[OffsetSync]) -> list[Row]:
    return [encode_offset_sync(sync) for sync in syncs]
