"""Who may number the records of a partition, and what becomes of those who may not any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from kafka_tools import consume, set_topic_configs, wait_for
from mirrored import Make, Mirrored, Unique, assert_sequence, making

from sparkmirror.dataplane import troubles
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.errors import BrokerError
from sparkmirror.formats.position import MAX_EPOCH, SEQUENCES, Entry, Numbering, Position
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.messages import INVALID_PRODUCER_EPOCH
from sparkmirror.tools.clusters import KafkaCluster

QUICK_CLEANER = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}


@pytest.fixture
def make(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> Iterator[Make]:
    with making(source_cluster, target_cluster, unique) as made:
        yield made


# -- positions that others wrote ------------------------------------------------------------------


def test_a_position_of_mm2_is_gone_on_from(make: Make) -> None:
    mirrored = make()
    mirrored.produce(300)
    mirrored.write_position(Entry(Position(119)))
    mirrored.copy_all(expected=180)
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][120:])
    position = mirrored.position()
    assert (position.offset, position.sequence, position.origin) == (299, 180, (120, 0))
    mirrored.produce(20)
    mirrored.copy_all(expected=200)
    assert mirrored.position().numbering == position.numbering
    assert_sequence(mirrored.target_content()[0], mirrored.source_content()[0][120:])


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 300)])
def test_a_reset_begins_anew(make: Make, reset: str, first: int) -> None:
    mirrored = make()
    mirrored.produce(300)
    mirrored.copy_all()
    before = mirrored.target_content()[0]
    mirrored.write_position(Entry(None))
    expected = 600 - first + 50
    with mirrored.copying(reset=reset) as task:
        task.until(
            "a new numbering", lambda: (mirrored.store().get((mirrored.topic, 0))) is not None
        )
        mirrored.produce(50)
        mirrored.wait(task, expected)
    rest = mirrored.source_content()[0][first:]
    assert_sequence(mirrored.target_content()[0], before + rest)


def test_what_a_zombie_writes_after_a_reset_does_not_count(make: Make) -> None:
    mirrored = make()
    mirrored.produce(300)
    mirrored.copy_all()
    old, before = mirrored.position(), mirrored.target_content()[0]
    mirrored.write_position(Entry(Position(99)))
    mirrored.write_position(Entry(old))
    mirrored.copy_all(expected=500)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0][100:])
    mirrored.write_position(Entry(old))
    mirrored.produce(10)
    mirrored.copy_all(expected=510)
    assert_sequence(mirrored.target_content()[0], before + mirrored.source_content()[0][100:])


def test_a_position_beyond_the_source_is_told(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = make()
    mirrored.produce(30)
    mirrored.write_position(Entry(Position(999)))
    mirrored.copy_all()
    mirrored.assert_same()
    assert "offset 1000 to go on from is not in the log" in caplog.text


# -- claims ---------------------------------------------------------------------------------------


def test_of_claims_at_the_same_time_one_wins_for_everybody(make: Make) -> None:
    mirrored = make()
    key = (mirrored.topic, 0)
    found: dict[int, Position] = {}
    barrier = threading.Barrier(4)

    def claim(number: int) -> None:
        cluster = Cluster(mirrored.flow.target.settings)
        cluster.refresh([mirrored.flow.offsets_topic])
        store = PositionStore(cluster, mirrored.flow.store)
        store.catch_up()
        barrier.wait()
        wanted = Position(-1, Numbering(1000 + number, 0), origin=(0, number))
        found[number] = store.claim({key: (wanted, None)})[key]
        cluster.close()

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert set(found.values()) == {mirrored.position()}
    # Compaction keeps the last record alone: that one must say the same.
    last = PositionStore(mirrored.flow.target, mirrored.flow.store)
    home = last.home(key)
    topic = mirrored.flow.offsets_topic
    end = admin.list_offsets(mirrored.flow.target, [(topic, home)], admin.LATEST)[topic, home]
    last.seed({}, {home: end - 1, **{p: 0 for p in range(3) if p != home}})
    last.catch_up()
    assert last.get(key) == mirrored.position()


def test_a_losing_claim_that_nobody_took_back_is_overruled_at_the_next_start(make: Make) -> None:
    mirrored = make()
    mirrored.produce(100)
    mirrored.copy_all()
    position = mirrored.position()
    mirrored.write_position(Entry(Position(-1, Numbering(77, 0)), True, None))
    assert mirrored.position() == position
    mirrored.produce(10)
    mirrored.copy_and_abandon()
    fold = mirrored.store()._folds[mirrored.store().key((mirrored.topic, 0))]
    assert fold.is_settled
    assert mirrored.position() == position
    mirrored.copy_all()
    mirrored.assert_same()


def test_a_store_that_compaction_overtook_agrees_with_newcomers(make: Make) -> None:
    """Of three claims, each replacing the one before, it has read the first, and the second is gone."""
    mirrored = make()
    key = (mirrored.topic, 0)
    claims = [Position(-1, Numbering(9, epoch), origin=(0, epoch)) for epoch in range(3)]
    mirrored.write_position(Entry(claims[0], True, None))
    slow = mirrored.store()
    assert slow.get(key) == claims[0]
    for epoch in (1, 2):
        mirrored.write_position(Entry(claims[epoch], True, Numbering(9, epoch - 1)))
    set_topic_configs(mirrored.target.bootstrap, mirrored.flow.offsets_topic, QUICK_CLEANER)
    filler = iter(range(10_000))

    def is_cleaned() -> bool:
        mirrored.store().write([((f"filler-{next(filler)}", p), Entry(None)) for p in range(9)])
        rows = consume(mirrored.target.bootstrap, mirrored.flow.offsets_topic)
        return sum(row.key == slow.key(key) for row in rows) == 1

    wait_for("only the last claim is left", is_cleaned)
    slow.catch_up()
    assert slow.get(key) == claims[2]
    assert mirrored.position() == claims[2]


# -- numbers --------------------------------------------------------------------------------------


def test_numbers_wrap(make: Make) -> None:
    mirrored = make()
    mirrored.produce(40, batch_num_messages=8)
    producer = Numbering(*admin.init_producer_id(mirrored.flow.target))
    mirrored.write_position(Entry(Position(-1, producer, SEQUENCES - 5, origin=(0, 0))))
    mirrored.copy_and_abandon()
    assert mirrored.position().sequence == SEQUENCES - 5
    mirrored.produce(40, batch_num_messages=8)
    mirrored.copy_all()
    assert mirrored.position().sequence == 75
    assert mirrored.position().numbering == producer
    mirrored.produce(5)
    mirrored.copy_all()
    mirrored.assert_same()


def test_epochs_run_out(make: Make) -> None:
    mirrored = make(compacted=True)
    mirrored.produce(40)
    last = Numbering(admin.init_producer_id(mirrored.flow.target)[0], MAX_EPOCH)
    mirrored.write_position(Entry(Position(-1, replace(last, epoch=MAX_EPOCH - 1))))
    mirrored.copy_all()
    assert mirrored.position().numbering == last
    mirrored.produce(40)
    mirrored.copy_all()
    position = mirrored.position()
    assert position.numbering is not None
    assert position.numbering.producer_id != last.producer_id
    mirrored.assert_same()


@pytest.mark.parametrize("knows", [True, False])
def test_another_copy_got_ahead(make: Make, monkeypatch: pytest.MonkeyPatch, knows: bool) -> None:
    """Its batches have other bounds: the next one overlaps and is refused (error 45), then both logs are walked."""
    if not knows:
        monkeypatch.setattr(admin, "describe_producers", lambda *_: None)
    mirrored = make()
    mirrored.produce(100)
    with mirrored.copying() as task:
        mirrored.wait(task)
        task.until("the position is written", lambda: mirrored.position().sequence == 100)
        position = mirrored.position()
        send = Held(task.task._sender.pump)
        monkeypatch.setattr(task.task._sender, "pump", send)
        assert send.reached.wait(10)
        mirrored.produce(60)
        mirrored.write_as(position, 0, 25)
        mirrored.write_as(position, 25, 7)
        send.released.set()
        mirrored.wait(task, 160)
    mirrored.assert_same()


class Held:
    """A step of the copy loop that waits until the test lets it go on."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.released.wait(30)
        self._step()


# -- epochs ---------------------------------------------------------------------------------------


def test_a_compacted_source_takes_a_new_epoch_at_each_start_and_fences_the_old(make: Make) -> None:
    mirrored = make(compacted=True)
    positions = []
    for _ in range(3):
        mirrored.produce(50, keys=7)
        mirrored.copy_all()
        positions.append(mirrored.position())
    numbers = [position.numbering or Numbering(-1, -1) for position in positions]
    assert [number.epoch for number in numbers] == [0, 1, 2]
    mirrored.assert_same()
    mirrored.produce(10, keys=7)
    old = replace(positions[-1], numbering=numbers[1])
    with pytest.raises(BrokerError) as refused:
        mirrored.write_as(old, 0, 5)
    assert refused.value.code == INVALID_PRODUCER_EPOCH


def test_a_newer_copy_takes_a_compacted_partition_over_and_gives_it_back(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(troubles, "_FAILED_WAITS_S", (0.5, 5.0))
    mirrored = make(compacted=True)

    def stands_back() -> bool:
        mirrored.produce(5, keys=7)
        return "a newer copy of flow" in caplog.text

    mirrored.produce(50, keys=7)
    with mirrored.copying() as older:
        mirrored.wait(older)
        with mirrored.copying() as newer:
            number = mirrored.position().numbering
            newer.until("a new epoch", lambda: mirrored.position().numbering != number)
            newer.until("the older one stands back", stands_back)
            mirrored.produce(50, keys=7)
            newer.until("all is there", mirrored.has_all)
        mirrored.produce(50, keys=7)
        older.until("it goes on", mirrored.has_all)
    assert_ordered(mirrored)


def test_compaction_took_what_was_copied_last(make: Make) -> None:
    """The source's cleaner ran after a kill: records that the target has are gone, so counting does not tell."""
    mirrored = make(compacted=True)
    mirrored.produce(40, keys=40)
    mirrored.produce(300, keys=9)
    mirrored.copy_and_abandon()
    assert mirrored.position().is_origin
    set_topic_configs(mirrored.source.bootstrap, mirrored.topic, QUICK_CLEANER)
    mirrored.produce(30, keys=9)
    wait_for("the cleaner ran", lambda: cleaned(mirrored))
    mirrored.produce(5, keys=40)
    with mirrored.copying() as task:
        task.until("all is there", mirrored.has_all)
    assert_ordered(mirrored)


def cleaned(mirrored: Mirrored) -> bool:
    mirrored.produce(1, keys=1)  # a segment is closed when the next record comes
    return len(mirrored.source_content()[0]) < 200


def assert_ordered(mirrored: Mirrored) -> None:
    """Every key ends with the same value on both sides, and a record that comes again comes with all after it."""
    last: dict[bytes | None, int] = {}
    for _, key, value, _ in mirrored.target_content()[0]:
        last[key] = int((value or b"").split(b":")[0])
    wanted = {
        key: int((value or b"").split(b":")[0]) for _, key, value, _ in mirrored.source_content()[0]
    }
    assert last == wanted
