"""The JVM behind a Spark context: settings in, a context out; and whose it is to stop.

Three kinds: one that we start (`LaunchedJvm`), the one of the spark-submit that has started us (`SubmittedJvm`), and that of a
context that was running before us (`AdoptedContext`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from sparkmirror.dataplane.jvm_calls import CALL_ERRORS, ignoring_gone
from sparkmirror.errors import ConfigError, SparkError, SparkMirrorError
from sparkmirror.secret_names import is_secret

from .failures import failure
from .gateway import Gateway, killed_after, spark_home
from .session_config import LocalMaster, require_hadoop, spark_defaults

log = logging.getLogger(__name__)
_CONTEXT_S = 60.0
_END_S = 2.0
_TELL_EVERY_S = 30.0
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Jvm(Protocol):
    """Where contexts are made."""

    is_shared: bool
    """Whether the context was made by others, with as many slots as they wanted."""

    takes_options: bool
    """Whether it is started with our options; else it runs already."""

    def given(self) -> dict[str, str]:
        """What the user has set for Spark outside the worker's file."""

    def open(self, config: Mapping[str, str]) -> SparkContext: ...

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, if it is ours to kill."""

    def close(self, context: SparkContext | None) -> None:
        """Leave nothing behind that is ours, whatever state the JVM is in."""


class LaunchedJvm:
    """One that we start for a context, and end with it."""

    is_shared = False
    takes_options = True

    def __init__(self) -> None:
        self._gateway: Gateway | None = None
        self._is_ours = False
        """Whether what pyspark keeps for the whole process is of this one, and not of a session of others."""

    def given(self) -> dict[str, str]:
        return spark_defaults(spark_home())

    def open(self, config: Mapping[str, str]) -> SparkContext:
        _require_no_other_context()
        require_hadoop(config["spark.master"], os.environ, spark_home())
        self._is_ours = True
        is_local = LocalMaster.parse(config["spark.master"]) is not None
        if is_local:
            options = shlex.split(config["spark.driver.extraJavaOptions"])
            self._gateway = Gateway(config["spark.driver.memory"], options)
            port, secret = self._gateway.address()
            os.environ |= {_PORT: str(port), _SECRET: secret}
        try:
            # spark-submit gets its settings as arguments, which everybody can see: secrets follow over the gateway.
            public = {key: value for key, value in config.items() if not is_secret(key)}
            gateway = launch_gateway(_conf(public))  # type: ignore[no-untyped-call]
            process = self._gateway.process if self._gateway is not None else gateway.proc
            patience = (
                killed_after(_CONTEXT_S, process, "does not come up")
                if is_local
                else _telling_of_the_wait(config["spark.master"])
            )
            with patience:
                return SparkContext(conf=_conf(config), gateway=gateway)
        finally:
            os.environ.pop(_PORT, None)
            os.environ.pop(_SECRET, None)

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        if self._gateway is not None:
            return self._gateway.process
        return getattr(SparkContext._gateway, "proc", None)

    def close(self, context: SparkContext | None) -> None:
        if context is None and not self._is_ours:
            return
        self._is_ours = False
        process = self.process
        launched, self._gateway = self._gateway, None
        gateway = SparkContext._gateway
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


class SubmittedJvm:
    """That of the spark-submit that runs us: the context is ours, the JVM is not."""

    is_shared = False
    takes_options = False
    process = None

    def __init__(self) -> None:
        self._gateway: Any = None

    @staticmethod
    def is_there() -> bool:
        """Whether this process was started by spark-submit."""
        return _PORT in os.environ

    def given(self) -> dict[str, str]:
        conf = SparkConf(loadDefaults=True, _jvm=self._connected().jvm)
        return dict(conf.getAll())

    def _connected(self) -> Any:
        if self._gateway is None:
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
        return self._gateway

    def open(self, config: Mapping[str, str]) -> SparkContext:
        _require_no_other_context()
        gateway = self._connected()
        # A JVM that ends stops its context first, which looks like one that was lost: YARN would get another application.
        if gateway.jvm.org.apache.spark.util.ShutdownHookManager.inShutdown():
            raise SparkError("spark-submit is ending, and its JVM with it.")
        with _telling_of_the_wait(config["spark.master"]):
            return SparkContext(conf=_conf(config), gateway=gateway)

    def close(self, context: SparkContext | None) -> None:
        if context is not None:
            with ignoring_gone(context):
                context.stop()


class AdoptedContext:
    """A context of others, in a notebook or an application: never stopped by us."""

    is_shared = True
    takes_options = False
    process = None

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    @classmethod
    def of(cls, session: Any) -> Self:
        """That of a session; ConfigError for one that has none."""
        try:
            context = session.sparkContext
        except (
            PySparkException,
            AttributeError,
        ):  # Spark Connect: which of them depends on the version
            context = None
        if isinstance(context, SparkContext):
            return cls(context)
        raise ConfigError(
            f"sparkmirror.start needs a Spark session with its driver in this process, and was given a {_kind(session)}."
            " A session of Spark Connect has its driver on the server.",
            "Make a classic session: SparkSession.builder.master(…).getOrCreate(), without remote(…), SPARK_REMOTE and "
            "spark.api.mode=connect. Or run the file by spark-submit: $(sparkmirror app-file) run FILE.",
        )

    def given(self) -> dict[str, str]:
        return dict(self._context.getConf().getAll())

    def open(self, config: Mapping[str, str]) -> SparkContext:
        try:
            is_stopped = self._context._jsc.sc().isStopped()
        except CALL_ERRORS as error:
            raise failure("The Spark session cannot be used", error, None) from error
        if is_stopped:
            raise SparkMirrorError(
                "The Spark session that was given to sparkmirror was stopped.",
                "Call sparkmirror.start again with a new session.",
            )
        return self._context

    def close(self, context: SparkContext | None) -> None:
        """Nothing is ours."""


def _kind(session: object) -> str:
    return f"{type(session).__module__}.{type(session).__qualname__}"


def _require_no_other_context() -> None:
    active = SparkContext._active_spark_context
    if active is not None:
        raise ConfigError(
            f"A Spark session is already running in this process ({active.appName}, {active.master}).",
            "Call sparkmirror.start(spark, FILE) with that session, or stop it first.",
        )


@contextlib.contextmanager
def _telling_of_the_wait(master: str) -> Iterator[None]:
    """A context on a cluster waits for the cluster manager, which may have a queue: to kill it would lose the place in that."""
    began, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not is_over.wait(_TELL_EVERY_S):
            waited = time.monotonic() - began
            log.warning(
                "Waiting for %s to start the Spark application, for %.0f s so far; it may be queued.",
                master,
                waited,
            )

    threading.Thread(target=tell, name="spark start", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


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
