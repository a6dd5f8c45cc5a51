"""From recorded positions to positions to copy from: clusters as tables of facts, the store of positions as a list of entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.positions import PositionStore, StoreAddress
from sparkmirror.dataplane.resume import Forgotten, Outcome, Resumer, now_ms
from sparkmirror.errors import BrokerError, ConnectionFailed, NumberingLost, TopicRecreated
from sparkmirror.formats.position import (
    MAX_EPOCH,
    NO_FINGERPRINT,
    SUPERSEDED_MS,
    Entry,
    Fingerprint,
    Fold,
    Numbering,
    Position,
    Superseded,
)
from sparkmirror.kafka import admin
from sparkmirror.kafka import log as kafka_log
from sparkmirror.kafka.admin import EARLIEST, ProducerState
from sparkmirror.kafka.batches import crc_of
from sparkmirror.kafka.cluster import Cluster, PartitionInfo, TopicInfo
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.settings import ClientSettings
from tests.unit.making import batch, record

SOURCE_ID, TARGET_ID = bytes([1] * 16), bytes([2] * 16)
PLAN = PartitionPlan("t", 0, "A.t")
OTHER = PartitionPlan("u", 0, "A.u")
NUMBER = Numbering(5, 3)


@dataclass
class Side:
    """One cluster, as far as `resume` asks it."""

    alias: str
    topic_id: bytes
    start: dict[TopicPartition, int] = field(default_factory=dict)
    end: dict[TopicPartition, int] = field(default_factory=dict)
    producers: dict[TopicPartition, dict[int, ProducerState]] | None = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    is_behind: bool = False
    """Whether the metadata names another topic id than the leaders know."""

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings(self.alias, (("h", 1),))

    def topic(self, name: str) -> TopicInfo:
        return TopicInfo(name, self.topic_id, False)

    def leader(self, name: str, partition: int) -> PartitionInfo:
        if name in self.gone:
            raise BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION", f"{name} is gone", retriable=True)
        return PartitionInfo(partition, 1, 0)

    def refresh(self, topics: Iterable[str]) -> None:
        """The table does not change."""


class Log(PositionStore):
    """Positions in a list that several stores share."""

    def __init__(self, shared: list[tuple[TopicPartition, Entry]]) -> None:
        super().__init__(cast("Cluster", None), StoreAddress("offsets", "c", "A"))
        self._shared = shared
        self._place = 0
        self.before_claim: list[tuple[TopicPartition, Entry]] = []

    def catch_up(self) -> None:
        for partition, entry in self._shared[self._place :]:
            self._folds.setdefault(self.key(partition), Fold()).apply(entry)
        self._place = len(self._shared)

    def write(self, entries: Iterable[tuple[TopicPartition, Entry]]) -> None:
        self._shared += self.before_claim
        self.before_claim = []
        self._shared += entries


@dataclass
class World:
    """Both clusters and the log of positions."""

    source: Side = field(default_factory=lambda: Side("A", SOURCE_ID))
    target: Side = field(default_factory=lambda: Side("B", TARGET_ID))
    shared: list[tuple[TopicPartition, Entry]] = field(default_factory=list)
    next_producer: int = 100

    def put(self, plan: PartitionPlan, start: int, end: int, target_end: int) -> None:
        self.source.start[plan.key], self.source.end[plan.key] = start, end
        remote = (plan.remote, plan.partition)
        self.target.start[remote], self.target.end[remote] = 0, target_end

    def remember(self, plan: PartitionPlan, number: Numbering, last_sequence: int) -> None:
        assert self.target.producers is not None
        state = ProducerState(number.epoch, last_sequence)
        self.target.producers[plan.remote, plan.partition] = {number.producer_id: state}

    def record(self, position: Position | None, plan: PartitionPlan = PLAN) -> None:
        self.shared.append((plan.key, Entry(position)))

    def resumer(self, store: Log | None = None, **settings: Any) -> Resumer:
        return Resumer(
            cast("Cluster", self.source),
            cast("Cluster", self.target),
            store or Log(self.shared),
            CopySettings(**settings),
            77,
        )

    def resume(self, *plans: PartitionPlan, **settings: Any) -> Outcome:
        return self.resumer(**settings).resume(plans or (PLAN,))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    made.put(PLAN, 0, 1000, 400)
    made.put(OTHER, 0, 1000, 400)

    def list_offsets(
        side: Side, keys: Iterable[TopicPartition], timestamp: int, isolation: int = 0
    ) -> dict[TopicPartition, int]:
        keys = list(keys)
        for name, _ in keys:
            if name in side.refused:
                raise BrokerError(29, "TOPIC_AUTHORIZATION_FAILED", f"{name} is not allowed")
        table = side.start if timestamp == EARLIEST else side.end
        return {key: table[key] for key in keys}

    def describe_producers(side: Side, keys: Iterable[TopicPartition]) -> Any:
        found = side.producers
        return None if found is None else {key: found.get(key, {}) for key in keys}

    def init_producer_id(_: Side) -> tuple[int, int]:
        made.next_producer += 1
        return made.next_producer, 0

    monkeypatch.setattr(admin, "list_offsets", list_offsets)
    monkeypatch.setattr(admin, "describe_producers", describe_producers)
    monkeypatch.setattr(admin, "init_producer_id", init_producer_id)

    def unknown_ids(side: Side, keys: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(keys) if side.is_behind else frozenset()

    monkeypatch.setattr(admin, "epoch_ends", lambda *_: {})
    monkeypatch.setattr(kafka_log, "unknown_ids", unknown_ids)
    return made


def standing(offset: int = 299, sequence: int = 300, number: Numbering = NUMBER) -> Position:
    return Position(
        offset,
        number,
        sequence,
        400,
        source_id=SOURCE_ID.hex(),
        target_id=TARGET_ID.hex(),
        stamp=1,
    )


# -- a numbering is kept, or begun ----------------------------------------------------------------


def test_a_position_that_the_target_bears_out_is_kept(world: World) -> None:
    world.record(standing())
    world.remember(PLAN, NUMBER, 299)
    outcome = world.resume()
    assert outcome.positions == {PLAN.key: standing()}
    assert len(world.shared) == 1
    assert not outcome.losses


@pytest.mark.parametrize(
    ("position", "reset", "first"),
    [
        (None, "earliest", 10),
        (None, "latest", 1000),
        (Position(-1), "earliest", 10),
        (Position(41), "earliest", 42),
        (Position(999), "latest", 1000),
    ],
)
def test_without_a_numbering_one_is_claimed(
    world: World, position: Position | None, reset: str, first: int
) -> None:
    world.put(PLAN, 10, 1000, 400)
    world.record(position)
    outcome = world.resume(reset=reset)
    found = outcome.positions[PLAN.key]
    assert (found.next_offset, found.sequence, found.origin) == (first, 0, (first, 400))
    assert found.numbering == Numbering(101, 0)
    assert (found.source_id, found.target_id) == (SOURCE_ID.hex(), TARGET_ID.hex())
    assert world.shared[-1] == (PLAN.key, Entry(found, True, None))
    assert not outcome.losses


@pytest.mark.parametrize(("offset", "words"), [(4, "records 5 to 9 "), (1000, "ends at 1000")])
def test_an_mm2_position_outside_the_log_is_told(world: World, offset: int, words: str) -> None:
    world.put(PLAN, 10, 1000, 400)
    world.record(Position(offset))
    outcome = world.resume()
    assert outcome.positions[PLAN.key].next_offset == 10
    assert [words in str(loss) for loss in outcome.losses] == [True]


def test_an_id_is_not_used_for_a_second_beginning(world: World) -> None:
    """After a reset the old numbers of the same id would stand for other records."""
    world.target.producers = None
    resumer = world.resumer()
    first = resumer.resume([PLAN]).positions[PLAN.key]
    world.record(None)
    second = resumer.resume([PLAN]).positions[PLAN.key]
    assert first.numbering != second.numbering


def test_a_compacted_partition_takes_the_next_epoch(world: World) -> None:
    plan = replace(PLAN, compacted=True)
    world.record(standing())
    world.remember(PLAN, NUMBER, 299)
    found = world.resume(plan).positions[PLAN.key]
    assert found.numbering == Numbering(5, 4)
    assert (found.next_offset, found.sequence, found.stamp) == (300, 0, 77)


def test_epochs_that_the_leader_has_seen_are_passed_over(world: World) -> None:
    """Claims of them are gone from the log of positions."""
    plan = replace(PLAN, compacted=True)
    world.record(standing(number=Numbering(5, MAX_EPOCH - 1)))
    world.remember(PLAN, Numbering(5, MAX_EPOCH - 1), 299)
    assert world.resume(plan).positions[PLAN.key].numbering == Numbering(5, MAX_EPOCH)
    world.remember(PLAN, Numbering(5, MAX_EPOCH), -1)
    assert world.resume(plan).positions[PLAN.key].numbering == Numbering(101, 0)


# -- what a running task knows --------------------------------------------------------------------


def test_its_own_position_is_newer_than_the_recorded_one(world: World) -> None:
    world.record(standing())
    world.remember(PLAN, NUMBER, 319)
    own = standing(319, 320)
    assert world.resumer().resume([PLAN], {PLAN.key: own}).positions == {PLAN.key: own}


def test_another_copy_has_flushed_a_newer_one(world: World) -> None:
    world.record(standing(319, 320))
    world.remember(PLAN, NUMBER, 319)
    found = world.resumer().resume([PLAN], {PLAN.key: standing()}).positions
    assert found == {PLAN.key: standing(319, 320)}


def test_its_numbering_is_out_of_force(world: World) -> None:
    newer = standing(100, 20, Numbering(5, 4))
    world.record(newer)
    world.remember(PLAN, Numbering(5, 4), 19)
    found = world.resumer().resume([PLAN], {PLAN.key: standing()}).positions
    assert found == {PLAN.key: newer}


# -- races ----------------------------------------------------------------------------------------


def test_a_claim_that_lost_takes_the_winner_over(world: World) -> None:
    store = Log(world.shared)
    theirs = standing(-1, 0, Numbering(9, 0))
    theirs = replace(theirs, origin=(0, 400))
    store.before_claim = [(PLAN.key, Entry(theirs, True, None))]
    found = world.resumer(store).resume([PLAN])
    assert found.positions == {PLAN.key: theirs}
    assert world.shared[-1] == (
        PLAN.key,
        Entry(theirs),
    )  # said once more, behind the claim that lost


def test_a_reset_in_the_middle_of_a_claim_starts_over(world: World) -> None:
    store = Log(world.shared)
    world.record(standing(number=Numbering(5, MAX_EPOCH)))
    world.remember(PLAN, Numbering(5, MAX_EPOCH), 299)
    store.before_claim = [(PLAN.key, Entry(Position(49)))]
    found = world.resumer(store).resume([replace(PLAN, compacted=True)])
    assert found.positions[PLAN.key].next_offset == 50


def test_a_copy_that_always_loses_gives_up_for_now(world: World) -> None:
    class Overtaken(Log):
        def write(self, entries: Iterable[tuple[TopicPartition, Entry]]) -> None:
            rows = list(entries)
            if rows[0][1].is_claim:
                self.before_claim = [(PLAN.key, Entry(None))]
                super().write(rows)
                self._shared.append((PLAN.key, Entry(None)))

    outcome = world.resumer(Overtaken(world.shared)).resume([PLAN])
    assert isinstance(outcome.failed[PLAN.key], NumberingLost)
    assert not outcome.positions


# -- topics created again, logs cut ---------------------------------------------------------------


def test_a_source_created_again_is_copied_from_its_beginning(world: World) -> None:
    world.record(replace(standing(), source_id="ff" * 16, fingerprint=Fingerprint(8, 1)))
    outcome = world.resume()
    found = outcome.positions[PLAN.key]
    assert (found.next_offset, found.numbering) == (0, Numbering(5, 4))
    assert found.fingerprint == NO_FINGERPRINT
    assert "created again" in str(outcome.losses[0])


@pytest.mark.parametrize("old", [SOURCE_ID, TARGET_ID])
def test_an_answer_with_the_id_of_a_topic_that_was_replaced_is_not_believed(
    world: World, old: bytes
) -> None:
    """A broker that is behind named the topic before the one that the position speaks of."""
    before = replace(standing(), superseded=(Superseded(old.hex(), now_ms()),))
    world.record(
        replace(before, source_id="ff" * 16)
        if old == SOURCE_ID
        else replace(before, target_id="ff" * 16)
    )
    outcome = world.resume(recreated_target="restart")
    failure = outcome.failed[PLAN.key]
    assert isinstance(failure, BrokerError)
    assert failure.retriable
    assert "which another one replaced" in str(failure)
    assert not outcome.losses


@pytest.mark.parametrize("side", ["source", "target"])
def test_one_answer_of_a_broker_that_is_behind_does_not_start_a_topic_over(
    world: World, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """The position never named the old topic: the copy began after it was created again."""
    monkeypatch.setattr(admin, "names_by_id", lambda _: {})
    world.record(standing())
    world.remember(PLAN, NUMBER, 299)
    stale = world.source if side == "source" else world.target
    right, stale.topic_id, stale.is_behind = stale.topic_id, bytes([9] * 16), True
    outcome = world.resume(recreated_target="restart")
    failure = outcome.failed[PLAN.key]
    assert isinstance(failure, BrokerError)
    assert failure.retriable
    assert "which its leader does not know" in str(failure)
    assert not outcome.losses
    stale.topic_id, stale.is_behind = right, False
    assert world.resume().positions == {PLAN.key: standing()}


def test_offsets_that_were_set_are_not_taken_for_those_of_a_topic_of_the_past(world: World) -> None:
    """Else the topic of today would be taken for one created after it, and be copied from its beginning."""
    world.record(Position(41))
    world.source.is_behind = True
    assert set(world.resume().failed) == {PLAN.key}
    world.source.is_behind = False
    assert world.resume().positions[PLAN.key].next_offset == 42


def test_a_replaced_id_that_is_still_named_after_an_hour_is_believed(world: World) -> None:
    """The clusters themselves were exchanged, and exchanged back."""
    old = (Superseded(SOURCE_ID.hex(), now_ms() - SUPERSEDED_MS - 1),)
    world.record(replace(standing(), source_id="ff" * 16, superseded=old))
    outcome = world.resume()
    found = outcome.positions[PLAN.key]
    assert found.source_id == SOURCE_ID.hex()
    assert [known.topic_id for known in found.superseded] == ["ff" * 16]
    assert "created again" in str(outcome.losses[0])


@pytest.mark.parametrize("side", ["source_id", "target_id"])
def test_the_id_of_a_topic_that_was_replaced_is_kept_with_the_position(
    world: World, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr(admin, "names_by_id", lambda _: {})
    before = standing()
    world.record(
        replace(before, source_id="ff" * 16)
        if side == "source_id"
        else replace(before, target_id="ff" * 16)
    )
    found = world.resume(recreated_target="restart").positions[PLAN.key]
    assert [known.topic_id for known in found.superseded] == ["ff" * 16]


def test_a_copy_that_goes_to_another_topic_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the replication policy of a flow is changed: MirrorMaker 2 goes on from the same offset."""
    monkeypatch.setattr(admin, "names_by_id", lambda _: {bytes([0xFF] * 16): "t"})
    world.record(replace(standing(), target_id="ff" * 16))
    outcome = world.resume()
    found = outcome.positions[PLAN.key]
    assert (found.next_offset, found.numbering) == (300, Numbering(5, 4))
    assert found.target_id == TARGET_ID.hex()
    assert found.superseded == ()  # that topic lives on, and the copy may go back to it
    assert "were copied to t on" in str(outcome.losses[0])


@pytest.mark.parametrize(("mode", "first"), [("restart", 0), ("continue", 300)])
def test_a_target_created_again(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: str, first: int
) -> None:
    monkeypatch.setattr(admin, "names_by_id", lambda _: {})
    world.record(replace(standing(), target_id="ff" * 16))
    refused = world.resume().failed[PLAN.key]
    assert isinstance(refused, TopicRecreated)
    assert "mirror.recreated.target" in refused.remedy
    found = world.resume(recreated_target=mode).positions[PLAN.key]
    assert (found.next_offset, found.sequence, found.numbering) == (first, 0, Numbering(5, 4))
    assert found.target_id == TARGET_ID.hex()


def test_all_topics_of_the_target_are_listed_once_for_all_partitions_of_topics_created_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Target(Side):
        def call_any(self, request: Any) -> Any:
            asked.append(request)
            return SimpleNamespace(topics=[])

    target = Target("B", TARGET_ID, producers={})
    target.start, target.end = world.target.start, world.target.end
    world.target = target
    for plan in (PLAN, OTHER):
        world.record(replace(standing(), target_id="ff" * 16), plan)
    outcome = world.resume(PLAN, OTHER, recreated_target="restart")
    assert set(outcome.positions) == {PLAN.key, OTHER.key}
    assert len(asked) == 1


def test_a_source_that_is_shorter_than_it_was(world: World) -> None:
    world.put(PLAN, 0, 250, 400)
    world.record(standing())
    outcome = world.resume()
    assert outcome.positions[PLAN.key].next_offset == 250
    assert [(loss.first, loss.last) for loss in outcome.losses] == [(250, 299)]


def test_a_source_that_was_cut_and_grew_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "epoch_ends", lambda *_: {PLAN.key: (4, 280)})
    world.record(replace(standing(), fingerprint=Fingerprint(4)))
    outcome = world.resume()
    assert outcome.positions[PLAN.key].next_offset == 280
    assert [(loss.first, loss.last) for loss in outcome.losses] == [(280, 299)]


HELD = batch([record(298), record(299)], base=298)
ANOTHER = batch([record(298, 50), record(299)], base=298)


@pytest.mark.parametrize(("there", "is_lost"), [(HELD, False), (ANOTHER, True)])
def test_an_epoch_that_the_log_does_not_know_is_replaced_by_the_one_that_it_has_there(
    world: World, monkeypatch: pytest.MonkeyPatch, there: memoryview, is_lost: bool
) -> None:
    """Else the broker would report a diverging log to every fetch, and every resume would give the same position."""
    monkeypatch.setattr(admin, "epoch_ends", lambda *_: {PLAN.key: (5, 1000)})
    monkeypatch.setattr(kafka_log, "batches_at", lambda _, offsets: dict.fromkeys(offsets, there))
    world.record(replace(standing(), fingerprint=Fingerprint(7, crc_of(HELD))))
    world.remember(PLAN, NUMBER, 299)
    outcome = world.resume()
    found = outcome.positions[PLAN.key]
    assert (found.next_offset, found.numbering) == (300, NUMBER)
    assert found.fingerprint == Fingerprint(5, crc_of(HELD))
    assert ["other records" in loss.message for loss in outcome.losses] == [True] * is_lost


@pytest.mark.parametrize(("there", "is_lost"), [(HELD, False), (ANOTHER, True)])
def test_brokers_that_do_not_tell_epochs_are_told_apart_by_the_last_copied_batch(
    world: World, monkeypatch: pytest.MonkeyPatch, there: memoryview, is_lost: bool
) -> None:
    """WarpStream and others lack OffsetForLeaderEpoch. What was lost is reported once."""
    monkeypatch.setattr(admin, "epoch_ends", lambda *_: None)
    monkeypatch.setattr(kafka_log, "batches_at", lambda _, offsets: dict.fromkeys(offsets, there))
    world.record(replace(standing(), fingerprint=Fingerprint(7, crc_of(HELD))))
    world.remember(PLAN, NUMBER, 299)
    outcome = world.resume()
    found = outcome.positions[PLAN.key]
    assert (found.next_offset, found.numbering) == (300, NUMBER)
    assert found.fingerprint == (NO_FINGERPRINT if is_lost else Fingerprint(7, crc_of(HELD)))
    assert ["other records" in loss.message for loss in outcome.losses] == [True] * is_lost


@pytest.mark.parametrize(
    ("with_its_epochs", "numbering"), [(False, Numbering(5, 4)), (True, Numbering(101, 0))]
)
def test_a_numbering_that_the_leader_refuses_is_replaced(
    world: World, with_its_epochs: bool, numbering: Numbering
) -> None:
    """By the next epoch; by another producer id where all epochs of this one are refused."""
    world.record(standing())
    world.remember(PLAN, NUMBER, 299)
    refused = {PLAN.key: Forgotten(NUMBER, with_its_epochs)}
    found = world.resumer().resume([PLAN], forgotten=refused).positions[PLAN.key]
    assert (found.numbering, found.sequence, found.next_offset) == (numbering, 0, 300)


# -- ids that came with an upgrade -----------------------------------------------------------------


def before_ids() -> Position:
    """A position that was written while the clusters had no topic ids."""
    print_of = Fingerprint(0, crc_of(HELD))
    return replace(standing(), source_id="", target_id="", fingerprint=print_of)


def test_a_position_gets_the_ids_that_its_clusters_did_not_have(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "batches_at", lambda _, offsets: dict.fromkeys(offsets, HELD))
    world.record(before_ids())
    world.remember(PLAN, NUMBER, 299)
    outcome = world.resume()
    known = replace(before_ids(), source_id=SOURCE_ID.hex(), target_id=TARGET_ID.hex())
    assert outcome.positions == {PLAN.key: known}
    assert not outcome.losses


@pytest.mark.parametrize("end", [200, 3000])
def test_a_source_created_again_around_its_upgrade_is_noticed_by_its_records(
    world: World, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    monkeypatch.setattr(kafka_log, "batches_at", lambda _, offsets: dict.fromkeys(offsets, ANOTHER))
    world.put(PLAN, 0, end, 400)
    world.record(before_ids())
    world.remember(PLAN, NUMBER, 299)
    outcome = world.resume()
    assert outcome.positions[PLAN.key].next_offset == 0
    assert ["created again" in loss.message for loss in outcome.losses] == [True]


def test_retention_overtook(world: World) -> None:
    world.put(PLAN, 350, 1000, 400)
    world.record(standing())
    world.remember(PLAN, NUMBER, 299)
    outcome = world.resume()
    found = outcome.positions[PLAN.key]
    assert (found.next_offset, found.sequence, found.numbering) == (350, 0, Numbering(5, 4))
    assert [(loss.first, loss.last) for loss in outcome.losses] == [(300, 349)]


# -- one does not hold the others up --------------------------------------------------------------


def test_a_topic_that_is_gone_fails_alone(world: World) -> None:
    world.source.gone.add("t")
    outcome = world.resume(PLAN, OTHER)
    assert set(outcome.failed) == {PLAN.key}
    assert set(outcome.positions) == {OTHER.key}
    assert outcome.failed[PLAN.key].retriable


def test_a_topic_that_is_not_allowed_fails_alone(world: World) -> None:
    world.target.refused.add("A.t")
    outcome = world.resume(PLAN, OTHER)
    assert set(outcome.failed) == {PLAN.key}
    assert set(outcome.positions) == {OTHER.key}


def test_a_cluster_that_is_gone_is_everybodys_trouble(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise ConnectionFailed("nobody is there")

    monkeypatch.setattr(admin, "list_offsets", unreachable)
    with pytest.raises(ConnectionFailed):
        world.resume(PLAN, OTHER)
