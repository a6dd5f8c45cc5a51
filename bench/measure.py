"""Process ids go in, CPU seconds and memory come out; topics go in, numbers of records come out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.topics import QUIET
from sparkmirror.errors import SparkMirrorError

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
CPU_EVERY_S = 0.1
# Reading smaps_rollup walks the page tables under the memory lock, so it is done seldom.
MEMORY_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat tells of one process."""

    parent: int
    session: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Proportional set size of a whole process tree over a while."""

    peak_bytes: int
    mean_bytes: float


def parse_stat(text: str) -> Stat:
    # The command name stands in parentheses and may itself hold blanks and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
    )


def read_stat(pid: int) -> Stat | None:
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_pss(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


class ProcessTree:
    """CPU and memory of a process and all its descendants, sampled by a thread.

    Invariants:
    - a process belongs to the tree if its parent does or if it is in the session of the root,
      so one that was re-parented to init is still counted;
    - what an ended process had used at its last sample stays counted;
    - a process outside of the tree is looked at once, not at each sample.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._cpu: dict[int, float] = {}
        self._alive: set[int] = set()
        self._foreign: set[int] = set()
        self._ended = 0.0
        self._memory: list[tuple[float, int]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="process-tree", daemon=True)

    def __enter__(self) -> ProcessTree:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def cpu_seconds(self) -> float:
        """CPU used so far, as of now."""
        with self._lock:
            self._sample_cpu()
            return self._ended + sum(self._cpu.values())

    def pids(self) -> list[int]:
        with self._lock:
            self._sample_cpu()
            return sorted(self._alive)

    def memory(self, since: float, until: float) -> Memory:
        """Memory between two moments of `time.monotonic()`; at least one sample is taken."""
        with self._lock:
            self._sample_memory()
            seen = [size for at, size in self._memory if since <= at <= until]
            seen = seen or [self._memory[-1][1]]
        return Memory(peak_bytes=max(seen), mean_bytes=sum(seen) / len(seen))

    def _run(self) -> None:
        next_memory = 0.0
        while not self._stop.wait(CPU_EVERY_S):
            with self._lock:
                self._sample_cpu()
                if time.monotonic() >= next_memory:
                    self._sample_memory()
                    next_memory = time.monotonic() + MEMORY_EVERY_S

    def _sample_cpu(self) -> None:
        present = {int(name) for name in os.listdir(PROC) if name.isdigit()}  # noqa: PTH208 - hot
        self._foreign &= present
        self._adopt(sorted(present - self._foreign - self._alive))
        for pid in list(self._alive):
            stat = read_stat(pid) if pid in present else None
            if stat is None:
                self._alive.discard(pid)
                self._ended += self._cpu.pop(pid, 0.0)
            else:
                self._cpu[pid] = stat.cpu_seconds

    def _adopt(self, newcomers: Sequence[int]) -> None:
        for pid in newcomers:
            stat = read_stat(pid)
            if stat is None:
                continue
            ours = pid == self.root or stat.parent in self._alive or stat.session == self.root
            (self._alive if ours else self._foreign).add(pid)

    def _sample_memory(self) -> None:
        self._memory.append((time.monotonic(), sum(read_pss(pid) for pid in self._alive)))


class EndOffsets:
    """How many records the topics of one cluster hold, asked through one lasting connection.

    Topics that do not exist yet count as empty, so a replicator may still have to create them.
    """

    def __init__(self, bootstrap: str, topics: Mapping[str, int]) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._topics = topics
        self._complete = False

    def total(self) -> int:
        if not self._complete and not self.exist():
            return 0
        wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic, count in self._topics.items()
            for partition in range(count)
        }
        total = 0
        for future in self._admin.list_offsets(wanted, request_timeout=10).values():
            try:
                total += int(future.result(timeout=15).offset)
            except KafkaException:
                # A topic that was created this moment has no leader yet.
                continue
        return total

    def exist(self) -> bool:
        """Whether all of the topics are there."""
        try:
            found = self._admin.list_topics(timeout=10).topics
        except KafkaException:
            return False
        self._complete = all(
            topic in found and len(found[topic].partitions) == count
            for topic, count in self._topics.items()
        )
        return self._complete


def wait_for_total(
    offsets: EndOffsets,
    at_least: int,
    *,
    seconds: float,
    every: float = 0.05,
    check: Callable[[], None] = lambda: None,
    progress: Callable[[int], None] = lambda total: None,
) -> int:
    """Polls until the topics hold that many records; `check` may raise when waiting is in vain."""
    until = time.monotonic() + seconds
    next_progress = time.monotonic() + 5
    while True:
        total = offsets.total()
        if total >= at_least:
            return total
        check()
        if time.monotonic() >= until:
            raise SparkMirrorError(
                f"The target holds {total} of {at_least} records after {seconds:.0f} seconds.",
                "Look into the log of the replicator.",
            )
        if time.monotonic() >= next_progress:
            progress(total)
            next_progress += 5
        time.sleep(every)


def holding(bootstrap: str, topic: str, records: int, part: bytes) -> int:
    """How many of a topic's records have these bytes in their values."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "holding",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    found = seen = 0
    consumer.subscribe([topic])
    try:
        while seen < records:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    seen += 1
                    found += part in (message.value() or b"")
    finally:
        consumer.close()
    return found
