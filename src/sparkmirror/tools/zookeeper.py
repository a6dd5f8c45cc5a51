"""The metadata of a Kafka cluster before KRaft: one ZooKeeper, in a JVM of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from pathlib import Path

from sparkmirror.errors import KafkaError
from sparkmirror.processes import spawn
from sparkmirror.tools.jvm import java_command, write_properties
from sparkmirror.tools.machine import Machine
from sparkmirror.tools.ports import free_port
from sparkmirror.tools.probe import ClusterView

_TICK_MS = 500
_SESSION_MS = 6_000
_PATIENCE_S = 60.0
_POLL_S = 0.05
_ANSWER_TIMEOUT_S = 5.0
_PARTITION = re.compile(r"(?P<topic>.+)-\d+")
# Kafka before 3.0 was written for Java 8 to 15, and looks into these packages by reflection.
_OPENED = ("java.nio", "java.lang", "sun.nio.ch", "java.util")


class ZooKeeper:
    """Starts ZooKeeper before the first node and ends it after the last one.

    ZooKeeper keeps a killed broker registered until its session ends, and a broker that starts
    meanwhile gives up: `prepare` waits for the end of the session.
    """

    jvm = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)

    def __init__(self, directory: Path, version: str, machine: Machine) -> None:
        self._machine = machine
        self._home = directory / "zookeeper"
        self._version = version
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start the JVM; the nodes wait for it themselves."""
        self._home.mkdir(parents=True, exist_ok=True)
        settings = self._home / "zookeeper.properties"
        wanted = {
            "dataDir": str(self._home / "data"),
            "clientPortAddress": self._machine.address,
            "clientPort": str(self._port),
            "tickTime": str(_TICK_MS),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump",
        }
        write_properties(settings, wanted)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self.jvm)
        command = java_command(main, str(settings), options=options, version=self._version)
        self._process = spawn([*self._machine.enter, *command], log=self._home / "server.log")

    def close(self) -> None:
        """Kill the JVM."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def prepare(self, node: int, data: Path) -> None:
        """Wait until ZooKeeper has forgotten the node as it ran before."""
        if not (data / "meta.properties").exists():
            return
        deadline = time.monotonic() + _PATIENCE_S
        while self._is_registered(node):
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"ZooKeeper still holds a session of node {node} after {_PATIENCE_S:g} s.",
                    f"Its log is {self._home / 'server.log'}.",
                )
            time.sleep(_POLL_S)

    def has_told(self, view: ClusterView, data: Path) -> bool:
        """Whether the controller has told a node of the topics in its directory: it serves before that, as if there were none."""
        found = (_PARTITION.fullmatch(path.name) for path in data.iterdir())
        return {match["topic"] for match in found if match} <= view.topics

    def settings(self, node: int, listeners: str) -> dict[str, str]:
        """Who and where the node is."""
        return {
            "broker.id": str(node),
            "zookeeper.connect": f"{self._machine.address}:{self._port}",
            "zookeeper.session.timeout.ms": str(_SESSION_MS),
            "zookeeper.connection.timeout.ms": str(int(_PATIENCE_S * 1000)),
            "listeners": listeners,
        }

    def _is_registered(self, node: int) -> bool:
        """Whether a session of the node is alive, as ZooKeeper's command `dump` lists them."""
        where = (self._machine.address, self._port)
        with socket.create_connection(where, timeout=_ANSWER_TIMEOUT_S) as connection:
            connection.sendall(b"dump")
            with connection.makefile("rb") as answer:
                return any(line.strip() == b"/brokers/ids/%d" % node for line in answer)
