"""Three workers of one group with thirty connectors: shared evenly, killed, restarted and asked through anyone.

Short in `make test`; with CHAOS_LONG=1 every worker is killed in turn and more is copied.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster_pair import ClusterPair
from connect_worker import ConnectWorker, connector_path, worker_properties
from endless import EndlessLoad
from fleet import Fleet
from kafka_tools import NewRecord, consume, create_topic, end_offsets, produce, topics, wait_for

from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.comparison import compare

LONG = os.environ.get("CHAOS_LONG") == "1"
SESSION_S = 6.0
DELAY_S = 3.0
SLACK_S = 15.0  # joining, starting and telling of it, on a busy machine
BEATERS = 27
COPIERS = 3
PARTITIONS = 2
CONNECTORS = BEATERS + COPIERS
TASKS = BEATERS + COPIERS * PARTITIONS
FLOWING_S = 20.0 if LONG else 2.0
MIRROR = "org.apache.kafka.connect.mirror"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if LONG else 600)]


@dataclass(frozen=True, slots=True)
class Copies:
    """The topics that the source connectors copy, on both sides."""

    source: KafkaCluster
    target: KafkaCluster
    topics: tuple[str, ...]

    @property
    def remotes(self) -> dict[str, str]:
        return {topic: f"A.{topic}" for topic in self.topics}

    def load(self) -> EndlessLoad:
        return EndlessLoad(self.source.bootstrap, self.topics, PARTITIONS)

    def wait_flowing(self, seconds: float = 0.0) -> None:
        """Until every topic's copy has grown, and has gone on to grow for some time."""
        deadline = time.monotonic() + seconds
        while True:
            before = self._counts()
            grown = lambda seen=before: all(  # noqa: E731
                count > seen[topic] for topic, count in self._counts().items()
            )
            wait_for("records flow to every topic", grown)
            if time.monotonic() >= deadline:
                return

    def _counts(self) -> dict[str, int]:
        known = topics(self.target.bootstrap)
        return {
            remote: sum(end_offsets(self.target.bootstrap, remote).values())
            if remote in known
            else 0
            for remote in self.remotes.values()
        }

    def check(self) -> int:
        """Wait until all is copied; nothing may be missing, doubled or changed. Gives how many records that is."""
        total = sum(sum(end_offsets(self.source.bootstrap, t).values()) for t in self.topics)
        wait_for(
            f"all {total} records are copied", lambda: sum(self._counts().values()) >= total, 120
        )
        source, target = (
            Cluster(client_settings(known.name, {"bootstrap.servers": known.bootstrap}))
            for known in (self.source, self.target)
        )
        try:
            found = compare(source, target, self.remotes)
        finally:
            source.close()
            target.close()
        assert found.equal, [str(difference) for difference in found.differences]
        assert found.records == total
        return total


@pytest.fixture(scope="module")
def copies(cluster_pair: ClusterPair) -> Copies:
    stamp = f"{time.time_ns():x}"
    made = tuple(f"logs-{stamp}-{n}" for n in range(COPIERS))
    for topic in made:
        create_topic(cluster_pair.source.bootstrap, topic, PARTITIONS)
    return Copies(cluster_pair.source, cluster_pair.target, made)


@pytest.fixture(scope="module")
def shared_fleet(copies: Copies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    group = f"fleet-{time.time_ns():x}"
    properties = worker_properties(
        copies.target.bootstrap,
        group,
        session_timeout_ms=f"{SESSION_S * 1000:.0f}",
        heartbeat_interval_ms="1000",
        scheduled_rebalance_max_delay_ms=f"{DELAY_S * 1000:.0f}",
        rebalance_timeout_ms="30000",
    )
    with Fleet(tmp_path_factory.mktemp("fleet"), properties, 3) as fleet:
        for n, topic in enumerate(copies.topics):
            fleet.workers[n].put(f"copy-{n}", copier(copies, topic))
        for n in range(BEATERS):
            fleet.workers[n % 3].put(f"beat-{n:02}", beater(copies))
        yield fleet


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    """All three workers up, and everything running that belongs to all tests."""
    assert len(shared_fleet.alive) == 3
    for name in shared_fleet.workers[0].get("/connectors"):
        if not name.startswith(("copy-", "beat-")):
            shared_fleet.workers[0].delete(name)
    shared_fleet.wait_even(CONNECTORS, TASKS)
    return shared_fleet


def copier(copies: Copies, topic: str) -> dict[str, str]:
    return {
        "connector.class": f"{MIRROR}.MirrorSourceConnector",
        "source.cluster.alias": "A",
        "source.cluster.bootstrap.servers": copies.source.bootstrap,
        "target.cluster.bootstrap.servers": copies.target.bootstrap,
        "topics": topic,
        "tasks.max": str(PARTITIONS),
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
    }


def beater(copies: Copies) -> dict[str, str]:
    return {
        "connector.class": f"{MIRROR}.MirrorHeartbeatConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": copies.source.bootstrap,
        "target.cluster.bootstrap.servers": copies.target.bootstrap,
        "emit.heartbeats.interval.seconds": "5",
        "heartbeats.topic.replication.factor": "1",
    }


def test_thirty_connectors_are_shared_evenly(fleet: Fleet) -> None:
    for worker in fleet.workers:
        shares = fleet.shares(worker)
        assert shares is not None
        connectors, tasks = shares
        assert sorted(connectors.values()) == [10, 10, 10]
        assert sorted(tasks.values()) == [11, 11, 11]


@pytest.mark.chaos
def test_a_killed_worker_is_replaced_and_nothing_is_lost(fleet: Fleet, copies: Copies) -> None:
    victims = fleet.workers if LONG else [fleet.owner("copy-0", 0)]
    with copies.load():
        for victim in victims:
            copies.wait_flowing(FLOWING_S)
            victim.kill()
            fleet.wait_even(CONNECTORS, TASKS, SESSION_S + DELAY_S + SLACK_S)
            copies.wait_flowing(FLOWING_S)
            victim.start()
            victim.wait_ready()
            fleet.wait_even(CONNECTORS, TASKS)
            copies.wait_flowing(FLOWING_S)
    assert copies.check() > 0


@pytest.mark.chaos
def test_a_rolling_restart_loses_nothing(fleet: Fleet, copies: Copies) -> None:
    with copies.load():
        for worker in fleet.workers:
            copies.wait_flowing(FLOWING_S)
            assert worker.stop() == 0
            worker.start()
            worker.wait_ready()
            fleet.wait_even(CONNECTORS, TASKS)
        copies.wait_flowing(FLOWING_S)
    assert copies.check() > 0


def test_anybody_can_be_asked_for_anything(fleet: Fleet, copies: Copies) -> None:
    name = "any/where"
    asked = fleet.follower()
    config = {**beater(copies), "emit.heartbeats.interval.seconds": "1"}
    body = {"name": name, "config": config}
    answer = asked.request("POST", "/connectors", body)
    assert answer.status == 201, answer
    assert asked.request("POST", "/connectors", body).status == 409
    for worker in fleet.workers:
        worker.wait_running(name, 1)
        assert worker.get(f"{connector_path(name)}/config") == {**config, "name": name}
    assert_restarts_from_anywhere(fleet, name)
    one, two, three = fleet.workers
    one.tell(name, "pause")
    await_everywhere(fleet, name, "PAUSED", ["PAUSED"])
    two.tell(name, "resume")
    await_everywhere(fleet, name, "RUNNING", ["RUNNING"])
    offsets = f"{connector_path(name)}/offsets"
    wait_for("it has beaten", lambda: two.get(offsets)["offsets"])
    three.tell(name, "stop")
    await_everywhere(fleet, name, "STOPPED", [])
    asked = fleet.follower()
    assert asked.request("DELETE", offsets).status == 200
    assert three.get(offsets) == {"offsets": []}
    one.tell(name, "resume")
    await_everywhere(fleet, name, "RUNNING", ["RUNNING"])
    patch = {"emit.heartbeats.interval.seconds": "2", "target.cluster.alias": "B"}
    assert two.request("PATCH", f"{connector_path(name)}/config", patch).status == 200
    await_everywhere(fleet, name, "RUNNING", ["RUNNING"])
    fleet.follower().delete(name)
    for worker in fleet.workers:
        wait_for(f"{name} is gone", lambda seen=worker: seen.status(name) is None)  # type: ignore[misc]
        assert worker.request("GET", connector_path(name)).status == 404


def assert_restarts_from_anywhere(fleet: Fleet, name: str) -> None:
    """Connector and task are started anew by their owner, whoever is asked."""
    for worker in fleet.workers:
        for path, key in (
            ("tasks/0/restart", f"status-task-{name}-0"),
            ("restart", f"status-connector-{name}"),
        ):
            before = starts(fleet, key)
            worker.tell(name, path, "POST")
            wait_for(f"{key} runs anew", lambda k=key, n=before: starts(fleet, k) > n)  # type: ignore[misc]
            worker.wait_running(name, 1)


def starts(fleet: Fleet, key: str) -> int:
    """How often the status topic says that this has begun to run."""
    group = fleet.workers[0].properties["group.id"]
    bootstrap = fleet.workers[0].properties["bootstrap.servers"]
    rows = [r for r in consume(bootstrap, f"{group}-status") if r.key == key.encode()]
    return sum(json.loads(row.value)["state"] == "RUNNING" for row in rows if row.value)


def await_everywhere(fleet: Fleet, name: str, state: str, tasks: list[str]) -> None:
    for worker in fleet.workers:
        worker.wait_states(name, state, tasks)


def test_a_paused_connector_stays_paused_over_a_restart(fleet: Fleet, copies: Copies) -> None:
    name, topic = "copy-1", copies.topics[1]
    fleet.leader().tell(name, "pause")
    await_everywhere(fleet, name, "PAUSED", ["PAUSED"] * PARTITIONS)
    before = end_offsets(copies.target.bootstrap, f"A.{topic}")
    produce(copies.source.bootstrap, topic, [NewRecord(None, b"%d" % n, n % 2) for n in range(50)])
    for worker in {id(w): w for w in (fleet.owner(name), fleet.owner(name, 0))}.values():
        restart(worker)
    await_paused_on(fleet, name)
    # The others run again, so this one would copy by now.
    assert end_offsets(copies.target.bootstrap, f"A.{topic}") == before
    fleet.follower().tell(name, "resume")
    await_everywhere(fleet, name, "RUNNING", ["RUNNING"] * PARTITIONS)
    copies.check()


def restart(worker: ConnectWorker) -> None:
    assert worker.stop() == 0
    worker.start()
    worker.wait_ready()


def await_paused_on(fleet: Fleet, name: str) -> None:
    """Until everything runs but this, which is paused on workers that are alive."""

    def settled() -> bool:
        known = fleet.alive[0].get("/connectors?expand=status")
        states = {
            row["name"]: {row["connector"]["state"], *(task["state"] for task in row["tasks"])}
            for row in (entry["status"] for entry in known.values())
        }
        return len(states) == CONNECTORS and all(
            found == {"PAUSED" if connector == name else "RUNNING"}
            for connector, found in states.items()
        )

    wait_for(f"all but {name} run", settled, 120)
