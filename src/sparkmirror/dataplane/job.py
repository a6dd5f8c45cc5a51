"""Spark: plans in, one long-running job per flow out, one Spark task per plan; its ledger when the epoch is over.

The only module (with `worker_daemon`) that imports pyspark. A plan is a row of the job's input, a ledger a row of its output;
records never pass through the JVM.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark import RDD, InheritableThread, SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from sparkmirror.errors import SparkError
from sparkmirror.secret_names import is_secret

from .copy import LedgerRow
from .gateway import Gateway, Pulse, killed_after
from .leash import Leash
from .plan import TaskPlan
from .query.priority import GIVING_WAY
from .slots import Slots
from .worker import run_plans

if TYPE_CHECKING:
    from .query.engine import QueryEngine

log = logging.getLogger(__name__)
logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say reaches us as exceptions

# What pyspark raises when its JVM is gone, or when another thread has stopped the context (it then finds None where it looks).
_GONE = (Py4JError, OSError, TypeError, AttributeError)
_CANCEL_AGAIN_S = 0.25
_START_LEFT_S = 2.0
_CONTEXT_S = 60.0
_END_S = 2.0
_PLENTY = 512
_LEAST_SLOTS = 2
_environment = threading.Lock()
"""Held while the environment of Python workers is another."""
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
        "spark.python.daemon.module": "sparkmirror.dataplane.worker_daemon",
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


class SparkSession:
    """The one Spark context of this process.

    Invariants: `start` after `stop` gives a new JVM, also when the old one was killed; jobs of a session that is gone end with
    a SparkError. A JVM that hangs is killed after a while (`Pulse`), and at once when the session is to end.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._config = session_config(settings)
        self._is_for_queries = False
        self._jobs: WeakSet[CopyJob] = WeakSet()
        self._local_width = local_width(settings.get("spark.master", "local[*]"))
        self.slots = Slots()
        self._leash: Leash | None = None
        self._queries: QueryEngine | None = None
        self._context: SparkContext | None = None
        self._gateway: Gateway | None = None
        self._pulse: Pulse | None = None
        self._stops = 0
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        context = self._context
        if context is None:
            return False
        if self._gateway is not None and self._gateway.process.poll() is not None:
            return False
        try:
            return not context._jsc.sc().isStopped()
        except _GONE:
            return False

    def start(self, *, queries: bool = False) -> None:
        """Start the JVM and the context unless they are there.

        One that was not started for queries is slow at them: it is started anew for the first, unless it has work to do.
        """
        stops = self._stops
        with self._lock:
            is_fit = self._is_for_queries or not queries or self._queries is not None
            if self.is_alive and (is_fit or self._has_work):
                return
            if not self._is_for_queries and queries:
                self._is_for_queries = True
                self._config = session_config(self._settings, queries=True)
                self._discard()
            elif self._context is not None:
                log.warning("The Spark session was lost; starting a new one.")
                self._discard()
            if stops != self._stops:
                raise SparkError("The Spark session is being stopped.")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            try:
                self._context = self._new_context()
                self._pulse = Pulse(lambda: self.is_alive, self._process)
            except SparkError:
                self._discard()
                raise
            except (*_GONE, RuntimeError) as error:
                self._discard()
                raise SparkError(
                    f"Spark could not be started ({self._config['spark.master']}): {_first_line(error)}",
                    "Check JAVA_HOME (Java 17 or newer) and the spark.* keys.",
                ) from error

    @property
    def _has_work(self) -> bool:
        return any(not job.finished.is_set() for job in self._jobs)

    def _new_context(self) -> SparkContext:
        config = self._config
        if config["spark.master"].startswith("local"):
            options = shlex.split(config["spark.driver.extraJavaOptions"])
            self._gateway = Gateway(config["spark.driver.memory"], options)
            port, secret = self._gateway.address()
            os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
            os.environ["PYSPARK_GATEWAY_SECRET"] = secret
        try:
            # spark-submit gets its settings as arguments, which everybody can see: secrets follow over the gateway.
            public = {key: value for key, value in config.items() if not is_secret(key)}
            gateway = launch_gateway(_conf(public))  # type: ignore[no-untyped-call]
            process = self._gateway.process if self._gateway is not None else gateway.proc
            with killed_after(_CONTEXT_S, process, "does not come up"):
                return SparkContext(conf=_conf(config), gateway=gateway)
        finally:
            os.environ.pop("PYSPARK_GATEWAY_PORT", None)
            os.environ.pop("PYSPARK_GATEWAY_SECRET", None)

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        """The JVM, whoever has started it."""
        if self._gateway is not None:
            return self._gateway.process
        return getattr(SparkContext._gateway, "proc", None)

    @property
    def width(self) -> int:
        """How many copy tasks are worth running at the same time.

        On one machine one a core, unless the user has said otherwise: connector tasks that share a Python worker also share its
        requests, which is cheaper for both sides than a worker each.
        """
        if self._local_width is not None:
            return self._local_width
        left = self._query_width if self._queries is not None else 0
        return max(1, self._slots_there - left)

    @property
    def is_roomy(self) -> bool:
        """Whether there are more slots than copy tasks that are worth running."""
        return self._local_width is not None

    @property
    def _query_width(self) -> int:
        """How many tasks a job of a query has. On a cluster slots are kept free for it: copy tasks never give theirs back."""
        if self._local_width is not None:
            return self._local_width
        return max(1, self._slots_there // 4)

    @property
    def _slots_there(self) -> int:
        context = self._context
        if context is None:
            raise SparkError("The Spark session is not started.")
        try:
            return int(context.defaultParallelism)
        except _GONE as error:
            raise SparkError(f"The Spark session is gone: {_first_line(error)}") from error

    def submit(self, name: str, plans: Sequence[TaskPlan]) -> CopyJob:
        context = self._context
        if context is None:
            raise SparkError("The Spark session is not started.")
        with self._lock:
            if self._leash is None:
                self._leash = self._new_leash()
            leash = self._leash
        if any(plan.needs_queries for plan in plans):
            door = self.queries.door
            plans = [replace(plan, hub=door) for plan in plans]
        job = CopyJob(context, name, plans, leash)
        self._jobs.add(job)
        return job

    @property
    def queries(self) -> QueryEngine:
        """Who runs queries on this session; made when it is first asked for."""
        context = self._context
        if context is None:
            raise SparkError("The Spark session is not started.")
        with self._lock:
            if self._queries is None:
                # Spark SQL is large, and nobody without a query needs it.
                from .query.engine import QueryEngine

                host = self._config.get("spark.driver.host") or socket.getfqdn()
                is_local = self._local_width is not None
                if not is_local and self._slots_there < _LEAST_SLOTS:
                    raise SparkError(
                        "Spark has one slot only, which the copy itself takes: there is none for queries.",
                        "Give the executors more cores.",
                    )
                jvm = self._gateway.process.pid if self._gateway is not None else None
                self._queries = QueryEngine(
                    context, host, self._query_width, is_local=is_local, jvm=jvm
                )
            return self._queries

    def _new_leash(self) -> Leash:
        is_local = self._local_width is not None
        host = self._config.get("spark.driver.host") or socket.getfqdn()
        try:
            return Leash(host, is_local=is_local)
        except OSError as error:
            raise SparkError(
                f"No port could be opened on {host} for tasks to hold on to: {error}",
                "Check spark.driver.host.",
            ) from error

    def stop(self) -> None:
        """End the session; one that is just being started is not waited for until it is there, nor one that hangs."""
        self._stops += 1
        if not self._lock.acquire(timeout=_START_LEFT_S):
            launched = self._gateway
            if launched is not None:
                launched.process.kill()  # whoever starts it finds it gone
            if not self._lock.acquire(timeout=_START_LEFT_S):
                log.warning("Spark is still being started; it is left to end with this process.")
                return
        try:
            self._discard()
            if self._leash is not None:
                self._leash.close()
                self._leash = None
        finally:
            self._lock.release()

    def _discard(self) -> None:
        """Leave nothing of the context behind, whatever state its JVM is in."""
        process = self._process
        context, self._context = self._context, None
        launched, self._gateway = self._gateway, None
        pulse, self._pulse = self._pulse, None
        queries, self._queries = self._queries, None
        if queries is not None:
            queries.close()
        gateway = SparkContext._gateway
        if pulse is not None:
            pulse.close()
        with killed_after(_END_S, process, "does not end by itself"):
            if context is not None:
                with contextlib.suppress(*_GONE):
                    context.stop()
            if gateway is not None:
                with contextlib.suppress(*_GONE):
                    gateway.shutdown()
        if launched is not None:
            launched.close()
        _end_process(getattr(gateway, "proc", None))
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None


def _conf(config: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for key, value in config.items():
        conf.set(key, value)
    return conf


def _end_process(process: Any) -> None:
    """End the JVM that spark-submit started for us, if there is one."""
    if process is None:
        return
    with contextlib.suppress(OSError):
        process.stdin.close()
    with contextlib.suppress(OSError):
        process.kill()
    process.wait()


class CopyJob:
    """One epoch of a flow: a Spark job that runs until it is done, cancelled or lost.

    Invariant: `finished` is set exactly once, after `ledger` or `error` has its value.
    """

    def __init__(
        self, context: SparkContext, name: str, plans: Sequence[TaskPlan], leash: Leash
    ) -> None:
        self._context = context
        self._name = name
        self._id = str(uuid.uuid4())
        self._leash = leash
        end = leash.hold(self._id)
        self._plans = [replace(plan, leash=end) for plan in plans]
        self.ledger: list[LedgerRow] = []
        self.error: SparkError | None = None
        self.cancelled = False
        self.finished = threading.Event()
        self._thread = InheritableThread(target=self._run, daemon=True, name=f"spark {name}")
        try:
            self._thread.start()
        except _GONE as error:
            raise SparkError(f"The Spark session is gone: {_first_line(error)}") from error

    def _run(self) -> None:
        context = self._context
        try:
            context.setJobGroup(self._id, f"sparkmirror {self._name}", interruptOnCancel=True)
            kinds = [
                [plan for plan in self._plans if not plan.gives_way],
                [plan for plan in self._plans if plan.gives_way],
            ]
            rows = [self._rows(plans) for plans in kinds if plans]
            self.ledger = list(context.union(rows).collect())
        except _GONE as error:
            if not self.cancelled:
                self.error = SparkError(
                    f"The Spark job of flow {self._name} ended: {_cause(error)}"
                )
        finally:
            self._leash.let_go(self._id)
            self.finished.set()

    def _rows(self, plans: Sequence[TaskPlan]) -> RDD[LedgerRow]:
        """The ledgers of plans of one kind. Those that give way have Python workers of their own: one that did so once cannot
        come back, and would be given to others."""
        context = self._context
        rows = context.parallelize(plans, len(plans)).mapPartitions(run_plans)
        with _environment:
            context.environment |= GIVING_WAY if plans[0].gives_way else {}
            try:
                rows._jrdd  # noqa: B018 - the environment of its workers is settled with that
            finally:
                for name in GIVING_WAY:
                    context.environment.pop(name, None)
        return rows

    def let_go(self) -> None:
        """Let the tasks finish what is in flight, write their positions and end; nobody is waited for."""
        self._leash.let_go(self._id)

    def end(self, grace: float) -> None:
        """Let the tasks end; what runs on after `grace` seconds is killed."""
        self.let_go()
        if not self.finished.wait(grace):
            self.cancel()

    def cancel(self, timeout: float = 10.0) -> None:
        """End the job: its Python workers are killed, which is always safe.

        Told again until it has ended: Spark knows of a job only some time after it was submitted.
        """
        self.cancelled = True
        deadline = time.monotonic() + timeout
        while not self.finished.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(*_GONE):
                self._context.cancelJobGroup(self._id)
            self.finished.wait(_CANCEL_AGAIN_S)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__


def _cause(error: BaseException) -> str:
    """The line of a Spark error that tells something: the last exception of the Python worker, or the first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in reversed(lines):
        if line.startswith("sparkmirror.errors."):
            return line.partition(": ")[2] or line
    for line in lines:
        if "Python worker exited unexpectedly" in line or "crashed" in line:
            return "a Python worker was lost."
    return _first_line(error)
