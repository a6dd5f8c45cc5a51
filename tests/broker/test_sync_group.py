"""`sparkmirror sync-group`: one group follows its checkpoints on the target while nobody consumes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from flow_records import (
    command,
    fill,
    group_member,
    properties_file,
    provide,
    sparkmirror,
    write_checkpoints,
)
from kafka_tools import commit_group, delete_topic, group_offsets, topics, wait_for
from program import Program

from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
JAVA = "org.apache.kafka.connect.mirror"


class Moving:
    """A group that is to move to the target, with checkpoints there."""

    def __init__(self, cluster: KafkaCluster, unique: Unique, directory: Path) -> None:
        self.bootstrap = cluster.bootstrap
        self.alias, self.group = unique("A"), unique("g")
        self.remote = f"{self.alias}.orders"
        self.topic = f"{self.alias}.checkpoints.internal"
        self.file = properties_file(directory, {"bootstrap.servers": cluster.bootstrap})
        provide(self.bootstrap, self.remote, partitions=2)

    @property
    def options(self) -> list[str]:
        return ["-cgi", self.group, "-src", self.alias, "-pfp", self.file]

    def checkpoint(self, *offsets: tuple[int, int], group: str | None = None) -> None:
        """The group is there now (partition and downstream offset), and so many records are copied."""
        for partition, offset in offsets:
            fill(self.bootstrap, self.remote, partition, offset)
        write_checkpoints(self.bootstrap, self.topic, self._checkpoints(offsets, group))

    def _checkpoints(
        self, offsets: Iterable[tuple[int, int]], group: str | None
    ) -> Iterable[Checkpoint]:
        for partition, offset in offsets:
            yield Checkpoint(group or self.group, self.remote, partition, offset + 100, offset)

    def moved(self) -> dict[int, int]:
        found = group_offsets(self.bootstrap, self.group)
        return {partition: offset for (_, partition), offset in found.items()}


@pytest.fixture
def moving(target_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> Moving:
    return Moving(target_cluster, unique, tmp_path)


def test_once(moving: Moving) -> None:
    nothing = sparkmirror("sync-group", *moving.options, "--once")
    assert nothing.returncode == 1
    assert f"Group {moving.group} has no checkpoints in {moving.topic}" in nothing.stderr

    moving.checkpoint((0, 9), group="another")
    assert sparkmirror("sync-group", *moving.options, "--once").returncode == 1

    moving.checkpoint((0, 4), (1, 7), (0, 5))
    done = sparkmirror("sync-group", *moving.options, "--once")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{moving.remote}-0 - -> 5", f"{moving.remote}-1 - -> 7"]
    assert moving.moved() == {0: 5, 1: 7}

    again = sparkmirror("sync-group", *moving.options, "--once")
    assert again.returncode == 0, again.stderr
    assert len(again.stdout.splitlines()) == 1
    assert f"Group {moving.group}" in again.stdout


def test_offsets_only_go_forward(moving: Moving) -> None:
    fill(moving.bootstrap, moving.remote, 0, 50)
    commit_group(moving.bootstrap, moving.group, moving.remote, {0: 50, 1: 3})
    moving.checkpoint((0, 40), (1, 41))
    done = sparkmirror("sync-group", *moving.options, "--once")
    assert done.stdout.splitlines() == [f"{moving.remote}-1 3 -> 41"]
    # The group has rewound at its source: that does not reach the target.
    moving.checkpoint((0, 1), (1, 1))
    assert sparkmirror("sync-group", *moving.options, "--once").returncode == 0
    assert moving.moved() == {0: 50, 1: 41}


def once_done(moving: Moving) -> CompletedProcess[str] | None:
    done = sparkmirror("sync-group", *moving.options, "--once")
    return done if done.returncode == 0 else None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_left_alone(moving: Moving, protocol: str) -> None:
    moving.checkpoint((0, 5))
    with group_member(moving.bootstrap, moving.group, moving.remote, protocol):
        refused = sparkmirror("sync-group", *moving.options, "--once")
        assert refused.returncode == 1
        assert f"Group {moving.group} has members" in refused.stderr
        assert moving.moved() == {}
    done = wait_for("the group is empty", lambda: once_done(moving))
    assert done.stdout.splitlines() == [f"{moving.remote}-0 - -> 5"]
    assert moving.moved() == {0: 5}


def test_in_the_background(moving: Moving, tmp_path: Path) -> None:
    arguments = ("sync-group", *moving.options, "--interval", "0.2")
    program = Program(command(*arguments), tmp_path / "sync.log")
    with program:
        program.wait_until_says("has no checkpoints")
        moving.checkpoint((0, 5))
        program.wait_until_says(f"{moving.remote}-0 - -> 5")
        program.wait_until_says("follows its checkpoints")
        moving.checkpoint((0, 6), (1, 2))
        program.wait_until_says(f"{moving.remote}-0 5 -> 6")
        program.wait_until_says(f"{moving.remote}-1 - -> 2")
        with group_member(moving.bootstrap, moving.group, moving.remote, "classic"):
            program.wait_until_says("has members")
            moving.checkpoint((0, 7))
            assert moving.moved() == {0: 6, 1: 2}
        program.wait_until_says(f"{moving.remote}-0 6 -> 7")
        assert program.stop() == 0
    assert program.output.count("has no checkpoints") == 1
    assert program.output.count("has members") == 1
    assert moving.moved() == {0: 7, 1: 2}


def test_a_checkpoints_topic_that_is_made_anew_is_followed(moving: Moving, tmp_path: Path) -> None:
    moving.checkpoint((0, 5), (0, 6), (0, 7))
    arguments = ("sync-group", *moving.options, "--interval", "0.2")
    with Program(command(*arguments), tmp_path / "sync.log") as program:
        program.wait_until_says(f"{moving.remote}-0 - -> 7")
        delete_topic(moving.bootstrap, moving.topic)
        wait_for("it is gone", lambda: moving.topic not in topics(moving.bootstrap))
        moving.checkpoint((0, 8))
        program.wait_until_says(f"{moving.remote}-0 7 -> 8")


def test_a_partition_that_is_not_there_does_not_hold_up_the_others(moving: Moving) -> None:
    moving.checkpoint((0, 5), (9, 5))
    done = sparkmirror("sync-group", *moving.options, "--once")
    assert done.returncode == 3
    assert done.stdout.splitlines() == [f"{moving.remote}-0 - -> 5"]
    assert f"{moving.remote}-9" in done.stderr
    assert moving.moved() == {0: 5}


@pytest.mark.parametrize("policy", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
def test_the_policy_by_its_java_name_and_long_options(moving: Moving, policy: str) -> None:
    moving.checkpoint((0, 5))
    names = ("--group", "--source", "--properties")
    values = (moving.group, moving.alias, moving.file)
    options = [item for pair in zip(names, values, strict=True) for item in pair]
    done = sparkmirror("sync-group", *options, "--policy", f"{JAVA}.{policy}", "--once")
    assert done.returncode == 0, done.stderr
    assert moving.moved() == {0: 5}


def test_nothing_is_committed_beyond_the_end_of_the_log(moving: Moving) -> None:
    """As after the remote topic was created again: its checkpoints are of the old one."""
    fill(moving.bootstrap, moving.remote, 0, 3)
    commit_group(moving.bootstrap, moving.group, moving.remote, {0: 9})
    checkpoint = Checkpoint(moving.group, moving.remote, 0, 100, 5)
    write_checkpoints(moving.bootstrap, moving.topic, [checkpoint])
    refused = sparkmirror("sync-group", *moving.options, "--once")
    assert refused.returncode == 1
    assert "beyond the end" in refused.stderr
    assert moving.moved() == {0: 9}
    fill(moving.bootstrap, moving.remote, 0, 7)
    done = sparkmirror("sync-group", *moving.options, "--once")
    assert done.stdout.splitlines() == [f"{moving.remote}-0 9 -> 5"], "nobody can have read so far"
