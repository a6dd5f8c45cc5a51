"""`sparkmirror.start` in a program with a Spark session: records are copied, and the session lives on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bare_node import bare_environment, bare_python
from program import Program
from running import Mirror
from spark_cluster import SparkCluster
from spread import SpreadTopic, keys

from sparkmirror.tools.clusters import KafkaCluster

pytestmark = pytest.mark.slow
Unique = Callable[[str], str]
PROGRAM = Path(__file__).with_name("notebook.py")
ENVIRONMENT = os.environ | {"PYSPARK_PYTHON": sys.executable}


@pytest.fixture
def topic(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique
) -> SpreadTopic:
    return SpreadTopic(source_cluster, target_cluster, unique("embedded"), 3)


def command(topic: SpreadTopic, folder: Path, master: str, end: Path) -> list[str]:
    """A program that copies a topic until there is a file `end`; the settings of Spark are its own."""
    wanted = keys(topic, "unused", 2)
    wanted = {name: value for name, value in wanted.items() if not name.startswith("spark.")}
    Mirror(folder, wanted)  # writes the file
    return [sys.executable, str(PROGRAM), str(folder / "mm2.properties"), master, str(end)]


def copied_in_a_program(topic: SpreadTopic, folder: Path, master: str) -> None:
    """Two of the session's slots are for the copy, and one is left to the program."""
    end, log = folder / "end", folder / "program.log"
    with Program(command(topic, folder, master, end), log, ENVIRONMENT) as program:
        for _ in range(20):
            topic.add()
        topic.arrives()
        topic.add()
        topic.arrives()
        end.touch()
        program.wait_until_says("after it: 10100", 120)
        assert program.says("beside it: 10100")
        assert program.says("stopped: True False 0")
        assert topic.assert_same() == 63
        topic.add()
        assert program.wait(60) == 0
    assert topic.copied() == 63  # nobody copies any more


def test_a_session_on_this_machine(topic: SpreadTopic, tmp_path: Path) -> None:
    copied_in_a_program(topic, tmp_path, "local[3]")


def test_a_session_on_a_cluster(topic: SpreadTopic, tmp_path: Path) -> None:
    with SparkCluster(tmp_path, 3) as spark:
        copied_in_a_program(topic, tmp_path, spark.url)


def test_a_session_whose_workers_lack_sparkmirror_says_so(
    topic: SpreadTopic, tmp_path: Path
) -> None:
    """It is tried again, and the session lives on."""
    bare = bare_environment()
    end = tmp_path / "end"
    environment = bare | {"PYSPARK_PYTHON": bare_python(bare)}
    with Program(
        command(topic, tmp_path, "local[2]", end), tmp_path / "program.log", environment
    ) as program:
        program.wait_until_says("ended: sparkmirror is not installed on the executors.")
        end.touch()
        assert program.wait(120) == 0
    assert program.says("stopped: True False")
    assert program.says("after it: 10100")


def test_a_session_of_spark_connect_is_refused(tmp_path: Path) -> None:
    """It is not touched, and can be used after that."""
    for needed in ("grpc", "pandas"):
        pytest.importorskip(needed, reason="Spark Connect needs grpcio, grpcio-status and pandas")
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\n")
    asked = [sys.executable, str(PROGRAM), str(file), "connect:local[1]", str(tmp_path / "end")]
    with Program(asked, tmp_path / "program.log", ENVIRONMENT) as program:
        assert program.wait(180) == 0
    assert program.says(
        "refused: sparkmirror.start needs a Spark session with its driver in this process, and was given a "
        "pyspark.sql.connect.session.SparkSession."
    )
    assert program.says("after it: 10100")
