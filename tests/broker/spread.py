"""A topic whose partitions are copied by several Spark tasks: clusters in; records all the time, and what became of them, out."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer
from kafka_tools import NewRecord, create_topic, end_offsets, produce, topics, wait_for
from running import Mirror, assert_same, properties

from sparkmirror.tools.clusters import KafkaCluster

_PAUSE_S = 0.02


class SpreadTopic:
    """A topic of several partitions, and its copy."""

    def __init__(
        self,
        source: KafkaCluster,
        target: KafkaCluster,
        topic: str,
        count: int,
        *,
        replication: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.target, self.topic, self.count = source, target, topic, count
        self._rounds = 0
        create_topic(source.bootstrap, topic, count, replication=replication, configs=configs)

    def add(self) -> None:
        """One more record for each partition."""
        key = b"%d" % self._rounds
        rows = [NewRecord(key, key, partition) for partition in range(self.count)]
        produce(self.source.bootstrap, self.topic, rows)
        self._rounds += 1

    @contextmanager
    def load(self, sizes: Sequence[int]) -> Iterator[None]:
        """All the time records of these sizes, one for each partition, each with a number of its own."""
        over = threading.Event()

        def run() -> None:
            producer = Producer({"bootstrap.servers": self.source.bootstrap, "linger.ms": 5})
            number = 0
            while not over.is_set():
                for partition, size in enumerate(sizes):
                    value = b"%012d" % number + b"x" * size
                    producer.produce(self.topic, value, b"%d" % number, partition)
                    number += 1
                producer.poll(0)
                over.wait(_PAUSE_S)
            assert producer.flush(60) == 0

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(90)

    def arrives(self, patience: float = 120.0) -> None:
        """All that is at the source by now is copied, in every partition."""
        wanted = end_offsets(self.source.bootstrap, self.topic)
        wait_for("every partition is copied", lambda: self._has(wanted), patience)

    def copied(self) -> int:
        """How many records are copied."""
        remote = f"A.{self.topic}"
        if remote not in topics(self.target.bootstrap):
            return 0
        return sum(end_offsets(self.target.bootstrap, remote).values())

    def _has(self, wanted: dict[int, int]) -> bool:
        remote = f"A.{self.topic}"
        if remote not in topics(self.target.bootstrap):
            return False
        found = end_offsets(self.target.bootstrap, remote)
        return all(found.get(partition, -1) >= end for partition, end in wanted.items())

    def assert_same(self) -> int:
        return assert_same(self.source, self.topic, self.target, f"A.{self.topic}")


def keys(topic: SpreadTopic, master: str, tasks: int, **more: str) -> dict[str, str]:
    """A flow whose copy tasks run on a Spark cluster."""
    found = {
        "flow_topics": topic.topic,
        "tasks_max": str(tasks),
        "spark_master": master,
        "spark_executor_memory": "512m",
        "spark_driver_host": "127.0.0.1",
    }
    return properties(topic.source, topic.target, **(found | more))


def submitted(mirror: Mirror) -> list[int]:
    """How many Spark tasks each job of the flow had."""
    lines = [line for line in mirror.output.splitlines() if "Spark task(s) submitted" in line]
    return [int(line.split(":")[-1].split()[0]) for line in lines]
