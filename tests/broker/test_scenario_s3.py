"""S3, a migration by three connector files and a process that moves the group: consumer first, then producer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from connect_worker import ConnectWorker
from flow_records import command, properties_file
from kafka_tools import consume, create_topic, topics, wait_for
from numbered import NumberedTopic, Standing, Stream, await_copies
from program import Program
from repeating import Repeating
from scenario_files import ScenarioFiles
from traveller import Traveller

from sparkmirror.formats.mirror import decode_checkpoint, decode_heartbeat, decode_offset_sync
from sparkmirror.tools.clusters import KafkaCluster, free_port

JAVA = "org.apache.kafka.connect.mirror"
Unique = Callable[[str], str]


class Variant(NamedTuple):
    """A folder of connector files, and what goes with it."""

    folder: str
    policy: tuple[str, ...]
    """Options of sync-group."""
    keeps_names: bool


DEFAULT = Variant("default", (), keeps_names=False)
IDENTITY = Variant("identity", ("-rpc", f"{JAVA}.IdentityReplicationPolicy"), keeps_names=True)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("variant", [DEFAULT, IDENTITY], ids=lambda v: v.folder)
def test_consumer_and_then_producer_move(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Unique,
    tmp_path: Path,
    variant: Variant,
) -> None:
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    name, group, alias = unique("ExampleTopic"), unique("ExampleGroup"), unique("msksource")
    files = ScenarioFiles(
        "s3",
        tmp_path,
        {
            "mskdest.example:9092": target,
            "msksource.example:9092": source,
            "localhost:8083": f"localhost:{free_port()}",
            "ExampleTopic": name,
            "ExampleGroup": group,
            '"msksource': f'"{alias}',
            "mm2-connect": unique("mm2-connect"),
        },
    )
    remote = name if variant.keeps_names else f"{alias}.{name}"
    topic = NumberedTopic(source, name, "app", 3)
    topic.mixed(3)
    traveller = Traveller(group)
    sync = Program(
        command(
            "sync-group",
            *("-cgi", group, "-src", alias),
            *("-pfp", properties_file(tmp_path, {"bootstrap.servers": target})),
            *variant.policy,
            *("--interval", "1"),
        ),
        tmp_path / "sync-group.log",
    )
    with ConnectWorker(tmp_path, files.path("connect-distributed.properties")) as worker:
        with Repeating(lambda: topic.mixed(1), 0.2):  # the application's producer
            traveller.visit(source, [name], lambda: len(traveller.read) == 3)
            start_replication(worker, files, variant)
            with sync:
                traveller.visit(source, [name], 35)  # consumes, commits and stops
                moved_over = traveller.read
                await_synced(target, group, remote, moved_over)
                assert sync.stop() == 0
            traveller.visit(target, [remote], 60)  # while the producer is still at the source
        # The producer is stopped; everything must be on the destination before it writes there.
        await_copies(target, remote, topic.total)
        traveller.visit(target, [remote], topic.total - len(traveller.log))
        if not variant.keeps_names:
            create_topic(target, name, 3)
        moved = NumberedTopic(target, name, "app", 3, make=False)
        moved.counts = topic.counts
        moved.mixed(2)
        for connector in ("mm2-src", "mm2-chk", "mm2-hbt"):
            worker.delete(connector)
        assert worker.stop() == 0
    new = [f"^({alias}[.])?{name}$"]  # as one who has migrated with the default policy subscribes
    traveller.visit(target, new, moved.total - len(traveller.log))
    traveller.assert_complete(moved.counts)
    for stream in moved_over:
        assert f"{remote}-{stream.partition} - -> " in sync.output
    assert "Traceback" not in worker.output + sync.output
    assert_internal_topics(source, target, alias, (name, remote, group))


def start_replication(worker: ConnectWorker, files: ScenarioFiles, variant: Variant) -> None:
    """PUT the three files, and read the statuses back."""
    worker.wait_ready()
    for name, tasks in {"mm2-src": 2, "mm2-chk": 1, "mm2-hbt": 1}.items():
        config = files.document(f"{variant.folder}/{name}.json")
        status, _, document = worker.request("PUT", f"/connectors/{name}/config", config)
        assert status == 201, document
        assert worker.wait_running(name, tasks)["name"] == name


def await_synced(bootstrap: str, group: str, remote: str, expected: dict[Stream, int]) -> None:
    """Until the group would go on with exactly these records."""
    wait_for(
        f"{remote} is there, with {expected}",
        lambda: remote in topics(bootstrap) and Standing(bootstrap, remote).of(group) == expected,
    )


def assert_internal_topics(
    source: str, target: str, alias: str, names: tuple[str, str, str]
) -> None:
    """Checkpoints, offset syncs and heartbeats say what S3 says they do."""
    name, remote, group = names
    rows = consume(target, f"{alias}.checkpoints.internal")
    points = [decode_checkpoint(row.key, row.value) for row in rows]
    assert {(p.group, p.topic, p.partition) for p in points} == {
        (group, remote, p) for p in range(3)
    }
    # Markers and aborted records of the source have no copies.
    assert all(0 <= p.downstream_offset <= p.upstream_offset for p in points)
    syncs_topic = next(t for t in topics(source) if t == "mm2-offset-syncs.mskdest.internal")
    syncs = [decode_offset_sync(row.key, row.value) for row in consume(source, syncs_topic)]
    assert {s.partition for s in syncs if s.topic == name} == {0, 1, 2}
    beats = [decode_heartbeat(row.key, row.value) for row in consume(target, "heartbeats")]
    assert (alias, "mskdest") in {(b.source_alias, b.target_alias) for b in beats}
