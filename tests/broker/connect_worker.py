"""`sparkmirror worker` (or `standalone`) as a user starts it: worker properties in, a process that answers REST out."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import javaproperties
from kafka_tools import wait_for
from program import Program

from sparkmirror.tools.clusters import free_port

START_S = 120.0
"""Patience with a worker that starts: Java, Spark and its group, on a busy machine."""
STATE_S = 90.0
_CALL_S = 100.0  # a little more than a worker's own request time-out
_LOG_TAIL = 4000
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


class Answer(NamedTuple):
    """What a worker answered; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    document: Any
    """The JSON document; None for an empty body."""


class ConnectWorker(Program):
    """One worker; leaving the block stops it, and nothing of it may be left.

    `properties` are written to a file, or are a file; without any the environment says everything. A worker that is told no
    listener gets a free port. With `connectors` (files) it is a standalone worker. `launcher`: what runs `sparkmirror`.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | Path,
        *,
        environment: Mapping[str, str] | None = None,
        connectors: Sequence[Path] | None = None,
        launcher: Sequence[str] = (sys.executable, "-m", "sparkmirror"),
    ) -> None:
        given = _read(properties) if isinstance(properties, Path) else dict(properties)
        variables = dict(environment or {})
        address = _address(given, variables)
        if address is None:
            address = f"127.0.0.1:{free_port()}"
            given["listeners"] = f"http://{address}"
        self.properties: Mapping[str, str] = given
        self.url = f"http://{address}"
        self.home = directory / f"worker-{address.rpartition(':')[2]}"
        self.home.mkdir(parents=True)
        verb = "worker" if connectors is None else "standalone"
        command = [*launcher, verb]
        if isinstance(properties, Path):
            command.append(str(properties))
        elif given:
            file = self.home / f"connect-{verb}.properties"
            file.write_text(javaproperties.dumps(given, timestamp=False), encoding="ascii")
            command.append(str(file))
        command += [str(path) for path in connectors or ()]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CONNECT_")}
        super().__init__(command, self.home / "worker.log", {**inherited, **variables})

    @property
    def worker_id(self) -> str:
        """How the other workers and statuses call this one (if it advertises nothing else)."""
        return self.url.removeprefix("http://")

    def request(
        self, method: str, path: str, body: object = None, *, timeout: float = _CALL_S
    ) -> Answer:
        """One REST call; a body is sent as JSON."""
        sent = None if body is None else json.dumps(body).encode()
        status, headers, text = self._call(method, path, sent, timeout)
        return Answer(status, headers, json.loads(text) if text else None)

    def text(self, path: str) -> str:
        """What a GET of something that is not JSON gives; it must succeed."""
        status, _, text = self._call("GET", path, None, _CALL_S)
        assert status == 200, f"GET {path}: {status} {text!r}"
        return text.decode()

    def _call(
        self, method: str, path: str, sent: bytes | None, timeout: float
    ) -> tuple[int, dict[str, str], bytes]:
        kind = {} if sent is None else {"Content-Type": "application/json"}
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=timeout
        )
        try:
            connection.request(method, path, sent, kind)
            answer = connection.getresponse()
            text = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """What a GET gives; it must succeed."""
        return self._successful("GET", path, None)

    def put(self, name: str, config: Mapping[str, object]) -> Any:
        """Create or change a connector; it must succeed."""
        return self._successful("PUT", f"{connector_path(name)}/config", config)

    def tell(self, name: str, verb: str, method: str = "PUT") -> Any:
        """pause, resume, stop, restart…; it must succeed."""
        return self._successful(method, f"{connector_path(name)}/{verb}", None)

    def delete(self, name: str) -> None:
        self._successful("DELETE", connector_path(name), None)

    def _successful(self, method: str, path: str, body: object) -> Any:
        status, _, document = self.request(method, path, body)
        assert 200 <= status < 300, f"{method} {path}: {status} {document}"
        return document

    # -- waiting ----------------------------------------------------------------------------------

    def health(self) -> tuple[int, str] | None:
        """The status of /health and what it says; None while nothing answers."""
        try:
            status, _, document = self.request("GET", "/health", timeout=15.0)
        except (OSError, http.client.HTTPException):
            return None
        return status, str(document["status"])

    def wait_ready(self, patience: float = START_S) -> None:
        """Until it has read its topics and answers through its decision loop."""
        self._wait("is healthy", lambda: self.health() == (200, "healthy"), patience)

    def status(self, connector: str) -> Any:
        """The status document, or None while there is none."""
        code, _, document = self.request("GET", f"{connector_path(connector)}/status")
        return document if code == 200 else None

    def states(self, connector: str) -> tuple[str, list[str]] | None:
        """The state of a connector and those of its tasks."""
        found = self.status(connector)
        if found is None:
            return None
        return found["connector"]["state"], [task["state"] for task in found["tasks"]]

    def wait_states(
        self, connector: str, state: str, tasks: Sequence[str], patience: float = STATE_S
    ) -> Any:
        """Until a connector and its tasks are in these states; gives the status."""
        wanted = (state, list(tasks))
        self._wait(
            f"{connector} is {wanted}",
            lambda: self.states(connector) == wanted,
            patience,
            connector,
        )
        return self.status(connector)

    def wait_running(self, connector: str, tasks: int, patience: float = STATE_S) -> Any:
        """Until a connector and that many tasks run; gives the status."""
        return self.wait_states(connector, "RUNNING", ["RUNNING"] * tasks, patience)

    def wait_failed(self, connector: str, patience: float = STATE_S) -> str:
        """Until a connector or one of its tasks has failed; gives the first trace."""

        def trace() -> str | None:
            found = self.status(connector)
            parts = [] if found is None else [found["connector"], *found["tasks"]]
            return next((part["trace"] for part in parts if part["state"] == "FAILED"), None)

        return str(self._wait(f"{connector} has failed", trace, patience, connector))

    def _wait(self, what: str, condition: Any, patience: float, connector: str = "") -> Any:
        def alive_and() -> Any:
            assert self.process is not None
            assert self.process.poll() is None, f"the worker ended, and said: {self.tail}"
            return condition()

        try:
            return wait_for(what, alive_and, patience)
        except AssertionError as error:
            last = self.status(connector) if connector and self.health() else ""
            raise AssertionError(f"{error}; {last}\n{self.tail}") from None

    @property
    def tail(self) -> str:
        """The end of what it has printed."""
        return self.output[-_LOG_TAIL:]


def connector_path(name: str) -> str:
    """The path of a connector, whatever is in its name."""
    return f"/connectors/{quote(name, safe='')}"


def worker_properties(bootstrap: str, group: str, **keys: str) -> dict[str, str]:
    """A distributed worker as small as it gets; `keys` have underscores for dots."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": BYTES,
        "value.converter": BYTES,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "5",
        "status.storage.replication.factor": "1",
        "offset.flush.interval.ms": "1000",
        **{name.replace("_", "."): value for name, value in keys.items()},
    }


def _read(file: Path) -> dict[str, str]:
    return javaproperties.loads(file.read_text(encoding="ascii"))


def _address(properties: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """Where a worker with these settings listens, as a client on this machine reaches it."""
    port = environment.get("CONNECT_REST_PORT") or properties.get("rest.port")
    listeners = environment.get("CONNECT_LISTENERS") or properties.get("listeners")
    if listeners:
        first = urlsplit(listeners.split(",")[0])
        return f"{first.hostname or '127.0.0.1'}:{first.port}"
    return f"127.0.0.1:{port}" if port else None
