"""A standalone Spark cluster as child processes: cores of each node in; a master and nodes that can be killed out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from kafka_tools import wait_for

from sparkmirror.processes import spawn
from sparkmirror.spark.gateway import spark_home
from sparkmirror.tools.machine import HERE, Machine


class SparkNode:
    """A worker of the cluster, with the executors that it has started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._node = psutil.Process(process.pid)

    def drain(self) -> None:
        """Have it decommissioned: Spark moves what it can before the node goes."""
        self._process.send_signal(signal.SIGPWR)

    def executors(self) -> list[psutil.Process]:
        """Their JVMs. A node has other children for moments: those that it is about to start, and its shell commands."""
        return [child for child in _children([self._node]) if _is_executor(child)]

    def python_processes(self, *, is_daemon: bool) -> list[psutil.Process]:
        """Those of its executors: the daemons that fork Python workers, or the workers."""
        daemons = _children(self.executors())
        return daemons if is_daemon else _children(daemons)

    def kill(self) -> None:
        """As if its machine had lost power: the node, its executors and their Python workers."""
        family = [self._node, *self._node.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


def _is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("ExecutorBackend" in word for word in process.cmdline())
    return False


def _children(parents: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for parent in parents:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += parent.children()
    return found


class SparkCluster:
    """A master, and nodes with so many cores each."""

    def __init__(
        self,
        folder: Path,
        *cores: int,
        machine: Machine = HERE,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._machine = machine
        self._cores = cores
        self._log = folder / "spark-master.log"
        self._master: subprocess.Popen[bytes] | None = None
        self.nodes: list[SparkNode] = []

    def __enter__(self) -> Self:
        where = ["--host", self._machine.address, "--port", "0", "--webui-port", "0"]
        self._master = self._start("master.Master", self._log, self._machine, *where)
        wait_for("the Spark master serves", lambda: self._find_url() or None)
        for cores in self._cores:
            self.add_node(cores)
        return self

    def _find_url(self) -> str:
        """It chooses its port, and tells it in its log."""
        for line in self._log.read_text().splitlines() if self._log.exists() else ():
            _, found, url = line.partition("Starting Spark master at ")
            if found:
                return url.strip()
        return ""

    @property
    def url(self) -> str:
        return self._find_url()

    def add_node(self, cores: int, machine: Machine | None = None) -> SparkNode:
        machine = machine or self._machine
        number = len(self.nodes)
        log = self._folder / f"spark-node-{number}.log"
        options = ["--host", machine.address, "--cores", str(cores), "--memory", "2g"]
        options += ["--work-dir", str(self._folder / f"node-{number}"), "--webui-port", "0"]
        node = SparkNode(self._start("worker.Worker", log, machine, *options, self.url))
        self.nodes.append(node)
        registered = "Successfully registered with master"
        wait_for(
            f"Spark node {number} is registered",
            lambda: log.exists() and registered in log.read_text(),
        )
        return node

    def _start(
        self, main: str, log: Path, machine: Machine, *arguments: str
    ) -> subprocess.Popen[bytes]:
        home = spark_home()
        environment = dict(self._environment) | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": machine.address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments]
        return spawn([*machine.enter, *command], log=log, env=environment)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            if node.is_running:
                node.kill()
        if self._master is not None:
            self._master.kill()
            self._master.wait()
