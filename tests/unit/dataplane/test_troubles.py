"""What the clusters refuse: partitions in trouble, with clusters that are tables and nobody on the wire."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.addressing import Sent
from sparkmirror.dataplane.partition import Budget, PartitionCopy
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan, TaskPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.record_path import Lane, RecordCopy
from sparkmirror.dataplane.reporting import Reporter
from sparkmirror.dataplane.resume import Outcome
from sparkmirror.dataplane.routing import Routings
from sparkmirror.dataplane.shape import Shape
from sparkmirror.dataplane.troubles import Ends, Troubles
from sparkmirror.formats.position import Numbering, Position, TargetPosition
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import PartitionInfo, TopicInfo
from sparkmirror.kafka.fetch import FetchLimits
from sparkmirror.transforms.chain import TransformChain
from tests.unit.making import batch, fetched, record

NETWORK_EXCEPTION = 13


class Task:
    """A copy task with one partition, as far as troubles go."""

    def __init__(self) -> None:
        self.settings = CopySettings(fetch=FetchLimits())
        plan = PartitionPlan("t", 0, "A.t")
        self.copy = PartitionCopy(plan, self.settings, Budget(1 << 30), self)
        self.wanted: list[PartitionCopy] = []
        client = SimpleNamespace(retry_backoff=0.1, retry_backoff_max=1.0, security=None)
        self.cluster = cluster = SimpleNamespace(
            topics={}, refusal=lambda *_: None, settings=client
        )
        self.validated: set[PartitionCopy] = set()
        fetcher = SimpleNamespace(
            want=self.wanted.append,
            forget=lambda _: None,
            must_validate=self.validated.__contains__,
        )
        sender = SimpleNamespace(offer=lambda _: None)
        ends: Any = Ends(
            cast(Any, cluster), cast(Any, cluster), cast(Any, fetcher), cast(Any, sender)
        )
        made = SimpleNamespace(
            flow="A->B", settings=self.settings, stamp=0, source=client, target=client
        )
        self.troubles = Troubles(
            cast("TaskPlan", made),
            ends,
            cast("PositionStore", None),
            cast("Reporter", None),
            lambda copy, position: copy,
            Routings(),
        )
        self.copy.restart(Position(-1, Numbering(1, 0), 0))
        self.resumed: list[PartitionCopy] = []

    def topic(self, topic_id: bytes) -> None:
        """The source's metadata, as read last."""
        parts = {0: PartitionInfo(0, 1, 0)}
        self.cluster.topics = {"t": TopicInfo("t", topic_id, False, parts)}

    def unreadable(self, copy: RecordCopy) -> None: ...

    def recovered(self, lane: Lane) -> None:
        self.troubles.recovered(lane)

    def turn(self, now: float) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                self.troubles, "resume", lambda copies, forgotten: self.resumed.extend(copies)
            )
            self.troubles.turn(now)

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        self.troubles.passed(copy.whole)

    def moved(self, copy: PartitionCopy) -> None:
        self.troubles.passed(copy)

    def changed(self, copy: PartitionCopy) -> None:
        if copy.trouble:
            self.troubles.add(copy)


def test_what_waits_costs_nothing_until_it_is_due() -> None:
    """A thousand partitions without a leader must not be looked at in every turn of the loop."""
    task = Task()
    task.copy.fetch_trouble = messages.LEADER_NOT_AVAILABLE
    task.troubles.add(task.copy)
    task.troubles.turn(10.0)
    assert 10.0 < task.troubles._due_at < 11.0
    task.troubles.turn(10.0)
    assert task.wanted == []
    task.troubles.turn(11.0)
    assert task.wanted == [task.copy]
    assert task.troubles._due_at > 1e9


def test_a_partition_that_both_sides_refused_is_read_again() -> None:
    task = Task()
    now = int(time.time() * 1000)
    task.copy.feed(fetched([batch([record(0)._replace(timestamp=now)])]))
    sent = task.copy.next_batch()
    assert sent is not None
    task.copy.result(sent, NETWORK_EXCEPTION, -1, None)  # the target is away for a moment
    task.troubles.turn(0.0)
    task.copy.fetch_trouble = messages.LEADER_NOT_AVAILABLE  # and so is the source
    task.troubles.add(task.copy)
    for second in range(1, 20):
        task.troubles.turn(float(second))
    assert not task.copy.trouble
    assert task.copy.fetch_trouble == messages.NONE, "nobody would ever read this partition again"
    assert task.wanted == [task.copy]


SOME_ID = bytes([7] * 16)


@pytest.mark.parametrize(
    ("recorded", "is_compared"), [("", True), (SOME_ID.hex(), False), ("ff" * 16, True)]
)
def test_a_topic_that_was_gone_goes_on_only_if_its_id_is_the_recorded_one(
    recorded: str, is_compared: bool
) -> None:
    """A position from before the source's upgrade to 2.8 has no id: it may be of another topic."""
    task = Task()
    task.copy.restart(Position(-1, Numbering(1, 0), 0, source_id=recorded))
    task.topic(SOME_ID)
    task.copy.fetch_trouble = messages.UNKNOWN_TOPIC_OR_PARTITION
    task.troubles.add(task.copy)
    task.turn(10.0)
    task.turn(20.0)
    assert task.resumed == ([task.copy] if is_compared else [])


def test_an_offset_that_is_refused_again_and_again_is_resumed_with_pauses_and_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when a source says of the position that every resume gives that its log diverged before it."""
    task = Task()
    resumed: list[float] = []
    for millisecond in range(10_000):
        now = 10.0 + millisecond / 1000
        if not task.copy.fetch_trouble:
            task.copy.fetch_trouble = messages.OFFSET_OUT_OF_RANGE
            task.troubles.add(task.copy)
        task.turn(now)
        if task.resumed:
            resumed.append(now)
            task.resumed.clear()
            task.troubles._drop_troubles([task.copy])
            task.copy.restart(Position(-1, Numbering(1, 0), 0))
        task.troubles._retries.tell(now)
    assert resumed[1] - resumed[0] < 0.01, "a log that was cut back is resumed at once"
    assert len(resumed) < 20
    assert "reading from" in caplog.text
    assert "OFFSET_OUT_OF_RANGE; 4 tries so far, next try in" in caplog.text


def test_a_fetch_that_succeeds_makes_the_next_refused_offset_a_new_trouble() -> None:
    task = Task()
    for _ in range(10):
        task.copy.feed(fetched([]))
        task.copy.fetch_trouble = messages.OFFSET_OUT_OF_RANGE
        task.troubles.add(task.copy)
        task.turn(10.0)
        task.troubles._drop_troubles([task.copy])
        task.copy.restart(Position(-1, Numbering(1, 0), 0))
    assert len(task.resumed) == 10


def test_a_new_leader_epoch_is_resumed_when_what_was_read_is_written() -> None:
    task = Task()
    task.validated.add(task.copy)
    task.copy.feed(fetched([batch([record(0)])]))
    task.copy.fetch_trouble = messages.FENCED_LEADER_EPOCH
    task.troubles.add(task.copy)
    task.turn(10.0)
    assert (task.resumed, task.wanted) == ([], [])
    assert task.troubles._due_at > 10.0
    task.copy._ready.clear()  # as when all of it is acknowledged
    task.turn(11.0)
    assert (task.resumed, task.wanted) == ([task.copy], [])


def test_a_leader_elected_during_a_resume_is_a_new_one() -> None:
    task = Task()
    task.topic(SOME_ID)
    parts = {0: PartitionInfo(0, 2, 1)}

    def resume(plans: Any, known: Any, forgotten: Any) -> Outcome:
        task.cluster.topics = {"t": TopicInfo("t", SOME_ID, False, parts)}
        return Outcome({plan.key: Position(-1, Numbering(1, 0), 0) for plan in plans}, {}, [])

    cast(Any, task.troubles)._resumer = SimpleNamespace(resume=resume, found=[])
    cast(Any, task.troubles)._reporter = SimpleNamespace(resumed=lambda _: None)
    task.troubles.resume([task.copy])
    assert task.copy.source_epoch == 0


BY_SECOND = TransformChain.parse(
    {
        "transforms": "s",
        "transforms.s.type": "TimestampRouter",
        "transforms.s.timestamp.format": "ss",
    }
)


class Lanes:
    """A partition whose records go to two topics by turns: the one refuses every sequence number, the other takes all."""

    def __init__(self) -> None:
        self.task = Task()
        settings = CopySettings(fetch=FetchLimits(), transforms=BY_SECOND)
        plan = PartitionPlan("t", 0, "A.t")
        self.copy = RecordCopy(plan, settings, Budget(1 << 30), self.task)
        targets = tuple(TargetPosition(f"A.t-0{second}", 0, -1) for second in (0, 1))
        shape = Shape.of(plan, settings).text
        self.begin = Position(-1, Numbering(1, 0), transforms=shape, targets=targets)

    @property
    def lanes(self) -> list[Lane]:
        return [self.copy._lanes[target.key] for target in self.begin.targets]

    def restart(self) -> None:
        """Go on as a resume lets it, with one record for each of both read."""
        self.task.troubles._drop_troubles([self.copy])
        self.copy.restart(self.begin)
        rows = [record(number)._replace(timestamp=number * 1000) for number in (0, 1)]
        self.copy.feed(fetched([batch(rows)]))
        self.copy.offer_to(cast(Any, SimpleNamespace(offer=lambda _: None)))

    def answer(self, lane: Lane, code: int) -> None:
        sent = lane.next_batch()
        assert sent is not None
        lane.result(sent, code, -1 if code else lane.target_offset, None)


def test_a_lane_that_is_refused_waits_though_the_one_beside_it_flows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both, resumes = Lanes(), 0
    both.restart()
    for millisecond in range(10_000):
        now = 10.0 + millisecond / 1000
        refused, flowing = both.lanes
        if not refused.trouble:
            both.answer(refused, messages.UNKNOWN_PRODUCER_ID)
            both.answer(flowing, messages.NONE)
        both.task.turn(now)
        both.task.troubles._retries.tell(now)
        if both.task.resumed:
            both.task.resumed.clear()
            resumes += 1
            both.restart()
    assert 3 < resumes < 20
    assert "retrying t-0 to A.t-00-0: writing to" in caplog.text
    assert "recovered" not in caplog.text
    caplog.clear()
    caplog.set_level("INFO")
    if both.lanes[0].trouble:
        both.restart()
    both.answer(both.lanes[0], messages.NONE)
    both.task.troubles._retries.tell(100.0)
    assert "t-0 to A.t-00-0 recovered after" in caplog.text
    assert both.lanes[0].attempts == 0
