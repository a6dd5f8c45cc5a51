"""Whether a mirror is true: two clusters and the names of topics come in, a verdict goes out.

Every record is looked at: key, value, headers, timestamp, order and count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from sparkmirror.dataplane.stream import Stream
from sparkmirror.kafka import admin, log
from sparkmirror.kafka.batches import NO_TIMESTAMP
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_COMMITTED, FetchLimits
from sparkmirror.kafka.records import Record, same_content

_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_COMMITTED)
# How far around a difference to look for its cause: a copy task repeats or drops a few batches.
_NEARBY = 10_000

Kind = Literal["missing", "twice", "changed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a remote partition departs from its source partition."""

    topic: str
    partition: int
    kind: Kind
    source_offset: int
    target_offset: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: {self.kind}, at offset {self.source_offset} of the "
            f"source and {self.target_offset} of the target"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared: `records` counts those found equal and in order."""

    partitions: int
    records: int
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


def compare(source: Cluster, target: Cluster, remotes: Mapping[str, str]) -> Comparison:
    """Compare each source topic with its remote topic, as both are now."""
    source.refresh(list(remotes))
    target.refresh(list(remotes.values()))
    partitions = records = 0
    differences: list[Difference] = []
    for topic, remote in remotes.items():
        for partition in sorted(source.topic(topic).partitions):
            equal, difference = compare_partition(
                topic,
                partition,
                read_committed(source, topic, partition),
                read_committed(target, remote, partition),
            )
            partitions += 1
            records += equal
            if difference is not None:
                differences.append(difference)
    return Comparison(partitions, records, tuple(differences))


def compare_partition(
    topic: str, partition: int, source: Iterator[Record], target: Iterator[Record]
) -> tuple[int, Difference | None]:
    """How many records agree from the start, and the first difference if there is one."""
    before: deque[Record] = deque(maxlen=_NEARBY)
    next_source = next_target = 0
    equal = 0
    while True:
        ours, theirs = next(source, None), next(target, None)
        if ours is None and theirs is None:
            return equal, None
        if ours is not None and theirs is not None and _same(ours, theirs):
            equal += 1
            next_source, next_target = ours.offset + 1, theirs.offset + 1
            before.append(ours)
            continue
        kind = _kind(ours, theirs, before, source)
        at_source = next_source if ours is None else ours.offset
        at_target = next_target if theirs is None else theirs.offset
        return equal, Difference(topic, partition, kind, at_source, at_target)


def read_committed(cluster: Cluster, topic: str, partition: int) -> Iterator[Record]:
    """Every committed record that a partition holds now."""
    key = (topic, partition)
    start = admin.list_offsets(cluster, [key], admin.EARLIEST)[key]
    end = admin.list_offsets(cluster, [key], admin.LATEST, READ_COMMITTED)[key]
    stream = Stream(start, READ_COMMITTED)
    for fetched in log.read(cluster, topic, partition, start, end, _LIMITS):
        for piece in stream.feed(fetched):
            yield from (record for record in piece.records() if record.offset < end)


def _same(ours: Record, theirs: Record) -> bool:
    """Whether one is the copy of the other; a record without a time gets one when it is copied."""
    return ours.timestamp in (NO_TIMESTAMP, theirs.timestamp) and same_content(ours, theirs)


def _kind(
    ours: Record | None, theirs: Record | None, before: deque[Record], source: Iterator[Record]
) -> Kind:
    """What a departure is: what follows at the source, or was equal before, tells."""
    if theirs is None:
        return "missing"
    if any(_same(earlier, theirs) for earlier in before):
        return "twice"
    if ours is not None and any(_same(later, theirs) for later in islice(source, _NEARBY)):
        return "missing"
    return "changed"
