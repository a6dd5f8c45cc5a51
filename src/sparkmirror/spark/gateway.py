"""The JVM behind a local Spark session: memory and options in, a running gateway for pyspark out.

pyspark would start it through spark-submit, which starts a JVM of its own first to put the command together: half of the time
to the first record. Everything but heap and JVM options reaches Spark later, over the gateway, so that no setting (some are
secrets) stands on a command line; JVM options go through a file that nobody else can read. Masters other than `local` are left
to spark-submit, which prepares more than a JVM for them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sparkmirror.errors import SparkError
from sparkmirror.processes import spawn

log = logging.getLogger(__name__)
_MAIN = "org.apache.spark.api.python.PythonGatewayServer"
_PATIENCE_S = 60.0
_PULSE_S = 5.0
_SILENCE_S = 15.0
# What Spark needs to reach into on Java 17 and newer.
_OPEN_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


class Gateway:
    """A JVM that serves pyspark, and its address.

    Invariant: the JVM never outlives this process, however that ends (and Spark's Python workers end with the JVM). It would end
    with its standard input by itself, but in an orderly way, which can hang while a session is being made.
    """

    def __init__(self, heap: str, options: Sequence[str]) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sparkmirror-"))
        self._address = self._directory / "gateway"
        environment = os.environ | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONNECT_MODE": "0",
        }
        try:
            arguments = _arguments(heap, self._in_file(options))
            self.process = spawn([java(), *arguments], env=environment, talks=True)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def _in_file(self, options: Sequence[str]) -> list[str]:
        """The same options, as java reads them from a file: they may hold passwords (-Djavax.net.ssl.keyStorePassword)."""
        if not options:
            return []
        file = self._directory / "options"
        file.touch(mode=0o600)
        file.write_text("\n".join(map(_quoted, options)))
        return [f"@{file}"]

    def address(self) -> tuple[int, str]:
        """Port and secret, once the JVM has told them."""
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while not self._address.exists():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SparkError(
                        f"The Spark JVM did not come up (exit code {self.process.poll()}).",
                        "Check JAVA_HOME (Java 17 or newer), spark.driver.memory and spark.driver.extraJavaOptions.",
                    )
                time.sleep(0.01)
            raw = self._address.read_bytes()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
        port, length = struct.unpack_from(">ii", raw)
        return port, raw[8 : 8 + length].decode()

    def close(self) -> None:
        """End the JVM, whatever it is doing."""
        shutil.rmtree(self._directory, ignore_errors=True)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def killed_after(
    seconds: float, process: subprocess.Popen[bytes] | None, why: str
) -> Iterator[None]:
    """Kill a JVM while it is called, if that takes longer: py4j waits for an answer for ever, but not for that of a dead one."""

    def kill() -> None:
        if process is not None and process.poll() is None:
            log.warning("The Spark JVM %s: it is killed.", why)
            process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Pulse:
    """Asks a JVM now and then whether it is there, and kills one that does not answer: who waits for it finds it gone then.

    Invariant: it ends when `ask` says that there is nobody to ask any more, or after `close`.
    """

    def __init__(
        self,
        ask: Callable[[], bool],
        process: subprocess.Popen[bytes] | None,
        *,
        every: float = _PULSE_S,
        patience: float = _SILENCE_S,
    ) -> None:
        self._ask = ask
        self._process = process
        self._every = every
        self._patience = patience
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark pulse", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        why = f"has not answered for {self._patience:g} s"
        while not self._stopping.wait(self._every):
            with killed_after(self._patience, self._process, why):
                if not self._ask():
                    return


def _arguments(heap: str, options: Sequence[str]) -> list[str]:
    home = spark_home()
    opens = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN_PACKAGES]
    return [
        "-cp",
        f"{home / 'conf'}:{home / 'jars'}/*",
        f"-Xmx{heap}",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *opens,
        "-Dio.netty.tryReflectionSetAccessible=true",
        "--enable-native-access=ALL-UNNAMED",
        *options,
        _MAIN,
    ]


def _quoted(option: str) -> str:
    """One argument in a file of arguments."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def spark_home() -> Path:
    """Where pyspark keeps Spark: SPARK_HOME, or inside the package."""
    if "SPARK_HOME" in os.environ:
        return Path(os.environ["SPARK_HOME"])
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkError("pyspark is not installed.", "Install sparkmirror with its dependencies.")
    return Path(found.origin).parent


def java() -> str:
    """The java command: of JAVA_HOME, or on the path."""
    if "JAVA_HOME" in os.environ:
        return str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise SparkError(
            "Java was not found.", "Install a JDK 17 or newer, or set JAVA_HOME to one."
        )
    return found
