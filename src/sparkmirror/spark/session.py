"""The one Spark context of a process: `spark.*` settings in; a JVM, its context and what runs on them out.

A plan is a row of a job's input, a ledger a row of its output; records never pass through the JVM.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyspark
from pyspark import SparkContext

from sparkmirror.config.link_ports import LinkPorts
from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, JAVA_ERRORS, is_gone
from sparkmirror.dataplane.links.driver_link import DriverLinks
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.dataplane.links.session_tls import new_secret
from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.errors import SparkError, SparkMirrorError

from .accumulators import CopyAccumulators, copy_accumulators
from .demand import Demand
from .executors import Executors, described, is_dynamic, promised, registered
from .failures import failure, first_line
from .gateway import Pulse
from .job import CopyJob
from .jvm import Jvm, LaunchedJvm, SubmittedJvm
from .session_config import (
    LocalMaster,
    is_encrypted,
    open_ports,
    overruled,
    require_classic,
    session_config,
)
from .slots import Slots
from .versions import require_supported

if TYPE_CHECKING:
    from sparkmirror.dataplane.query.engine import QueryEngine

log = logging.getLogger(__name__)
logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say reaches us as exceptions

_START_LEFT_S = 2.0
_LEAST_SLOTS = 2
_LOOPBACK = "127.0.0.1"
_LIKELY_SLOTS = 8
"""With dynamic allocation without a limit."""


def _anything(function: str) -> None:
    """Nothing is refused."""


class SparkSession:
    """The one Spark context of this process.

    Invariants: `start` after `stop` gives a new JVM, also when the old one was killed; jobs of a session that is gone end with
    a SparkError. A JVM that hangs is killed after a while (`Pulse`), and at once when the session is to end.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        jvm: Jvm | None = None,
        ports: LinkPorts = LinkPorts(),  # noqa: B008 - it cannot be changed
        may_call: Callable[[str], None] = _anything,
    ) -> None:
        """`may_call` raises QueryRefused for a function (`package.module:name`) that no query may call."""
        self.may_call = may_call
        self._ports = ports
        self._jvm = jvm or (SubmittedJvm() if SubmittedJvm.is_there() else LaunchedJvm())
        self._user = {**self._jvm.given(), **settings}
        if not self._jvm.is_shared:
            require_classic(self._user)
        notes = overruled(self._user, is_shared=self._jvm.is_shared)
        for note in notes if self._jvm.is_shared else [*notes, *open_ports(self._user)]:
            log.warning("%s", note)
        self._config = session_config(self._user, takes_options=self._jvm.takes_options)
        self._is_for_queries = False
        self._has_warned = False
        self._jobs: WeakSet[CopyJob] = WeakSet()
        self._local = None if self._jvm.is_shared else LocalMaster.parse(self._master)
        self.slots = Slots()
        self._listener: DriverListener | None = None
        self._links: DriverLinks | None = None
        self._queries: QueryEngine | None = None
        self._context: SparkContext | None = None
        self._pulse: Pulse | None = None
        self._stops = 0
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        context = self._context
        if context is None:
            return False
        process = self._jvm.process
        if process is not None and process.poll() is not None:
            return False
        try:
            return not context._jsc.sc().isStopped()
        except CALL_ERRORS as error:
            if is_gone(error, context):
                return False
            raise

    def start(self, *, queries: bool = False, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Start the JVM and the context unless they are there, or `is_wanted` says no once another start is over.

        One that was not started for queries is slow at them: the first query starts another, unless this one has work to do.
        ConfigError if this version of PySpark is not supported.
        """
        require_supported(pyspark.__version__, queries=queries)
        stops = self._stops
        with self._lock:
            if not is_wanted():
                return
            is_fit = self._is_for_queries or not queries or self._queries is not None
            if self.is_alive and (is_fit or self._has_work):
                return
            if not self._is_for_queries and queries:
                self._is_for_queries = True
                self._config = session_config(
                    self._user, queries=True, takes_options=self._jvm.takes_options
                )
                self._discard()
            elif self._context is not None:
                log.warning("The Spark session was lost; starting a new one.")
                self._discard()
            if stops != self._stops:
                raise SparkError("The Spark session is being stopped.")
            if not self._jvm.is_shared:
                os.environ["PYSPARK_PYTHON"] = self._python  # pyspark looks nowhere else
            try:
                self._context = self._jvm.open(self._config)
                self._pulse = Pulse(lambda: self.is_alive, self._jvm.process)
            except SparkMirrorError:
                self._discard()
                raise
            except (*JAVA_ERRORS, OSError, RuntimeError) as error:
                self._discard()
                raise SparkError(
                    f"Spark could not be started ({self._master}): {first_line(error)}",
                    "Check JAVA_HOME (Java 17 or newer) and the spark.* keys.",
                ) from error

    @property
    def _master(self) -> str:
        return self._user.get("spark.master", "local[*]")

    @property
    def _python(self) -> str:
        """What runs on executors. spark-submit exports what it was given, so the environment comes last."""
        exported = os.environ.get("PYSPARK_PYTHON") or sys.executable
        return self._user.get("spark.pyspark.python", exported)

    @property
    def _has_work(self) -> bool:
        return any(not job.finished.is_set() for job in self._jobs)

    def executors(self) -> Executors | None:
        """Who takes tasks; None on a local master, which has more slots than are worth using."""
        if self._local is not None:
            return None
        context = self._running
        if (
            not self.is_alive
        ):  # the cluster manager ends an application whose executors keep failing
            raise SparkError(f"The Spark application at {self._master} has ended.")
        try:
            return registered(context)
        except CALL_ERRORS as error:
            raise failure("The Spark session is gone", error, context) from error

    def described(self) -> str:
        """The executors, for people."""
        context = self._running
        try:
            return described(context)
        except CALL_ERRORS as error:
            raise failure("The Spark session is gone", error, context) from error

    @property
    def promised(self) -> int | None:
        """How many slots the settings ask the cluster manager for, if they do."""
        return promised(self._user)

    @property
    def is_dynamic(self) -> bool:
        """Whether Spark asks for executors while tasks wait for a slot."""
        return is_dynamic(self._user)

    def demand(self, slots: int) -> Demand:
        """Let dynamic allocation ask for executors with so many more slots."""
        return Demand(self._running, slots)

    def width(self, slots: int) -> int:
        """How many copy tasks are worth running at the same time, with so many slots on a cluster.

        On one machine one a core, unless the user has said otherwise: connector tasks that share a Python worker also share its
        requests, which is cheaper for both sides than a worker each.
        """
        if self._local is not None:
            return self._local.slots
        left = _query_slots(slots) if self._queries is not None else 0
        return max(1, slots - left)

    @property
    def is_roomy(self) -> bool:
        """Whether there are more slots than copy tasks that are worth running."""
        return self._local is not None

    @property
    def is_on_cluster(self) -> bool:
        """Whether executors may be on other machines than the driver."""
        return _is_on_cluster(self._running)

    @property
    def _running(self) -> SparkContext:
        context = self._context
        if context is None:
            raise SparkError("The Spark session is not started.")
        return context

    def submit(self, name: str, plans: Sequence[TaskPlan]) -> CopyJob:
        context = self._running
        with self._lock:
            listener = self._listening(context)
            if self._links is None:
                self._links = DriverLinks(listener)
            links = self._links
        if any(plan.needs_queries for plan in plans):
            _ = self.queries  # copy tasks ask for it
        if self.is_on_cluster and not is_encrypted(self._config):
            self._warn_of_secrets(plans)
        job = CopyJob(context, name, plans, links, listener.driver)
        with self._lock:  # another thread may be looking through them
            self._jobs.add(job)
        return job

    def _warn_of_secrets(self, plans: Sequence[TaskPlan]) -> None:
        """Once, when plans hold some that everybody on the network can read."""
        secured = {
            each.alias for plan in plans for each in plan.clients if each.security.is_secured
        }
        if secured and not self._has_warned:
            self._has_warned = True
            log.warning(
                "Spark's connections are not encrypted: what logging in to %s takes (passwords, keystores, keytabs) crosses "
                "the network in the clear. Set spark.authenticate=true, spark.authenticate.secret and "
                "spark.network.crypto.enabled=true.",
                " and ".join(sorted(secured)),
            )

    def accumulators(self, source: str, target: str, connector: str) -> CopyAccumulators:
        """Where Spark's metrics system reads what a connector copies."""
        return copy_accumulators(self._running, source, target, connector)

    @property
    def queries(self) -> QueryEngine:
        """Who runs queries on this session; made when it is first asked for."""
        context = self._running
        with self._lock:
            if self._queries is None:
                # Spark SQL is large, and nobody without a query needs it.
                from sparkmirror.dataplane.query.engine import QueryEngine

                is_local = self._local is not None
                there = self.executors()
                if there is not None and not self._has_room_for_queries(there.slots):
                    raise SparkError(
                        f"Spark has {there.slots} slot(s): one is for the copy itself, and queries need another one.",
                        "Give the executors more cores.",
                    )
                width = self.width(0) if there is None else self._query_width(there.slots)
                process = self._jvm.process if is_local else None
                jvm = None if process is None else process.pid
                self._queries = QueryEngine(
                    context, self._listening(context), width, jvm=jvm, may_call=self.may_call
                )
            return self._queries

    def _has_room_for_queries(self, slots: int) -> bool:
        """With dynamic allocation those count that may come: jobs that wait for a slot ask for executors."""
        most = (self.promised or _LEAST_SLOTS) if self.is_dynamic else slots
        return max(slots, most) >= _LEAST_SLOTS

    def _query_width(self, slots: int) -> int:
        """How many tasks a job of a query has: also on the executors that will come."""
        most = (self.promised or _LIKELY_SLOTS) if self.is_dynamic else slots
        return _query_slots(max(slots, most))

    def _listening(self, context: SparkContext) -> DriverListener:
        """The listener for tasks: where Spark's own driver listens and says it does; of a local one, for this machine alone.

        With the lock.
        """
        if self._listener is None:
            is_on_cluster = _is_on_cluster(context)
            host = _host(context) if is_on_cluster else _LOOPBACK
            bind = context.getConf().get("spark.driver.bindAddress") if is_on_cluster else None
            bind = bind or host
            secret, ports = new_secret(tls=is_on_cluster), self._ports
            try:
                self._listener = DriverListener(host, bind, secret, ports.driver, ports.tasks)
            except OSError as error:
                raise SparkError(
                    f"The driver cannot listen for its tasks at {bind}:{self._ports.driver}: {error}.",
                    "Check mirror.driver.port, spark.driver.bindAddress and spark.driver.host.",
                ) from error
        return self._listener

    def stop(self) -> None:
        """End the session; one that is just being started is not waited for until it is there, nor one that hangs."""
        self._stops += 1
        if not self._lock.acquire(timeout=_START_LEFT_S):
            process = self._jvm.process
            if process is not None:
                process.kill()  # whoever starts it finds it gone
            if not self._lock.acquire(timeout=_START_LEFT_S):
                log.warning("Spark is still being started; it is left to end with this process.")
                return
        try:
            self._discard()
        finally:
            self._lock.release()

    def _discard(self) -> None:
        """Leave nothing of the context behind, whatever state its JVM is in."""
        context, self._context = self._context, None
        pulse, self._pulse = self._pulse, None
        queries, self._queries = self._queries, None
        links, self._links = self._links, None
        listener, self._listener = self._listener, None
        for each in (queries, links, listener):
            if each is not None:
                each.close()
        if pulse is not None:
            pulse.close()
        self._jvm.close(context)


def _is_on_cluster(context: SparkContext) -> bool:
    return LocalMaster.parse(context.master or "") is None


def _host(context: SparkContext) -> str:
    """Where executors reach the driver, as Spark itself tells them."""
    return context.getConf().get("spark.driver.host") or socket.getfqdn()


def _query_slots(slots: int) -> int:
    """How many tasks a job of a query has on a cluster. Slots are kept free for it: copy tasks never give theirs back."""
    return max(1, slots // 4)
