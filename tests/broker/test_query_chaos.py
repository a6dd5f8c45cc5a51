"""Parts are killed at random while records pass through queries of the docs: the target equals what a batch query gives."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from kafka_tools import create_topic, produce, wait_for
from queried import (
    Asked,
    Batch,
    People,
    arrived,
    arrived_count,
    assert_same,
    await_count,
    recipes,
    total,
)
from repeating import Repeating
from running import Mirror, properties

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
PARTITIONS = 4
KILLS = 15
PATIENCE_S = 300.0
FLOWS = dict(zip("ACDEFG", recipes(), strict=True))
"""Flows from the same cluster under several names: each has one of the recipes for a query."""
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1 << 30)


def kill_one(mirror: Mirror, kind: str, rng: random.Random) -> None:
    """One SIGKILL; a whole process is started again, as its supervisor would."""
    if kind == "process":
        mirror.kill()
        mirror.start()
        return
    look = mirror.jvms if kind == "jvm" else mirror.python_workers
    victims: list[psutil.Process] = wait_for(f"a {kind} to kill", look, PATIENCE_S)
    try:
        rng.choice(victims).send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return  # it ended by itself in this moment


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_the_target_equals_a_batch_query_whatever_is_killed(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - to repeat a failure
    rng = random.Random(SEED)
    source, target, page = source_cluster, target_cluster, recipes()
    names = {alias: unique(recipe) for alias, recipe in FLOWS.items()}
    people = {alias: People(name, PARTITIONS) for alias, name in names.items()}
    keys = properties(
        source, target, emit_heartbeats_enabled="false", sync_topic_configs_enabled="false"
    )
    keys |= {"clusters": ", ".join(["B", *FLOWS]), "tasks.max": "2"}
    keys |= {f"{alias}.bootstrap.servers": source.bootstrap for alias in FLOWS}
    for alias, recipe in FLOWS.items():
        create_topic(source.bootstrap, names[alias], PARTITIONS)
        file = tmp_path / f"{recipe}.sql"
        file.write_text(page[recipe].sql)
        keys |= {
            f"{alias}->B.enabled": "true",
            f"{alias}->B.topics": names[alias],
            f"{alias}->B.transform.sql.file": str(file),
        }

    def write() -> None:
        for alias, name in names.items():
            codec = rng.choice(["none", "lz4", "zstd"])
            produce(source.bootstrap, name, people[alias].rows(60), compression_type=codec)

    def copied() -> dict[str, int]:
        return {alias: arrived_count(target, name, alias) for alias, name in names.items()}

    def flows(after: dict[str, int]) -> bool:
        return all(count > after[alias] for alias, count in copied().items())

    kinds = ["python worker"] * 7 + ["jvm"] * 4 + ["process"] * 4
    rng.shuffle(kinds)
    assert len(kinds) == KILLS
    with Mirror(tmp_path, keys) as mirror:
        with Repeating(write, 0.3):
            wait_for("all flows have begun", lambda: flows(dict.fromkeys(names, 0)), PATIENCE_S)
            for kind in kinds:
                kill_one(mirror, kind, rng)
                # Not before records flow again, so that every accident hits work that is under way.
                before = copied()
                wait_for(
                    f"records flow again after a killed {kind}",
                    lambda before=before: flows(before),  # type: ignore[misc]
                    PATIENCE_S,
                )
                time.sleep(rng.uniform(0.0, 1.0))
        for alias, name in names.items():
            produce(source.bootstrap, name, people[alias].last())
        asked = [
            Asked.of(source, name, page[FLOWS[alias]].sql, alias) for alias, name in names.items()
        ]
        wanted = dict(zip(names, Batch(asked, tmp_path).contents(), strict=True))
        goals = {(alias, names[alias]): total(contents) for alias, contents in wanted.items()}
        await_count(mirror, target, goals, PATIENCE_S)
        assert mirror.stop() == 0
    for alias, name in names.items():
        assert_same(arrived(target, name, alias), wanted[alias])
