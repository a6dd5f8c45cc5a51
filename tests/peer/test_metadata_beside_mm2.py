"""MirrorMaker 2 and sparkmirror on one source, each to its own target: topics, properties and ACLs agree after every change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from changing_topics import MARKER, ChangingTopics, marker_binding
from copying import settings_of
from kafka_tools import QUICK_JVM
from program import Program
from running import Mirror

from sparkmirror.kafka import acls, topic_configs
from sparkmirror.kafka.acls import AclBinding, Resource
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.tools.clusters import KafkaCluster, start_all
from sparkmirror.tools.jvm import java_command

SEED = 6
REMOTE_MARKER = f"A.{MARKER}"
START_S, ROUND_S = 120.0, 60.0
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@dataclass(frozen=True, slots=True)
class State:
    """All that is kept in step on a target: partitions and own properties of remote topics, and ACLs."""

    partitions: dict[str, int]
    configs: dict[str, dict[str, str | None]]
    bindings: frozenset[AclBinding]

    def has_seen(self, number: int) -> bool:
        """Whether the marks of this round have arrived."""
        mark = self.configs.get(REMOTE_MARKER, {}).get("segment.jitter.ms")
        return mark == str(number + 1) and marker_binding(REMOTE_MARKER, number) in self.bindings


class Target:
    """A target cluster, looked at."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.client = Cluster(settings_of("target", cluster))

    def state(self) -> State:
        self.client.refresh(None)
        remotes = {
            name: len(info.partitions)
            for name, info in self.client.topics.items()
            if name.startswith("A.t-")
        }
        described = topic_configs.describe(self.client, sorted(remotes))
        assert not described.errors
        configs = {
            name: {entry.name: entry.value for entry in entries if entry.is_set_on_topic}
            for name, entries in described.configs.items()
        }
        bindings = (binding for kind in Resource for binding in acls.describe(self.client, kind))
        return State(remotes, configs, frozenset(bindings))


def differences(theirs: State, ours: State) -> list[str]:
    """What is not the same, a line each."""
    found = []
    for topic in sorted(theirs.partitions.keys() | ours.partitions.keys()):
        counts = theirs.partitions.get(topic), ours.partitions.get(topic)
        if counts[0] != counts[1]:
            found.append(f"{topic}: partitions: MirrorMaker {counts[0]}, sparkmirror {counts[1]}")
        one, other = theirs.configs.get(topic, {}), ours.configs.get(topic, {})
        found += [
            f"{topic}: {name}: MirrorMaker {one.get(name)}, sparkmirror {other.get(name)}"
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name)
        ]
    found += [f"only MirrorMaker: {b}" for b in sorted(theirs.bindings - ours.bindings)]
    found += [f"only sparkmirror: {b}" for b in sorted(ours.bindings - theirs.bindings)]
    return found


def flow(source: KafkaCluster, target: KafkaCluster, alias: str, defaults: str) -> dict[str, str]:
    """The same file for both, but for the target; `defaults` says whose count."""
    return {
        "clusters": f"A, {alias}",
        "A.bootstrap.servers": source.bootstrap,
        f"{alias}.bootstrap.servers": target.bootstrap,
        f"A->{alias}.enabled": "true",
        f"{alias}->A.enabled": "false",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "refresh.groups.enabled": "false",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "sync.topic.acls.interval.seconds": "1",
        # MirrorMaker 2 does not hear of it at top level.
        f"A->{alias}.use.defaults.from": defaults,
    }


def mirror_maker(directory: Path, keys: dict[str, str]) -> Program:
    file = directory / "mirror-maker.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    command = java_command(main, str(file), options=("-Xmx512m", *QUICK_JVM))
    return Program(command, directory / "mirror-maker.log")


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[list[KafkaCluster]]:
    """The source, MirrorMaker's target and ours."""
    found = [
        KafkaCluster(name, 1, tmp_path, AUTHORIZER, jvm=QUICK_JVM)
        for name in ("source", "theirs", "ours")
    ]
    start_all(found)
    yield found
    for cluster in found:
        cluster.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("defaults", "topics", "rounds"), [("target", 200, 10), ("source", 80, 2)])
def test_both_targets_agree_after_every_round(
    clusters: list[KafkaCluster], tmp_path: Path, defaults: str, topics: int, rounds: int
) -> None:
    source, java_target, our_target = clusters
    with contextlib.ExitStack() as stack:
        client = Cluster(settings_of("A", source))
        stack.callback(client.close)
        client.refresh([])
        changing = ChangingTopics(client, SEED)
        changing.begin(topics, topics + 100)
        stack.enter_context(mirror_maker(tmp_path, flow(source, java_target, "B", defaults)))
        stack.enter_context(Mirror(tmp_path, flow(source, our_target, "C", defaults)))
        targets = Target(java_target), Target(our_target)
        for target in targets:
            stack.callback(target.client.close)
        changing.mark(-1)
        await_agreement(targets, changing, -1, START_S)
        for number in range(rounds):
            by_hand = {f"A.{topic}": edits for topic, edits in changing.edited().items()}
            for target in targets:
                topic_configs.alter(target.client, by_hand)
            changing.round(number)
            state = await_agreement(targets, changing, number, ROUND_S)
    assert len(state.configs) > topics
    assert sum(map(len, state.configs.values())) > topics
    assert len(state.bindings) > topics / 2


def await_agreement(
    targets: tuple[Target, Target], changing: ChangingTopics, number: int, patience: float
) -> State:
    """Until both have seen the round and all its topics, and are the same."""
    deadline = time.monotonic() + patience
    while True:
        theirs, ours = (target.state() for target in targets)
        late = [
            name
            for name, state in (("MirrorMaker", theirs), ("sparkmirror", ours))
            if not state.has_seen(number) or not _has_all(state, changing)
        ]
        found = differences(theirs, ours)
        if not late and not found:
            return ours
        assert time.monotonic() < deadline, (
            f"round {number}: after {patience:g} s late: {late}; {len(found)} differences:\n"
            + "\n".join(found[:100])
        )
        time.sleep(0.2)


def _has_all(state: State, changing: ChangingTopics) -> bool:
    return all(
        state.partitions.get(f"A.{topic}", 0) >= count for topic, count in changing.topics.items()
    )
