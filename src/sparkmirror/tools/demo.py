"""The demo: two clusters, a shop that produces, a mirror; a live view goes out, and a verdict last.

    DEMO_SECONDS   ends the demo so many seconds after the first record was copied; without it,
                   Ctrl-C or SIGTERM does
    DEMO_RATE      records a second that the shop produces (20000)

At the end the shop is stopped, the mirror catches up, and every record of the target is compared
with the source. Exit code 0 says that they are equal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import javaproperties
from rich.console import Console

from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.errors import ConfigError, KafkaError, SparkError, SparkMirrorError
from sparkmirror.formats.progress import progress_topic
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster, start_all
from sparkmirror.tools.comparison import Comparison, compare
from sparkmirror.tools.demo_events import PARTITIONS, Shop, create_shop
from sparkmirror.tools.demo_view import DemoView
from sparkmirror.tools.throughput import Throughput

_REMOTES = {topic: f"source.{topic}" for topic in PARTITIONS}
_TICK_S = 0.5
_STANDSTILL_S = 120.0
_STOP_PATIENCE_S = 30.0
_LEAST_FREE_BYTES = 2 << 30
_LOG_TAIL = 3000


@dataclass(frozen=True, slots=True)
class Options:
    """What the environment asks for; without `seconds` the demo runs until it is told to end."""

    seconds: float | None
    records_per_s: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the demo ended."""

    comparison: Comparison
    sent: int
    seconds: float

    @property
    def equal(self) -> bool:
        """The same records on both sides, and all that the shop had acknowledged among them."""
        return self.comparison.equal and 0 < self.sent <= self.comparison.records

    def __str__(self) -> str:
        compared = self.comparison
        if self.equal:
            return (
                f"target equals source: {compared.records:,} records in {compared.partitions} "
                f"partitions, none missing, none twice; "
                f"{compared.records / self.seconds:,.0f} records/s"
            )
        found = "; ".join(map(str, compared.differences)) or (
            f"the shop produced {self.sent:,} records, the clusters hold {compared.records:,}"
        )
        return f"target differs from source: {found}"


class Mirror:
    """The replicator as a process of its own: `sparkmirror run` with a file made for two clusters."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, directory: Path) -> None:
        self.log = directory / "sparkmirror.log"
        self._file = directory / "mm2.properties"
        text = javaproperties.dumps(mirror_properties(source, target), timestamp=False)
        self._file.write_text(text, encoding="ascii")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "sparkmirror", "run", str(self._file)]
        self._process = spawn(command, log=self.log)

    def check(self) -> None:
        """An error with the end of its log if it has ended without being asked to."""
        if self._process is not None and self._process.poll() is not None:
            tail = self.log.read_bytes()[-_LOG_TAIL:].decode(errors="replace")
            raise SparkError(
                f"The mirror ended with exit code {self._process.returncode}.",
                f"Its log ends:\n{tail}",
            )

    def close(self) -> None:
        """End it in good order, or by force when it does not."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def mirror_properties(source: KafkaCluster, target: KafkaCluster) -> dict[str, str]:
    """An mm2.properties for one flow between two clusters of one broker."""
    replicated = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
    stored = ("config.storage.", "offset.storage.", "status.storage.")
    return {
        "clusters": "source, target",
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": target.bootstrap,
        "source->target.enabled": "true",
        "source->target.topics": ", ".join(PARTITIONS),
        "target->source.enabled": "false",
        "tasks.max": "4",
        "refresh.topics.interval.seconds": "5",
        **{f"{prefix}replication.factor": "1" for prefix in (*replicated, *stored)},
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
    }


class Demo:
    """One run of the demo, from the first broker to the verdict.

    Invariants: the shop is stopped before the mirror, and the mirror before the comparison, so
    nothing changes while it is compared; everything started is closed when `run` returns or raises.
    """

    def __init__(
        self, directory: Path, options: Options, console: Console, ending: threading.Event
    ) -> None:
        self._directory = directory
        self._options = options
        self._console = console
        self._ending = ending
        self._throughput = Throughput()
        self._began = time.monotonic()
        self._first_copied_at: float | None = None

    def run(self) -> Verdict:
        """Start everything, let it flow, catch up, compare."""
        with ExitStack() as stack:
            clusters = [KafkaCluster(name, 1, self._directory) for name in ("source", "target")]
            for cluster in clusters:
                stack.callback(cluster.close)
            self._say("starting two Kafka clusters")
            start_all(clusters)
            source = stack.enter_context(closing(Cluster(_settings(clusters[0]))))
            target = stack.enter_context(closing(Cluster(_settings(clusters[1]))))
            create_shop(source)
            self._say("starting the mirror")
            mirror = stack.enter_context(closing(Mirror(clusters[0], clusters[1], self._directory)))
            shop = stack.enter_context(closing(Shop(source.settings, self._options.records_per_s)))
            mirror.start()
            shop.start()
            seconds = self._flow(source, target, mirror, shop)
            mirror.close()
            self._say("comparing every record")
            return Verdict(compare(source, target, _REMOTES), shop.sent, seconds)

    def _flow(self, source: Cluster, target: Cluster, mirror: Mirror, shop: Shop) -> float:
        """Watch until told to end, then until the target has all; the seconds that copying took."""
        reader = ProgressReader(target, progress_topic("source"))
        with DemoView(self._console) as view:

            def look(phase: str) -> int:
                mirror.check()
                if shop.error is not None:
                    raise shop.error
                self._throughput.add(reader.poll())
                view.show(phase, shop.sent, self._throughput.rows(int(time.time() * 1000)))
                return self._left(source, target)

            while not self._is_over():
                look("starting" if self._first_copied_at is None else "running")
                self._ending.wait(_TICK_S)
            shop.close()
            _drain(lambda: look("catching up"))
        return time.monotonic() - (self._first_copied_at or time.monotonic())

    def _is_over(self) -> bool:
        first, limit = self._first_copied_at, self._options.seconds
        if limit is not None and first is not None and time.monotonic() >= first + limit:
            return True
        if first is None and time.monotonic() > self._began + _STANDSTILL_S:
            return True  # `_drain` waits as long again, and then says so
        if shutil.disk_usage(self._directory).free < _LEAST_FREE_BYTES:
            self._say("ending: the disk is almost full")
            return True
        return self._ending.is_set()

    def _left(self, source: Cluster, target: Cluster) -> int:
        """How many records the target does not have yet."""
        target.refresh(list(_REMOTES.values()))
        left = copied = 0
        for topic, remote in _REMOTES.items():
            theirs = _ends(target, remote) if remote in target.topics else {}
            for partition, end in _ends(source, topic).items():
                copied += theirs.get(partition, 0)
                left += end - theirs.get(partition, 0)
        if copied and self._first_copied_at is None:
            self._first_copied_at = time.monotonic()
        return left

    def _say(self, what: str) -> None:
        self._console.print(f"{what} …", soft_wrap=True)


def _drain(left: Callable[[], int]) -> None:
    """Wait until nothing is left; an error when it stops getting less."""
    least, since = left(), time.monotonic()
    while least > 0:
        time.sleep(_TICK_S)
        now = left()
        if now < least:
            least, since = now, time.monotonic()
        elif time.monotonic() - since > _STANDSTILL_S:
            raise KafkaError(
                f"The mirror stands still: {now:,} records are not on the target after "
                f"{_STANDSTILL_S:g} s without progress."
            )


def _ends(cluster: Cluster, topic: str) -> dict[int, int]:
    keys = [(topic, partition) for partition in cluster.topic(topic).partitions]
    found = admin.list_offsets(cluster, keys, admin.LATEST)
    return {partition: end for (_, partition), end in found.items()}


def _settings(cluster: KafkaCluster) -> ClientSettings:
    return client_settings(cluster.name, {"bootstrap.servers": cluster.bootstrap}, "demo")


def _options() -> Options:
    seconds, rate = os.environ.get("DEMO_SECONDS"), os.environ.get("DEMO_RATE") or "20000"
    try:
        return Options(float(seconds) if seconds else None, int(rate))
    except ValueError as error:
        raise ConfigError(
            f"DEMO_SECONDS={seconds or ''} and DEMO_RATE={rate} must be numbers."
        ) from error


def main() -> int:
    """Run the demo; the first Ctrl-C ends it in good order, a second one at once."""
    console = Console(highlight=False)
    ending, asked = threading.Event(), list[int]()

    def end(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        # From another thread: this one may hold the event's lock just now, since it waits for it.
        threading.Thread(target=ending.set, daemon=True).start()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    try:
        with tempfile.TemporaryDirectory(prefix="sparkmirror-demo-") as directory:
            verdict = Demo(Path(directory), _options(), console, ending).run()
    except SparkMirrorError as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        console.print("ended before the comparison")
        return 130
    console.print(str(verdict), markup=False, soft_wrap=True)
    return 0 if verdict.equal else 1


if __name__ == "__main__":
    sys.exit(main())
