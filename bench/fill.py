"""From the description of a source to a topic full of records; says how many a reader will see."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.measure import EndOffsets, wait_for_total
from bench.payloads import payloads
from bench.topics import QUIET, alter_topic, create_topics
from bench.workloads import Batched, Compacted, Throughput, Transactional
from sparkmirror.errors import SparkMirrorError
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import java_command

SEGMENT_BYTES = 1 << 20
CLEANER_SECONDS = 240.0
FILL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Filler:
    """Fills topics of one cluster; payload files are kept in `directory` between topics."""

    cluster: KafkaCluster
    directory: Path

    def fill(self, workload: Throughput) -> int:
        """Creates the topic and fills it; returns how many records are to be replicated."""
        create_topics(self.cluster.bootstrap, {workload.topic: workload.partitions})
        fill = workload.fill
        if isinstance(fill, Batched):
            return self._batched(workload, fill)
        if isinstance(fill, Compacted):
            return self._compacted(workload, fill)
        if isinstance(fill, Transactional):
            return self._transactional(workload, fill)
        assert_never(fill)

    def warm_page_cache(self, topic: str) -> int:
        """Reads the topic's files once; returns their bytes."""
        total = 0
        for file in self.cluster.data(1).rglob(f"{topic}-*/*.log"):
            with file.open("rb", buffering=0) as stream:
                while chunk := stream.read(1 << 22):
                    total += len(chunk)
        return total

    def _payload_file(self, size: int) -> Path:
        path = self.directory / f"payload-{size}.txt"
        if not path.exists():
            path.write_bytes(b"\n".join(payloads(size)))
        return path

    def _batched(self, workload: Throughput, fill: Batched) -> int:
        self._run_java(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", self.cluster.bootstrap, "--topic", workload.topic),
            *("--num-records", str(workload.records), "--throughput", "-1"),
            *("--payload-file", str(self._payload_file(workload.record_size))),
            "--command-property",
            f"compression.type={fill.compression}",
            f"batch.size={fill.batch_size}",
            f"linger.ms={fill.linger_ms}",
            "buffer.memory=134217728",
        )
        self._expect(workload, workload.records)
        return workload.records

    def _run_java(self, main_class: str, *arguments: str) -> None:
        log = self.directory / "fill.log"
        # A heap and a compiler for a million records, unlike those of a tool that runs a second.
        command = java_command(main_class, *arguments, options=("-Xmx1g", "-XX:+UseParallelGC"))
        process = spawn(command, log=log)
        try:
            code = process.wait(FILL_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise SparkMirrorError(f"{main_class} took over {FILL_SECONDS} s; see {log}.") from late
        finally:
            process.kill()
            process.wait()
        if code:
            tail = log.read_bytes()[-1000:].decode(errors="replace")
            raise SparkMirrorError(f"{main_class} ended with {code}:\n{tail}")

    def _expect(self, workload: Throughput, records: int) -> None:
        offsets = EndOffsets(self.cluster.bootstrap, {workload.topic: workload.partitions})
        total = wait_for_total(offsets, records, seconds=30)
        if total != records:
            raise SparkMirrorError(f"The source topic holds {total} records, not {records}.")

    def _compacted(self, workload: Throughput, fill: Compacted) -> int:
        bootstrap, topic = self.cluster.bootstrap, workload.topic
        alter_topic(bootstrap, topic, {"segment.bytes": str(SEGMENT_BYTES)})
        written = workload.records * fill.supersede // (fill.supersede - 1)
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **QUIET,
                "compression.type": fill.compression,
                "batch.size": 16384,
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
            }
        )
        values = itertools.cycle(payloads(workload.record_size - 12))
        per_partition = written // workload.partitions
        for number in range(per_partition):
            # The last but one of every group has the key of the last, which supersedes it.
            superseded = number % fill.supersede == fill.supersede - 2
            key = f"{number + superseded:012d}".encode()
            for partition in range(workload.partitions):
                produce(producer, topic, partition, next(values), key)
        flush(producer)
        self._clean(workload, producer)
        return self._count(workload)

    def _clean(self, workload: Throughput, producer: Producer) -> None:
        """Lets the broker compact all segments, then gives the topic its usual settings again.

        The active segment is never cleaned, so it is closed by age: one more record in each
        partition opens the next. The settings that hurry the cleaner are taken back, since a
        replicator may copy them to the target, where the cleaner would compete with it.
        """
        bootstrap, topic = self.cluster.bootstrap, workload.topic
        hurry = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "max.compaction.lag.ms": "1000",
            "min.cleanable.dirty.ratio": "0.01",
        }
        alter_topic(bootstrap, topic, hurry)
        time.sleep(0.5)
        for partition in range(workload.partitions):
            produce(producer, topic, partition, b"last", b"last")
        flush(producer)
        until = time.monotonic() + CLEANER_SECONDS
        while not self._cleaned(workload):
            if time.monotonic() > until:
                raise SparkMirrorError(f"Topic {topic} was not compacted in {CLEANER_SECONDS} s.")
            time.sleep(0.5)
        usual: dict[str, str | None] = dict.fromkeys((*hurry, "segment.bytes"))
        alter_topic(bootstrap, topic, usual | {"cleanup.policy": "compact"})

    def _cleaned(self, workload: Throughput) -> bool:
        """Whether the cleaner's checkpoint has reached the active segment of every partition."""
        cleaned: dict[str, int] = {}
        for file in self.cluster.data(1).rglob("cleaner-offset-checkpoint"):
            for line in file.read_text().splitlines()[2:]:
                topic, number, offset = line.split()
                cleaned[f"{topic}-{number}"] = int(offset)
        for partition in range(workload.partitions):
            name = f"{workload.topic}-{partition}"
            segments = [int(file.stem) for file in self.cluster.data(1).rglob(f"{name}/*.log")]
            if cleaned.get(name, -1) < max(segments, default=0):
                return False
        return True

    def _count(self, workload: Throughput) -> int:
        """Counts the records that compaction has left."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                **QUIET,
                "group.id": "bench-count",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(workload.topic, p, 0) for p in range(workload.partitions)])
        count, ended, until = 0, 0, time.monotonic() + 120
        while ended < workload.partitions and time.monotonic() < until:
            for message in consumer.consume(10_000, timeout=1):
                if message.error() is None:
                    count += 1
                else:
                    ended += 1
        consumer.close()
        if ended < workload.partitions:
            raise SparkMirrorError(f"Topic {workload.topic} could not be counted in 120 seconds.")
        return count

    def _transactional(self, workload: Throughput, fill: Transactional) -> int:
        values = payloads(workload.record_size)
        rounds = workload.records // (fill.producers * fill.records * (fill.abort - 1))
        transactions = max(1, rounds) * fill.abort
        threads = [
            threading.Thread(
                target=self._transactions,
                args=(workload, fill, number, transactions, itertools.cycle(values)),
                daemon=True,
            )
            for number in range(fill.producers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=300)
        committed = transactions // fill.abort * (fill.abort - 1) * fill.records * fill.producers
        written = transactions * (fill.records + workload.partitions) * fill.producers
        self._expect(workload, written)
        return committed

    def _transactions(
        self,
        workload: Throughput,
        fill: Transactional,
        number: int,
        transactions: int,
        values: Iterator[bytes],
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                **QUIET,
                "transactional.id": f"bench-{workload.topic}-{number}",
                "compression.type": fill.compression,
                "linger.ms": 5,
            }
        )
        producer.init_transactions(30)
        for transaction in range(transactions):
            producer.begin_transaction()
            for record in range(fill.records):
                produce(producer, workload.topic, record % workload.partitions, next(values))
            # An abort drops what is still queued here; the point is that it has been written.
            flush(producer)
            if transaction % fill.abort == fill.abort - 1:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


def produce(
    producer: Producer, topic: str, partition: int, value: bytes, key: bytes | None = None
) -> None:
    for _ in range(600):
        try:
            producer.produce(topic, value=value, key=key, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return
    raise SparkMirrorError(f"The producer's queue for {topic} stayed full for a minute.")


def flush(producer: Producer) -> None:
    left = producer.flush(60)
    if left:
        raise SparkMirrorError(f"{left} records could not be written in 60 seconds.")
