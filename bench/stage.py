"""What every run needs: two warm clusters, the far-away door of the source, and child programs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.fill import Filler
from bench.topics import delete_topics
from bench.workloads import Batched, Throughput
from sparkmirror.errors import SparkMirrorError
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster, free_port, start_all

ONE_WAY_MS = 50
WARM_UP_RECORDS = 200_000
# The settings of a production broker where the test clusters have smaller ones.
BROKER = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.cleaner.dedupe.buffer.size": "134217728",
    # So that what is deleted gives its room back soon.
    "log.retention.check.interval.ms": "5000",
}


class FarCluster(KafkaCluster):
    """A cluster with one more listener, FAR, that tells its clients to come through the proxy."""

    def __init__(self, name: str, directory: Path) -> None:
        protocols = ("CONTROLLER", "INTERNAL", "CLIENT", "FAR")
        security = ",".join(f"{listener}:PLAINTEXT" for listener in protocols)
        properties = {**BROKER, "listener.security.protocol.map": security}
        super().__init__(name, 1, directory, properties, heap="1g")
        self.far_port = free_port()
        self.proxy_port = free_port()

    @property
    def far_bootstrap(self) -> str:
        return f"127.0.0.1:{self.proxy_port}"

    def _settings(self, node: int) -> dict[str, str]:
        settings = super()._settings(node)
        settings["listeners"] += f",FAR://127.0.0.1:{self.far_port}"
        settings["advertised.listeners"] += f",FAR://127.0.0.1:{self.proxy_port}"
        return settings


@dataclass(frozen=True, slots=True)
class Stage:
    """Two clusters that serve, and where to put files."""

    source: FarCluster
    target: KafkaCluster
    directory: Path
    say: Callable[[str], None]

    @property
    def filler(self) -> Filler:
        return Filler(self.source, self.directory)

    def clear_source(self) -> None:
        delete_topics(self.source.bootstrap)

    def clear_target(self) -> None:
        delete_topics(self.target.bootstrap)


@contextlib.contextmanager
def open_stage(directory: Path, say: Callable[[str], None], scale: float) -> Iterator[Stage]:
    """Starts everything, warms the brokers' JVMs, and ends everything afterwards."""
    source = FarCluster("source", directory)
    target = KafkaCluster("target", 1, directory, BROKER, heap="1g")
    say("starting two Kafka clusters")
    start_all([source, target])
    try:
        with python_module("bench.proxy", proxy_arguments(source), directory / "proxy.log"):
            await_port(source.proxy_port)
            stage = Stage(source, target, directory, say)
            warm_up(stage, scale)
            yield stage
    finally:
        source.close()
        target.close()


def proxy_arguments(source: FarCluster) -> tuple[str, ...]:
    return str(source.proxy_port), str(source.far_port), str(ONE_WAY_MS)


def warm_up(stage: Stage, scale: float) -> None:
    """Lets the target's JVM compile its write path, as the source's does while it is filled."""
    stage.say("warming up the target broker")
    records = max(1000, int(WARM_UP_RECORDS * min(1.0, scale)))
    workload = Throughput("warm-up", "", records, 1000, Batched("lz4"), ())
    Filler(stage.target, stage.directory).fill(workload)
    stage.clear_target()


@contextlib.contextmanager
def python_module(
    module: str, arguments: Sequence[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs one of this package's modules as a process for the length of a `with` block."""
    process = spawn([sys.executable, "-m", module, *arguments], log=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_exit(process: subprocess.Popen[bytes], seconds: float, log: Path) -> None:
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired as late:
        raise SparkMirrorError(f"A child did not end in {seconds:.0f} s; see {log}.") from late
    if code:
        tail = log.read_bytes()[-1000:].decode(errors="replace")
        raise SparkMirrorError(f"A child ended with {code}:\n{tail}")


def await_text(process: subprocess.Popen[bytes], log: Path, text: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            raise SparkMirrorError(f"A child never said {text!r}; see {log}.")
        time.sleep(0.02)


def await_port(port: int, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError as error:
            if time.monotonic() > until:
                raise SparkMirrorError(f"Nothing listens on port {port}.") from error
            time.sleep(0.05)
        else:
            return
