"""S4's own deploy script, as its document has it, against our REST: it deploys, redeploys, shows and undeploys.

The document is not ours: SPARKMIRROR_SEEDS names the folder it is in. Only addresses in it are replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cluster_pair import ClusterPair
from connect_worker import ConnectWorker
from kafka_tools import NewRecord, create_topic, delete_topic, end_offsets, produce, wait_for

from sparkmirror.tools.clusters import free_port

SEEDS = "SPARKMIRROR_SEEDS"
CLUSTER = "source-0"
TOPIC = "test"
RECORDS = 100
KINDS = ("Checkpoint", "Heartbeat", "Source")


class Document:
    """The code blocks of a document, by the name that stands before each of them."""

    def __init__(self, text: str) -> None:
        self._text = text

    def block(self, name: str) -> str:
        found = re.search(rf"`{re.escape(name)}`:?\s*```\w+\n(.*?)```", self._text, re.DOTALL)
        assert found is not None, f"the document has no {name}"
        return found[1]

    def properties(self) -> str:
        found = re.search(r"```properties\n(.*?)```", self._text, re.DOTALL)
        assert found is not None
        return found[1]


@pytest.fixture
def document() -> Document:
    folder = os.environ.get(SEEDS)
    if not folder:
        pytest.skip(f"{SEEDS} names no folder with the documents of the scenarios")
    for program in ("bash", "curl", "jq"):
        if shutil.which(program) is None:
            pytest.skip(f"the script needs {program}")
    (file,) = Path(folder).glob("003_*.txt")
    return Document(file.read_text())


class Script:
    def __init__(self, folder: Path, text: str) -> None:
        self._folder = folder
        (folder / "mm2.sh").write_text(text)

    def __call__(self, verb: str) -> list[str]:
        found = subprocess.run(
            ["bash", "mm2.sh", verb, CLUSTER],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert found.stderr == ""
        return found.stdout.splitlines()


@pytest.mark.slow
def test_the_script_does_what_it_does_with_a_java_worker(
    document: Document, cluster_pair: ClusterPair, tmp_path: Path
) -> None:
    port = free_port()
    source, target = cluster_pair.source.bootstrap, cluster_pair.target.bootstrap
    addresses = {
        "kafka-source-0:9092,kafka-source-1:9092": source,
        "kafka-target-0:9092,kafka-target-1:9092": target,
        "localhost:8083": f"127.0.0.1:{port}",
        "rest.port=8083": f"rest.port={port}",
    }

    def here(text: str) -> str:
        for written, real in addresses.items():
            text = text.replace(written, real)
        return text

    script = Script(tmp_path, here(document.block(".mm2.sh")))
    (tmp_path / "mm2").mkdir()
    create_topic(source, TOPIC, 5)
    produce(source, TOPIC, [NewRecord(b"%d" % n, b"line", n % 5) for n in range(RECORDS)])
    file = tmp_path / "connect-distributed.properties"
    file.write_text(here(document.properties()))
    with ConnectWorker(tmp_path, file) as worker:
        worker.wait_ready()
        names = [f"mm2-{kind}-{CLUSTER}" for kind in ("cpc", "hbc", "msc")]
        for name in names:
            (tmp_path / "mm2" / f"{name}.json").write_text(here(document.block(f"{name}.json")))
        assert script("status") == [f"{kind} connector: null" for kind in KINDS]
        deployed = script("deploy")
        assert deployed[0] == f"Deploying cluster {CLUSTER}"
        assert [line.split()[0] for line in deployed[1:]] == ["Deploying"] * 3
        running = [f'{kind} connector: "RUNNING"' for kind in KINDS]
        wait_for("all three run", lambda: script("status") == running)
        copied = RECORDS
        wait_for("all is copied", lambda: sum(end_offsets(target, TOPIC).values()) == copied)
        assert all("already deployed" in line for line in script("deploy")[1:])
        again = script("redeploy")
        assert not [line for line in again if "ERROR" in line or "WARN" in line], again
        wait_for("all three run again", lambda: script("status") == running)
        assert sorted(worker.get("/connectors")) == names
        undeployed = script("undeploy")
        assert not [line for line in undeployed if "WARN" in line], undeployed
        wait_for("none is left", lambda: worker.get("/connectors") == [])
        assert [line for line in script("undeploy") if "WARN" in line] == [
            "WARN: checkpoints connector not found",
            "WARN: heartbeats connector not found",
            "WARN: source connector not found",
        ]
        assert worker.stop() == 0
    for bootstrap in (source, target):
        delete_topic(bootstrap, TOPIC)
    delete_topic(target, "heartbeats")
