"""The one Spark context of a process: `spark.*` settings in; a JVM, its context and what runs on them out.

A plan is a row of a job's input, a ledger a row of its output; records never pass through the JVM.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, ignoring_gone, is_gone
from sparkmirror.dataplane.leash import Leash
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.errors import SparkError
from sparkmirror.secret_names import is_secret

from .failures import failure, first_line
from .gateway import Gateway, Pulse, killed_after
from .job import CopyJob
from .session_config import local_width, session_config
from .slots import Slots
from .versions import require_supported

if TYPE_CHECKING:
    from sparkmirror.dataplane.query.engine import QueryEngine

log = logging.getLogger(__name__)
logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say reaches us as exceptions

_START_LEFT_S = 2.0
_CONTEXT_S = 60.0
_END_S = 2.0
_LEAST_SLOTS = 2


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
        except CALL_ERRORS as error:
            if is_gone(error, context):
                return False
            raise

    def start(self, *, queries: bool = False) -> None:
        """Start the JVM and the context unless they are there.

        One that was not started for queries is slow at them: it is started anew for the first, unless it has work to do.
        ConfigError if this version of PySpark is not supported.
        """
        require_supported(pyspark.__version__, queries=queries)
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
            except (Py4JError, OSError, RuntimeError) as error:
                self._discard()
                raise SparkError(
                    f"Spark could not be started ({self._config['spark.master']}): {first_line(error)}",
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
        except CALL_ERRORS as error:
            raise failure("The Spark session is gone", error, context) from error

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
                from sparkmirror.dataplane.query.engine import QueryEngine

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
                with ignoring_gone(context):
                    context.stop()
            if gateway is not None:
                with ignoring_gone(context):
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
