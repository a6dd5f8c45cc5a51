"""`spark-submit` on a cluster whose nodes have no sparkmirror: its archive is sent along, the user's settings are in force."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flow_records import sparkmirror
from program import Program
from running import Mirror
from spark_cluster import SparkCluster
from spread import SpreadTopic, keys

from sparkmirror.spark.gateway import spark_home
from sparkmirror.tools.clusters import KafkaCluster

pytestmark = pytest.mark.slow
Unique = Callable[[str], str]
BARE_PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("archive") / "env.tar.gz"
    packed = sparkmirror("pack", str(file))
    assert packed.returncode == 0, packed.stderr
    return file


def bare_environment() -> dict[str, str]:
    """Without what would let a node find the sparkmirror of these tests."""
    path = [folder for folder in os.environ["PATH"].split(":") if folder != str(_bin())]
    left_out = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"PATH": ":".join(path)}


def _bin() -> Path:
    return Path(sys.executable).parent


def app_file() -> str:
    return sparkmirror("app-file").stdout.strip()


def started_application(folder: Path) -> dict[str, Any]:
    """What the event log says of the application and its settings."""
    files = [path for path in folder.rglob("*") if path.is_file() and "events" in path.name]
    assert files, "there is no event log"
    found: dict[str, Any] = {}
    # More than one where the master has ended the application on a busy machine, and it was started again.
    for line in "".join(file.read_text() for file in files).splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerApplicationStart":
            found["name"] = event["App Name"]
        elif event["Event"] == "SparkListenerEnvironmentUpdate":
            found |= event["Spark Properties"]
    return found


def test_nodes_without_sparkmirror_get_it_with_the_job(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Unique,
    archive: Path,
    tmp_path: Path,
) -> None:
    environment = bare_environment()
    python = shutil.which(BARE_PYTHON, path=environment["PATH"])
    assert python is not None
    has_it = [python, "-c", "import sparkmirror"]
    assert subprocess.run(
        has_it, env=environment, cwd="/", check=False, capture_output=True
    ).returncode

    topic = SpreadTopic(source_cluster, target_cluster, unique("submitted"), 4)
    events = tmp_path / "events"
    events.mkdir()
    with SparkCluster(tmp_path, 2, 2, environment=environment) as spark:
        wanted = keys(topic, spark.url, 4)
        del wanted["spark.master"]
        Mirror(tmp_path, wanted)  # writes the file
        settings = {
            "spark.my.key": "7",
            "spark.archives": f"{archive}#environment",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.pyspark.driver.python": sys.executable,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
        }
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            "--master",
            spark.url,
            "--name",
            "mine",
        ]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += [app_file(), "run", str(tmp_path / "mm2.properties")]
        with Program(command, tmp_path / "submit.log") as submitted:
            topic.add()
            topic.arrives()
            assert len(submitted.jvms()) == 1
            topic.assert_same()
        unpacked = list(tmp_path.glob("node-*/app-*/*/environment/bin/python"))
        assert unpacked, "no executor has unpacked the archive"
    found = started_application(events)
    assert found["name"] == "mine"
    assert (found["spark.my.key"], found["spark.master"]) == ("7", spark.url)
