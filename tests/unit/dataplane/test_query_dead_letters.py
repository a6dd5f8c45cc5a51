"""Dead letters on their way to a topic: counted, cut to size, tried again; the broker tests read what Kafka has of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.query import dead_letters
from sparkmirror.dataplane.query.dead_letters import DeadLetters
from sparkmirror.dataplane.query.routing import BadRecord
from sparkmirror.dataplane.query.terms import BadRecords
from sparkmirror.dataplane.record_path import Counted
from sparkmirror.dataplane.sending import Sender, SideWrite
from sparkmirror.errors import RecordTooLarge, ReplicationError
from sparkmirror.kafka import admin, messages, records
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.transforms.record import ConnectRecord

PLAN = PartitionPlan("t", 1, "A.t", task=4)


@dataclass(eq=False)
class Partition:
    plan: PartitionPlan = PLAN
    written: int = 0
    refused: list[tuple[int, ReplicationError]] = field(default_factory=list)

    def letters_written(self) -> None:
        self.written += 1

    def letters_refused(
        self, letters: Counted, number: int, offset: int, error: ReplicationError
    ) -> None:
        assert f"offset {offset} " in error.message
        self.refused.append((number, error))


@dataclass
class Target:
    """A cluster with so many brokers; topics can be created."""

    brokers: dict[int, str] = field(default_factory=lambda: {1: "a"})
    settings: ClientSettings = ClientSettings("B", (("h", 1),))  # noqa: RUF009 - it is frozen
    there: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    asked: list[NewTopic] = field(default_factory=list)
    denied: int = messages.NONE

    def refresh(self, topics: list[str]) -> None:
        self.topics = {name: info for name, info in self.there.items() if name in topics}

    def is_hidden(self, name: str) -> bool:
        return False

    def create(self, _: Any, wanted: list[NewTopic]) -> dict[str, Any]:
        (topic,) = wanted
        self.asked.append(topic)
        code = self.denied
        if topic.replication_factor > len(self.brokers):
            code = messages.INVALID_REPLICATION_FACTOR
        if code:
            return {topic.name: messages.broker_error(code, f"Creating topic {topic.name}")}
        self.there[topic.name] = SimpleNamespace(partitions=dict.fromkeys(range(topic.partitions)))
        return {topic.name: None}


@dataclass
class Out:
    """Keeps what is to be sent."""

    writes: list[SideWrite] = field(default_factory=list)
    stale: bool = False
    has_leader: bool = True

    def write(self, side: SideWrite) -> bool:
        if self.has_leader:
            self.writes.append(side)
        return self.has_leader

    def answer(self, *codes: int) -> list[list[Any]]:
        """The target says this to what is under way, or that all is well; gives the letters of each write."""
        writes, self.writes = self.writes, []
        for number, side in enumerate(writes):
            code = codes[number] if number < len(codes) else messages.NONE
            side.owner.result(side.token, code, 0, None)
        return [records.decode(memoryview(side.batch)) for side in writes]


@dataclass
class Bench:
    target: Target
    out: Out
    letters: DeadLetters
    clock: list[float]

    def turn(self, seconds: float = 0.0) -> None:
        self.clock[0] += seconds
        self.letters.turn()


def bench(patch: pytest.MonkeyPatch, **settings: Any) -> Bench:
    target, out, clock = Target(), Out(), [1000.0]
    patch.setattr(admin, "create_topics", target.create)
    patch.setattr(
        dead_letters, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: clock[0])
    )
    made = DeadLetters(
        BadRecords(are_tolerated=True, **settings),
        "c",
        cast(Cluster, target),
        cast(Sender, out),
    )
    return Bench(target, out, made, clock)


def bad(offset: int, value: bytes = b"v", said: str = "no good") -> BadRecord:
    return BadRecord(ConnectRecord("t", 1, offset, 77, b"k", value, [("h", None)]), said)


def test_a_letter_is_written_before_its_step_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(monkeypatch, dead_letters="dead", with_context=True)
    partition = Partition()
    assert made.letters.pending(partition) == []
    made.letters.take(partition, bad(5))
    ((box, count),) = made.letters.pending(partition)
    assert (box.records, count) == (0, 1)
    ((letter,),) = made.out.answer()
    assert (box.records, partition.written) == (1, 1)
    assert made.letters.pending(partition) == []
    assert (letter.timestamp, letter.key, letter.value) == (77, b"k", b"v")
    assert letter.headers == [
        ("h", None),
        ("__connect.errors.topic", b"t"),
        ("__connect.errors.partition", b"1"),
        ("__connect.errors.offset", b"5"),
        ("__connect.errors.connector.name", b"c"),
        ("__connect.errors.task.id", b"4"),
        ("__connect.errors.stage", b"TRANSFORMATION"),
        ("__connect.errors.class.name", b"sparkmirror.transform.sql"),
        ("__connect.errors.exception.class.name", b"sparkmirror.errors.QueryFailed"),
        ("__connect.errors.exception.message", b"no good"),
        ("__connect.errors.exception.stacktrace", b"sparkmirror.errors.QueryFailed: no good"),
    ]


def test_the_topic_is_created_with_one_partition_and_no_more_copies_than_brokers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(monkeypatch, dead_letters="dead")
    made.letters.take(Partition(), bad(5))
    assert made.target.asked == []  # not before it is needed
    with caplog.at_level(logging.INFO):
        made.turn()
    assert made.target.asked == [NewTopic("dead", 1, 3, {}), NewTopic("dead", 1, 1, {})]
    assert "replication factor of 1, not 3" in caplog.text
    assert len(made.out.writes) == 1


def test_a_factor_that_was_asked_for_is_not_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(monkeypatch, dead_letters="dead", factor=2, may_lower_factor=False)
    partition = Partition()
    made.letters.take(partition, bad(5))
    made.letters.pending(partition)
    assert partition.refused == []  # its step is not there yet
    for _ in range(100):
        made.turn(0.1)
    assert {topic.replication_factor for topic in made.target.asked} == {2}
    assert len(made.target.asked) <= 11  # not at every turn
    ((number, error),) = partition.refused
    assert number == 0
    assert str(error).startswith("t-1: the record at offset 5 cannot be written to dead")
    assert "INVALID_REPLICATION_FACTOR" in str(error)
    assert "errors.deadletterqueue.topic.replication.factor" in error.remedy
    assert made.out.writes == []
    made.letters.forget(partition)  # it is tried again later
    create_by_hand = {"dead": SimpleNamespace(partitions={0: None})}
    made.target.topics = made.target.there = create_by_hand
    made.letters.take(partition, bad(5))
    made.turn(10)
    assert len(made.out.writes) == 1
    made.letters.take(partition, bad(6))
    made.out.has_leader = False
    made.turn()  # that may pass: what was refused before is past
    assert len(partition.refused) == 1


def test_a_topic_that_cannot_be_created_right_now_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(monkeypatch, dead_letters="dead", factor=1)
    made.target.denied = messages.NOT_CONTROLLER
    partition = Partition()
    made.letters.take(partition, bad(5))
    for _ in range(100):
        made.turn(0.1)
    assert partition.refused == []
    assert caplog.text.count("Dead letters cannot be written to dead") <= 2
    made.target.denied = messages.NONE
    made.turn(10)
    assert len(made.out.writes) == 1


LARGE = b"." * (600 << 10)
"""So much that no two of them go together."""


def test_a_step_is_not_done_by_letters_of_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(monkeypatch, dead_letters="dead")
    partition = Partition()
    made.letters.take(partition, bad(5, LARGE))
    ((first, one),) = made.letters.pending(partition)
    for offset in (6, 7):
        made.letters.take(partition, bad(offset, LARGE))
    ((last, three),) = made.letters.pending(partition)
    assert (one, three) == (1, 3)
    made.out.answer(messages.NOT_LEADER_OR_FOLLOWER)
    assert (first.records, partition.written) == (0, 0)
    made.turn(2)
    made.out.answer()
    assert (first.records, last.records, partition.written) == (3, 3, 1)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (messages.MESSAGE_TOO_LARGE, RecordTooLarge, ["614,", "max.message.bytes of dead"]),
        (messages.TOPIC_AUTHORIZATION_FAILED, ReplicationError, ["Write on topic dead"]),
        (messages.INVALID_RECORD, ReplicationError, ["INVALID_RECORD", "cleanup.policy=delete"]),
    ],
)
def test_a_letter_that_is_refused_for_good_is_told(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type, words: list[str]
) -> None:
    made = bench(monkeypatch, dead_letters="dead")
    partition = Partition()
    for offset in (5, 6, 7):
        made.letters.take(partition, bad(offset, LARGE))
    made.turn()
    made.out.answer(messages.NOT_LEADER_OR_FOLLOWER, code, code)
    ((number, error),) = partition.refused
    assert number == 1
    assert type(error) is kind
    said = str(error)
    assert said.startswith("t-1: the record at offset 6 ")
    assert all(word in said for word in ["dead", *words]), said
    made.turn(2)
    (only,) = made.out.answer()  # what comes before it; the rest is written when it is tried again
    assert len(only) == 1
    assert partition.written == 1
    made.letters.forget(partition)


def test_what_is_heard_of_letters_that_were_forgotten_is_nobodys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = bench(monkeypatch, dead_letters="dead")
    partition = Partition()
    made.letters.take(partition, bad(5))
    made.turn()
    made.letters.forget(partition)
    made.out.answer(messages.MESSAGE_TOO_LARGE)
    assert partition.refused == []


def test_letters_that_are_refused_are_tried_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(monkeypatch, dead_letters="dead")
    partition = Partition()
    made.letters.take(partition, bad(5))
    made.turn()
    made.out.answer(messages.NOT_LEADER_OR_FOLLOWER)
    made.turn(0.1)
    assert made.out.writes == []
    made.turn(2)
    made.out.answer()
    assert partition.written == 1
    assert "NOT_LEADER" in caplog.text


def test_letters_that_are_too_large_together_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(monkeypatch, dead_letters="dead")
    partition = Partition()
    for offset in range(3):
        made.letters.take(partition, bad(offset, b"%d" % offset))
    made.turn()
    assert len(made.out.answer(messages.MESSAGE_TOO_LARGE)) == 1
    made.turn()
    # Each behind the one before: what is refused is not passed over.
    for value in (b"0", b"1", b"2"):
        assert [[letter.value for letter in write] for write in made.out.answer()] == [[value]]
        made.turn()
    assert made.letters.pending(partition) == []
    for offset in (3, 4):
        made.letters.take(partition, bad(offset, b"%d" % offset))
    made.turn()
    assert [len(write) for write in made.out.answer()] == [2]


def test_how_many_are_left_out_is_told_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(monkeypatch)
    partition = Partition()
    for offset in (5, 9):
        made.letters.take(partition, bad(offset, said=f"at {offset}"))
    made.turn()
    for offset in range(100):
        made.letters.take(partition, bad(10 + offset))
        made.turn(0.1)
    made.turn(60)
    made.turn(60)
    assert [row.getMessage() for row in caplog.records] == [
        "2 record(s) of t-1 left out so far, the first at offset 5: at 5",
        "102 record(s) of t-1 left out so far, the first at offset 5: at 5",
    ]
    assert made.letters.left_out["t", 1].count == 102
    assert made.target.asked == []
    assert made.letters.pending(partition) == []


@pytest.mark.parametrize("in_full", [False, True])
def test_each_is_logged_and_what_it_held_only_if_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, in_full: bool
) -> None:
    made = bench(monkeypatch, are_logged=True, are_logged_in_full=in_full)
    made.letters.take(Partition(), bad(5, b"private"))
    (row,) = caplog.records
    assert row.getMessage().startswith(f"{PLAN}: the record at offset 5 is left out: no good")
    assert ("private" in row.getMessage()) == in_full
