"""The store of positions: the Connect offsets topic on the target, read, appended to, and claimed on.

Comes in: which connector and source cluster. Goes out: the position in force for each partition. See `formats.position` for
whose word counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sparkmirror.errors import CorruptBatch
from sparkmirror.formats import position as formats
from sparkmirror.formats.connect import (
    default_partition,
    parse_source_offset_key,
    source_offset_key,
)
from sparkmirror.formats.position import Entry, Fold, Position
from sparkmirror.kafka import admin, log, records
from sparkmirror.kafka.batches import (
    base_offset_of,
    end_offset,
    has_gaps,
    is_control,
    whole_batches,
)
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits, TopicPartition
from sparkmirror.kafka.row_batches import Row, append_in_batches

_LOG = logging.getLogger(__name__)
_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Which records of which topic are ours; travels in the plan."""

    topic: str
    connector: str
    source_alias: str


class PositionStore:
    """Positions of one connector.

    Invariants: `_read_to` is, per partition of the offsets topic, the offset up to which every record has gone through the
    folds (all that compaction had left when reading began, and all after those); a claim is believed only after the log has
    been read past it.
    """

    def __init__(self, cluster: Cluster, address: StoreAddress) -> None:
        self._cluster = cluster
        self.address = address
        self._folds: dict[bytes, Fold] = {}
        self._read_to: dict[int, int] = {}
        self._keys: dict[TopicPartition, bytes] = {}
        self._homes: dict[TopicPartition, int] = {}

    # -- reading ------------------------------------------------------------------------------

    def key(self, partition: TopicPartition) -> bytes:
        key = self._keys.get(partition)
        if key is None:
            key = self._keys[partition] = source_offset_key(
                self.address.connector, self.address.source_alias, partition[0], partition[1]
            )
        return key

    def get(self, partition: TopicPartition) -> Position | None:
        fold = self._folds.get(self.key(partition))
        return None if fold is None else fold.position

    def positions(self) -> Iterator[tuple[TopicPartition, Position]]:
        """Every position in force, also of partitions that are not copied any more."""
        owner = self.address.connector, self.address.source_alias
        for key, fold in self._folds.items():
            if fold.position is None:
                continue
            found = parse_source_offset_key(key)
            if found is not None and (found.connector, found.cluster) == owner:
                yield (found.topic, found.partition), fold.position

    def seed(
        self, positions: Mapping[TopicPartition, Position | None], read_to: Mapping[int, int]
    ) -> None:
        """Take over what somebody else (the driver) has read."""
        for partition, position in positions.items():
            self._folds[self.key(partition)] = Fold.taken_over(position)
        self._read_to = dict(read_to)

    @property
    def read_to(self) -> dict[int, int]:
        return dict(self._read_to)

    def catch_up(self) -> None:
        """Read to the end of the topic as it is now."""
        topic = self.address.topic
        partitions = self._cluster.topic(topic).partitions
        keys = [(topic, partition) for partition in partitions]
        ends = admin.list_offsets(self._cluster, keys, admin.LATEST)
        missing = [key for key in keys if key[1] not in self._read_to]
        if missing:
            starts = admin.list_offsets(self._cluster, missing, admin.EARLIEST)
            self._read_to |= {partition: offset for (_, partition), offset in starts.items()}
        for key, end in ends.items():
            if not self._read(key[1], end, has_all=key not in missing):
                # Compaction took records that were not read yet: what is left tells the truth only to one who begins with it.
                self._folds.clear()
                self._read_to.clear()
                return self.catch_up()
        return None

    def _read(self, partition: int, end: int, *, has_all: bool) -> bool:
        """Read on; False if records are missing though everything before them was read (`has_all`)."""
        start = self._read_to[partition]
        if start >= end:
            return True
        for fetched in log.read(self._cluster, self.address.topic, partition, start, end, _LIMITS):
            for view in whole_batches(fetched.records):
                if has_all and (base_offset_of(view) > start or has_gaps(view)):
                    return False
                self._apply(view, start)
                start = end_offset(view)
        self._read_to[partition] = max(start, end)
        return True

    def _records(self, view: memoryview) -> list[records.Record]:
        try:
            return records.decode_internal(view)
        except CorruptBatch as error:  # else whoever may write to the topic stops all who read it
            _LOG.error(
                "Topic %s, from offset %d: %s These records are skipped.",
                self.address.topic,
                base_offset_of(view),
                error.message,
            )
            return []

    def _apply(self, view: memoryview, start: int) -> None:
        if is_control(view):
            return
        for record in self._records(view):
            if record.offset < start or record.key is None:
                continue
            fold = self._folds.get(record.key)
            if fold is None:
                fold = self._folds[record.key] = Fold()
            fold.apply(formats.decode(record.value))

    # -- writing ------------------------------------------------------------------------------

    def home(self, partition: TopicPartition) -> int:
        """The partition of the offsets topic that holds this position."""
        home = self._homes.get(partition)
        if home is None:
            count = len(self._cluster.topic(self.address.topic).partitions)
            home = self._homes[partition] = default_partition(self.key(partition), count)
        return home

    def row(self, partition: TopicPartition, entry: Entry) -> Row:
        """The entry as a record of the offsets topic."""
        return self.key(partition), formats.encode(entry)

    def write(self, entries: Iterable[tuple[TopicPartition, Entry]]) -> None:
        """Append and wait until every replica in sync has it."""
        rows: dict[int, list[Row]] = {}
        for partition, entry in entries:
            rows.setdefault(self.home(partition), []).append(self.row(partition, entry))
        deadline = time.monotonic() + self._cluster.settings.request_timeout
        for home, found in rows.items():
            append = partial(self._append, home, deadline)
            append_in_batches(self.address.topic, found, append)

    def _append(self, home: int, deadline: float, rows: Sequence[Row]) -> None:
        batch = records.control_batch(rows, int(time.time() * 1000))
        topic = self.address.topic
        self._cluster.retrying(lambda: log.append(self._cluster, topic, home, batch), deadline)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """State positions once more whose last record does not count, so that compaction never leaves that one alone behind.

        Only numbered ones: stating them again changes nothing if they are out of force by then, as a reset would.
        """
        again: list[tuple[TopicPartition, Entry]] = []
        for partition in partitions:
            fold = self._folds.get(self.key(partition))
            if fold is None or fold.is_settled or fold.position is None:
                continue
            if fold.position.numbering is not None:
                again.append((partition, Entry(fold.position)))
        if again:
            self.write(again)

    def claim(
        self, claims: Mapping[TopicPartition, tuple[Position, formats.Numbering | None]]
    ) -> dict[TopicPartition, Position]:
        """Ask for new numberings, each with the one it replaces; gives the positions in force after that.

        Where somebody else's claim came first, theirs is given.
        """
        if not claims:
            return {}
        self.write(
            (partition, Entry(position, True, replaces))
            for partition, (position, replaces) in claims.items()
        )
        self.catch_up()
        self.settle(claims)
        granted: dict[TopicPartition, Position] = {}
        for partition in claims:
            position = self.get(partition)
            if position is not None and position.numbering is not None:
                granted[partition] = position
            # else reset by a person in this very moment: the caller starts over
        return granted
