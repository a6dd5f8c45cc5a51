"""Whether a source topic without an id is still the one that was copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.source_identity import is_other, recreated
from sparkmirror.formats.position import Fingerprint, Numbering, Position
from sparkmirror.kafka import log
from sparkmirror.kafka.batches import crc_of
from sparkmirror.kafka.cluster import Cluster, PartitionInfo
from sparkmirror.kafka.fetch import TopicPartition
from tests.unit.making import batch, message_set, record

PLAN = PartitionPlan("t", 0, "A.t")
SAME = batch([record(8), record(9)], base=8)
OTHER = batch([record(8, 50), record(9)], base=8)
SPARSE = batch([record(9)], base=8, last=9)


@dataclass
class Source:
    """A cluster, as far as it is asked."""

    leader_epoch: int = 0
    refreshed: set[str] = field(default_factory=set)

    def leader(self, topic: str, partition: int) -> PartitionInfo:
        return PartitionInfo(partition, 1, self.leader_epoch)

    def refresh(self, topics: set[str]) -> None:
        self.refreshed |= topics


def test_the_same_batch_is_known_by_its_checksum() -> None:
    known = Fingerprint(0, crc_of(SAME))
    assert not is_other(known, 9, SAME)
    assert is_other(known, 9, OTHER)


def test_what_compaction_may_have_changed_is_not_taken_for_another() -> None:
    known = Fingerprint(0, crc_of(SAME))
    assert not is_other(known, 9, SPARSE)
    assert not is_other(known, 9, batch([record(12)], base=12))  # the next one that is left
    legacy = message_set([record(8), record(9)], 1, 1)
    assert is_other(known, 9, legacy)
    assert not is_other(known, 9, legacy, compacted=True)


@pytest.mark.parametrize(
    ("found", "end", "leader_epoch", "truncated", "is_recreated"),
    [
        (SAME, 100, 0, False, False),
        (OTHER, 100, 0, False, True),
        (OTHER, 100, 1, False, True),
        (OTHER, 100, 1, True, False),  # cut back by an election, and grown again
        (OTHER, 100, 0, True, True),
        (None, 100, 0, False, False),
        (None, 10, 0, False, False),  # ends right behind the last copied record
        (None, 9, 0, False, True),
        (None, 9, 1, False, False),  # cut back by an election
    ],
)
def test_a_topic_created_again(
    monkeypatch: pytest.MonkeyPatch,
    found: memoryview | None,
    end: int,
    leader_epoch: int,
    truncated: bool,
    is_recreated: bool,
) -> None:
    asked: dict[TopicPartition, int] = {}

    def batches_at(_: Any, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        asked.update(offsets)
        return {key: found for key in offsets if found is not None}

    monkeypatch.setattr(log, "batches_at", batches_at)
    source = Source(leader_epoch)
    position = Position(9, Numbering(1, 0), 10, 10, Fingerprint(0, crc_of(SAME)))
    answer = recreated(
        cast("Cluster", source),
        {PLAN: position},
        {PLAN.key: 0},
        {PLAN.key: end},
        {PLAN.key: 5} if truncated else {},
    )
    assert answer == (frozenset({PLAN.key}) if is_recreated else frozenset())
    assert asked == ({PLAN.key: 9} if end > 9 else {})
    if is_recreated:
        assert source.refreshed == {"t"}  # the leader epoch is the one of now


def test_records_that_are_gone_from_the_source_tell_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "batches_at", lambda _, offsets: dict.fromkeys(offsets, OTHER))
    position = Position(9, Numbering(1, 0), 10, 10, Fingerprint(0, crc_of(SAME)))
    source = cast("Cluster", Source())
    assert not recreated(source, {PLAN: position}, {PLAN.key: 10}, {PLAN.key: 20}, {})
    unknown = Position(9, Numbering(1, 0), 10, 10)
    assert not recreated(source, {PLAN: unknown}, {PLAN.key: 0}, {PLAN.key: 20}, {})
