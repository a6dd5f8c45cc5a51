"""The Spark session's settings: the user's `spark.*` keys in, those of the session out."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

_PLENTY = 512
_LOG4J = Path(__file__).with_name("spark-log4j2.properties")
# A driver that only schedules: small heap, one-thread collector, no second compiler. Its threads go as deep as a query is nested;
# what they do not use of their stacks is not there.
_JAVA_OPTIONS = "-XX:-CreateCoredumpOnCrash -XX:+UseSerialGC -XX:-UsePerfData -Xss2m"
_ONE_COMPILER = "-XX:TieredStopAtLevel=1"
# Queries are worth the second one, for what is run again and again; what Spark does once is most of its code.
_TWO_COMPILERS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)


def session_config(settings: Mapping[str, str], *, queries: bool = False) -> dict[str, str]:
    """The Spark session's settings: ours as defaults, the user's `spark.*` keys over them.

    A local master gets plenty of slots: one is a thread that waits for its Python worker, and costs nothing until it is used. How
    many tasks run is decided by `SparkSession.width`.
    """
    level = settings.get("spark.log.level", "off").lower()
    defaults = {
        "spark.master": "local[*]",
        "spark.app.name": "sparkmirror",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "sparkmirror.spark.worker_daemon",
        "spark.python.task.killTimeout": "1s",
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": "30s",
        "spark.shuffle.service.enabled": "false",
        # Spark SQL makes it though nothing is put there; else it would be in the directory that the worker was started in.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"sparkmirror-{os.getuid()}"),
        # A record on which a query overflows the stack (a regular expression can) fails its job, and not all flows with the JVM.
        "spark.executor.killOnFatalError.depth": "0",
        # Plans hold passwords. Without it pyspark would hand them to the JVM in a file, and blocks could be spilled in the clear.
        "spark.io.encryption.enabled": "true",
        "spark.redaction.regex": "(?i)secret|password|passphrase|credential|token|access[.]?key|jaas",
    }
    found = defaults | {k: v for k, v in settings.items() if k != "spark.log.level"}
    if not found["spark.master"].startswith("local") and "spark.driver.host" not in settings:
        del found["spark.driver.host"]  # executors elsewhere must be able to call back
    # Of two attempts at one task only the later one is served: a second one beside the first would take its records away.
    found["spark.speculation"] = "false"
    if local_width(found["spark.master"]) is not None:
        found["spark.master"] = f"local[{_PLENTY}]"
    quiet = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()} -Dsparkmirror.spark.level={level}"
    own = found.get("spark.driver.extraJavaOptions", "")
    compilers = _TWO_COMPILERS if queries else _ONE_COMPILER
    options = f"{_JAVA_OPTIONS} {compilers} {quiet} {own}"
    found["spark.driver.extraJavaOptions"] = options.strip()
    return found


def local_width(master: str) -> int | None:
    """How many tasks a local master asks for; None for other masters."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match.group(1) == "*" else int(match.group(1) or "1")
