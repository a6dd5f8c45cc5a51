"""Shapes that flows between four clusters can take, all in one process: copies where they belong, and nothing in circles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import pytest
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import Mirror, assert_same

from sparkmirror.client import MirrorClient
from sparkmirror.formats.mirror import decode_heartbeat
from sparkmirror.tools.clusters import KafkaCluster, start_all

ALIASES = ("east", "west", "south", "hub")
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
# The names of topics say which of the shapes they are for.
DEFAULT_FLOWS = {
    ("east", "hub"): "one-.*, in-.*, .*both-.*, chain-.*",
    ("west", "hub"): "in-.*",
    ("south", "hub"): "in-.*",
    ("hub", "east"): "out-.*, .*both-.*",
    ("hub", "west"): "out-.*, .*chain-.*",
    ("hub", "south"): "out-.*",
    ("west", "east"): ".*chain-.*",  # closes a ring
}
IDENTITY_FLOWS = {
    ("east", "hub"): "kept-one-.*, kept-in-.*, kept-chain-.*",
    ("west", "hub"): "kept-in-.*",
    ("south", "hub"): "kept-in-.*",
    ("hub", "west"): "kept-chain-.*",
    ("hub", "east"): "",  # only heartbeats
}
Flows = Mapping[tuple[str, str], str]
Unique = Callable[[str], str]
Clusters = dict[str, KafkaCluster]
pytestmark = pytest.mark.slow
with_default = pytest.mark.parametrize("mirror", ["default"], indirect=True)
with_identity = pytest.mark.parametrize("mirror", ["identity"], indirect=True)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    directory = tmp_path_factory.mktemp("topologies")
    made = {alias: KafkaCluster(alias, 1, directory, jvm=QUICK_JVM) for alias in ALIASES}
    start_all(made.values())
    try:
        yield made
    finally:
        for cluster in made.values():
            cluster.close()


@pytest.fixture(scope="module")
def mirror(
    request: pytest.FixtureRequest, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    """All flows of a policy; its tests run one after the other, so that there is one such process at a time."""
    flows = IDENTITY_FLOWS if request.param == "identity" else DEFAULT_FLOWS
    keys = properties(clusters, flows)
    if request.param == "identity":
        keys["replication.policy.class"] = IDENTITY
    running = Mirror(tmp_path_factory.mktemp(request.param), keys)
    with running:
        running.wait_until_says("copying", 120)
        yield running
        assert running.stop() == 0, running.output[-3000:]
    assert "Traceback" not in running.output


def properties(clusters: Clusters, flows: Flows) -> dict[str, str]:
    keys = {
        "clusters": ", ".join(clusters),
        "replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "emit.heartbeats.interval.seconds": "1",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.acls.enabled": "false",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
    }
    for alias, cluster in clusters.items():
        keys[f"{alias}.bootstrap.servers"] = cluster.bootstrap
    for (source, target), wanted in flows.items():
        keys[f"{source}->{target}.enabled"] = str(bool(wanted)).lower()
        keys[f"{source}->{target}.emit.heartbeats.enabled"] = "true"
        keys[f"{source}->{target}.topics"] = wanted
    return keys


def fill(cluster: KafkaCluster, topic: str, count: int = 200) -> None:
    """A topic of two partitions whose records tell where they were written."""
    create_topic(cluster.bootstrap, topic, 2)
    add(cluster, topic, count)


def add(cluster: KafkaCluster, topic: str, count: int = 200) -> None:
    rows = [
        NewRecord(b"%d" % n, b"%s %d" % (cluster.name.encode(), n), n % 2) for n in range(count)
    ]
    produce(cluster.bootstrap, topic, rows)


def await_records(cluster: KafkaCluster, topic: str, count: int = 200) -> None:
    bootstrap = cluster.bootstrap
    wait_for(
        f"{count} records in {topic} on {cluster.name}",
        lambda: topic in topics(bootstrap) and sum(end_offsets(bootstrap, topic).values()) >= count,
    )


def named(clusters: Clusters, ending: str) -> dict[str, set[str]]:
    """The topics of each cluster whose names end like this; clusters without are left out."""
    found = {
        alias: {name for name in topics(cluster.bootstrap) if name.endswith(ending)}
        for alias, cluster in clusters.items()
    }
    return {alias: names for alias, names in found.items() if names}


# -- default policy -----------------------------------------------------------------------------------


@with_default
def test_one_way(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic, remote = (name := unique("one")), f"east.{name}"
    fill(clusters["east"], topic)
    await_records(clusters["hub"], remote)
    assert assert_same(clusters["east"], topic, clusters["hub"], remote) == 200
    assert named(clusters, topic) == {"east": {topic}, "hub": {remote}}


@with_default
def test_active_active(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic, later = unique("both"), unique("both-later")
    east, hub = clusters["east"], clusters["hub"]
    for cluster in (east, hub):
        fill(cluster, topic)
    await_records(hub, f"east.{topic}")
    await_records(east, f"hub.{topic}")
    # Each copy is seen by the opposite flow when it sees a topic that was made after it.
    for cluster in (east, hub):
        fill(cluster, later)
        add(cluster, topic, 50)
    await_records(hub, f"east.{later}")
    await_records(east, f"hub.{later}")
    await_records(hub, f"east.{topic}", 250)
    await_records(east, f"hub.{topic}", 250)
    for name, count in ((topic, 250), (later, 200)):
        assert named(clusters, name) == {
            "east": {name, f"hub.{name}"},
            "hub": {name, f"east.{name}"},
        }
        assert assert_same(east, name, hub, f"east.{name}") == count
        assert assert_same(hub, name, east, f"hub.{name}") == count


@with_default
def test_fan_in(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic, sources = unique("in"), ("east", "west", "south")
    for alias in sources:
        fill(clusters[alias], topic)
    for alias in sources:
        await_records(clusters["hub"], f"{alias}.{topic}")
        assert_same(clusters[alias], topic, clusters["hub"], f"{alias}.{topic}")
    copies = {f"{alias}.{topic}" for alias in sources}
    assert named(clusters, topic) == {"hub": copies, **{alias: {topic} for alias in sources}}


@with_default
def test_fan_out(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic, targets = unique("out"), ("east", "west", "south")
    fill(clusters["hub"], topic)
    for alias in targets:
        await_records(clusters[alias], f"hub.{topic}")
        assert_same(clusters["hub"], topic, clusters[alias], f"hub.{topic}")
    copies = {alias: {f"hub.{topic}"} for alias in targets}
    assert named(clusters, topic) == {"hub": {topic}, **copies}


@with_default
def test_chain_and_ring(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic, later = unique("chain"), unique("chain-later")
    way = {"east": topic, "hub": f"east.{topic}", "west": f"hub.east.{topic}"}
    fill(clusters["east"], topic)
    await_records(clusters["west"], way["west"])
    for (here, name), (there, copy) in pairwise(way.items()):
        assert_same(clusters[here], name, clusters[there], copy)
    # The ring ends where it began: by the time that this one has arrived, the other would have too.
    fill(clusters["west"], later)
    await_records(clusters["east"], f"west.{later}")
    assert named(clusters, topic) == {alias: {name} for alias, name in way.items()}
    assert named(clusters, later) == {"west": {later}, "east": {f"west.{later}"}}


@with_default
def test_heartbeats_take_every_way_but_circles(
    mirror: Mirror, clusters: Clusters, unique: Unique
) -> None:
    expected = heartbeat_names(DEFAULT_FLOWS)
    wait_for(
        "heartbeats go everywhere",
        lambda: named(clusters, "heartbeats") == expected,
    )
    began = time.time_ns() // 1_000_000
    wait_for(
        "news of the east arrive in the south",
        lambda: has_heartbeat(clusters["south"], "hub.east.heartbeats", ("west", "east"), began),
    )
    topic = unique("out")
    fill(clusters["hub"], topic)
    await_records(clusters["south"], f"hub.{topic}")
    assert named(clusters, "heartbeats") == expected
    hops = {
        "hub": {"east": 1, "west": 1, "south": 1, "hub": -1},
        "east": {"hub": 1, "west": 1, "south": 2, "east": -1},
        "west": {"hub": 1, "east": 2, "south": 2, "west": -1},
        "south": {"hub": 1, "east": 2, "west": 2, "south": -1},
    }
    for alias, cluster in clusters.items():
        with MirrorClient({"bootstrap.servers": cluster.bootstrap}) as client:
            assert client.upstream_clusters() == set(ALIASES) - {alias}
            found = {other: client.replication_hops(other) for other in ALIASES}
        assert found == hops[alias]


def heartbeat_names(flows: Flows) -> dict[str, set[str]]:
    """What each cluster ends up with: its own, and those of every source that have not passed it yet."""
    found: dict[str, set[str]] = {target: {"heartbeats"} for _, target in flows}
    while True:
        new = [
            (target, copy)
            for source, target in flows
            for name in found[source]
            if target not in name.split(".") and (copy := f"{source}.{name}") not in found[target]
        ]
        if not new:
            return found
        for target, copy in new:
            found[target].add(copy)


def has_heartbeat(cluster: KafkaCluster, topic: str, flow: tuple[str, str], since: int) -> bool:
    """Whether a topic holds a heartbeat of a flow that was sent after `since`."""
    if topic not in topics(cluster.bootstrap):
        return False
    beats = [decode_heartbeat(row.key, row.value) for row in consume(cluster.bootstrap, topic)]
    return any((b.source_alias, b.target_alias) == flow and b.timestamp > since for b in beats)


# -- identity policy ----------------------------------------------------------------------------------


@with_identity
def test_one_way_with_names_kept(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic = unique("kept-one")
    fill(clusters["east"], topic)
    await_records(clusters["hub"], topic)
    assert assert_same(clusters["east"], topic, clusters["hub"], topic) == 200
    assert named(clusters, topic) == {"east": {topic}, "hub": {topic}}


@with_identity
def test_fan_in_with_names_kept(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    """Topics of three clusters become one."""
    topic, sources = unique("kept-in"), ("east", "west", "south")
    for alias in sources:
        fill(clusters[alias], topic)
    await_records(clusters["hub"], topic, 600)
    for alias in sources:
        add(clusters[alias], topic, 20)
    await_records(clusters["hub"], topic, 660)
    together = consume(clusters["hub"].bootstrap, topic)
    assert len(together) == 660
    for alias in sources:
        copied = [
            (row.partition, row.value)
            for row in together
            if (row.value or b"").startswith(alias.encode())
        ]
        written = consume(clusters[alias].bootstrap, topic)
        assert copied == [(row.partition, row.value) for row in written]
        assert len(copied) == 220
    assert named(clusters, topic).keys() == set(ALIASES)


@with_identity
def test_chain_with_names_kept(mirror: Mirror, clusters: Clusters, unique: Unique) -> None:
    topic, began = unique("kept-chain"), time.time_ns() // 1_000_000
    fill(clusters["east"], topic)
    await_records(clusters["west"], topic)
    for here, there in (("east", "hub"), ("hub", "west")):
        assert assert_same(clusters[here], topic, clusters[there], topic) == 200
    assert named(clusters, topic) == {alias: {topic} for alias in ("east", "hub", "west")}
    # Heartbeats are renamed all the same, which tells the hops.
    wait_for(
        "news of the hub arrive in the west",
        lambda: has_heartbeat(clusters["west"], "hub.heartbeats", ("south", "hub"), began),
    )
    props = {
        "bootstrap.servers": clusters["west"].bootstrap,
        "replication.policy.class": IDENTITY,
    }
    with MirrorClient(props) as client:
        assert client.replication_hops("hub") == 1
        assert client.replication_hops("east") == 2
