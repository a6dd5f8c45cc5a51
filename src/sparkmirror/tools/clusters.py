"""Real Kafka clusters as child processes.

A name, a number of nodes and a version of Kafka come in, a bootstrap address goes out.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import javaproperties

from sparkmirror.errors import ConfigError, KafkaError
from sparkmirror.processes import spawn
from sparkmirror.tools.jvm import (
    KAFKA_VERSION,
    java_command,
    kafka_jars,
    run_tool,
    write_properties,
)
from sparkmirror.tools.kraft import KRaft
from sparkmirror.tools.machine import HERE, Machine
from sparkmirror.tools.ports import free_port
from sparkmirror.tools.probe import ClusterView, probe
from sparkmirror.tools.zookeeper import ZooKeeper

__all__ = ["KafkaCluster", "free_port", "kafka_jars", "run_tool", "start_all"]

_PATIENCE_S = 120.0
_POLL_S = 0.05
_LOG_TAIL = 3000
_FIRST_KRAFT = (3, 3)
_PLAINTEXT = "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT"


@dataclass(frozen=True, slots=True)
class _Ports:
    internal: int
    client: int
    others: dict[str, int]

    @classmethod
    def choose(cls, others: Iterable[str]) -> Self:
        return cls(free_port(), free_port(), {name: free_port() for name in others})

    def listeners(self, address: str) -> str:
        """Where clients and brokers connect, as `advertised.listeners` says it."""
        named = {"INTERNAL": self.internal, "CLIENT": self.client, **self.others}
        return ",".join(f"{name}://{address}:{port}" for name, port in named.items())


class KafkaCluster:
    """A cluster of brokers of one version of Kafka, each in a JVM of its own.

    From Kafka 3.3 on every node is broker and controller in one; before, a ZooKeeper runs beside them.

    Invariants:
    - Nodes are numbered from 1. A node keeps its ports and its data through kill, stop and restart.
    - No JVM outlives this process, however this process ends.
    - Listener CLIENT (`bootstrap`) speaks what `properties` say (`listener.security.protocol.map`);
      listener INTERNAL (`internal_bootstrap`) is always plaintext: brokers talk through it, and
      readiness is asked there. `listeners` adds others, by name and protocol (`bootstrap_of`); how
      they are secured stands in `properties` under `listener.name.NAME.`, NAME in small letters.
    - `properties` win over every setting made here, except who and where a node is.
    """

    def __init__(
        self,
        name: str,
        brokers: int,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        racks: bool = False,
        jvm: Sequence[str] = (),
        listeners: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        machine: Machine = HERE,
    ) -> None:
        if brokers < 1:
            raise ConfigError(
                f"Cluster {name} cannot have {brokers} brokers.", "Ask for at least one."
            )
        self.name = name
        self.nodes = range(1, brokers + 1)
        self.version = version
        self._directory = directory / name
        self._machine = machine
        self._metadata = _metadata(self.nodes, self._directory, version, machine)
        self._properties = dict(properties or {})
        self._jvm = (f"-Xmx{heap}", *self._metadata.jvm, *jvm)
        self._racks = racks
        self._listeners = dict(listeners or {})
        self._ports = {node: _Ports.choose(self._listeners) for node in self.nodes}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def cluster_id(self) -> str:
        """The id that the cluster has given itself, known once it serves."""
        identity = (self.data(1) / "meta.properties").read_text(encoding="ascii")
        return str(javaproperties.loads(identity)["cluster.id"])

    @property
    def bootstrap(self) -> str:
        """Where clients connect: every node's CLIENT listener."""
        return ",".join(self.address(node) for node in self.nodes)

    @property
    def internal_bootstrap(self) -> str:
        """Where anyone connects without security: every node's INTERNAL listener."""
        return ",".join(f"{self._machine.address}:{p.internal}" for p in self._ports.values())

    def bootstrap_of(self, listener: str) -> str:
        """Where clients of one of the additional listeners connect, at every node."""
        return ",".join(
            f"{self._machine.address}:{ports.others[listener]}" for ports in self._ports.values()
        )

    def address(self, node: int) -> str:
        """The CLIENT listener of one node."""
        return f"{self._machine.address}:{self._ports[node].client}"

    def log(self, node: int) -> Path:
        """The file with everything the node has printed, restarts included."""
        return self._home(node) / "server.log"

    def data(self, node: int) -> Path:
        """The node's log directory, with one directory a partition."""
        return self._home(node) / "data"

    def pid(self, node: int) -> int:
        """The process id of the node's JVM."""
        return self._processes[node].pid

    def running(self, node: int) -> bool:
        """Whether the node's JVM is alive."""
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def start(self) -> Self:
        """Start all nodes and wait until each of them serves."""
        start_all([self])
        return self

    def kill(self, node: int) -> None:
        """End a node as a power cut would (SIGKILL)."""
        self._processes[node].kill()
        self._processes[node].wait()

    def stop(self, node: int) -> None:
        """End a node in good order (SIGTERM): it hands its leaderships over first."""
        process = self._processes[node]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired as late:
            raise self._failure(node, f"did not stop within {_PATIENCE_S:g} s") from late

    def restart(self, node: int) -> None:
        """Start a node again (stopping it first if it runs), until it is in sync everywhere."""
        if self.running(node):
            self.stop(node)
        self._launch(node)
        self._await_serving(node, time.monotonic() + _PATIENCE_S)

    def close(self) -> None:
        """Kill all nodes at once: nodes that stop together wait for each other in vain."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._metadata.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def launch(self) -> None:
        """Start all JVMs without waiting for them; `await_serving` waits."""
        self._metadata.launch()
        for node in self.nodes:
            self._launch(node)

    def await_serving(self) -> None:
        """Wait until every node is registered and every partition is fully in sync."""
        deadline = time.monotonic() + _PATIENCE_S
        for node in self.nodes:
            self._await_serving(node, deadline)

    def _home(self, node: int) -> Path:
        return self._directory / f"node-{node}"

    def _launch(self, node: int) -> None:
        self._metadata.prepare(node, self.data(node))
        self._home(node).mkdir(parents=True, exist_ok=True)
        settings = self._home(node) / "server.properties"
        write_properties(settings, self._settings(node))
        # A killed JVM leaves the native libraries it unpacked: let them lie with its data.
        options = (*self._jvm, f"-Djava.io.tmpdir={self._home(node)}")
        command = java_command("kafka.Kafka", str(settings), options=options, version=self.version)
        self._processes[node] = spawn([*self._machine.enter, *command], log=self.log(node))

    def _settings(self, node: int) -> dict[str, str]:
        ports = self._ports[node]
        where = ports.listeners(self._machine.address)
        protocols = (_PLAINTEXT, *(f"{name}:{what}" for name, what in self._listeners.items()))
        rack = {"broker.rack": f"rack-{node}"} if self._racks else {}
        return {
            **_broker_settings(len(self.nodes), self._racks),
            "listener.security.protocol.map": ",".join(protocols),
            **rack,
            **self._properties,
            **self._metadata.settings(node, where),
            "advertised.listeners": where,
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.data(node)),
        }

    def _await_serving(self, node: int, deadline: float) -> None:
        while not self._serves(node):
            if not self.running(node):
                raise self._failure(node, "ended while it was starting")
            if time.monotonic() > deadline:
                raise self._failure(node, f"did not serve within {_PATIENCE_S:g} s")
            time.sleep(_POLL_S)

    def _serves(self, node: int) -> bool:
        """Whether the node itself and every other running node see it registered and in sync."""
        running = [other for other in self.nodes if self.running(other)]
        return node in running and all(self._sees(other, node) for other in running)

    def _sees(self, node: int, other: int) -> bool:
        view = self._view(node)
        return (
            view is not None
            and view.serves(other)
            and self._metadata.has_told(view, self.data(node))
        )

    def _view(self, node: int) -> ClusterView | None:
        return probe(self._ports[node].internal, self._machine.address)

    def _failure(self, node: int, what: str) -> KafkaError:
        log = self.log(node)
        tail = log.read_bytes()[-_LOG_TAIL:].decode(errors="replace") if log.exists() else ""
        return KafkaError(
            f"Node {node} of cluster {self.name} {what}.", f"Its log is {log} and ends:\n{tail}"
        )


def start_all(clusters: Iterable[KafkaCluster]) -> None:
    """Start clusters side by side until all serve; if one fails, none is left running."""
    clusters = list(clusters)
    try:
        for cluster in clusters:
            cluster.launch()
        for cluster in clusters:
            cluster.await_serving()
    except BaseException:
        for cluster in clusters:
            cluster.close()
        raise


def _metadata(nodes: range, directory: Path, version: str, machine: Machine) -> KRaft | ZooKeeper:
    major, minor, *_ = (int(number) for number in version.split("."))
    if (major, minor) < _FIRST_KRAFT:
        return ZooKeeper(directory, version, machine)
    return KRaft(nodes, version, machine)


def _broker_settings(brokers: int, racks: bool) -> dict[str, str]:
    """Settings for a small machine, and for tests that cannot wait for production's pace."""
    replicas = str(min(brokers, 3))
    in_sync = str(min(brokers, 2))
    nearest = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": "6000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "log.cleaner.backoff.ms": "1000",
        "log.initial.task.delay.ms": "1000",
        # Old timestamps in test data must not delete it: only topics with retention of their own.
        "log.retention.ms": "-1",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        **({"replica.selector.class": nearest} if racks else {}),
    }
