"""`sparkmirror run` as a user starts it: a properties file in, a process to watch, kill and stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from kafka_tools import Headers, consume, wait_for

from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster

Content = tuple[int, bytes | None, bytes | None, Headers]


def properties(source: KafkaCluster, target: KafkaCluster, **keys: str) -> dict[str, str]:
    """A flow A->B as small as it gets; `keys` have underscores for dots and `flow_` for `A->B.`."""
    found = {
        "clusters": "A, B",
        "A.bootstrap.servers": source.bootstrap,
        "B.bootstrap.servers": target.bootstrap,
        "A->B.enabled": "true",
        "replication.factor": "-1",
    }
    for name, value in keys.items():
        dotted = name.replace("_", ".")
        found["A->B." + dotted.removeprefix("flow.") if dotted.startswith("flow.") else dotted] = (
            value
        )
    return found


class Mirror:
    """A running `sparkmirror run`; leaving the block stops it, and nothing of it may be left."""

    def __init__(self, directory: Path, keys: Mapping[str, str], *arguments: str) -> None:
        self._file = directory / "mm2.properties"
        self._file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
        self._arguments = arguments
        self.log = directory / "sparkmirror.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        command = [sys.executable, "-m", "sparkmirror", "run", str(self._file), *self._arguments]
        self.process = spawn(command, log=self.log)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def says(self, text: str) -> bool:
        return text in self.output

    def wait_until_says(self, text: str, patience: float = 60.0) -> None:
        wait_for(f"the log says {text!r}", lambda: self.says(text), patience)

    def family(self) -> list[psutil.Process]:
        """The process and everything it started."""
        assert self.process is not None
        try:
            main = psutil.Process(self.process.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def jvms(self) -> list[psutil.Process]:
        return [child for child in self.family() if _name(child) == "java"]

    def python_workers(self) -> list[psutil.Process]:
        """The forked workers: those whose parent runs the daemon's module too."""
        found = [p for p in self.family() if "worker_daemon" in _command(p)]
        return [p for p in found if "worker_daemon" in _command(_parent(p))]

    def wait(self, patience: float = 30.0) -> int:
        assert self.process is not None
        return self.process.wait(patience)

    def stop(self) -> int:
        """SIGTERM, and the exit code; nothing it started may be alive after that."""
        assert self.process is not None
        family = self.family()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.wait()
        _, alive = psutil.wait_procs(family, timeout=15)
        assert not alive, f"still alive: {alive}"
        return code

    def kill(self) -> None:
        """SIGKILL to the process itself; what it started must end by itself."""
        assert self.process is not None
        family = self.family()
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive, f"outlived their parent: {alive}"


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _command(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process is not None else ""
    except psutil.NoSuchProcess:
        return ""


def _parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except psutil.NoSuchProcess:
        return None


def contents(cluster: KafkaCluster, topic: str) -> dict[int, list[Content]]:
    """What a topic holds, by partition in order, without the offsets."""
    found: dict[int, list[Content]] = defaultdict(list)
    for record in consume(cluster.bootstrap, topic):
        found[record.partition].append((record.timestamp, record.key, record.value, record.headers))
    return dict(found)


def assert_same(source: KafkaCluster, topic: str, target: KafkaCluster, remote: str) -> int:
    """Both topics hold the same records in the same order; gives how many."""
    theirs, ours = contents(source, topic), contents(target, remote)
    for partition in sorted(theirs.keys() | ours.keys()):
        wanted, got = theirs.get(partition, []), ours.get(partition, [])
        if wanted == got:
            continue
        different = next(
            (i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b),
            min(len(wanted), len(got)),
        )
        raise AssertionError(
            f"{topic}-{partition}: {len(wanted)} records at the source, {len(got)} on the target, "
            f"different from record {different} on: {wanted[different : different + 2]} / "
            f"{got[different : different + 2]}; {len(got) - len(set(got))} repeated"
        )
    return sum(len(records) for records in theirs.values())
