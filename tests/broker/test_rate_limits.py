"""Rate limits by the clock: what a flow and its topics read of real brokers, alone, shared between tasks, and beside quotas."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_pair import ClusterPair
from copied import Copied, Reports, Unique, numbered
from copying import Copying
from kafka_tools import QUICK_JVM, NewRecord, end_offsets, produce, wait_for
from running import Mirror
from spread import SpreadTopic, keys, submitted

from sparkmirror.dataplane.links.driver_link import DriverLink, DriverLinks
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.dataplane.links.session_tls import new_secret
from sparkmirror.dataplane.plan import FLOW, RateLimit, TaskPlan
from sparkmirror.dataplane.rate_shares import RateShares, limits_of_tasks
from sparkmirror.kafka import produce as produce_api
from sparkmirror.kafka.fetch import FetchAnswer, FetchSession
from sparkmirror.kafka.produce import ProduceAnswer
from sparkmirror.tools.clusters import KafkaCluster, run_tool

pytestmark = pytest.mark.slow
Make = Callable[..., Copied]
CAP = 2_000_000
SIZE = 1000
WINDOW_S = 5.0
MOST = 1.15
LEAST = 0.75


@pytest.fixture
def make(cluster_pair: ClusterPair, unique: Unique) -> Iterator[Make]:
    """Topics with their copies, on any two clusters."""
    made: list[Copied] = []

    def new(
        partitions: int = 1,
        source: KafkaCluster = cluster_pair.source,
        target: KafkaCluster = cluster_pair.target,
    ) -> Copied:
        made.append(Copied(source, target, unique, partitions))
        return made[-1]

    yield new
    for copied in made:
        copied.close()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that looks at the last two seconds when it throttles."""
    directory = tmp_path_factory.mktemp("narrow")
    properties = {"quota.window.num": "2"}
    with KafkaCluster("narrow", 1, directory, properties, jvm=QUICK_JVM) as cluster:
        yield cluster


class Fetches:
    """What all copy tasks of this process have fetched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[float, str, int]] = []
        self.throttled = 0
        answer = FetchSession.answer

        def heard(session: FetchSession, payload: memoryview) -> FetchAnswer:
            found = answer(session, payload)
            now = time.monotonic()
            self.rows += [(now, row.topic, len(row.records)) for row in found.partitions]
            self.throttled += found.throttle_ms > 0
            return found

        monkeypatch.setattr(FetchSession, "answer", heard)

    def of(self, topic: str) -> int:
        return sum(count for _, name, count in self.rows if name == topic)

    def rate(self, topic: str, seconds: float) -> float:
        """Of the last seconds."""
        since = time.monotonic() - seconds
        return sum(n for at, name, n in self.rows if name == topic and at > since) / seconds

    def most(self, topic: str) -> float:
        """The highest rate in any window."""
        rows = [(at, count) for at, name, count in self.rows if name == topic and count]
        return max(
            sum(count for at, count in rows[number:] if at <= began + WINDOW_S) / WINDOW_S
            for number, (began, _) in enumerate(rows)
        )


def fill(copied: Copied, sizes: list[int]) -> None:
    """So many bytes in each partition."""
    for partition, size in enumerate(sizes):
        copied.produce(numbered(size // SIZE, SIZE, partition), batch_num_messages=50)


def limited(
    copied: Copied, *limits: RateLimit, others: tuple[Copied, ...] = (), progress: str = ""
) -> TaskPlan:
    parts = [part for each in (copied, *others) for part in each.plans()]
    return replace(copied.flow.plan(parts, progress_topic=progress), limits=limits)


def run_for(task: Copying, seconds: float) -> None:
    over = time.monotonic() + seconds
    task.until("it has run", lambda: time.monotonic() >= over, seconds + 30)


def test_a_flow_reads_as_much_as_its_cap(
    make: Make, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(4)
    reports = Reports(copied, unique)
    fill(copied, [6 * CAP // 2] * 4)
    fetches = Fetches(monkeypatch)
    with Copying(limited(copied, RateLimit(FLOW, CAP), progress=reports.topic)) as task:
        task.until("it reads", lambda: fetches.of(copied.topic) > 0)
        run_for(task, 8)
        assert fetches.rate(copied.topic, 5) >= LEAST * CAP
        row = reports.row(copied.topic, 0)
        assert row is not None
        assert (row.state, row.error, row.attempts) == ("RUNNING", "", 0)
        assert row.held_back_by == "mirror.rate.limit.bytes"
        assert row.lag > 0
    assert fetches.most(copied.topic) <= MOST * CAP


def test_brokers_of_the_source_share_the_cap_of_a_flow(
    make: Make, three_broker_source: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of them has all there is to read, while fetches of the others wait for more."""
    copied = make(3, source=three_broker_source)
    fill(copied, [12 * CAP, 0, 0])
    fetches = Fetches(monkeypatch)
    with Copying(limited(copied, RateLimit(FLOW, CAP))) as task:
        task.until("it reads", lambda: fetches.of(copied.topic) > 0)
        run_for(task, 7)
        assert fetches.rate(copied.topic, 5) >= LEAST * CAP
        fill(copied, [0, 6 * CAP, 6 * CAP])
        run_for(task, 7)
        assert fetches.rate(copied.topic, 5) >= LEAST * CAP
    assert fetches.most(copied.topic) <= MOST * CAP


def test_a_batch_that_is_larger_than_the_cap_of_a_second_is_copied(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(2)
    for partition in range(2):
        copied.produce(numbered(300, SIZE, partition), linger_ms=1000, batch_size=900_000)
    fetches = Fetches(monkeypatch)
    began = time.monotonic()
    with Copying(
        limited(copied, RateLimit(FLOW, 100_000), RateLimit(copied.topic, 90_000))
    ) as task:
        copied.until(task, 600)
    assert time.monotonic() - began > 2
    assert fetches.of(copied.topic) < 700_000, "nothing is fetched twice"
    assert copied.arrived() == copied.sent()


def test_a_topic_over_its_cap_does_not_hold_up_another(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = make(8), make(2)
    fill(slow, [CAP // 2] * 8)
    fill(fast, [4 * CAP] * 2)
    fetches = Fetches(monkeypatch)
    with Copying(limited(slow, RateLimit(slow.topic, CAP // 4), others=(fast,))) as task:
        began = time.monotonic()
        fast.until(task, 8 * CAP // SIZE)
        took = time.monotonic() - began
        assert fetches.of(slow.topic) <= CAP // 4 * (took + 1.5)
        run_for(task, 8)
        assert fetches.rate(slow.topic, 5) >= LEAST * CAP / 4
    assert fetches.most(slow.topic) <= 1.3 * CAP / 4


@contextlib.contextmanager
def shared_tasks(copied: Copied, cap: int) -> Iterator[list[Copying]]:
    """A copy task for each partition, linked to a driver that shares the cap out."""
    packed = [[part] for part in copied.plans()]
    limits = limits_of_tasks(packed, cap, {})
    plans = [
        replace(copied.flow.plan(parts), index=index, limits=limits[index])
        for index, parts in enumerate(packed)
    ]
    listener = DriverListener("127.0.0.1", "127.0.0.1", new_secret(tls=True))
    links, job = DriverLinks(listener), uuid.uuid4()
    links.expect(job, RateShares.of(plans))
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        tasks = []
        for plan in plans:
            link = stack.enter_context(
                contextlib.closing(DriverLink(listener.driver, job, plan.index))
            )
            tasks.append(stack.enter_context(Copying(plan, link)))
        yield tasks
        links.cut(job)


def test_tasks_share_the_cap_of_a_flow_and_the_one_with_the_load_gets_nearly_all(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(3)
    fill(copied, [12 * CAP, 0, 0])
    fetches = Fetches(monkeypatch)
    with shared_tasks(copied, CAP) as tasks:
        tasks[0].until("it reads", lambda: fetches.of(copied.topic) > 0)
        run_for(tasks[0], 9)
        assert fetches.rate(copied.topic, 5) >= 0.8 * CAP
        fill(copied, [0, 6 * CAP, 6 * CAP])  # and when others have some, too
        run_for(tasks[0], 10)
        assert fetches.rate(copied.topic, 5) >= LEAST * CAP
        remote = end_offsets(copied.target, copied.remote)
        assert all(end * SIZE > CAP for end in remote.values()), remote
    assert fetches.most(copied.topic) <= MOST * CAP


# -- with Spark ---------------------------------------------------------------------------------

RECORD = 50_000


def backlog(topic: SpreadTopic, partitions: int) -> None:
    """For half a minute, divided among the first partitions."""
    count = 30 * CAP // RECORD
    rows = [NewRecord(b"k", bytes(RECORD), number % partitions) for number in range(count)]
    produce(topic.source.bootstrap, topic.topic, rows)


def rates(topic: SpreadTopic) -> list[float]:
    """Three times, of some seconds each: what arrives in a second."""
    found = []
    for _ in range(3):
        before, began = topic.copied(), time.monotonic()
        time.sleep(WINDOW_S)
        copied = topic.copied() - before
        found.append(copied * RECORD / (time.monotonic() - began))
    return found


def check(found: list[float]) -> None:
    """Never more; a machine that is busy otherwise may copy less for some time."""
    assert all(rate <= 1.25 * CAP for rate in found), found
    assert max(found) >= LEAST * CAP, found


def test_spark_tasks_share_the_cap_of_a_flow(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Nearly all bytes are in one of four partitions, and so with one of two Spark tasks."""
    topic = SpreadTopic(source_cluster, target_cluster, unique("capped"), 4)
    flow = keys(topic, "local[2]", 2, flow_mirror_rate_limit_bytes=str(CAP))
    backlog(topic, 1)
    with Mirror(tmp_path, flow) as mirror:
        topic.add()
        wait_for("some is copied", lambda: topic.copied() * RECORD > CAP // 2, 120)
        assert submitted(mirror)[-1] == 2
        time.sleep(3)
        found = rates(topic)
        assert "mirror.rate.limit.bytes holds back all topics" in mirror.output
        assert "FAILED" not in mirror.output
    check(found)


def test_workers_share_the_cap_of_a_flow(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Each has half of the tasks, and half of the cap."""
    topic = SpreadTopic(source_cluster, target_cluster, unique("capped"), 4)
    flow = keys(topic, "local[2]", 4, flow_mirror_rate_limit_bytes=str(CAP))
    flow |= {"B.scheduled.rebalance.max.delay.ms": "1000", "emit.heartbeats.enabled": "false"}
    storage = (f"{kind}.storage.topic" for kind in ("config", "status", "offset"))
    flow |= {f"B.{name}": unique(name[:6]) for name in ("group.id", *storage)}
    nodes = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        nodes.append(Mirror(tmp_path / name, flow))
    with nodes[0], nodes[1]:
        for node in nodes:
            node.wait_until_says("copying 1 partition(s)", 120)
        topic.add()
        topic.arrives()
        backlog(topic, 4)
        time.sleep(3)
        found = rates(topic)
        for node in nodes:
            assert f"of {CAP // 2} bytes/s" in node.output
    check(found)


# -- beside quotas ------------------------------------------------------------------------------


def set_quota(cluster: KafkaCluster, name: str, rate: int) -> None:
    entity = ["--entity-type", "clients", "--entity-name", "sparkmirror"]
    alter = ["--bootstrap-server", cluster.bootstrap, "--alter", *entity]
    run_tool("kafka.admin.ConfigCommand", *alter, "--add-config", f"{name}={rate}")


@pytest.mark.parametrize("cap", [CAP // 10, CAP // 2])
def test_the_lower_one_of_cap_and_read_quota_counts(
    make: Make, narrow: KafkaCluster, monkeypatch: pytest.MonkeyPatch, cap: int
) -> None:
    copied, quota = make(2, source=narrow), CAP // 4
    set_quota(narrow, "consumer_byte_rate", quota)
    fill(copied, [3 * CAP] * 2)
    fetches = Fetches(monkeypatch)
    with Copying(limited(copied, RateLimit(FLOW, cap))) as task:
        task.until("it reads", lambda: fetches.of(copied.topic) > 0)
        run_for(task, 10)
        lower = min(quota, cap)
        # A broker that throttles does so by the second, and after the fact.
        assert 0.5 * lower <= fetches.rate(copied.topic, 8) <= 1.4 * lower
    assert (fetches.throttled > 0) == (cap > quota)


def test_a_write_quota_of_the_target_is_honoured_below_a_cap(
    make: Make, narrow: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, quota = make(2, target=narrow), CAP // 4
    set_quota(narrow, "producer_byte_rate", quota)
    fill(copied, [2 * CAP] * 2)
    throttled: list[int] = []

    answer = produce_api.answer

    def heard(*arguments: Any) -> ProduceAnswer:
        found = answer(*arguments)
        throttled.append(found.throttle_ms)
        return found

    monkeypatch.setattr(produce_api, "answer", heard)
    with Copying(limited(copied, RateLimit(FLOW, CAP))) as task:
        task.until("the broker throttles", lambda: any(throttled))
        before = copied.end()
        run_for(task, 8)
        rate = (copied.end() - before) * SIZE / 8
        assert 0.4 * quota <= rate <= 1.6 * quota
    set_quota(narrow, "producer_byte_rate", 100 * CAP)
