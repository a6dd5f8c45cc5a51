"""The public client and the commands that show what it finds, on a real cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from flow_records import (
    properties_file,
    provide,
    sparkmirror,
    write_checkpoints,
    write_heartbeats,
)
from kafka_tools import NewRecord, produce

from sparkmirror.client import (
    GroupOffset,
    MirrorClient,
    checkpoint_topics,
    heartbeat_topics,
    remote_consumer_offsets,
    remote_topics,
    replication_hops,
    upstream_clusters,
)
from sparkmirror.errors import KafkaError
from sparkmirror.formats.mirror import Checkpoint, encode_checkpoint
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.offsets.heartbeat_reader import last_heartbeats
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]
JAVA = "org.apache.kafka.connect.mirror"
PATIENCE = 30.0


@pytest.fixture
def bootstrap(target_cluster: KafkaCluster) -> str:
    return target_cluster.bootstrap


# -- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [".", "__"])
def test_what_names_of_topics_tell(bootstrap: str, unique: Unique, separator: str) -> None:
    near, far = unique("near"), unique("far")
    s = separator
    beats = {f"{near}{s}heartbeats", f"{near}{s}{far}heartbeats", f"{near}{s}{far}{s}heartbeats"}
    copies = {f"{near}{s}orders", f"{near}{s}{far}{s}orders", f"{far}{s}orders"}
    internal = {f"{near}{s}checkpoints{s}internal", f"mm2-status{s}{near}{s}internal"}
    provide(bootstrap, "heartbeats", f"{near}-orders", *beats, *copies, *internal)
    props = {"bootstrap.servers": bootstrap, "replication.policy.separator": separator}

    def own(found: set[str]) -> set[str]:
        return {name for name in found if near in name or far in name}

    with MirrorClient(props) as client:
        assert "heartbeats" in client.heartbeat_topics()
        assert own(client.heartbeat_topics()) == {
            f"{near}{s}heartbeats",
            f"{near}{s}{far}{s}heartbeats",
        }
        assert own(client.checkpoint_topics()) == {f"{near}{s}checkpoints{s}internal"}
        assert own(client.upstream_clusters()) == {near, far}
        assert [client.replication_hops(a) for a in (near, far, unique("no"))] == [1, 2, -1]
        assert own(client.remote_topics()) == beats | copies
        assert client.remote_topics(far) == {f"{far}{s}orders"}
        assert client.remote_topics(near) == (beats | copies) - {f"{far}{s}orders"}
        assert not [name for name in client.remote_topics() if name.startswith("__consumer")]
        once = (heartbeat_topics, checkpoint_topics, upstream_clusters, remote_topics)
        assert [ask(props) for ask in once] == [getattr(client, ask.__name__)() for ask in once]
    assert replication_hops(props, far) == 2
    assert remote_topics(props, far) == {f"{far}{s}orders"}


def test_with_identity_every_topic_is_a_copy_but_heartbeats_tell(
    bootstrap: str, unique: Unique
) -> None:
    alias, topic = unique("A"), unique("orders")
    provide(bootstrap, "heartbeats", f"{alias}.heartbeats", topic)
    policy = f"{JAVA}.IdentityReplicationPolicy"
    props = {"bootstrap.servers": bootstrap, "replication.policy.class": policy}
    with MirrorClient({**props, "source.cluster.alias": alias}) as client:
        assert {topic, f"{alias}.heartbeats"} <= client.remote_topics(alias)
        assert "heartbeats" not in client.remote_topics()
        assert alias in client.upstream_clusters()
        assert client.replication_hops(alias) == 1
    assert topic not in remote_topics(props)
    assert f"{alias}.heartbeats" in remote_topics(props)


# -- offsets --------------------------------------------------------------------------------------


def test_translated_offsets(bootstrap: str, unique: Unique) -> None:
    alias, remote = unique("A"), unique("A.orders")
    name = f"{alias}.checkpoints.internal"
    gone = Checkpoint("g-1", remote, 7, 1, 1)
    write_checkpoints(
        bootstrap,
        name,
        [
            Checkpoint("g-1", remote, 0, 10, 5),
            Checkpoint("g-2", remote, 0, 20, 15),
            gone,
            Checkpoint("g-1", remote, 1, 11, 6, "note"),
            Checkpoint("g-1", remote, 0, 30, 25),
        ],
    )
    broken = [
        NewRecord(b"\x00", b"\x00", 0),
        NewRecord(None, b"no key", 0),
        NewRecord(encode_checkpoint(gone)[0], None, 0),
    ]
    produce(bootstrap, name, broken)
    props = {"bootstrap.servers": bootstrap}
    first = {(remote, 0): GroupOffset(25), (remote, 1): GroupOffset(6, "note")}
    second = {(remote, 0): GroupOffset(15)}
    assert remote_consumer_offsets(props, alias, "g-1", PATIENCE) == first
    assert remote_consumer_offsets(props, alias, "g", PATIENCE) == {}
    found = remote_consumer_offsets(props, alias, re.compile("g-."), PATIENCE)
    assert found == {"g-1": first, "g-2": second}
    assert remote_consumer_offsets(props, alias, re.compile("g"), PATIENCE) == {}
    with pytest.raises(KafkaError, match="there are no checkpoints of nowhere here"):
        remote_consumer_offsets(props, "nowhere", "g-1", PATIENCE)


def test_a_log_that_takes_too_long_is_read_in_part(bootstrap: str, unique: Unique) -> None:
    alias, count = unique("A"), 60_000
    long = "x" * 100  # so that one fetch cannot bring all
    rows = (Checkpoint("g", "A.orders", partition, 1, 1, long) for partition in range(count))
    write_checkpoints(bootstrap, f"{alias}.checkpoints.internal", rows)
    props = {"bootstrap.servers": bootstrap}
    assert len(remote_consumer_offsets(props, alias, "g", 0.01)) < count
    assert len(remote_consumer_offsets(props, alias, "g", PATIENCE)) == count


def test_an_empty_checkpoints_topic(bootstrap: str, unique: Unique) -> None:
    alias = unique("A")
    provide(bootstrap, f"{alias}.checkpoints.internal")
    assert remote_consumer_offsets({"bootstrap.servers": bootstrap}, alias, "g", PATIENCE) == {}


def test_translate_as_a_command(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    # A separator of its own, so that no other test's checkpoints are found.
    alias, other, separator = unique("A"), unique("B"), f"_{unique('s')[-8:]}_"
    topic = f"{alias}{separator}orders"
    policy = {"replication.policy.separator": separator}
    for source, checkpoints in {
        alias: [Checkpoint("billing", topic, 0, 10, 5), Checkpoint("audit", topic, 0, 3, 2)],
        other: [Checkpoint("billing", topic, 1, 7, 7, "note")],
    }.items():
        write_checkpoints(
            bootstrap, f"{source}{separator}checkpoints{separator}internal", checkpoints
        )
    file = properties_file(tmp_path, {"bootstrap.servers": bootstrap, **policy})

    done = sparkmirror("offsets", "translate", "--group", "billing", file)
    assert done.returncode == 0, done.stderr
    heading, *rows = (line.split() for line in done.stdout.splitlines())
    assert heading[1:] == ["GROUP", "TOPIC", "PARTITION", "UPSTREAM", "DOWNSTREAM", "METADATA"]
    assert rows == [
        [alias, "billing", topic, "0", "10", "5", "-"],
        [other, "billing", topic, "1", "7", "7", "note"],
    ]

    flows = {
        "clusters": f"{alias}, {other}, C",
        f"{alias}.bootstrap.servers": "127.0.0.1:1",
        f"{other}.bootstrap.servers": "127.0.0.1:1",
        "C.bootstrap.servers": bootstrap,
        f"{alias}->C.enabled": "true",
        f"{other}->{alias}.enabled": "true",
        **policy,
    }
    mm2 = properties_file(tmp_path, flows)
    arguments = ("--group", ".*i.*", "--pattern", "--source", alias, "--cluster", "C", "--json")
    done = sparkmirror("offsets", "translate", *arguments, mm2)
    assert done.returncode == 0, done.stderr
    assert [(row["group"], row["downstream_offset"]) for row in json.loads(done.stdout)] == [
        ("audit", 2),
        ("billing", 5),
    ]
    unclear = sparkmirror("offsets", "translate", "--group", "billing", mm2)
    assert unclear.returncode == 2
    assert "--cluster" in unclear.stderr

    unknown = sparkmirror("offsets", "translate", "--group", "biling", file)
    assert unknown.returncode == 1
    assert unknown.stdout == ""
    assert "Group biling has no checkpoints" in unknown.stderr
    assert "Did you mean billing?" in unknown.stderr
    nowhere = sparkmirror("offsets", "translate", "--group", "g", "--source", "nowhere", file)
    assert nowhere.returncode == 3
    assert "no checkpoints of nowhere" in nowhere.stderr


# -- heartbeats -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [1, 10, 1000])
def test_flows_that_ended_long_ago_are_found_before_those_that_beat(
    bootstrap: str, unique: Unique, tail: int
) -> None:
    topic = unique("A.heartbeats")
    beating = [("A", "B", 100.0 - second) for second in range(100)]
    write_heartbeats(bootstrap, topic, ("old", "B", 5000.0), *beating)
    produce(bootstrap, topic, [NewRecord(b"?", b"?", 0)])
    cluster = Cluster(client_settings("B", {"bootstrap.servers": bootstrap}))
    try:
        found = last_heartbeats(InternalTopic(cluster, topic), PATIENCE, tail)
    finally:
        cluster.close()
    assert {beat.source_alias for beat in found} == {"A", "old"}
    times = {beat.source_alias: beat.timestamp for beat in found}
    assert times["A"] - times["old"] == 4_999_000


def test_topology_as_a_command(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    near, far, only, separator = (unique(word) for word in ("near", "far", "only", "s"))
    separator = f"_{separator[-8:]}_"
    own = unique("own")
    write_heartbeats(bootstrap, f"{near}{separator}heartbeats", (far, near, 0.0), (own, near, 5.0))
    write_heartbeats(bootstrap, f"{near}{separator}{far}{separator}heartbeats", (near, far, 7200.0))
    write_heartbeats(bootstrap, "heartbeats", (near, own, 0.0), (only, own, 300.0))
    away = f"127.0.0.1:{free_port()}"
    mm2 = properties_file(
        tmp_path,
        {
            "clusters": f"{own}, away",
            f"{own}.bootstrap.servers": bootstrap,
            "away.bootstrap.servers": away,
            f"away->{own}.enabled": "true",
            "replication.policy.separator": separator,
        },
    )
    done = sparkmirror("topology", mm2)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{own} ({bootstrap})"
    assert lines[-1].startswith(f"away ({away}): cannot be asked. No broker of cluster away")

    def branch(alias: str) -> str:
        (line,) = (text for text in lines if f"── {alias}  " in text)
        return re.sub(r"\d\.\d s", "N s", line.partition(f"── {alias}  ")[2])

    assert branch(near) == "1 hop, last heartbeat copied N s ago, announced N s ago"
    assert branch(far) == "2 hops, last heartbeat copied 2 h ago STALE, announced N s ago"
    assert branch(only) == "announced 5 min ago STALE, its own heartbeats do not arrive"
    indents = [line.index("── ") for line in lines if f"── {near}" in line or f"── {far}" in line]
    assert indents == [1, 5]

    plain = {"bootstrap.servers": bootstrap, "replication.policy.separator": separator}
    done = sparkmirror(
        "topology", "--json", "--stale-after", "9999", properties_file(tmp_path, plain)
    )
    assert done.returncode == 0, done.stderr
    (cluster,) = json.loads(done.stdout)
    (found,) = (node for node in cluster["upstream"] if node["alias"] == near)
    assert (found["hops"], found["stale"]) == (1, False)
    behind = {node["alias"]: node for node in found["upstream"]}[far]
    assert behind["path"] == [near, far]
    assert behind["stale"] is False
    assert 7190 < behind["copied_seconds_ago"] < 9999
