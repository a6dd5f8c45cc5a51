"""A worker ends in time, and connectors stop in time, while what they need hangs or is gone: their cluster, or Spark's JVM."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from cluster_pair import ClusterPair
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import QUICK_JVM, wait_for
from worker_flow import Flow, heartbeats

from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]
GRACE_S = 3.0
SPARK_S = 8.0  # to end, with the REST server, on a busy machine
PROMPT_S = 2.5  # less than a turn of the herder's that nothing wakes; far below a second on an idle machine


def properties(bootstrap: str, group: str) -> dict[str, str]:
    grace = f"{GRACE_S * 1000:.0f}"
    return worker_properties(bootstrap, group, task_shutdown_graceful_timeout_ms=grace)


@pytest.fixture
def flow(cluster_pair: ClusterPair, unique: Unique) -> Flow:
    return Flow(cluster_pair.source, cluster_pair.target, unique("t"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster for workers alone; a test that harms it makes it well again."""
    with KafkaCluster("home", 1, tmp_path_factory.mktemp("home"), jvm=QUICK_JVM) as cluster:
        yield cluster


def run_both(worker: ConnectWorker, flow: Flow) -> None:
    """A connector whose tasks are in Spark, and one whose task is a thread."""
    flow.produce(200)
    worker.wait_ready()
    worker.put(flow.name, flow.config())
    worker.put("beat", heartbeats(flow))
    worker.wait_running(flow.name, 2)
    worker.wait_running("beat", 1)
    flow.await_copies()


def stop_in_time(worker: ConnectWorker) -> None:
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < GRACE_S + SPARK_S


# -- without its cluster ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["killed", "frozen"])
def test_a_worker_that_has_lost_its_cluster_ends_in_time(
    home: KafkaCluster, flow: Flow, tmp_path: Path, unique: Unique, trouble: str
) -> None:
    with ConnectWorker(tmp_path, properties(home.bootstrap, unique("g"))) as worker:
        run_both(worker, flow)
        broker = psutil.Process(home.pid(1))
        try:
            if trouble == "killed":
                home.kill(1)
                worker.wait_until_says("is out of reach")
            else:
                broker.suspend()
            stop_in_time(worker)
        finally:
            if trouble == "killed":
                home.restart(1)
            else:
                broker.resume()
        flow.produce(100)
        with worker:
            worker.wait_ready()
            flow.check()


@pytest.mark.parametrize("is_hanging", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_worker_that_never_had_a_cluster_ends_in_time(tmp_path: Path, is_hanging: bool) -> None:
    port = free_port()
    with socket.socket() as listener:
        if is_hanging:  # who connects is never answered
            listener.bind(("127.0.0.1", port))
            listener.listen()
        with ConnectWorker(tmp_path, properties(f"127.0.0.1:{port}", "never")) as worker:
            wait_for("it is starting", lambda: worker.health() == (503, "starting"))
            stop_in_time(worker)


# -- with a JVM that hangs ----------------------------------------------------------------------------------


@pytest.fixture
def hanging(
    home: KafkaCluster, flow: Flow, tmp_path: Path, unique: Unique
) -> Iterator[ConnectWorker]:
    """A worker with both connectors at work, and a JVM that has just stopped answering."""
    with ConnectWorker(tmp_path, properties(home.bootstrap, unique("g"))) as worker:
        run_both(worker, flow)
        (jvm,) = worker.jvms()
        jvm.suspend()
        yield worker


@pytest.mark.slow
def test_a_worker_whose_spark_hangs_ends_in_time(hanging: ConnectWorker, flow: Flow) -> None:
    stop_in_time(hanging)
    flow.produce(100)
    with hanging as worker:
        worker.wait_ready()
        flow.check()


@pytest.mark.slow
def test_a_connector_whose_spark_hangs_stops_in_time_and_comes_back(
    hanging: ConnectWorker, flow: Flow
) -> None:
    began = time.monotonic()
    hanging.tell(flow.name, "stop")
    hanging.wait_states(flow.name, "STOPPED", [])
    assert time.monotonic() - began < GRACE_S + PROMPT_S
    assert flow.copied() == flow.count
    flow.produce(100)
    hanging.tell(flow.name, "resume")
    hanging.wait_until_says("it is killed")
    flow.check()
    hanging.wait_running(flow.name, 2)


# -- stopped connectors ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stopped_connector_soon_has_no_tasks(
    home: KafkaCluster, flow: Flow, tmp_path: Path, unique: Unique
) -> None:
    with ConnectWorker(tmp_path, properties(home.bootstrap, unique("g"))) as worker:
        run_both(worker, flow)
        for name, tasks in (("beat", 1), (flow.name, 2)):
            worker.tell(name, "stop")
            worker.wait_states(name, "STOPPED", [], PROMPT_S)
            worker.tell(name, "resume")
            worker.wait_running(name, tasks)
