"""Groups through a query: an offset leads to the first record that was kept at or behind it, in every topic that it was sent to.

Also when the flow was killed in between, and where several source partitions feed one.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_tools import (
    NewRecord,
    commit_group,
    consume,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import Mirror, properties

from sparkmirror.formats.mirror import decode_checkpoint
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
PATIENCE_S = 240.0
TENANTS = ("red", "green", "blue")
PARTITIONS = 2
ROUND = 600
"""Records of each topic that are produced at a time."""


class Source:
    """Two topics: one whose records are sent to a topic of their tenant's, and one whose records are placed by key."""

    def __init__(self, bootstrap: str, unique: Unique) -> None:
        self._bootstrap = bootstrap
        self.routed, self.spread = unique("routed"), unique("spread")
        self._rng = random.Random(11)
        self._count = 0
        for name in (self.routed, self.spread):
            create_topic(bootstrap, name, PARTITIONS)

    def produce(self) -> None:
        for name in (self.routed, self.spread):
            rows = []
            for _ in range(ROUND):
                self._count += 1
                value = {
                    "n": self._count,
                    "tenant": self._rng.choice(TENANTS),
                    "keep": self._rng.random() < 0.7,
                    "word": "hush",
                }
                key = b"k%d" % self._rng.randrange(40)
                rows.append(
                    NewRecord(key, json.dumps(value).encode(), self._rng.randrange(PARTITIONS))
                )
            produce(self._bootstrap, name, rows, batch_num_messages=50)

    @property
    def sql(self) -> str:
        text = "CAST(value AS STRING)"
        return (
            f"SELECT CASE WHEN topic = '{self.routed}' "  # noqa: S608 - of names that we have made
            f"THEN concat(topic, '-', get_json_object({text}, '$.tenant')) ELSE topic END AS topic, "
            f"CASE WHEN topic = '{self.spread}' THEN NULL ELSE partition END AS partition, "
            f"replace({text}, 'hush', '***') AS value "
            f"FROM records WHERE get_json_object({text}, '$.keep') = 'true'"
        )

    def kept(self, topic: str) -> dict[int, list[tuple[int, int]]]:
        """Offset and number of every record that the query keeps, by partition."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row in consume(self._bootstrap, topic):
            value = json.loads(row.value or b"")
            if value["keep"]:
                found[row.partition].append((row.offset, value["n"]))
        return found


Places = dict[int, tuple[str, int, int]]


def places(bootstrap: str, names: list[str]) -> Places:
    """Where each record is on the target, by its number."""
    found: Places = {}
    for name in names:
        for row in consume(bootstrap, name):
            value = json.loads(row.value or b"")
            assert value["word"] == "***"
            assert value["n"] not in found, f"{value['n']} came twice"
            found[value["n"]] = name, row.partition, row.offset
    return found


@pytest.mark.slow
def test_groups_stand_where_the_first_kept_record_is(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    made = Source(source, unique)
    made.produce()
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=f"{made.routed},{made.spread}",
        flow_transform_sql=made.sql,
        flow_transform_interval_ms="50",
        flow_emit_checkpoints_interval_seconds="1",
        flow_refresh_groups_interval_seconds="1",
        flow_sync_topic_configs_enabled="false",
        emit_heartbeats_enabled="false",
        B_offset_flush_interval_ms="300",
    )
    names = [*(f"A.{made.routed}-{tenant}" for tenant in TENANTS), f"A.{made.spread}"]

    def copied() -> int:
        known = topics(target)
        return sum(sum(end_offsets(target, name).values()) for name in names if name in known)

    def wanted() -> int:
        return sum(len(r) for t in (made.routed, made.spread) for r in made.kept(t).values())

    mirror = Mirror(tmp_path, keys)
    with mirror:
        for _ in range(3):
            before = copied()
            made.produce()
            wait_for("some are copied", lambda seen=before: copied() > seen, PATIENCE_S)  # type: ignore[misc]
            mirror.kill()
            mirror.start()
        made.produce()
        total = wanted()
        wait_for("all are copied", lambda: copied() >= total, PATIENCE_S)
        groups = committed(source, made, unique)
        there = places(target, names)
        assert len(there) == total
        answers = Answers(target, made, groups, there).all()

        def differing() -> list[object]:
            now = checkpoints(target)
            return [(key, now.get(key), o) for key, o in answers.items() if now.get(key) != o]

        try:
            wait_for("all checkpoints are exact", lambda: not differing(), 60)
        except AssertionError:
            wrong = differing()
            raise AssertionError(f"{len(wrong)} of {len(answers)}: {wrong[:8]}") from None
        assert mirror.stop() == 0


Groups = dict[str, tuple[str, dict[int, int]]]
Key = tuple[str, str, int]


def committed(bootstrap: str, made: Source, unique: Unique) -> Groups:
    """Groups that stand somewhere, one of each topic at its end."""
    rng = random.Random(5)
    groups: Groups = {}
    for topic in (made.routed, made.spread):
        ends = end_offsets(bootstrap, topic)
        for number in range(100):
            offsets = {p: rng.randint(0, end) if number else end for p, end in ends.items()}
            group = unique(f"group-{number}")
            commit_group(bootstrap, group, topic, offsets)
            groups[group] = topic, offsets
    return groups


def checkpoints(bootstrap: str) -> dict[Key, int]:
    """The last one of each group and partition."""
    last: dict[Key, int] = {}
    for row in consume(bootstrap, "A.checkpoints.internal"):
        found = decode_checkpoint(row.key, row.value)
        last[found.group, found.topic, found.partition] = found.downstream_offset
    return last


class Answers:
    """What is right: for each group and each partition that it should go on in, where."""

    def __init__(self, target: str, made: Source, groups: Groups, there: Places) -> None:
        self._groups, self._there = groups, there
        self._kept = {topic: made.kept(topic) for topic in (made.routed, made.spread)}
        names = {
            made.routed: [f"A.{made.routed}-{tenant}" for tenant in TENANTS],
            made.spread: [f"A.{made.spread}"],
        }
        self._ends = {
            topic: {(name, p): o for name in found for p, o in end_offsets(target, name).items()}
            for topic, found in names.items()
        }

    def all(self) -> dict[Key, int]:
        return {
            (group, *key): self._first(topic, offsets, key, end)
            for group, (topic, offsets) in self._groups.items()
            for key, end in self._ends[topic].items()
        }

    def _first(self, topic: str, offsets: dict[int, int], target: tuple[str, int], end: int) -> int:
        """The first record of a target that a group has not read."""
        firsts = []
        for partition, rows in self._kept[topic].items():
            start = bisect_left(rows, (offsets[partition], -1))
            ways = (self._there[number] for _, number in rows[start:])
            firsts += [way[2] for way in ways if way[:2] == target][:1]
        return min(firsts, default=end)
