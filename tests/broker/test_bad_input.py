"""What a user gets for wrong input: one clear sentence, an exit code, and nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_tools import (
    NewRecord,
    create_topic,
    end_offsets,
    produce,
    set_topic_configs,
    topics,
    wait_for,
)
from running import Mirror, assert_same, properties

from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]

MINIMAL = {
    "clusters": "A, B",
    "A.bootstrap.servers": "127.0.0.1:1",
    "B.bootstrap.servers": "127.0.0.1:2",
    "A->B.enabled": "true",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkmirror", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"A->C.enabled": "true"}, ["A->C", "C", "clusters"]),
        ({"A->A.enabled": "true"}, ["A->A", "itself"]),
        ({"clusters": ""}, ["clusters"]),
        ({"A.bootstrap.servers": "no-port"}, ["no-port", "host:port"]),
        ({"tasks.max": "many"}, ["tasks.max", "many"]),
        ({"A->B.topics": r"a\\p{Alpha}"}, [r"\p{Alpha}", "topics"]),
        ({"A->B.enabled": "false", "emit.heartbeats.enabled": "false"}, ["enabled"]),
        ({"mirror.recreated.target": "maybe"}, ["mirror.recreated.target", "restart"]),
        ({"A->B.replication.policy.class": "no.such.Policy"}, ["no.such.Policy"]),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, change: dict[str, str], words: list[str]) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("".join(f"{k} = {v}\n" for k, v in (MINIMAL | change).items()))
    result = run(str(file))
    assert result.returncode == 2, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("sparkmirror:")]
    assert len(lines) == 1, result.stderr
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_named() -> None:
    result = run("no-such-file.properties")
    assert result.returncode == 2
    assert "no-such-file.properties" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_alias_on_the_command_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("".join(f"{k} = {v}\n" for k, v in MINIMAL.items()))
    result = run(str(file), "--clusters", "B", "Z")
    assert result.returncode == 2
    assert "Z" in result.stderr


def test_unreachable_brokers_are_tried_again_with_one_line_each(
    target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    keys = MINIMAL | {
        "A.bootstrap.servers": nobody,
        "B.bootstrap.servers": target_cluster.bootstrap,
    }
    with Mirror(tmp_path, keys) as mirror:
        wait_for("two tries are told", lambda: mirror.output.count("Trying again in") >= 2)
        lines = [line for line in mirror.output.splitlines() if "Trying again in" in line]
        assert all(nobody in line and "A->B" in line for line in lines)
        assert "Traceback" not in mirror.output


@pytest.mark.slow
def test_a_record_too_large_for_the_target_fails_its_partition_only_and_heals(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("large")
    create_topic(source_cluster.bootstrap, topic, 2, configs={"max.message.bytes": "3000000"})
    create_topic(target_cluster.bootstrap, f"A.{topic}", 2, configs={"max.message.bytes": "100000"})
    produce(
        source_cluster.bootstrap,
        topic,
        [NewRecord(b"k", b"x" * size, partition) for size, partition in ((10, 0), (200_000, 0))]
        + [NewRecord(b"k", b"y", 1)] * 100,
        message_max_bytes=3_000_000,
    )
    keys = properties(
        source_cluster, target_cluster, flow_topics=topic, sync_topic_configs_enabled="false"
    )
    mirror = Mirror(tmp_path, keys)
    with mirror:
        mirror.wait_until_says(f"{topic}-0: the record at offset 1")
        assert mirror.says("max.message.bytes")
        wait_for(
            "the other partition is copied",
            lambda: end_offsets(target_cluster.bootstrap, f"A.{topic}") == {0: 1, 1: 100},
        )
        assert mirror.stop() == 1
    with mirror:
        set_topic_configs(target_cluster.bootstrap, f"A.{topic}", {"max.message.bytes": "3000000"})
        wait_for(
            "it went on by itself",
            lambda: end_offsets(target_cluster.bootstrap, f"A.{topic}") == {0: 2, 1: 100},
        )
    assert assert_same(source_cluster, topic, target_cluster, f"A.{topic}") == 102
    assert f"A.{topic}" in topics(target_cluster.bootstrap)
