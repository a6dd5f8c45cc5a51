"""What goes along with the records, between brokers of two versions: groups, configs, partitions, heartbeats."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster_pair import ClusterPair, VersionPair
from kafka_tools import (
    NewRecord,
    Record,
    add_partitions,
    commit_group,
    committed,
    consume,
    produce_transaction,
    set_topic_configs,
    topic_configs,
    topics,
    wait_for,
)
from running import Mirror
from thread_tasks import checkpoints
from versioned import PREFIX, VersionedTopic, is_before

from sparkmirror.formats.mirror import decode_heartbeat

NewTopic = Callable[..., VersionedTopic]


def test_groups(new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    """A checkpoint and the group's own offset lead to the same record, though an abort has shifted the offsets."""
    topic, group = new_topic(2), unique(f"{PREFIX}-group")
    source, target = topic.source.bootstrap, topic.target.bootstrap
    topic.produce(200)
    produce_transaction(source, topic.name, [NewRecord(b"k", b"v", 0)] * 10, commit=False)
    topic.produce(200)

    def readable() -> list[Record]:
        """Of one partition: what lies behind the aborted records can be read when the marker is there."""
        rows = [row for row in consume(source, topic.name) if row.partition == 0]
        return rows if len(rows) == 200 else []

    next_offset = wait_for("all committed records", readable)[140].offset
    assert next_offset >= 150  # the abort's marker comes when it likes
    assert committed(source, group, topic.name) == {}  # there is a coordinator
    commit_group(source, group, topic.name, {0: next_offset, 1: 200})
    topic.await_all()
    moved = {0: 140, 1: 200}
    wait_for(f"{group} is at {moved}", lambda: committed(target, group, topic.remote) == moved)
    written = checkpoints(target, "A.checkpoints.internal", group)
    last = {(c.topic, c.partition): (c.upstream_offset, c.downstream_offset) for c in written}
    assert last == {(topic.remote, 0): (next_offset, 140), (topic.remote, 1): (200, 200)}
    topic.check()


@pytest.mark.slow
def test_topic_configs(new_topic: NewTopic) -> None:
    configs = {"max.message.bytes": "2000000", "retention.bytes": "900000000"}
    topic = new_topic(configs=configs)
    topic.produce(20)
    topic.await_all()
    remote = topic_configs(topic.target.bootstrap, topic.remote)
    assert {name: remote[name] for name in configs} == configs
    changed = {"max.message.bytes": "1500000", "compression.type": "lz4"}
    set_topic_configs(topic.source.bootstrap, topic.name, changed)

    def followed() -> bool:
        now = topic_configs(topic.target.bootstrap, topic.remote)
        return {name: now[name] for name in changed} == changed

    wait_for(f"{topic.remote} has {changed}", followed)


@pytest.mark.slow
def test_property_that_the_target_does_not_know(
    new_topic: NewTopic, versions: VersionPair, mirror: Mirror
) -> None:
    """It is left out, with a warning, when the remote topic is created and whenever others follow."""
    unknown = unknown_property(versions)
    if unknown is None:
        pytest.skip(f"Kafka {versions.target} knows all properties of {versions.source}")
    configs = {unknown[0]: unknown[1], "max.message.bytes": "2000000"}
    topic = new_topic(configs=configs)
    topic.produce(20)
    topic.await_all()
    mirror.wait_until_says(unknown[0])
    set_topic_configs(topic.source.bootstrap, topic.name, {"max.message.bytes": "1500000"})

    def size() -> str:
        return topic_configs(topic.target.bootstrap, topic.remote)["max.message.bytes"]

    wait_for("the other property follows", lambda: size() == "1500000")
    assert topic.check() == 20


def unknown_property(versions: VersionPair) -> tuple[str, str] | None:
    """A topic property of the source that the target does not have."""
    if is_before(versions.source, 4, 0) and not is_before(versions.target, 4, 0):
        return "message.format.version", "2.4"
    if not is_before(versions.source, 3, 6) and is_before(versions.target, 3, 6):
        return "local.retention.bytes", "100000000"
    return None


@pytest.mark.slow
def test_added_partitions(new_topic: NewTopic) -> None:
    topic = new_topic(1)
    topic.produce(100)
    topic.await_all()
    add_partitions(topic.source.bootstrap, topic.name, 3)
    topic.partitions = 3
    topic.produce(300)
    topic.await_all()
    assert topic.check() == 400
    assert topics(topic.target.bootstrap)[topic.remote] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flow"),
    [("heartbeats", ("A", "B")), ("A.heartbeats", ("B", "A"))],
    ids=["written", "copied"],
)
def test_heartbeats(mirror: Mirror, pair: ClusterPair, name: str, flow: tuple[str, str]) -> None:
    """They are written to the target, and those on the source are copied."""
    target = pair.target.bootstrap

    def beats() -> list[int]:
        if name not in topics(target):
            return []
        rows = [decode_heartbeat(row.key, row.value) for row in consume(target, name)]
        return [row.timestamp for row in rows if (row.source_alias, row.target_alias) == flow]

    first = max(wait_for(f"{name} on the target", beats))
    wait_for(f"newer {name}", lambda: max(beats()) > first)
