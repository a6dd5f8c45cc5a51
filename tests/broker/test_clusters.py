"""The clusters that everything else is tested on: they serve, fail as told, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    Record,
    consume,
    create_topic,
    end_offsets,
    leaders,
    produce,
    produce_transaction,
    topics,
    wait_for,
)

from sparkmirror.errors import ConfigError, KafkaError
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster, free_port, kafka_jars, run_tool, start_all
from sparkmirror.tools.jvm import KAFKA_VERSION
from sparkmirror.tools.probe import probe

RECORDS = [
    NewRecord(b"k%d" % i, b"v%d" % i, i % 3, 1_700_000_000_000 + i, (("h", b"%d" % i), ("n", None)))
    for i in range(300)
]
EXPECTED = sorted(
    Record(r.partition, i // 3, r.timestamp, r.key, r.value, r.headers)
    for i, r in enumerate(RECORDS)
)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(
        "three", 3, tmp_path_factory.mktemp("three"), racks=True, jvm=QUICK_JVM
    ) as cluster:
        yield cluster


def gone(pid: int) -> bool:
    """Whether a process has ended; an orphan may stay in the table until somebody reaps it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_two_clusters_are_apart_and_give_back_what_was_produced(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    create_topic(source_cluster.bootstrap, topic, 3)
    where = produce(source_cluster.bootstrap, topic, RECORDS)
    assert where == [(r.partition, i // 3) for i, r in enumerate(RECORDS)]
    assert consume(source_cluster.bootstrap, topic) == EXPECTED
    assert topic not in topics(target_cluster.bootstrap)
    assert source_cluster.cluster_id != target_cluster.cluster_id


def test_an_aborted_transaction_is_seen_only_uncommitted(
    source_cluster: KafkaCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    create_topic(source_cluster.bootstrap, topic)
    produce_transaction(source_cluster.bootstrap, topic, [NewRecord(b"a", b"1")], commit=False)
    produce_transaction(source_cluster.bootstrap, topic, [NewRecord(b"b", b"2")])
    committed = consume(source_cluster.bootstrap, topic)
    uncommitted = consume(source_cluster.bootstrap, topic, committed=False)
    assert [record.value for record in committed] == [b"2"]
    assert [record.value for record in uncommitted] == [b"1", b"2"]
    assert end_offsets(source_cluster.bootstrap, topic) == {0: 4}  # two records and two markers


def test_new_clusters_have_the_features_of_a_formatted_one(source_cluster: KafkaCluster) -> None:
    said = run_tool(
        "org.apache.kafka.tools.FeatureCommand",
        "--bootstrap-server",
        source_cluster.bootstrap,
        "describe",
    )
    levels = {
        line.split()[1]: line.split("FinalizedVersionLevel:")[1].split()[0]
        for line in said.splitlines()
    }
    assert levels["transaction.version"] == "2"
    assert levels["group.version"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("version", [KAFKA_VERSION, "2.8.2", "2.4.1"])
def test_data_survives_kill_stop_and_restart(tmp_path: Path, version: str) -> None:
    with KafkaCluster("one", 1, tmp_path, jvm=QUICK_JVM, version=version) as cluster:
        create_topic(cluster.bootstrap, "kept", 3)
        produce(cluster.bootstrap, "kept", RECORDS)
        address, first = cluster.bootstrap, cluster.pid(1)

        cluster.kill(1)
        assert not cluster.running(1)
        assert gone(first)
        cluster.restart(1)
        assert cluster.bootstrap == address
        assert cluster.pid(1) != first
        assert consume(cluster.bootstrap, "kept") == EXPECTED

        cluster.stop(1)
        cluster.restart(1)
        assert consume(cluster.bootstrap, "kept") == EXPECTED


@pytest.mark.slow
def test_a_killed_broker_of_three_is_replaced_and_comes_back_in_sync(three: KafkaCluster) -> None:
    create_topic(three.bootstrap, "led", 3, replication=3)
    produce(three.bootstrap, "led", RECORDS)
    assert set(leaders(three.bootstrap, "led").values()) == {1, 2, 3}

    three.kill(2)
    wait_for("others lead", lambda: set(leaders(three.bootstrap, "led").values()) == {1, 3})
    produce(three.bootstrap, "led", RECORDS[:30])
    three.restart(2)
    view = probe(int(three.internal_bootstrap.split(",")[0].split(":")[1]))
    assert view is not None
    assert view.brokers == {1, 2, 3}
    assert not view.lagging
    assert sum(end_offsets(three.bootstrap, "led").values()) == len(RECORDS) + 30


@pytest.mark.slow
def test_a_stopped_broker_of_three_hands_over(three: KafkaCluster) -> None:
    create_topic(three.bootstrap, "handed", 6, replication=3)
    three.stop(3)
    wait_for("others lead", lambda: set(leaders(three.bootstrap, "handed").values()) == {1, 2})
    three.restart(3)
    assert three.running(3)


def test_racks_are_told_to_clients(three: KafkaCluster) -> None:
    said = run_tool(
        "org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", three.bootstrap
    )
    for node in three.nodes:
        assert f"rack: rack-{node}" in said


def test_a_node_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    cluster = KafkaCluster("one", 1, tmp_path, jvm=QUICK_JVM)
    try:
        starter = threading.Thread(target=cluster.start)
        starter.start()
        starter.join()
        create_topic(cluster.bootstrap, "made-after-the-thread-ended")
        assert cluster.running(1)
    finally:
        cluster.close()


def test_close_leaves_no_process(tmp_path: Path) -> None:
    clusters = [
        KafkaCluster("a", 1, tmp_path, jvm=QUICK_JVM),
        KafkaCluster("b", 1, tmp_path, jvm=QUICK_JVM),
    ]
    start_all(clusters)
    pids = [cluster.pid(1) for cluster in clusters]
    assert not any(gone(pid) for pid in pids)
    for cluster in clusters:
        cluster.close()
        cluster.close()  # closing twice is no error
    assert all(gone(pid) for pid in pids)


def test_nodes_die_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from sparkmirror.tools.clusters import KafkaCluster\n"
        "cluster = KafkaCluster('orphan', 1, Path(sys.argv[1])).start()\n"
        "print(cluster.pid(1), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    with parent:
        assert parent.stdout is not None
        node = int(parent.stdout.readline())
        assert not gone(node)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_for("the JVM is gone", lambda: gone(node), patience_s=10)


def test_a_node_that_cannot_start_says_why_and_none_is_left(tmp_path: Path) -> None:
    good = KafkaCluster("good", 1, tmp_path, jvm=QUICK_JVM)
    bad = KafkaCluster("bad", 1, tmp_path, properties={"num.io.threads": "none"})
    with pytest.raises(KafkaError, match=r"(?s)Node 1 of cluster bad ended.*num\.io\.threads"):
        start_all([good, bad])
    assert not good.running(1)


def test_a_tool_gets_input_and_its_failure_is_told(
    source_cluster: KafkaCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    create_topic(source_cluster.bootstrap, topic)
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        source_cluster.bootstrap,
        "--topic",
        topic,
        input="one\ntwo\n",
    )
    assert [r.value for r in consume(source_cluster.bootstrap, topic)] == [b"one", b"two"]
    segment = source_cluster.data(1) / f"{topic}-0" / "00000000000000000000.log"
    dumped = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))
    assert "lastOffset: 1" in dumped
    with pytest.raises(KafkaError, match=r"TopicCommand ended with exit code 1"):
        run_tool("org.apache.kafka.tools.TopicCommand", "--no-such-option")


def test_without_jars_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKMIRROR_KAFKA_JARS", str(tmp_path))
    with pytest.raises(ConfigError, match="make setup"):
        kafka_jars()
    with pytest.raises(ConfigError, match=r"make build/kafka/0\.8\.0/\.fetched"):
        kafka_jars("0.8.0")


def test_free_ports_are_never_the_same() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50


def test_a_spawned_program_writes_to_its_log(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", "print('said')"], log=tmp_path / "log")
    assert process.wait(30) == 0
    assert (tmp_path / "log").read_text() == "said\n"
