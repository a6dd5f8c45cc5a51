"""Connect workers as child processes, Java's here: a cluster comes in, a REST address goes out."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import quote

import javaproperties

from sparkmirror.errors import SparkMirrorError
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import free_port
from sparkmirror.tools.jvm import java_command

_START_S = 180.0
_STOP_S = 30.0
_CALL_S = 100.0  # a little more than a worker's own request time-out
_POLL_S = 0.1
_LOG_TAIL = 4000
_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
# Tests are short: the quick compiler is done before the thorough one has begun.
_JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Answer(NamedTuple):
    """What a worker answered; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: Any
    """The JSON document; None for an empty body; text where it is no JSON."""


class ConnectWorker(ABC):
    """One distributed worker in a process of its own, which serves when the constructor returns.

    Invariants:
    - No worker outlives this process, however this process ends.
    - Workers of one group share their storage topics: `<group>-configs`, `-offsets` and `-status`.
    - `overrides` (underscores for dots, or the keys as they are by `**{...}`) win over every
      setting made here; a value of None takes a setting away.
    """

    login: ClassVar[Mapping[str, str]] = {}
    """Headers to ask for its health with, where that is not for everybody."""

    def __init__(
        self, bootstrap: str, directory: Path, group: str, **overrides: str | None
    ) -> None:
        self.group = group
        self.port = free_port()
        self.worker_id = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.worker_id}"
        home = directory / f"connect-{group}-{self.port}"
        home.mkdir(parents=True)
        self.log = home / "connect.log"
        given = {name.replace("_", "."): value for name, value in overrides.items()}
        settings = self._settings(bootstrap) | given
        wanted = {name: value for name, value in settings.items() if value is not None}
        config = home / "connect-distributed.properties"
        config.write_text(javaproperties.dumps(wanted, timestamp=False), encoding="ascii")
        self._process = spawn(self._command(config), log=self.log)
        try:
            self.await_serving()
        except BaseException:
            self.kill()
            raise

    @abstractmethod
    def _command(self, config: Path) -> list[str]:
        """The command line that runs a worker with this file."""

    def _settings(self, bootstrap: str) -> dict[str, str | None]:
        return {
            "bootstrap.servers": bootstrap,
            "group.id": self.group,
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "config.storage.topic": f"{self.group}-configs",
            "offset.storage.topic": f"{self.group}-offsets",
            "status.storage.topic": f"{self.group}-status",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "listeners": self.url,
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "1000",
            # Tests cannot wait for production's pace.
            "scheduled.rebalance.max.delay.ms": "0",
        }

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def await_serving(self) -> None:
        """Wait until the worker has joined its group and answers through its decision loop."""
        self._await("serve", _START_S, self._is_serving)

    def _is_serving(self) -> bool:
        try:
            answer = self.request("GET", "/health", headers=self.login, timeout=5.0)
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _await(self, what: str, patience_s: float, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            if not self.running or time.monotonic() > deadline:
                raise self._failure(f"did not {what} within {patience_s:g} s")
            time.sleep(_POLL_S)

    def _failure(self, what: str) -> SparkMirrorError:
        if not self.running:
            what = f"ended with {self._process.returncode}"
        tail = self.log.read_bytes()[-_LOG_TAIL:].decode(errors="replace")
        return SparkMirrorError(
            f"The {type(self).__name__} of group {self.group} {what}.",
            f"Its log is {self.log} and ends:\n{tail}",
        )

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        timeout: float = _CALL_S,
    ) -> Answer:
        """One REST call. Bytes are sent as they are, anything else but None as JSON; a header of None is not sent."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = None if sent is None else "application/json"
        merged = {"Content-Type": kind, **(headers or {})}
        given = {name: value for name, value in merged.items() if value is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, sent, given)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, _document(answer.read()))
        finally:
            connection.close()

    def await_state(
        self, connector: str, state: str, tasks: int | None = None, patience_s: float = 60.0
    ) -> Any:
        """Wait until a connector (and `tasks` tasks, if a number is given) is in `state`; gives its status."""
        found: Any = None

        def reached() -> bool:
            nonlocal found
            status, _, found = self.request("GET", f"{connector_path(connector)}/status")
            if status != 200 or found["connector"]["state"] != state:
                return False
            states = [task["state"] for task in found["tasks"]]
            return tasks is None or states == [state] * tasks

        self._await(f"show {connector} as {state}", patience_s, reached)
        return found

    def close(self) -> None:
        """End the worker in good order (SIGTERM): it leaves its group and tells its tasks' state."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End the worker as a power cut would (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class JavaConnectWorker(ConnectWorker):
    """A worker of Kafka itself."""

    def _command(self, config: Path) -> list[str]:
        return java_command(_MAIN, str(config), options=_JVM)


def connector_path(name: str) -> str:
    """The path of a connector, whatever is in its name."""
    return f"/connectors/{quote(name, safe='')}"


def _document(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
