"""The Spark session's settings: what the user has set in, those of the session out.

The worker's file counts most, then what was given to spark-submit, then `spark-defaults.conf`, then our defaults.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkmirror.config.properties import read_properties
from sparkmirror.errors import ConfigError

_PLENTY = 512
_FAILURES = 4
_LOG4J = Path(__file__).with_name("spark-log4j2.properties")
_LOG_LEVEL = "spark.log.level"
_SPECULATION = "spark.speculation"
_PARALLELISM = "spark.default.parallelism"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# A driver that only schedules: small heap, one-thread collector, no second compiler. Its threads go as deep as a query is nested;
# what they do not use of their stacks is not there.
_SMALL_DRIVER = "-XX:-CreateCoredumpOnCrash -XX:-UsePerfData -Xss2m"
_SMALL_COLLECTOR = "-XX:+UseSerialGC"
_OTHER_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
"""Of two that are asked for, the JVM takes none and ends."""
_ONE_COMPILER = "-XX:TieredStopAtLevel=1"
# Queries are worth the second one, for what is run again and again; what Spark does once is most of its code.
_TWO_COMPILERS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
_DEFAULTS = {
    "spark.app.name": "sparkmirror",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.killEnabled": "false",  # whoever sees the page could end jobs
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "sparkmirror.spark.worker_daemon",
    "spark.python.task.killTimeout": "1s",
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "30s",
    # Spark SQL makes it though nothing is put there; else it would be in the directory that the worker was started in.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"sparkmirror-{os.getuid()}"),
    # Plans hold passwords. Without it pyspark would hand them to the JVM in a file, and blocks could be spilled in the clear.
    "spark.io.encryption.enabled": "true",
    "spark.redaction.regex": "(?i)secret|password|passphrase|credential|token|access[.]?key|jaas",
}
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.shuffle.service.enabled": "false",
    # A record on which a query overflows the stack (a regular expression can) fails its job, and not all flows with the JVM.
    "spark.executor.killOnFatalError.depth": "0",
    # Spark makes as many of these threads as a local master has slots: with 512 there were 555 threads and 337 MB at the start
    # instead of 47 and 263 (PySpark 4.3.0, Java 17). Of its other threads none are made before they are needed, or more than 8.
    "spark.rpc.netty.dispatcher.numThreads": "4",
    "spark.authenticate": "true",
}
# Executors whose host is cut off are given up after 15 s, not after two minutes: until then their partitions are not copied.
_CLUSTER_DEFAULTS = {
    "spark.executor.heartbeatInterval": "3s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "15s",
    "spark.network.timeoutInterval": "5s",
    # YARN and Kubernetes end an application after some failures of executors, or of its master; Spark counts them for ever.
    "spark.executor.failuresValidityInterval": "1h",
    "spark.yarn.am.attemptFailuresValidityInterval": "1h",
}
_INSTEAD = {
    # The old name, which Spark still reads where the new one is not set.
    "spark.executor.failuresValidityInterval": ("spark.yarn.executor.failuresValidityInterval",),
    # Spark does not start where its executors' heartbeats, or its looks for late ones, are further apart than this. Without it
    # `spark.network.timeout` counts. Our other two are shorter than Spark's own, so they fit where those do.
    "spark.storage.blockManagerHeartbeatTimeoutMs": (
        "spark.executor.heartbeatInterval",
        "spark.network.timeout",
        "spark.network.timeoutInterval",
        "spark.storage.blockManagerSlaveTimeoutMs",  # its old name
    ),
}
"""Defaults that are left out where the user has set one of these."""
_CONNECT_URL = "sc://"


@dataclass(frozen=True, slots=True)
class LocalMaster:
    """`local[slots, failures]`: how many tasks run at once, and how often one may fail before its job does."""

    slots: int
    failures: int = _FAILURES

    @classmethod
    def parse(cls, master: str) -> LocalMaster | None:
        """None for other masters."""
        match = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*(\d+)\s*)?\])?", master)
        if match is None:
            return None
        slots = (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or "1")
        return cls(slots, int(match[2] or _FAILURES))

    @property
    def with_plenty_of_slots(self) -> str:
        """A slot is a thread that waits for its Python worker, and costs nothing until it is used."""
        return f"local[{_PLENTY}, {self.failures}]"


def spark_defaults(home: Path) -> dict[str, str]:
    """What `spark-defaults.conf` says: in SPARK_CONF_DIR, or in the `conf` folder of Spark."""
    file = _conf_folder(home, os.environ) / "spark-defaults.conf"
    found = read_properties(file) if file.is_file() else {}
    return {key: value for key, value in found.items() if key.startswith("spark.")}


def _conf_folder(home: Path, environment: Mapping[str, str]) -> Path:
    folder = environment.get("SPARK_CONF_DIR")
    return Path(folder) if folder else home / "conf"


def session_config(
    user: Mapping[str, str], *, queries: bool = False, takes_options: bool = True
) -> dict[str, str]:
    """The session's settings: the user's over our defaults.

    A local master gets plenty of slots. How many tasks run is decided by `SparkSession.width`.

    Without `takes_options` the JVM runs already: it has its options, and takes a log level by its key.
    """
    local = LocalMaster.parse(user.get("spark.master", "local[*]"))
    defaults = _DEFAULTS | (_CLUSTER_DEFAULTS if local is None else _LOCAL_DEFAULTS)
    defaults = {
        key: value
        for key, value in defaults.items()
        if not any(other in user for other in _INSTEAD.get(key, ()))
    }
    found = {**defaults, **user}
    if (
        takes_options
    ):  # the level is one of them; by its key Spark would change it once more, while it runs
        found.pop(_LOG_LEVEL, None)
    # Of two attempts at one task only the later one is served: a second one beside the first would take its records away.
    found[_SPECULATION] = "false"
    if local is not None:
        found["spark.master"] = local.with_plenty_of_slots
        # Else 512, too: in as many tasks a GROUP BY over 1000 rows took 562 threads and 890 MB, or ran out of memory; in 2
        # tasks 74 and 441 MB. Our own jobs say how many tasks they want.
        found.setdefault(_PARALLELISM, str(local.slots))
    level = user.get(_LOG_LEVEL, "warn" if local is None else "off").lower()
    options = [
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        f"-Dsparkmirror.spark.level={level}",
    ]
    if local is not None:
        options = [_SMALL_DRIVER, _TWO_COMPILERS if queries else _ONE_COMPILER, *options]
        if not _OTHER_COLLECTOR.search(user.get(_JAVA_OPTIONS, "")):
            options.append(_SMALL_COLLECTOR)
    found[_JAVA_OPTIONS] = " ".join([*options, user.get(_JAVA_OPTIONS, "")]).strip()
    return found


def is_encrypted(settings: Mapping[str, str]) -> bool:
    """Whether nobody on the network can read what the driver sends to executors."""

    def is_on(key: str) -> bool:
        return settings.get(key, "false").strip().lower() == "true"

    over_sasl_or_aes = is_on("spark.network.crypto.enabled") or is_on(
        "spark.authenticate.enableSaslEncryption"
    )
    return is_on("spark.ssl.rpc.enabled") or (is_on("spark.authenticate") and over_sasl_or_aes)


def open_ports(user: Mapping[str, str]) -> list[str]:
    """What to say of Spark's own ports on a cluster; nothing where they ask for a secret."""
    is_local = LocalMaster.parse(user.get("spark.master", "local[*]")) is not None
    if is_local or user.get("spark.authenticate", "false").strip().lower() == "true":
        return []
    return [
        "spark.authenticate is not on: whoever reaches the ports of Spark's driver and executors can run code there, and read "
        "the plans of tasks with all passwords. Set spark.authenticate=true (standalone: also spark.authenticate.secret, on the "
        "nodes too), or let nobody else reach them."
    ]


def require_classic(user: Mapping[str, str]) -> None:
    """ConfigError if the settings ask for Spark Connect, which has no Spark context. What other programs on this machine may be
    set up for does not count on a local master."""
    master = user.get("spark.master", "")
    is_local = LocalMaster.parse(master or "local[*]") is not None
    asked = {
        "spark.remote": bool(user.get("spark.remote")),
        "spark.api.mode=connect": not is_local
        and user.get("spark.api.mode", "").strip().lower() == "connect",
        f"spark.master={_CONNECT_URL}…": master.startswith(_CONNECT_URL),
    }
    for setting, is_set in asked.items():
        if is_set:
            raise ConfigError(
                f"{setting} asks for Spark Connect, on which sparkmirror cannot copy.",
                f"Remove {setting.partition('=')[0]}, and set spark.master to the cluster itself, such as yarn or "
                "spark://HOST:7077 (docs/decisions/spark-connect.md).",
            )


def require_hadoop(master: str, environment: Mapping[str, str], home: Path) -> None:
    """ConfigError if the master is YARN and nothing tells where that is: `spark-env.sh` may, which spark-submit runs."""
    script = _conf_folder(home, environment) / "spark-env.sh"
    if (
        master == "yarn"
        and not (environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR"))
        and not script.is_file()
    ):
        raise ConfigError(
            "spark.master is yarn, but neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set.",
            "Set one of them to the folder with the cluster's yarn-site.xml and core-site.xml.",
        )


def overruled(user: Mapping[str, str], *, is_shared: bool = False) -> list[str]:
    """What the user has set and cannot have, or had better not, a sentence each. `is_shared`: in a session of others."""
    if user.get(_SPECULATION, "false").strip().lower() != "true":
        return []
    if is_shared:
        return [
            "spark.speculation=true stays in force, since sparkmirror did not make this Spark session: Spark may run a task "
            "twice at once. No record is lost or repeated by that, but the second attempt takes a slot. Set "
            "spark.speculation=false where the session is made."
        ]
    return [
        "spark.speculation=true is ignored: two attempts at one task would copy the same "
        "partitions, and only one of them counts."
    ]
