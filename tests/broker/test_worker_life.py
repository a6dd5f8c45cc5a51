"""One worker from start to end: files good and bad, brokers that come and go, connectors that fail, pause, stop and go on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster_pair import ClusterPair
from connect_worker import BYTES, ConnectWorker, connector_path, worker_properties
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    set_topic_configs,
    topics,
    wait_for,
)
from prometheus_client.parser import text_string_to_metric_families
from worker_flow import MIRROR, Flow, heartbeats

from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]
GRACE_S = 5.0  # task.shutdown.graceful.timeout.ms
A_FEW_S = 15.0  # Spark and the REST server end too, on a busy machine


@pytest.fixture(scope="module")
def worker(
    cluster_pair: ClusterPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectWorker]:
    """A worker at the target; tests take connectors of their own."""
    group = f"life-{time.time_ns():x}"
    keys = worker_properties(
        cluster_pair.target.bootstrap,
        group,
        config_providers="file",
        config_providers_file_class="org.apache.kafka.common.config.provider.FileConfigProvider",
    )
    with ConnectWorker(tmp_path_factory.mktemp("life"), keys) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def flow(cluster_pair: ClusterPair, unique: Unique) -> Flow:
    return Flow(cluster_pair.source, cluster_pair.target, unique("t"))


# -- start and end ------------------------------------------------------------------------------------


def test_sigterm_ends_everything_in_time_and_order(
    flow: Flow, tmp_path: Path, unique: Unique
) -> None:
    flow.produce(500)
    keys = worker_properties(
        flow.target.bootstrap,
        unique("g"),
        task_shutdown_graceful_timeout_ms=f"{GRACE_S * 1000:.0f}",
        offset_flush_interval_ms="3600000",
        lsteners="http://127.0.0.1:1",
    )
    with ConnectWorker(tmp_path, keys) as worker:
        worker.wait_ready()
        worker.put(flow.name, flow.config())
        worker.put("beat", heartbeats(flow))
        worker.wait_running(flow.name, 2)
        worker.wait_running("beat", 1)
        flow.await_copies()
        began = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began < GRACE_S + A_FEW_S
        assert worker.output.count("lsteners is not a setting of a worker.") == 1
        # Positions are written when tasks end, however long their interval is.
        stored = stored_offsets(flow, keys["offset.storage.topic"])
        assert stored == {0: 249, 1: 249}
        states = stored_states(flow, keys["status.storage.topic"])
        assert set(states.values()) == {"UNASSIGNED"}
        assert len(states) == 5
        flow.produce(100)
        with worker:
            worker.wait_ready()
            flow.check()


def stored_offsets(flow: Flow, topic: str) -> dict[int, int]:
    found = {}
    for row in consume(flow.target.bootstrap, topic):
        assert row.key is not None
        connector, partition = json.loads(row.key)
        if connector == flow.name and row.value is not None:
            found[partition["partition"]] = json.loads(row.value)["offset"]
    return dict(sorted(found.items()))


def stored_states(flow: Flow, topic: str) -> dict[str, str]:
    rows = consume(flow.target.bootstrap, topic)
    return {
        (row.key or b"").decode(): json.loads(row.value)["state"]
        for row in rows
        if row.value and (row.key or b"").startswith((b"status-connector-", b"status-task-"))
    }


def test_a_bad_file_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "connect-distributed.properties"
    file.write_text(
        "bootstrap.servers=localhost:1\nsession.timeout.ms=soon\nconnect.protocol=old\n"
    )
    done = run("worker", str(file))
    assert done.returncode == 2
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert lines[0].startswith("sparkmirror: ")
    assert "Traceback" not in done.stderr
    for key in ("group.id", "session.timeout.ms", "connect.protocol", "config.storage.topic"):
        assert key in done.stderr
    missing = run("worker", str(tmp_path / "none.properties"))
    assert missing.returncode == 2
    assert missing.stderr.splitlines()[0].startswith("sparkmirror: ")
    assert "none.properties" in missing.stderr
    assert len(missing.stderr.splitlines()) <= 2


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkmirror", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_brokers_may_come_late_and_go(
    cluster_pair: ClusterPair, tmp_path: Path, unique: Unique
) -> None:
    target = KafkaCluster("late", 1, tmp_path, jvm=QUICK_JVM)
    flow = Flow(cluster_pair.source, target, unique("t"))
    flow.produce(200)
    keys = worker_properties(target.bootstrap, "late", session_timeout_ms="6000")
    try:
        with ConnectWorker(tmp_path, keys) as worker:
            wait_for("it says that it is starting", lambda: worker.health() == (503, "starting"))
            assert worker.request("GET", "/connectors").status in (200, 500)
            worker.wait_until_says("Trying again")
            target.start()
            worker.wait_ready()
            worker.put(flow.name, flow.config())
            worker.wait_running(flow.name, 2)
            flow.await_copies()
            target.kill(1)
            worker.wait_until_says("is out of reach")
            flow.produce(200)
            assert worker.status(flow.name) is not None
            target.restart(1)
            flow.await_copies(120)
            worker.wait_ready()
            worker.wait_running(flow.name, 2)
            assert worker.stop() == 0
        flow.check()
    finally:
        target.close()


def test_many_at_once_are_all_created(worker: ConnectWorker, flow: Flow) -> None:
    """Each one has the work shared out anew, and nobody is told to come again because of that."""
    names = [f"beat-{flow.topic}-{n}" for n in range(6)]
    config = {**heartbeats(flow), "emit.heartbeats.interval.seconds": "60"}

    def create(name: str) -> int:
        return worker.request("POST", "/connectors", {"name": name, "config": config}).status

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(create, names)) == [201] * len(names)
        for name in names:
            worker.wait_running(name, 1)
        list(pool.map(worker.delete, names))
    assert not set(names) & set(worker.get("/connectors"))


# -- connectors that fail -----------------------------------------------------------------------------


def test_a_source_out_of_reach_is_waited_for(
    worker: ConnectWorker, cluster_pair: ClusterPair, tmp_path: Path, unique: Unique
) -> None:
    source = KafkaCluster("absent", 1, tmp_path, jvm=QUICK_JVM)
    name = unique("absent")
    topic = unique("t")
    config = {
        "connector.class": f"{MIRROR}.MirrorSourceConnector",
        "source.cluster.alias": "absent",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": cluster_pair.target.bootstrap,
        "topics": topic,
        "refresh.topics.interval.seconds": "1",
        "admin.timeout.ms": "1000",
        "offset-syncs.topic.replication.factor": "1",
    }
    worker.put(name, config)
    worker.wait_running(name, 0)
    worker.wait_until_says(f"Connector {name} (absent->target): No broker of cluster absent")
    try:
        source.start()
        create_topic(source.bootstrap, topic, 1)
        produce(source.bootstrap, topic, [NewRecord(b"k", b"v")])
        remote = f"absent.{topic}"
        bootstrap = cluster_pair.target.bootstrap
        wait_for(
            "it is copied",
            lambda: remote in topics(bootstrap) and end_offsets(bootstrap, remote)[0] == 1,
        )
        worker.wait_running(name, 1)
    finally:
        source.close()
        worker.delete(name)


def test_a_topic_that_cannot_be_made_is_told_and_tried_again(
    worker: ConnectWorker, flow: Flow
) -> None:
    """Its connector goes on, since other topics may be fine."""
    flow.produce(100)
    worker.put(flow.name, flow.config(replication_factor="7"))
    worker.wait_running(flow.name, 0)
    worker.wait_until_says(flow.remote)
    line = next(line for line in worker.output.splitlines() if flow.remote in line)
    assert "replication" in line.lower()
    create_topic(flow.target.bootstrap, flow.remote, 2)
    flow.check()
    worker.wait_running(flow.name, 2)
    worker.delete(flow.name)


class Secrets:
    """A file that a connector's config refers to: it was there when the connector was created, and is gone when it starts."""

    def __init__(self, directory: Path, flow: Flow) -> None:
        self.file = directory / "secrets.properties"
        self._flow = flow

    def create_without(self, worker: ConnectWorker, **keys: str) -> None:
        self.bring()
        config = self._flow.config(topics=f"${{file:{self.file}:topics}}", **keys)
        body = {"name": self._flow.name, "config": config, "initial_state": "STOPPED"}
        answer = worker.request("POST", "/connectors", body)
        assert answer.status == 201, answer
        worker.wait_states(self._flow.name, "STOPPED", [])
        self.file.unlink()
        worker.tell(self._flow.name, "resume")

    def bring(self) -> None:
        self.file.write_text(f"topics={self._flow.topic}\n")


def attempts(worker: ConnectWorker, connector: str, task: str) -> float:
    """How often it was started again by itself, as Prometheus would read it; -1 if that is not told."""
    for family in text_string_to_metric_families(worker.text("/metrics")):
        for sample in family.samples:
            if sample.name == "sparkmirror_restart_attempts" and sample.labels == {
                "connector": connector,
                "task": task,
            }:
                return sample.value
    return -1


def test_a_failed_connector_shows_why_and_comes_back_by_itself(
    worker: ConnectWorker, flow: Flow, tmp_path: Path
) -> None:
    flow.produce(50)
    secrets = Secrets(tmp_path, flow)
    secrets.create_without(worker, errors_restart_backoff_ms="500")
    assert str(secrets.file) in worker.wait_failed(flow.name)
    worker.wait_until_says(f"Starting {flow.name} again (attempt 2)")
    wait_for("attempts in metrics", lambda: attempts(worker, flow.name, "") >= 2)
    assert flow.name in worker.text("/status")
    secrets.bring()
    status = worker.wait_running(flow.name, 2)
    assert "trace" not in status["connector"]
    flow.check()
    assert worker.get(f"{connector_path(flow.name)}/config")["topics"].startswith("${file:")
    worker.delete(flow.name)


def test_without_restarts_a_failed_connector_waits_for_a_person(
    worker: ConnectWorker, flow: Flow, tmp_path: Path
) -> None:
    flow.produce(50)
    secrets = Secrets(tmp_path, flow)
    secrets.create_without(worker, errors_restart_enabled="false")
    worker.wait_failed(flow.name)
    worker.tell(flow.name, "stop")
    worker.wait_states(flow.name, "STOPPED", [])
    worker.tell(flow.name, "resume")
    worker.wait_failed(flow.name)
    answer = worker.request("POST", f"{connector_path(flow.name)}/restart")
    assert answer.status == 500  # in vain
    assert worker.states(flow.name) == ("FAILED", [])
    secrets.bring()
    status, _, plan = worker.request(
        "POST", f"{connector_path(flow.name)}/restart?includeTasks=true&onlyFailed=true"
    )
    assert status == 202
    assert plan["connector"]["state"] == "RESTARTING"
    worker.wait_running(flow.name, 2)
    flow.check()
    assert f"Starting {flow.name} again" not in worker.output
    worker.delete(flow.name)


def too_large(flow: Flow) -> None:
    """A record that the target does not take, in partition 0."""
    create_topic(flow.target.bootstrap, flow.remote, 2, configs={"max.message.bytes": "2000"})
    produce(flow.source.bootstrap, flow.topic, [NewRecord(b"k", b"x" * 10_000, 0)])
    flow.count += 1


def test_a_failed_task_shows_why_and_goes_on_by_itself(worker: ConnectWorker, flow: Flow) -> None:
    too_large(flow)
    worker.put(flow.name, flow.config(sync_topic_configs_enabled="false"))
    status = worker.wait_states(flow.name, "RUNNING", ["FAILED", "RUNNING"])
    assert f"{flow.topic}-0" in status["tasks"][0]["trace"]
    assert "max.message.bytes" in status["tasks"][0]["trace"]
    wait_for("attempts in metrics", lambda: attempts(worker, flow.name, "0") >= 1)
    set_topic_configs(flow.target.bootstrap, flow.remote, {"max.message.bytes": "1000000"})
    flow.check()
    worker.wait_running(flow.name, 2)
    wait_for("attempts are over", lambda: attempts(worker, flow.name, "0") == 0)
    worker.delete(flow.name)


def test_without_restarts_a_failed_task_waits_for_a_person(
    worker: ConnectWorker, flow: Flow
) -> None:
    too_large(flow)
    keys = {"errors_restart_enabled": "false", "sync_topic_configs_enabled": "false"}
    worker.put(flow.name, flow.config(**keys))
    worker.wait_states(flow.name, "RUNNING", ["FAILED", "RUNNING"])
    set_topic_configs(flow.target.bootstrap, flow.remote, {"max.message.bytes": "1000000"})
    produce(flow.source.bootstrap, flow.topic, [NewRecord(b"k", b"other partition", 1)])
    flow.count += 1
    wait_for("the other task goes on", lambda: flow.copied() == 1)
    assert worker.states(flow.name) == ("RUNNING", ["FAILED", "RUNNING"])
    worker.tell(flow.name, "tasks/0/restart", "POST")
    flow.check()
    worker.wait_running(flow.name, 2)
    worker.delete(flow.name)


# -- pause, stop, resume, offsets -----------------------------------------------------------------------


def test_pause_stop_and_resume_in_any_order(worker: ConnectWorker, flow: Flow) -> None:
    flow.produce(100)
    worker.put(flow.name, flow.config())
    worker.wait_running(flow.name, 2)
    flow.await_copies()
    for verb, state, tasks in (
        ("pause", "PAUSED", 2),
        ("pause", "PAUSED", 2),
        ("stop", "STOPPED", 0),
        ("stop", "STOPPED", 0),
        ("pause", "PAUSED", 0),
        ("resume", "RUNNING", 2),
        ("resume", "RUNNING", 2),
        ("stop", "STOPPED", 0),
    ):
        worker.tell(flow.name, verb)
        worker.wait_states(flow.name, state, [state] * tasks)
        assert len(worker.get(f"{connector_path(flow.name)}/tasks")) == tasks
    flow.produce(100)
    # A new config does not start what is stopped, and a stopped connector copies nothing.
    worker.put(flow.name, flow.config(tasks_max="1"))
    worker.wait_states(flow.name, "STOPPED", [])
    assert flow.copied() == 100
    worker.tell(flow.name, "resume")
    worker.wait_running(flow.name, 1)
    flow.check()
    worker.delete(flow.name)
    wait_for("it is gone", lambda: worker.status(flow.name) is None)


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_created_at_rest_with_offsets_altered_before_the_first_start(
    worker: ConnectWorker, flow: Flow, state: str
) -> None:
    flow.produce(100)
    body = {"name": flow.name, "config": flow.config(), "initial_state": state}
    assert worker.request("POST", "/connectors", body).status == 201
    worker.wait_states(flow.name, state, [])
    path = f"{connector_path(flow.name)}/offsets"
    wanted = {"offsets": [position("A", flow.topic, 0, 29), position("A", flow.topic, 1, 9)]}
    if state == "PAUSED":
        answer = worker.request("PATCH", path, wanted)
        assert answer.status == 400
        assert "STOPPED" in answer.document["message"]
        worker.tell(flow.name, "stop")
        worker.wait_states(flow.name, "STOPPED", [])
    answer = worker.request("PATCH", path, wanted)
    assert (answer.status, answer.document["message"]) == (
        200,
        "The offsets for this connector have been altered successfully",
    )
    assert sorted_offsets(worker.get(path)) == wanted["offsets"]
    worker.tell(flow.name, "resume")
    worker.wait_running(flow.name, 2)
    wait_for("what is left is copied", lambda: flow.copied() == 20 + 40)
    found = consume(flow.target.bootstrap, flow.remote)
    assert [row.value for row in found if row.partition == 0] == [
        b"v%d" % n for n in range(60, 100, 2)
    ]
    assert [row.value for row in found if row.partition == 1] == [
        b"v%d" % n for n in range(21, 100, 2)
    ]
    worker.delete(flow.name)


def test_offsets_are_shown_altered_and_reset(worker: ConnectWorker, flow: Flow) -> None:
    flow.produce(100)
    path = f"{connector_path(flow.name)}/offsets"
    assert worker.request("GET", path).status == 404
    assert worker.request("DELETE", path).status == 404
    worker.put(flow.name, flow.config())
    worker.wait_running(flow.name, 2)
    both = [position("A", flow.topic, n, 49) for n in (0, 1)]
    wait_for("positions are written", lambda: sorted_offsets(worker.get(path)) == both)
    assert worker.request("PATCH", path, {"offsets": both}).status == 400
    assert worker.request("DELETE", path).status == 400
    worker.tell(flow.name, "pause")
    worker.wait_states(flow.name, "PAUSED", ["PAUSED"] * 2)
    assert worker.request("DELETE", path).status == 400
    worker.tell(flow.name, "stop")
    worker.wait_states(flow.name, "STOPPED", [])
    for body, status in (
        ({}, 400),
        ({"offsets": []}, 400),
        ([], 500),
        ({"offsets": [{"partition": {"cluster": "A"}, "offset": {"offset": 1}}]}, 500),
        ({"offsets": [position("A", flow.topic, 0, -1)]}, 500),
        ({"offsets": both, "more": 1}, 500),
    ):
        assert worker.request("PATCH", path, body).status == status, body
    assert sorted_offsets(worker.get(path)) == both
    assert (
        worker.request("PATCH", path, {"offsets": [position("A", flow.topic, 1, 39)]}).status == 200
    )
    worker.tell(flow.name, "resume")
    wait_for("ten are copied again", lambda: flow.copied() == 110)
    worker.tell(flow.name, "stop")
    worker.wait_states(flow.name, "STOPPED", [])
    for _ in range(2):  # the second time there is nothing left to reset
        answer = worker.request("DELETE", path)
        assert (answer.status, answer.document["message"]) == (
            200,
            "The offsets for this connector have been reset successfully",
        )
        assert worker.get(path) == {"offsets": []}
    worker.tell(flow.name, "resume")
    wait_for("all is copied again", lambda: flow.copied() == 210)
    worker.delete(flow.name)


def position(cluster: str, topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "partition": {"cluster": cluster, "partition": partition, "topic": topic},
        "offset": {"offset": offset},
    }


def sorted_offsets(document: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = document["offsets"]
    return sorted(rows, key=lambda row: int(row["partition"]["partition"]))


# -- standalone -----------------------------------------------------------------------------------------


def test_a_standalone_worker_runs_the_connectors_of_its_files(flow: Flow, tmp_path: Path) -> None:
    flow.produce(200)
    keys = {
        "bootstrap.servers": flow.target.bootstrap,
        "key.converter": BYTES,
        "value.converter": BYTES,
        "offset.storage.file.filename": str(tmp_path / "connect.offsets"),
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    one, two = tmp_path / "a.properties", tmp_path / "b.json"
    one.write_text("".join(f"{k}={v}\n" for k, v in {"name": "a", **flow.config()}.items()))
    two.write_text(json.dumps({"name": "b", "config": heartbeats(flow)}))
    with ConnectWorker(tmp_path, keys, connectors=[one, two]) as worker:
        worker.wait_ready()
        worker.wait_running("a", 2)
        worker.wait_running("b", 1)
        assert set(worker.get("/connectors")) == {"a", "b"}
        flow.await_copies()
        assert worker.stop() == 0
        flow.produce(100)
        with worker:
            worker.wait_ready()
            flow.check()
            worker.wait_running("a", 2)
    worker_file = worker.home / "connect-standalone.properties"
    two.write_text("{")
    done = run("standalone", str(worker_file), str(two))
    assert done.returncode == 2
    assert "b.json is not JSON" in done.stderr
    assert "Traceback" not in done.stderr
