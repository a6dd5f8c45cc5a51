"""The two replicators: a flow comes in, a running process with log and process tree goes out.

Both get the same `mm2.properties`, which is what a drop-in promises, and each runs alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.measure import ProcessTree
from sparkmirror.errors import SparkMirrorError
from sparkmirror.processes import spawn
from sparkmirror.tools.jvm import java_command

STOP_SECONDS = 20.0
LOG_TAIL = 2000

# What bin/connect-mirror-maker.sh of a Kafka distribution gives the JVM.
MM2_JVM = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


@dataclass(frozen=True, slots=True)
class Flow:
    """One replication flow; the source's alias is new in each run, so its topics are."""

    alias: str
    source: str
    target: str
    topics: str
    extra: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        source = self.alias
        return {
            "clusters": f"{source}, target",
            f"{source}.bootstrap.servers": self.source,
            "target.bootstrap.servers": self.target,
            f"{source}->target.enabled": "true",
            f"{source}->target.topics": self.topics,
            f"target->{source}.enabled": "false",
            "tasks.max": "4",
            # The prefix that reaches the producer of the data.
            "target.producer.batch.size": "131072",
            "target.producer.linger.ms": "20",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            # Nothing but the copying of records is measured.
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
            "refresh.topics.interval.seconds": "600",
            "refresh.groups.enabled": "false",
            **{key.replace("{source}", source): value for key, value in self.extra.items()},
        }

    def write(self, path: Path) -> None:
        lines = (f"{key} = {value}\n" for key, value in self.properties().items())
        path.write_text("".join(lines), encoding="ascii")


class Peer(Protocol):
    """How to run one replicator."""

    @property
    def name(self) -> str: ...

    def command(self, properties: Path) -> list[str]:
        """The command line that replicates by this file until it is told to stop."""
        ...


@dataclass(frozen=True, slots=True)
class MirrorMaker2:
    name: str = "mm2"

    def command(self, properties: Path) -> list[str]:
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return java_command(main, str(properties), options=MM2_JVM)


@dataclass(frozen=True, slots=True)
class SparkMirror:
    name: str = "sparkmirror"

    def command(self, properties: Path) -> list[str]:
        return [sys.executable, "-m", "sparkmirror", "run", str(properties)]


PEERS: Mapping[str, Peer] = {"mm2": MirrorMaker2(), "sparkmirror": SparkMirror()}


@dataclass(frozen=True, slots=True)
class Replicator:
    """A replicator that runs, since `started` on the monotonic clock."""

    peer: Peer
    process: subprocess.Popen[bytes]
    tree: ProcessTree
    log: Path
    started: float

    def check(self) -> None:
        """Raises if the process has ended by itself."""
        code = self.process.poll()
        if code is not None:
            tail = self.log.read_bytes()[-LOG_TAIL:].decode(errors="replace")
            raise SparkMirrorError(
                f"{self.peer.name} ended with {code} while it should replicate.",
                f"Its log is {self.log} and ends:\n{tail}",
            )


@contextlib.contextmanager
def replicator(peer: Peer, flow: Flow, directory: Path) -> Iterator[Replicator]:
    """Runs a replicator for the length of a `with` block; nothing of it is left afterwards."""
    properties = directory / f"{flow.alias}.properties"
    log = directory / f"{flow.alias}.log"
    flow.write(properties)
    # Python buffers what goes to a file; the log should tell what happened even after a kill.
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    process = spawn(peer.command(properties), log=log, env=env)
    with ProcessTree(process.pid) as tree:
        try:
            yield Replicator(peer, process, tree, log, started)
        finally:
            stop(process, tree)


def stop(process: subprocess.Popen[bytes], tree: ProcessTree) -> None:
    """Asks the process to end, then ends by id whatever is left of its tree."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    for pid in tree.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
