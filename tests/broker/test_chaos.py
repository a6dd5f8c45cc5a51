"""Everything is killed at random while records flow; afterwards the target equals the source.

Short in `make test`; `make chaos` (CHAOS_LONG=1) kills at least 20 times while 200,000 records are copied.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from accidents import restart_broker
from kafka_tools import create_topic, end_offsets, topics, wait_for
from running import Mirror, assert_same, properties
from steady import SteadyProducer

from sparkmirror.tools.clusters import KafkaCluster

LONG = os.environ.get("CHAOS_LONG") == "1"
RECORDS = 200_000 if LONG else 20_000
KILLS = 24 if LONG else 4
RESTARTS = 8 if LONG else 2
PARTITIONS = 12
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600 if LONG else 900)]


def accidents(rng: random.Random) -> Iterator[str]:
    """At least KILLS kills and RESTARTS broker restarts, in a random order."""
    kinds = ["worker", "daemon", "jvm", "process"]
    events = [kinds[i % 4] for i in range(KILLS)] + ["source broker", "target broker"] * (
        RESTARTS // 2
    )
    rng.shuffle(events)
    yield from events


def kill_part(mirror: Mirror, kind: str, rng: random.Random) -> None:
    """One SIGKILL; a whole process is started again, as its supervisor would."""
    if kind == "process":
        mirror.kill()
        mirror.start()
        return
    victims = wait_for(f"a {kind} to kill", lambda: _victims(mirror, kind), 120)
    victim = rng.choice(victims)
    try:
        victim.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return  # it ended by itself in this moment


def _victims(mirror: Mirror, kind: str) -> list[psutil.Process]:
    if kind == "jvm":
        return mirror.jvms()
    workers = mirror.python_workers()
    if kind == "worker":
        return workers
    return [parent for worker in workers[:1] if (parent := worker.parent()) is not None]


def test_nothing_is_lost_and_nothing_comes_twice(
    three_broker_source: KafkaCluster,
    three_broker_target: KafkaCluster,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    rng = random.Random(SEED)
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - to repeat a failure
    source, target, topic = three_broker_source, three_broker_target, unique("chaos")
    remote = f"A.{topic}"
    create_topic(
        source.bootstrap, topic, PARTITIONS, replication=3, configs={"min.insync.replicas": "2"}
    )
    keys = properties(source, target, flow_topics=topic, tasks_max="4")
    keys["replication.factor"] = "3"
    mirror = Mirror(tmp_path, keys)
    seconds = 6.0 * (KILLS + RESTARTS)
    with mirror:
        wait_for("the remote topic is there", lambda: remote in topics(target.bootstrap), 120)
        producer = SteadyProducer(source.bootstrap, topic, RECORDS, PARTITIONS, seconds)
        kills = 0
        for event in accidents(rng):
            before = sum(end_offsets(target.bootstrap, remote).values())
            if event.endswith("broker"):
                restart_broker(source if event.startswith("source") else target, rng)
            else:
                kill_part(mirror, event, rng)
                kills += 1
            # Not before records flow again, so that every accident hits work that is under way.
            moves = lambda seen=before: (  # noqa: E731
                sum(end_offsets(target.bootstrap, remote).values()) > seen
                or sum(end_offsets(source.bootstrap, topic).values()) == seen
            )
            wait_for(f"records flow again after: {event}", moves, 120)
            time.sleep(rng.uniform(0.0, 1.0))
        wait_for("the producer is done", lambda: producer.done, 600)
        assert not producer.failed
        wait_for(
            "everything is copied",
            lambda: sum(end_offsets(target.bootstrap, remote).values()) >= RECORDS,
            300,
        )
    assert kills >= KILLS
    assert assert_same(source, topic, target, remote) == RECORDS
