"""Rate limits in a copy task: how much is fetched by the clock, and which topics are held back for how long."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import FLOW, PartitionPlan, RateLimit, TaskPlan
from sparkmirror.dataplane.rate_limits import ShareExchange, TaskLimits, TokenBucket
from sparkmirror.kafka.fetch import Fetched, TopicPartition

RATE = 1_000_000
MOST = 8 << 20


@given(
    st.floats(1, 1e9),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_a_bucket_gives_no_more_than_its_rate_and_half_a_second_of_it(
    rate: float, turns: list[tuple[float, float]]
) -> None:
    """In any stretch of time that ends with a fetch of what was there."""
    bucket, now = TokenBucket(rate, 0.0), 0.0
    taken: list[tuple[float, int]] = []
    for wait, greed in turns:
        now += wait
        if bucket.has(0.1, now):
            count = int(min(bucket.tokens(now), greed * rate))
            bucket.take(count, now)
            taken.append((now, count))
    for number, (began, _) in enumerate(taken):
        total = 0
        for at, count in taken[number:]:
            total += count
            assert total <= rate * (at - began + 0.5) * (1 + 1e-6) + 1


@given(st.floats(10, 1e9), st.floats(0, 1e10))
def test_a_debt_is_waited_out(rate: float, debt: float) -> None:
    bucket = TokenBucket(rate, 0.0)
    bucket.take(int(debt), 0.0)
    wait = bucket.wait(0.25, 0.0)
    assert bucket.has(0.25, wait + 0.001)
    assert wait == pytest.approx(max(0.0, (int(debt) + rate * 0.15) / rate), abs=1 / rate)


def test_the_lowest_rates_are_rates() -> None:
    bucket = TokenBucket(0.1, 0.0)
    bucket.take(1, 0.0)
    assert not bucket.has(0.1, 9.0)
    assert bucket.has(0.1, 11.0)
    bucket.set_rate(0.0, 11.0)
    assert bucket.wait(0.1, 11.0) > 0


def test_a_new_rate_counts_from_now_on() -> None:
    bucket = TokenBucket(1000, 0.0)
    bucket.take(100, 0.0)
    bucket.set_rate(10, 0.3)
    assert bucket.tokens(0.3) == 5, "what half a second brings now"
    bucket.set_rate(1000, 1.3)
    assert bucket.tokens(1.4) == pytest.approx(105)


@dataclass
class Limited:
    """Limits of a task with some partitions of topics t and u, and a clock."""

    limits: TaskLimits
    now: float = 0.0

    @classmethod
    def of(cls, *limits: RateLimit, partitions: int = 1) -> Limited:
        parts = tuple(PartitionPlan(t, n, t) for t in "tu" for n in range(partitions))
        plan = cast(
            TaskPlan, SimpleNamespace(flow="A->B", index=3, partitions=parts, limits=limits)
        )
        return cls(TaskLimits(plan, 0.0))

    def took(self, count: int, topic: str = "t", partition: int = 0) -> None:
        fetched = Fetched(topic, partition, 0, 0, 0, 0, [], -1, memoryview(bytes(count)), None)
        self.limits.took([fetched], self.now)

    def allowed(self, brokers: int = 1) -> int | None:
        return self.limits.fetch_bytes(brokers, self.now)

    def holds(self, topic: str = "t", partition: int = 0) -> bool:
        return self.limits.holds((topic, partition), self.now)

    def released(self) -> list[TopicPartition]:
        return sorted(self.limits.released(self.now))


def test_a_fetch_brings_what_is_there_divided_among_the_brokers() -> None:
    task = Limited.of(RateLimit(FLOW, RATE))
    assert task.allowed() == RATE // 10, "a task that begins has the bytes of a tenth of a second"
    task.now = 10.0
    assert (task.allowed(), task.allowed(4)) == (RATE // 2, RATE // 8)
    task.took(RATE)
    assert task.allowed() == 0
    task.now += 0.5
    assert task.allowed() == 0, "the debt first"
    task.now += 0.2
    assert task.allowed() == pytest.approx(RATE // 5, abs=2)
    assert task.allowed(0) is None, "nobody can be asked"


def test_without_a_cap_of_the_flow_fetches_are_as_they_were() -> None:
    task = Limited.of(RateLimit("t", RATE))
    task.took(5 * RATE)
    assert task.allowed() is None
    assert task.limits.partition_bytes("u", MOST) == MOST


def test_a_share_is_a_part_of_the_cap() -> None:
    task = Limited.of(RateLimit(FLOW, RATE, tasks=4))
    task.now = 10.0
    assert task.allowed() == RATE // 8


def test_a_topic_over_its_cap_is_held_back_and_no_other() -> None:
    task = Limited.of(RateLimit("t", RATE), partitions=2)
    assert not task.holds()
    task.took(RATE)
    assert task.holds()
    assert task.holds(partition=1)
    assert not task.holds("u")
    task.now = 0.9
    assert task.released() == []
    assert task.holds()
    task.now = 1.2
    assert task.released() == [("t", 0), ("t", 1)]
    assert task.released() == []
    assert not task.holds()


def test_a_higher_share_ends_the_wait_earlier() -> None:
    task = Limited.of(RateLimit("t", RATE, tasks=100))
    task.took(RATE)
    assert task.holds()
    task.limits.set_shares({"t": RATE}, 0.5)
    task.now = 1.7
    assert task.released() == [], "the debt is what it was"
    task.now = 1.8
    assert task.released() == [("t", 0)]
    task.now = 200.0
    assert task.released() == []


@given(st.integers(1, 60), st.integers(20_000, 400_000), st.integers(1_000, 100_000))
def test_a_topic_with_many_busy_partitions_keeps_to_its_cap(
    partitions: int, rate: int, batch: int
) -> None:
    """Every partition always has more, and gives at least a batch; measured over the time that debts are waited out."""
    task = Limited.of(RateLimit("t", rate), partitions=partitions)
    wanted = {("t", n): task.limits.partition_bytes("t", MOST) for n in range(partitions)}
    total = 0
    for turn in range(1, 601):
        task.now = turn * 0.05
        for key in task.limits.released(task.now):
            wanted[key] = task.limits.partition_bytes("t", MOST)
        for key in list(wanted):
            count = max(batch, wanted[key] // batch * batch)
            task.took(count, *key)
            total += count
        for key in list(wanted):
            if task.limits.holds(key, task.now):
                del wanted[key]
            else:
                wanted[key] = task.limits.partition_bytes("t", MOST)
    overshoot = partitions * max(batch, 32 << 10) + rate
    assert total <= rate * 30 + overshoot
    assert total >= rate * 30 * 0.7 - overshoot


def test_a_partition_that_is_busy_alone_gets_what_many_had() -> None:
    task = Limited.of(RateLimit(FLOW, 100 * RATE), partitions=1000)
    many = task.limits.partition_bytes("t", MOST)
    for turn in range(20):
        task.now = turn * 0.5
        task.took(1000)
    assert task.limits.partition_bytes("t", MOST) == MOST
    assert many == 32 << 10


def test_what_a_cap_holds_back_is_told_once_and_shown_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Limited.of(RateLimit(FLOW, RATE), RateLimit("t", RATE // 2))
    assert task.limits.holding_back("t", 0.0) == ""
    with caplog.at_level(logging.INFO):
        task.took(RATE)
        for _ in range(3):
            assert task.holds()
            assert task.allowed() == 0
    assert task.limits.holding_back("t", 0.1) == "mirror.rate.limit.topic.bytes"
    assert task.limits.holding_back("u", 0.1) == "mirror.rate.limit.bytes"
    assert task.limits.holding_back("t", 5.0) == ""
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "mirror.rate.limit.topic.bytes holds back topic t" in said[0]


@pytest.mark.parametrize(("count", "wants_more"), [(100_000, False), (300_000, True)])
def test_a_share_that_is_used_up_by_what_is_on_a_long_way_is_asked_to_grow(
    count: int, wants_more: bool
) -> None:
    """No fetch is held back there: each answer comes when there are tokens again."""
    task = Limited.of(RateLimit(FLOW, RATE, 2))
    task.limits.usage(1.0)
    for moment in (0.5, 1.0):
        task.now = moment
        assert task.allowed()
        task.took(count // 2)
    assert task.limits.usage(1.0) == {FLOW: (float(count), wants_more)}


class Link:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.answers: list[Any] = []

    def send(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    def received(self) -> list[bytes]:
        found, self.answers = self.answers, []
        return [json.dumps(each).encode() for each in found]


def test_use_is_told_after_each_answer_and_the_last_share_holds_while_the_driver_is_silent() -> (
    None
):
    task, link = Limited.of(RateLimit(FLOW, RATE, 2), RateLimit("t", RATE, 1)), Link()
    assert task.limits.is_shared
    exchange = ShareExchange(task.limits, link, 0.0)
    exchange.turn(0.0)
    assert link.sent == [{}]
    task.took(300_000)
    exchange.turn(1.0)
    assert link.sent == [{}], "not before the answer"
    link.answers = [{FLOW: 900_000.0}]
    exchange.turn(2.0)
    assert link.sent == [{}, {FLOW: [150_000.0, False]}], "t is not shared"
    for now in (3.0, 4.0, 1000.0):
        exchange.turn(now)
    assert len(link.sent) == 2
    task.now = 1000.0
    assert task.allowed() == 450_000
