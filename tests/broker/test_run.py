"""`sparkmirror run` between two real clusters, on Spark."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_tools import (
    NewRecord,
    add_partitions,
    consume,
    create_topic,
    end_offsets,
    produce,
    topic_configs,
    topics,
    wait_for,
)
from running import Mirror, assert_same, properties

from sparkmirror.formats.mirror import decode_offset_sync
from sparkmirror.formats.progress import decode as decode_progress
from sparkmirror.tools.clusters import KafkaCluster, run_tool

Unique = Callable[[str], str]


def events(count: int, partitions: int = 1, start: int = 0) -> list[NewRecord]:
    return [
        NewRecord(
            b"key-%d" % i,
            b'{"event":%d,"text":"%s"}' % (i, b"x" * (i % 50)),
            i % partitions,
            1_700_000_000_000 + i,
            (("origin", b"test"), ("empty", None)),
        )
        for i in range(start, start + count)
    ]


def has(cluster: KafkaCluster, topic: str, count: int) -> Callable[[], bool]:
    """Whether a topic holds that many records."""
    return lambda: (
        topic in topics(cluster.bootstrap)
        and (sum(end_offsets(cluster.bootstrap, topic).values()) >= count)
    )


def test_copies_topics_and_goes_on_where_it_stopped(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("orders")
    create_topic(
        source_cluster.bootstrap,
        topic,
        4,
        configs={"max.message.bytes": "2000000", "min.insync.replicas": "1"},
    )
    produce(source_cluster.bootstrap, topic, events(2000, 4))
    keys = properties(source_cluster, target_cluster, flow_topics=topic, tasks_max="3")
    mirror = Mirror(tmp_path, keys)
    with mirror:
        wait_for("everything is copied", has(target_cluster, f"A.{topic}", 2000))
        produce(source_cluster.bootstrap, topic, events(500, 4, 2000))
        wait_for("new records are copied", has(target_cluster, f"A.{topic}", 2500))
        assert mirror.stop() == 0
    produce(source_cluster.bootstrap, topic, events(500, 4, 2500))
    with mirror:
        wait_for("the rest is copied", has(target_cluster, f"A.{topic}", 3000))
    assert assert_same(source_cluster, topic, target_cluster, f"A.{topic}") == 3000
    remote = topic_configs(target_cluster.bootstrap, f"A.{topic}")
    assert remote["max.message.bytes"] == "2000000"
    internal = topics(target_cluster.bootstrap)
    assert internal["mm2-offsets.A.internal"] == 25
    assert internal["mm2-progress.A.internal"] == 1
    assert "mm2-offset-syncs.B.internal" in topics(source_cluster.bootstrap)


@pytest.mark.slow
def test_a_flow_that_is_not_enabled_any_more_ends(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Its connectors are in the config topic from before, and would run on."""
    there, back = unique("there"), unique("back")
    create_topic(source_cluster.bootstrap, there)
    create_topic(target_cluster.bootstrap, back)
    produce(target_cluster.bootstrap, back, events(10))
    keys = properties(source_cluster, target_cluster, flow_topics=there)
    before = tmp_path / "before"
    before.mkdir()
    with Mirror(before, keys | {"B->A.enabled": "true", "B->A.topics": back}):
        wait_for("the way back is copied", has(source_cluster, f"B.{back}", 10))
    produce(target_cluster.bootstrap, back, events(10, start=10))
    produce(source_cluster.bootstrap, there, events(10))
    with Mirror(tmp_path, keys) as mirror:
        mirror.wait_until_says(
            "Writing the config of connector MirrorSourceConnector (enabled=false)"
        )
        wait_for("the way there is copied", has(target_cluster, f"A.{there}", 10))
        produce(source_cluster.bootstrap, there, events(10, start=10))
        wait_for("more of it is copied", has(target_cluster, f"A.{there}", 20))
        assert "Flow B->A:" not in mirror.output
        assert mirror.stop() == 0
    assert end_offsets(source_cluster.bootstrap, f"B.{back}") == {0: 10}


@pytest.mark.slow
def test_offset_syncs_and_progress_tell_the_truth(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("orders")
    create_topic(source_cluster.bootstrap, topic, 2)
    produce(source_cluster.bootstrap, topic, events(1000, 2))
    keys = properties(source_cluster, target_cluster, flow_topics=topic)
    with Mirror(tmp_path, keys):
        wait_for("everything is copied", has(target_cluster, f"A.{topic}", 1000))

        def last_syncs() -> dict[int, tuple[int, int]]:
            found = {}
            for record in consume(source_cluster.bootstrap, "mm2-offset-syncs.B.internal"):
                sync = decode_offset_sync(record.key, record.value)
                if sync.topic == topic:
                    found[sync.partition] = (sync.upstream_offset, sync.downstream_offset)
            return found

        wait_for("both tails are synced", lambda: last_syncs() == {0: (499, 499), 1: (499, 499)})

        def last_lags() -> dict[int, tuple[int, int]]:
            found = {}
            for record in consume(target_cluster.bootstrap, "mm2-progress.A.internal"):
                assert record.value is not None
                for row in decode_progress(record.value).partitions:
                    if row.topic == topic:
                        found[row.partition] = (row.offset, row.lag)
            return found

        wait_for("progress tells it", lambda: last_lags() == {0: (500, 0), 1: (500, 0)})
    line = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        source_cluster.bootstrap,
        "--topic",
        "mm2-offset-syncs.B.internal",
        "--from-beginning",
        "--timeout-ms",
        "3000",
        "--formatter",
        "org.apache.kafka.connect.mirror.formatters.OffsetSyncFormatter",
        timeout=60,
    )
    wanted = f"OffsetSync{{topicPartition={topic}-1, upstreamOffset=499, downstreamOffset=499}}"
    assert wanted in line


def test_new_topics_and_new_partitions_are_found(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    prefix = unique("grow")
    first, second = f"{prefix}.one", f"{prefix}.two"
    create_topic(source_cluster.bootstrap, first, 1)
    produce(source_cluster.bootstrap, first, events(50))
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=prefix.replace("-", "[-]") + r"\\..*",
        refresh_topics_interval_seconds="1",
    )
    with Mirror(tmp_path, keys):
        wait_for("the first is copied", has(target_cluster, f"A.{first}", 50))
        create_topic(source_cluster.bootstrap, second, 3)
        produce(source_cluster.bootstrap, second, events(90, 3))
        add_partitions(source_cluster.bootstrap, first, 2)
        produce(source_cluster.bootstrap, first, events(60, 2, 50))
        wait_for("the second is copied", has(target_cluster, f"A.{second}", 90))
        wait_for("the new partition is copied", has(target_cluster, f"A.{first}", 110))
    assert_same(source_cluster, first, target_cluster, f"A.{first}")
    assert_same(source_cluster, second, target_cluster, f"A.{second}")


@pytest.mark.slow
def test_identity_policy_latest_and_packing_on_one_slot(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("same-name")
    create_topic(source_cluster.bootstrap, topic, 4)
    produce(source_cluster.bootstrap, topic, events(100, 4))
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=topic,
        tasks_max="4",
        replication_policy_class="org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        flow_consumer_auto_offset_reset="latest",
        spark_master="local[1]",
    )
    with Mirror(tmp_path, keys) as mirror:
        wait_for("one worker for four tasks", lambda: len(mirror.python_workers()) == 1)
        wait_for(
            "it reads from the end on",
            lambda: (
                len(
                    [
                        record
                        for record in consume(target_cluster.bootstrap, "mm2-offsets.A.internal")
                        if record.key is not None and topic.encode() in record.key
                    ]
                )
                == 4
            ),
        )
        produce(source_cluster.bootstrap, topic, events(40, 4, 100))
        wait_for("only new records are copied", has(target_cluster, topic, 40))
    copied = consume(target_cluster.bootstrap, topic)
    assert len(copied) == 40
    assert {record.key for record in copied} == {b"key-%d" % i for i in range(100, 140)}


@pytest.mark.slow
def test_two_flows_in_opposite_directions_do_not_loop(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    prefix = unique("both")
    here, there = f"{prefix}-here", f"{prefix}-there"
    create_topic(source_cluster.bootstrap, here, 1)
    create_topic(target_cluster.bootstrap, there, 1)
    produce(source_cluster.bootstrap, here, events(30))
    produce(target_cluster.bootstrap, there, events(20))
    keys = properties(
        source_cluster,
        target_cluster,
        topics=f".*{prefix}.*",
        refresh_topics_interval_seconds="1",
    )
    keys["B->A.enabled"] = "true"
    with Mirror(tmp_path, keys):
        wait_for("one way", has(target_cluster, f"A.{here}", 30))
        wait_for("the other way", has(source_cluster, f"B.{there}", 20))
        # The copies are seen by the opposite flows by now; what they bring is a new topic each.
        create_topic(source_cluster.bootstrap, f"{here}-2", 1)
        produce(source_cluster.bootstrap, f"{here}-2", events(10))
        wait_for("a later topic", has(target_cluster, f"A.{here}-2", 10))
    names = [name for name in topics(source_cluster.bootstrap) if prefix in name]
    assert sorted(names) == sorted([here, f"{here}-2", f"B.{there}"])


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["python worker", "jvm", "process"])
def test_killed_parts_are_replaced_and_nothing_is_lost(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Unique,
    tmp_path: Path,
    victim: str,
) -> None:
    topic = unique("killed")
    create_topic(source_cluster.bootstrap, topic, 4)
    produce(source_cluster.bootstrap, topic, events(5000, 4))
    keys = properties(source_cluster, target_cluster, flow_topics=topic, tasks_max="2")
    mirror = Mirror(tmp_path, keys)
    with mirror:
        wait_for("it has begun", has(target_cluster, f"A.{topic}", 1))
        if victim == "python worker":
            wait_for("workers are there", mirror.python_workers)[0].send_signal(signal.SIGKILL)
        elif victim == "jvm":
            mirror.jvms()[0].send_signal(signal.SIGKILL)
        else:
            mirror.kill()
            mirror.start()
        produce(source_cluster.bootstrap, topic, events(1000, 4, 5000))
        wait_for("everything is copied", has(target_cluster, f"A.{topic}", 6000))
    assert assert_same(source_cluster, topic, target_cluster, f"A.{topic}") == 6000


@pytest.mark.slow
def test_a_killed_python_worker_restarts_its_own_task_alone(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("alone")
    create_topic(source_cluster.bootstrap, topic, 4)
    produce(source_cluster.bootstrap, topic, events(100, 4))
    keys = properties(
        source_cluster, target_cluster, flow_topics=topic, tasks_max="2", spark_master="local[4]"
    )
    with Mirror(tmp_path, keys) as mirror:
        wait_for("it copies", has(target_cluster, f"A.{topic}", 100))
        wait_for("a worker for each task", lambda: len(mirror.python_workers()) >= 2)
        victim, *others = mirror.python_workers()
        victim.send_signal(signal.SIGKILL)
        produce(source_cluster.bootstrap, topic, events(100, 4, 100))
        wait_for("everything is copied", has(target_cluster, f"A.{topic}", 200))
        assert all(other.is_running() for other in others), "the other task went on"
        assert not mirror.says("The Spark job of flow"), "the job went on"
    assert assert_same(source_cluster, topic, target_cluster, f"A.{topic}") == 200
