"""The errors that `check --log` knows, in logs that real Java programs have just written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kafka_tools import QUICK_JVM, wait_for

from sparkmirror.errors import KafkaError
from sparkmirror.preflight.log_reading import explain
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import java_command


class _NoDirectory(KafkaCluster):
    """A broker whose log directory is a file."""

    def _settings(self, node: int) -> dict[str, str]:
        file = self.data(node).parent / "no-directory"
        file.write_text("")
        settings = super()._settings(node)
        return {**settings, "log.dirs": f"{settings['log.dirs']},{file}/data"}


@pytest.mark.slow
def test_a_log_directory_that_cannot_be_written(tmp_path: Path) -> None:
    cluster = _NoDirectory("broken", 1, tmp_path, jvm=QUICK_JVM)
    try:
        cluster.launch()
        log = cluster.log(1)
        wait_for("an explained error", lambda: explain(_lines(log)))
    except KafkaError:
        pass  # whether the broker gives up or goes on with the other directory is its own business
    finally:
        cluster.close()
    found = explain(_lines(log))
    assert "log-directory" in {finding.check for finding in found}, log.read_text()[-3000:]


@pytest.mark.slow
def test_a_topic_that_is_not_there(source_cluster: KafkaCluster, tmp_path: Path) -> None:
    log = tmp_path / "consumer.log"
    command = java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", source_cluster.bootstrap, "--topic", "not-there"),
        *("--timeout-ms", "3000"),
    )
    with log.open("wb") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=60)
    (found,) = explain(_lines(log))
    assert found.check == "unknown-topic-or-partition"
    assert "not-there" in found.message


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []
