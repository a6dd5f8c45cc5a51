"""The metadata of a Kafka cluster in KRaft mode: every node is broker and controller in one."""

from __future__ import annotations

import base64
import tempfile
import uuid
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from sparkmirror.tools.jvm import run_tool, write_properties
from sparkmirror.tools.machine import Machine
from sparkmirror.tools.ports import free_port
from sparkmirror.tools.probe import ClusterView


class KRaft:
    """Formats the nodes' directories and names the controllers; no process beside the nodes."""

    jvm: tuple[str, ...] = ()

    def __init__(self, nodes: Iterable[int], version: str, machine: Machine) -> None:
        self._address = machine.address
        self._version = version
        self._cluster_id = _new_id()
        self._ports = {node: free_port() for node in nodes}

    def launch(self) -> None:
        """Nothing runs beside the nodes."""

    def close(self) -> None:
        """Nothing runs beside the nodes."""

    def prepare(self, node: int, data: Path) -> None:
        """Do to a node's directory what Kafka's StorageTool does, without a JVM for each node."""
        if (data / "meta.properties").exists():
            return
        data.mkdir(parents=True, exist_ok=True)
        (data / "bootstrap.checkpoint").write_bytes(_bootstrap_checkpoint(self._version))
        identity = {
            "version": "1",
            "cluster.id": self._cluster_id,
            "node.id": str(node),
            "directory.id": _new_id(),
        }
        write_properties(data / "meta.properties", identity)

    def has_told(self, view: ClusterView, data: Path) -> bool:
        """Always: a node reads the metadata before it serves."""
        return True

    def settings(self, node: int, listeners: str) -> dict[str, str]:
        """Who and where the node is: with a listener for the controllers beside `listeners`."""
        voters = (f"{voter}@{self._address}:{port}" for voter, port in self._ports.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{self._address}:{self._ports[node]},{listeners}",
        }


@cache
def _bootstrap_checkpoint(version: str) -> bytes:
    """A new cluster's feature levels, as Kafka's StorageTool writes them for every node."""
    with tempfile.TemporaryDirectory(prefix="sparkmirror-format-") as temporary:
        data = Path(temporary) / "data"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:1",
            "listeners": "CONTROLLER://127.0.0.1:1,INTERNAL://127.0.0.1:2",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
            "log.dirs": str(data),
        }
        config = Path(temporary) / "server.properties"
        write_properties(config, settings)
        tool, formatted = "kafka.tools.StorageTool", ("-t", _new_id(), "-c", str(config))
        run_tool(tool, "format", *formatted, version=version)
        return (data / "bootstrap.checkpoint").read_bytes()


def _new_id() -> str:
    """A random id as Kafka prints it, but not with a dash in front, like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
