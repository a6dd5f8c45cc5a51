"""The demo as a person runs it: it ends with a true verdict, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from kafka_tools import NewRecord, create_topic, produce, produce_transaction, wait_for

from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.comparison import compare


def start_demo(directory: Path, **settings: str) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[2] / "src")
    temporary = {"TMPDIR": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-m", "sparkmirror.tools.demo"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source, **temporary, **settings},
    )


@pytest.mark.slow
def test_the_demo_ends_by_itself_with_target_equal_to_source(tmp_path: Path) -> None:
    with start_demo(tmp_path, DEMO_SECONDS="3", DEMO_RATE="2000") as demo:
        assert demo.stdout is not None
        last = demo.stdout.read().splitlines()[-1]
    assert last.startswith("target equals source: "), last
    assert "in 24 partitions, none missing, none twice; " in last
    assert last.endswith(" records/s")
    assert demo.returncode == 0
    assert not list(tmp_path.glob("sparkmirror-demo-*"))


@pytest.mark.slow
def test_a_terminated_demo_still_compares_and_a_killed_one_leaves_no_process(
    tmp_path: Path,
) -> None:
    with start_demo(tmp_path, DEMO_RATE="2000") as demo:
        assert demo.stdout is not None
        assert any(line.startswith("running") for line in demo.stdout)
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGTERM)
        last = demo.stdout.read().splitlines()[-1]
    assert last.startswith("target equals source: "), last
    assert demo.returncode == 0
    assert not psutil.wait_procs(children, timeout=20)[1]

    with start_demo(tmp_path) as demo:
        assert demo.stdout is not None
        assert any(line.startswith("starting the mirror") for line in demo.stdout)
        running = psutil.Process(demo.pid)
        wait_for("brokers and mirror run", lambda: len(running.children(recursive=True)) >= 4)
        children = running.children(recursive=True)
        demo.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(children, timeout=20)[1]


def test_a_comparison_of_clusters_leaves_aborted_data_out(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("compared")
    records = [NewRecord(b"k", b"%d" % i, i % 2, 1_000 + i, (("h", b"x"),)) for i in range(500)]
    for cluster in (source_cluster, target_cluster):
        create_topic(cluster.bootstrap, topic, 2)
    produce_transaction(source_cluster.bootstrap, topic, records[:100], commit=False)
    produce(source_cluster.bootstrap, topic, records)
    produce(target_cluster.bootstrap, topic, records, compression_type="zstd")

    source = Cluster(client_settings("a", {"bootstrap.servers": source_cluster.bootstrap}))
    target = Cluster(client_settings("b", {"bootstrap.servers": target_cluster.bootstrap}))
    try:
        same = compare(source, target, {topic: topic})
        assert (same.equal, same.partitions, same.records) == (True, 2, 500)

        produce(target_cluster.bootstrap, topic, records[-1:])
        other = compare(source, target, {topic: topic})
        (difference,) = other.differences
        assert (difference.partition, difference.kind) == (1, "twice")
    finally:
        source.close()
        target.close()
