"""Nodes are killed while groups commit: checkpoints never go back but with their group, and end up exact.

Short in `make test`; `make chaos` (CHAOS_LONG=1) kills more often.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_tools import (
    Record,
    commit_group,
    consume,
    end_offsets,
    group_offsets,
    topics,
    wait_for,
)
from numbered import NumberedTopic, Standing, await_copies
from repeating import Repeating
from running import Mirror

from sparkmirror.formats.mirror import Checkpoint, decode_checkpoint
from sparkmirror.tools.clusters import KafkaCluster

LONG = os.environ.get("CHAOS_LONG") == "1"
KILLS = 20 if LONG else 3
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)
PARTITIONS = 3
GROUPS = 6
Key = tuple[str, str, int]

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(1800 if LONG else 300)]


class Life:
    """The source as its users see it: records with and without transactions, and groups that commit, forward but for one."""

    def __init__(self, topic: NumberedTopic, groups: list[str], rng: random.Random) -> None:
        self._topic = topic
        self._rng = rng
        self.groups = groups
        self.rewinder = groups[-1]
        self.committed: dict[str, dict[int, int]] = {group: {} for group in groups}

    def go_on(self) -> None:
        self._topic.mixed(1)
        ends = end_offsets(self._topic.bootstrap, self._topic.topic)
        for group in self.groups:
            self._commit(group, ends)

    def _commit(self, group: str, ends: dict[int, int]) -> None:
        last = self.committed[group]
        is_rewound = group == self.rewinder and self._rng.random() < 0.1
        moved = {
            p: self._rng.randint(0 if is_rewound else last.get(p, 0), end)
            for p, end in ends.items()
            if self._rng.random() < 0.8
        }
        if moved:
            commit_group(self._topic.bootstrap, group, self._topic.topic, moved)
            last |= moved


def test_checkpoints_never_go_back_and_end_up_exact(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    rng = random.Random(SEED)
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - to repeat a failure
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    topic = NumberedTopic(source, unique("fire"), "fire", PARTITIONS)
    remote, groups = f"hot.{topic.topic}", [unique(f"fire-{i}") for i in range(GROUPS)]
    checkpoints = Checkpoints(target, topic.topic)
    nodes = two_nodes(tmp_path, source_cluster, target_cluster, topic.topic)
    life = Life(topic, groups, rng)
    with nodes[0], nodes[1], Repeating(life.go_on, 0.05):
        wait_for("each group has checkpoints", lambda: checkpoints.groups() == set(groups), 120)
        for number in range(KILLS):
            node = nodes[number % 2]
            node.kill()
            node.start()
            # Not before checkpoints are written again, so that every kill hits work that is under way.
            before = checkpoints.count()
            wait_for(
                f"checkpoints after kill {number + 1}",
                lambda seen=before: checkpoints.count() > seen + GROUPS,  # type: ignore[misc]
                120,
            )
        wait_for("a checkpoint goes back with its group", lambda: goes_back(checkpoints.read()))
    with nodes[0]:
        await_copies(target, remote, topic.total)
        here, there = Standing(source, topic.topic), Standing(target, remote)

        def are_exact() -> bool:
            found = checkpoints.downstream()
            return all(there.at(found[g]) == here.of(g) for g in groups)

        wait_for("the last checkpoints are exact", are_exact)
        for group in groups:
            place = group_offsets(source, group)
            assert {p: o for (_, p), o in place.items()} == life.committed[group]
            wait_for(
                f"{group} has moved on the target",
                lambda g=group: there.of(g) == here.of(g) or g == life.rewinder,  # type: ignore[misc]
            )
    assert_monotonic(checkpoints.read(), life.rewinder)


def two_nodes(
    directory: Path, source: KafkaCluster, target: KafkaCluster, topic: str
) -> list[Mirror]:
    """Both with the same file."""
    keys = {
        "clusters": "hot, cold",
        "hot.bootstrap.servers": source.bootstrap,
        "cold.bootstrap.servers": target.bootstrap,
        "hot->cold.enabled": "true",
        "topics": topic,
        "groups": "fire-.*",
        "tasks.max": "3",
        "replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "cold.session.timeout.ms": "6000",
        "cold.heartbeat.interval.ms": "1000",
        "cold.scheduled.rebalance.max.delay.ms": "1000",
    }
    keys |= {"dedicated.mode.enable.internal.rest": "true", "listeners": "http://127.0.0.1:0"}
    nodes = []
    for name in ("one", "two"):
        (directory / name).mkdir()
        nodes.append(Mirror(directory / name, keys))
    return nodes


class Checkpoints:
    """What the checkpoints topic says about one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._remote = f"hot.{topic}"

    def read(self) -> list[Checkpoint]:
        """From the first to the last; the topic is compacted, but its last segment is not."""
        name = "hot.checkpoints.internal"
        if name not in topics(self._bootstrap):
            return []
        rows: list[Record] = consume(self._bootstrap, name)
        found = [decode_checkpoint(row.key, row.value) for row in rows]
        return [checkpoint for checkpoint in found if checkpoint.topic == self._remote]

    def count(self) -> int:
        return len(self.read())

    def groups(self) -> set[str]:
        return {checkpoint.group for checkpoint in self.read()}

    def downstream(self) -> dict[str, dict[tuple[str, int], int]]:
        """The last of each group, as its offsets on the target would be."""
        found: dict[str, dict[tuple[str, int], int]] = {}
        for c in self.read():
            found.setdefault(c.group, {})[c.topic, c.partition] = c.downstream_offset
        return found


def assert_monotonic(checkpoints: list[Checkpoint], rewinder: str) -> None:
    """Forward on the target, unless the group went back at the source."""
    for old, new in successors(checkpoints):
        if new.upstream_offset < old.upstream_offset:
            assert new.group == rewinder, (old, new)
        else:
            assert new.downstream_offset > old.downstream_offset, (old, new)


def goes_back(checkpoints: list[Checkpoint]) -> bool:
    return any(new.upstream_offset < old.upstream_offset for old, new in successors(checkpoints))


def successors(checkpoints: list[Checkpoint]) -> Iterator[tuple[Checkpoint, Checkpoint]]:
    """Each checkpoint with the next one of its group and partition."""
    last: dict[Key, Checkpoint] = {}
    for new in checkpoints:
        key = new.group, new.topic, new.partition
        if key in last:
            yield last[key], new
        last[key] = new
