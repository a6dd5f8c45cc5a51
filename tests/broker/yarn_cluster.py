"""Hadoop YARN as child processes: a ResourceManager and one NodeManager without HDFS; and what the ResourceManager says.

It has two queues, `default` and `mirrors`, of half of the memory each; neither may have more. Nothing checks the real memory of
containers, or the disk: these are of the machine that runs the tests.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from xml.sax.saxutils import escape

import psutil
from kafka_tools import QUICK_JVM, wait_for

from sparkmirror.processes import spawn
from sparkmirror.spark.gateway import spark_home
from sparkmirror.tools import jvm
from sparkmirror.tools.ports import free_port

HADOOP_VERSION = "3.5.0"  # as in pom.xml
QUEUE_MB = 4096
_LOG_CONFIG = Path(jvm.__file__).with_name("log4j2.properties")
_PATIENCE_S = 240.0
_HOLDS_S = 900
_PORTS = ("address", "scheduler.address", "resource-tracker.address", "admin.address")


@dataclass(frozen=True, slots=True)
class Application:
    """As the ResourceManager describes it."""

    id: str
    name: str
    queue: str
    state: str


class YarnCluster:
    """`environment` is that of the NodeManager, whose containers inherit its PATH.

    Invariant: no process of it, nor of a container, is left when the block is left.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._environment = environment
        self._web = f"127.0.0.1:{free_port()}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.containers = folder / "containers"

    @property
    def variables(self) -> dict[str, str]:
        """By which Spark finds the cluster."""
        return {"HADOOP_CONF_DIR": str(self._folder / "hadoop")}

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings of this cluster: nothing is uploaded that every node has; containers are few and small."""
        return {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": (self._folder / "staging").as_uri(),
            "spark.yarn.am.memory": "256m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.yarn.am.extraJavaOptions": " ".join(QUICK_JVM),
            "spark.executor.extraJavaOptions": " ".join(QUICK_JVM),
            "spark.driver.host": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        self._write_settings()
        try:
            self._start("resourcemanager.ResourceManager")
            self._start("nodemanager.NodeManager")
            registered = "Registered with ResourceManager as"
            wait_for("YARN has a node", lambda: registered in self._log("nodemanager"), _PATIENCE_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def applications(self) -> list[Application]:
        """All that were ever submitted, those that wait and those that have ended included, in this order."""
        found = (self._ask("GET", "apps")["apps"] or {}).get("app", ())
        each = (Application(app["id"], app["name"], app["queue"], app["state"]) for app in found)
        return sorted(each, key=lambda app: app.id)

    def application(self, name: str) -> Application:
        """The only one of this name that was ever submitted."""
        (found,) = [app for app in self.applications() if app.name == name]
        return found

    def fill(self, queue: str) -> str:
        """Have an application take all memory of a queue and do nothing; gives its id."""
        holder = str(self._ask("POST", "apps/new-application")["application-id"])
        command = {"command": f"sleep {_HOLDS_S}"}
        wanted = {
            "application-id": holder,
            "application-name": "holder",
            "application-type": "YARN",
            "queue": queue,
            "am-container-spec": {"commands": command},
            "resource": {"memory": QUEUE_MB, "vCores": 1},
            "max-app-attempts": 1,
        }
        self._ask("POST", "apps", wanted)
        holds = f"allocatedMB of {holder}"
        wait_for(holds, lambda: self._ask("GET", f"apps/{holder}")["app"]["allocatedMB"] > 0)
        return holder

    def end(self, application: str) -> None:
        """Have an application killed."""
        self._ask("PUT", f"apps/{application}/state", {"state": "KILLED"})

    def container_count(self, application: str) -> int:
        """How many containers an application has now, its master's included."""
        return int(self._ask("GET", f"apps/{application}")["app"]["runningContainers"])

    def _log(self, of: str) -> str:
        file = self._folder / f"{of}.log"
        return file.read_text() if file.exists() else ""

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        connection = http.client.HTTPConnection(self._web, timeout=60)
        try:
            connection.request(
                method,
                f"/ws/v1/cluster/{path}?user.name={getpass.getuser()}",
                None if document is None else json.dumps(document),
                {"Content-Type": "application/json", "Accept": "application/json"},
            )
            answer = connection.getresponse()
            body = answer.read().decode()
        finally:
            connection.close()
        assert answer.status < 300, f"{method} {path}: {answer.status} {body}"
        return json.loads(body) if body else None

    def _write_settings(self) -> None:
        yarn = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port()}" for name in _PORTS}
        yarn |= {
            "yarn.resourcemanager.webapp.address": self._web,
            "yarn.resourcemanager.bind-host": "127.0.0.1",
            "yarn.nodemanager.bind-host": "127.0.0.1",
            "yarn.nodemanager.address": "127.0.0.1:0",
            "yarn.nodemanager.localizer.address": "127.0.0.1:0",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.nodemanager.local-dirs": str(self.containers),
            "yarn.nodemanager.log-dirs": str(self._folder / "container-logs"),
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.resource.memory-mb": str(2 * QUEUE_MB),
            "yarn.nodemanager.resource.cpu-vcores": "16",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }
        # Whoever names himself may submit by REST: the settings of the web pages, which let nobody in by default.
        core = {
            "fs.defaultFS": "file:///",
            "hadoop.tmp.dir": str(self._folder / "hadoop-tmp"),
            "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
            "hadoop.http.authentication.type": "simple",
        }
        root = "yarn.scheduler.capacity.root"
        queues = {f"{root}.queues": "default,mirrors"}
        for queue in ("default", "mirrors"):
            queues |= {f"{root}.{queue}.{key}": "50" for key in ("capacity", "maximum-capacity")}
            queues[f"{root}.{queue}.maximum-am-resource-percent"] = "1.0"
        folder = Path(self.variables["HADOOP_CONF_DIR"])
        folder.mkdir(parents=True)
        for name, properties in (
            ("core-site", core),
            ("yarn-site", yarn),
            ("capacity-scheduler", queues),
        ):
            (folder / f"{name}.xml").write_text(_as_xml(properties))

    def _start(self, main: str) -> None:
        jars = Path(__file__).parents[2] / "build" / "hadoop" / HADOOP_VERSION
        assert any(jars.glob("hadoop-*.jar")), f"run: make build/hadoop/{HADOOP_VERSION}/.fetched"
        command = [
            jvm.java(),
            "-Xmx256m",
            *QUICK_JVM,
            f"-Dlog4j2.configurationFile={_LOG_CONFIG}",
            "-cp",
            f"{self._folder / 'hadoop'}:{jars}/*",
            f"org.apache.hadoop.yarn.server.{main}",
        ]
        environment = dict(self._environment) | {"JAVA_HOME": str(_java_home())}
        log = self._folder / f"{main.partition('.')[0]}.log"
        self._processes.append(spawn(command, log=log, env=environment))

    def _end(self) -> None:
        family = []
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                # The manager first: it would start again what it misses.
                family += [psutil.Process(process.pid)]
                family += family[-1].children(recursive=True)
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=10)
        for process in self._processes:
            process.wait()


def _as_xml(properties: Mapping[str, str]) -> str:
    rows = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    )
    return "<configuration>" + "\n".join(rows) + "</configuration>\n"


def _java_home() -> Path:
    """Containers start `$JAVA_HOME/bin/java`."""
    return Path(jvm.java()).resolve().parents[1]
