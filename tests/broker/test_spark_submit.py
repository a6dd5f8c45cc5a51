"""`spark-submit` on clusters whose nodes have no sparkmirror: S5's file runs on a packed environment with the user's settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from bare_node import bare_environment, bare_python
from connect_worker import ConnectWorker, worker_properties
from flow_records import sparkmirror
from kafka_tools import QUICK_JVM
from program import Program
from scenario_s5 import API_KEY, assert_copied, copy_more, files, managed_source, trusted
from secured import SecuredCluster
from spark_cluster import SparkCluster
from worker_flow import Flow
from yarn_cluster import YarnCluster

from sparkmirror.spark.gateway import spark_home
from sparkmirror.tools.clusters import KafkaCluster

pytestmark = pytest.mark.slow
PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("archive") / "env.tar.gz"
    packed = sparkmirror("pack", str(file))
    assert packed.returncode == 0, packed.stderr
    return file


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with managed_source(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.fixture
def target(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster("target", 1, tmp_path, jvm=QUICK_JVM) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare() -> dict[str, str]:
    """The environment of nodes."""
    environment = bare_environment()
    bare_python(environment)
    return environment


class Submission:
    """S5's file given to spark-submit, with settings of the user's."""

    def __init__(self, folder: Path, source: SecuredCluster, target: KafkaCluster) -> None:
        self._source, self._target = source, target
        self._folder = folder
        self._events = folder / "events"
        self._events.mkdir()
        self._settings = {
            "spark.my.key": "7",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.pyspark.driver.python": sys.executable,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.executorEnv.SSL_CERT_FILE": trusted(source)["SSL_CERT_FILE"],
        }

    def program(
        self, options: Sequence[str], settings: Mapping[str, str], variables: Mapping[str, str]
    ) -> Program:
        command = [str(spark_home() / "bin" / "spark-submit"), "--name", "mine", *options]
        for name, value in (self._settings | dict(settings)).items():
            command += ["--conf", f"{name}={value}"]
        file = files(self._source, self._target, self._folder).path("mm2-sasl.properties")
        command += [sparkmirror("app-file").stdout.strip(), "run", str(file)]
        environment = os.environ | trusted(self._source) | dict(variables)
        return Program(command, self._folder / "submit.log", environment)

    def copies(self, submitted: Program) -> None:
        """S5 holds: all of `orders` and nothing else arrives, headers too. There is one JVM beside the executors'."""
        # Asking Kafka all the time while JVMs start would slow them down.
        submitted.wait_until_says("Spark task(s) submitted", PATIENCE_S)
        copy_more(self._source, self._target, PATIENCE_S)
        assert len(submitted.jvms()) == 1
        submitted.stop()
        assert_copied(self._source, self._target)
        assert "Traceback" not in submitted.output
        assert API_KEY not in submitted.output

    def in_force(self) -> dict[str, str]:
        return in_force(self._events)


def in_force(events: Path) -> dict[str, str]:
    """The settings that the applications ran with: on a busy machine a master may end one, and it is started again."""
    files = [
        p for p in events.rglob("*") if p.is_file() and not p.name.startswith(("appstatus", "."))
    ]
    assert files, "there is no event log"
    return _settings_of("".join(file.read_text() for file in files))


def _settings_of(event_log: str) -> dict[str, str]:
    events: list[dict[str, Any]] = [json.loads(line) for line in event_log.splitlines()]
    found: dict[str, str] = {}
    for event in events:
        if event["Event"] == "SparkListenerEnvironmentUpdate":
            found |= event["Spark Properties"]
    return found


def assert_users(settings: Mapping[str, str], master: str) -> None:
    """Name, master and a key of the user's are in force."""
    found = (settings["spark.app.name"], settings["spark.master"], settings["spark.my.key"])
    assert found == ("mine", master, "7")


@pytest.fixture
def submission(tmp_path: Path, source: SecuredCluster, target: KafkaCluster) -> Submission:
    return Submission(tmp_path, source, target)


def test_s5_on_a_standalone_cluster(
    submission: Submission, archive: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with SparkCluster(tmp_path, 2, 2, environment=bare) as spark:
        options = ["--master", spark.url]
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.archives": f"{archive}#environment",
        }
        with submission.program(options, settings, {}) as submitted:
            submission.copies(submitted)
        assert list(tmp_path.glob("node-*/app-*/*/environment/bin/python"))
        assert_users(submission.in_force(), spark.url)


def test_s5_on_yarn_in_client_mode(
    submission: Submission, archive: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    """YARN gives driver and executors their common secret itself."""
    with YarnCluster(tmp_path / "yarn", bare) as yarn:
        options = ["--master", "yarn", "--deploy-mode", "client", "--queue", "mirrors"]
        settings = yarn.settings | {
            "spark.authenticate": "true",
            "spark.yarn.dist.archives": f"{archive}#environment",
        }
        with submission.program(options, settings, yarn.variables) as submitted:
            submission.copies(submitted)
        application = yarn.application("mine")
        assert application.queue.endswith("mirrors")
        # The folders of containers are gone with their application; what they link to stays for a while.
        assert list(yarn.containers.glob("usercache/*/filecache/*/env.tar.gz/bin/python"))
        assert_users(submission.in_force(), "yarn")


def test_a_worker_on_a_local_master(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """`worker FILE`: connectors come by REST, and are copied by the one JVM, with the user's name and settings."""
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.my.key": "7",
        "spark.pyspark.python": sys.executable,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    launcher = [
        str(spark_home() / "bin" / "spark-submit"),
        "--name",
        "mine",
        "--master",
        "local[2]",
    ]
    for name, value in settings.items():
        launcher += ["--conf", f"{name}={value}"]
    launcher.append(sparkmirror("app-file").stdout.strip())
    properties = worker_properties(target_cluster.bootstrap, unique("group"))
    flow = Flow(source_cluster, target_cluster, unique("t"))
    with ConnectWorker(tmp_path, properties, launcher=launcher) as worker:
        worker.wait_ready()
        flow.produce(100)
        worker.put(flow.name, flow.config())
        worker.wait_running(flow.name, 2)
        flow.check()
        assert len(worker.jvms()) == 1
    found = in_force(events)
    assert (found["spark.app.name"], found["spark.my.key"]) == ("mine", "7")
