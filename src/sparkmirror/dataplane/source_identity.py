"""Whether a source topic without an id is still the one that was copied, told by its records.

Brokers before 2.8 have no topic ids. There a topic that was deleted and created again looks like the one before it, until its
records are looked at: the batch that holds the last copied record has another checksum than the one that is kept with the
position; or the log ends before that record though no new leader was elected, so that nobody can have cut it back.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.formats.position import Fingerprint, Position
from sparkmirror.kafka import log
from sparkmirror.kafka.batches import DELETE_HORIZON, Batch, base_offset_of, crc_of, magic_of
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition

from .plan import PartitionPlan


def recreated(
    source: Cluster,
    positions: Mapping[PartitionPlan, Position],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    truncated: Mapping[TopicPartition, int],
) -> frozenset[TopicPartition]:
    """The partitions of these positions whose topic was deleted and created again."""
    if not positions:
        return frozenset()
    shorter = [part for part, found in positions.items() if latest[part.key] <= found.offset]
    differing = with_other_records(source, positions, earliest, latest)
    other = [part for part in positions if part.key in differing]
    if shorter or other:  # leader epochs as they are now, not as they were before
        source.refresh({part.topic for part in (*shorter, *other)})
    return frozenset(
        {part.key for part in shorter if not _has_new_leader(source, part, positions[part])}
        | {
            part.key
            for part in other
            if part.key not in truncated or not _has_new_leader(source, part, positions[part])
        }
    )


def with_other_records(
    source: Cluster,
    positions: Mapping[PartitionPlan, Position],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> frozenset[TopicPartition]:
    """The partitions whose source surely has another batch at the position than the one that was copied."""
    kept = {
        part.key: found.offset
        for part, found in positions.items()
        if found.fingerprint.crc >= 0 and earliest[part.key] <= found.offset < latest[part.key]
    }
    batches = log.batches_at(source, kept) if kept else {}
    return frozenset(
        part.key
        for part, found in positions.items()
        if part.key in batches
        and is_other(found.fingerprint, found.offset, batches[part.key], compacted=part.compacted)
    )


def is_other(
    fingerprint: Fingerprint, offset: int, batch: memoryview, *, compacted: bool = False
) -> bool:
    """Whether a batch that was read at an offset is surely not the one with this fingerprint.

    Compaction removes batches, and records from batches, and marks batches with tombstones, which changes their checksums: then
    nothing is sure.
    """
    if base_offset_of(batch) > offset or crc_of(batch) == fingerprint.crc:
        return False
    if magic_of(batch) < 2:
        return not compacted
    header = Batch(batch)
    is_touched = header.attributes & DELETE_HORIZON or header.count <= header.last_offset_delta
    return not is_touched


def _has_new_leader(source: Cluster, part: PartitionPlan, position: Position) -> bool:
    """Whether a leader was elected since the last copied record was written; unknown epochs count as no."""
    written = position.fingerprint.leader_epoch
    return 0 <= written < source.leader(part.topic, part.partition).leader_epoch
