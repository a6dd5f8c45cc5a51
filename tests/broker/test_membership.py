"""Workers of one group share the work, whoever comes, goes, dies or is slow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import group_workers
import pytest
from group_workers import QUICK, Shared, Worker, all_items, client, config_of, even
from kafka_tools import wait_for

from sparkmirror.control.membership import WorkerGroup
from sparkmirror.control.states import ClusterConfig, TaskId
from sparkmirror.errors import BrokerError
from sparkmirror.kafka.coordination import CoordinatorLink
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster

Start = Callable[..., Worker]
Unique = Callable[[str], str]


@pytest.fixture
def shared() -> Shared:
    """Thirty connectors with two tasks each."""
    return Shared(config_of(30, 2))


@pytest.fixture
def start(target_cluster: KafkaCluster, unique: Unique, shared: Shared) -> Iterator[Start]:
    """Workers of one group; those that still run are closed at the end."""
    group = unique("group")
    workers: list[Worker] = []

    def starting(name: str, bootstrap: str = target_cluster.bootstrap, **given: object) -> Worker:
        worker = Worker(bootstrap, group, name, shared, **given)  # type: ignore[arg-type]
        workers.append(worker)
        return worker

    yield starting
    for worker in workers:
        worker.close()
    assert not shared.doubled


def _await_even(workers: list[Worker], config: ClusterConfig, patience_s: float = 30.0) -> None:
    wait_for("work is shared out evenly", lambda: even(workers, config), patience_s)


def test_three_workers_have_an_even_share(start: Start, shared: Shared) -> None:
    workers = [start(name) for name in "abc"]
    _await_even(workers, shared.config)
    counts = [(len(w.group.owned.connectors), len(w.group.owned.tasks)) for w in workers]
    assert counts == [(10, 20)] * 3
    assert len({worker.group.generation for worker in workers}) == 1
    assert [worker.group.protocol_version for worker in workers] == [2, 2, 2]


def test_the_leader_knows_who_has_what_and_where_everybody_asks(
    start: Start, shared: Shared
) -> None:
    workers = [start(name) for name in "ab"]
    _await_even(workers, shared.config)
    (leader,) = (worker for worker in workers if worker.group.is_leader)
    (follower,) = (worker for worker in workers if not worker.group.is_leader)
    assert {worker.group.leader_url for worker in workers} == {leader.url}
    for worker in workers:
        assert {leader.group.owner_url(item) for item in worker.owned} == {worker.url}
    assert leader.group.owner_url(TaskId("connector-00", 99)) is None
    assert follower.group.owner_url("connector-00") is None


def test_a_worker_that_joins_takes_only_the_surplus(start: Start, shared: Shared) -> None:
    first = start("a")
    _await_even([first], shared.config)
    second = start("b")
    _await_even([first, second], shared.config)
    assert sum(map(len, first.revocations)) == 45, "nothing is stopped but what the other gets"
    assert not second.revocations


def test_new_and_removed_connectors(start: Start, shared: Shared) -> None:
    workers = [start(name) for name in "ab"]
    _await_even(workers, shared.config)
    before = [worker.owned for worker in workers]
    shared.config = config_of(40, 2, offset=2)
    workers[0].group.request_rejoin("connectors were added")
    _await_even(workers, shared.config)
    assert all(old <= worker.owned for old, worker in zip(before, workers, strict=True))
    shared.config = config_of(3, 1, offset=3)
    workers[1].group.request_rejoin("connectors were removed")
    wait_for("only what is left is owned", lambda: even(workers, shared.config))


def test_work_of_a_worker_that_leaves_moves_after_the_delay(start: Start, shared: Shared) -> None:
    settings = replace(QUICK, session_timeout=20.0)
    workers = [start(name, settings=settings) for name in "abc"]
    _await_even(workers, shared.config)
    leaver = next(worker for worker in workers if not worker.group.is_leader)
    rest = [worker for worker in workers if worker is not leaver]
    kept = [worker.owned for worker in rest]
    left_at = time.monotonic()
    leaver.close()
    wait_for("the others wait", lambda: all(w.assignments[-1].delay_ms > 0 for w in rest), 10)
    assert [worker.owned for worker in rest] == kept
    _await_even(rest, shared.config)
    took = time.monotonic() - left_at
    assert settings.scheduled_rebalance_max_delay <= took < settings.session_timeout


def test_a_worker_that_comes_back_in_time_gets_its_share_again(
    start: Start, shared: Shared
) -> None:
    settings = replace(QUICK, scheduled_rebalance_max_delay=4.0)
    workers = [start(name, settings=settings) for name in "abc"]
    _await_even(workers, shared.config)
    leaver = next(worker for worker in workers if not worker.group.is_leader)
    rest = [worker for worker in workers if worker is not leaver]
    had, kept = leaver.owned, [worker.owned for worker in rest]
    leaver.close()
    back = start("again", settings=settings)
    _await_even([*rest, back], shared.config)
    assert back.owned == had
    assert [worker.owned for worker in rest] == kept


def test_work_of_a_killed_worker_moves_after_session_and_delay(
    start: Start, shared: Shared, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    workers = [start(name) for name in "ab"]
    _await_even(workers, shared.config)
    group = workers[0].group._group
    output = tmp_path / "third.log"
    arguments = (target_cluster.bootstrap, group, "third", "30", "2")
    command = [sys.executable, group_workers.__file__, *arguments]
    third = spawn(command, log=output, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        wait_for("the third has its share", lambda: "30" in output.read_text().split(), 30)
        wait_for("the others have theirs", lambda: all(len(w.owned) == 30 for w in workers))
        killed_at = time.monotonic()
    finally:
        third.kill()
        third.wait()
    _await_even(workers, shared.config)
    took = time.monotonic() - killed_at
    least = QUICK.session_timeout - QUICK.heartbeat_interval + QUICK.scheduled_rebalance_max_delay
    assert least - 0.5 < took < QUICK.session_timeout + QUICK.scheduled_rebalance_max_delay + 5


def test_a_busy_herder_stays_in_the_group(start: Start, shared: Shared) -> None:
    settings = replace(QUICK, session_timeout=1.5)
    workers = [start(name, settings=settings) for name in "ab"]
    _await_even(workers, shared.config)
    generation = workers[0].group.generation
    workers[1].pause()
    busy_until = time.monotonic() + 2 * settings.session_timeout
    wait_for("the session would be over", lambda: time.monotonic() > busy_until)
    workers[1].resume()
    _await_even(workers, shared.config)
    assert workers[0].group.generation == generation
    assert not workers[1].group._session.join_reason


def test_a_herder_that_is_stuck_leaves_and_comes_back(start: Start, shared: Shared) -> None:
    settings = replace(QUICK, rebalance_timeout=1.5, scheduled_rebalance_max_delay=0.5)
    workers = [start(name, settings=settings) for name in "ab"]
    _await_even(workers, shared.config)
    stuck = next(worker for worker in workers if not worker.group.is_leader)
    other = next(worker for worker in workers if worker is not stuck)
    stuck.pause()
    wait_for("the other has all", lambda: other.owned == all_items(shared.config), 20)
    # It ran on, and so did the other: what ran twice is taken from both, and shared out again.
    shared.doubled.clear()
    stuck.resume()
    _await_even(workers, shared.config)
    shared.doubled.clear()


def test_a_leader_that_is_behind_has_the_group_meet_again(start: Start, shared: Shared) -> None:
    leader = start("a", snapshot=config_of(30, 2, offset=5))
    _await_even([leader], shared.config)
    shared.config = config_of(30, 2, offset=7)
    follower = start("b")
    failed = wait_for("a failed assignment", lambda: [a for a in follower.assignments if a.failed])
    assert failed[0].config_offset == 7
    assert leader.owned == all_items(shared.config), "work goes on meanwhile"
    leader.snapshot = None
    _await_even([leader, follower], shared.config)
    assert follower.assignments[-1].config_offset == 7


def test_one_eager_worker_makes_all_eager(start: Start, shared: Shared) -> None:
    new = start("a")
    _await_even([new], shared.config)
    old = start("b", settings=replace(QUICK, protocol="eager"))
    _await_even([new, old], shared.config)
    assert (new.group.protocol_version, old.group.protocol_version) == (0, 0)
    # The round that makes a group eager is the one in which nobody has given anything back before it.
    shared.doubled.clear()
    assert new.revocations == [old.owned]
    third = start("c", settings=replace(QUICK, protocol="compatible"))
    _await_even([new, old, third], shared.config)
    assert all(worker.revocations for worker in (new, old)), "eager workers give all back"
    old.close()
    _await_even([new, third], shared.config)
    assert (new.group.protocol_version, third.group.protocol_version) == (1, 1)


def test_a_wakeup_ends_a_poll(start: Start, shared: Shared) -> None:
    worker = start("a")
    _await_even([worker], shared.config)
    worker.pause()
    wait_for("the poll is over", lambda: not worker.group._woken.is_set(), 5)


def test_what_cannot_be_put_right_by_trying_again_is_raised(
    target_cluster: KafkaCluster, unique: Unique, shared: Shared
) -> None:
    class Nobody:
        def on_revoked(self, *args: object) -> None: ...
        def on_assigned(self, *args: object) -> None: ...

    settings = replace(QUICK, session_timeout=0.5)
    group = WorkerGroup(
        client(target_cluster.bootstrap),
        unique("group"),
        settings,
        lambda: shared.config,
        Nobody(),
    )
    try:
        with pytest.raises(BrokerError, match=r"INVALID_SESSION_TIMEOUT.*session\.timeout\.ms"):
            group.poll(10.0)
    finally:
        group.close()


@pytest.mark.slow
def test_work_goes_on_when_the_coordinator_is_restarted(
    three_broker_target: KafkaCluster, start: Start, shared: Shared
) -> None:
    cluster = three_broker_target
    settings = replace(QUICK, session_timeout=20.0)
    workers = [start(n, bootstrap=cluster.bootstrap, settings=settings) for n in "abc"]
    _await_even(workers, shared.config)
    link = CoordinatorLink(client(cluster.bootstrap), workers[0].group._group)
    node = link.find().node
    told = [len(worker.revocations) for worker in workers]
    cluster.stop(node)
    wait_for("the coordinator is another broker", lambda: link.find().node != node)
    link.close()
    workers[0].group.request_rejoin("to see that the group is alive")
    generation = workers[0].group.generation
    wait_for("a new generation", lambda: workers[0].group.generation > generation)
    _await_even(workers, shared.config)
    assert [len(worker.revocations) for worker in workers] == told
    cluster.restart(node)
    _await_even(workers, shared.config)


@pytest.mark.slow
def test_work_stops_when_brokers_are_away_for_longer_than_the_session(
    target_cluster: KafkaCluster, start: Start, shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(QUICK, session_timeout=3.0)
    worker = start("a", settings=settings)
    _await_even([worker], shared.config)
    caplog.clear()  # a new cluster has no coordinator at first
    target_cluster.kill(1)
    killed_at = time.monotonic()
    try:
        wait_for("its work is stopped", lambda: worker.revocations, 15)
        assert time.monotonic() - killed_at > settings.session_timeout - 0.5
        assert worker.owned == frozenset()
        assert not shared.running
        lines = [r.getMessage() for r in caplog.records if "out of reach" in r.getMessage()]
        assert len(lines) == 1, "an outage is told once"
    finally:
        target_cluster.restart(1)
    _await_even([worker], shared.config)
