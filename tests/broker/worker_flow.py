"""A topic that a Connect worker mirrors: two clusters in; records, connector configs, and whether all was copied out."""

from __future__ import annotations

from kafka_tools import NewRecord, create_topic, end_offsets, produce, topics, wait_for
from running import assert_same

from sparkmirror.tools.clusters import KafkaCluster

MIRROR = "org.apache.kafka.connect.mirror"


class Flow:
    """A topic of two partitions, its copy, and the connector config for it."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
        self.source, self.target = source, target
        self.topic, self.remote = topic, f"A.{topic}"
        self.name = f"copy-{topic}"
        self.count = 0
        create_topic(source.bootstrap, topic, 2)

    def config(self, **keys: str) -> dict[str, str]:
        return {
            "connector.class": f"{MIRROR}.MirrorSourceConnector",
            "source.cluster.alias": "A",
            "target.cluster.alias": "B",
            "source.cluster.bootstrap.servers": self.source.bootstrap,
            "target.cluster.bootstrap.servers": self.target.bootstrap,
            "topics": self.topic,
            "tasks.max": "2",
            "refresh.topics.interval.seconds": "1",
            # Other tests leave some on the shared clusters: they would be one partition more to copy.
            "heartbeats.replication.enabled": "false",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }

    def produce(self, count: int) -> None:
        rows = range(self.count, self.count + count)
        self.count += count
        produce(
            self.source.bootstrap,
            self.topic,
            [NewRecord(b"%d" % n, b"v%d" % n, n % 2) for n in rows],
        )

    def copied(self) -> int:
        known = self.remote in topics(self.target.bootstrap)
        return sum(end_offsets(self.target.bootstrap, self.remote).values()) if known else 0

    def await_copies(self, patience: float = 60.0) -> None:
        wait_for(f"{self.remote}: all copied", lambda: self.copied() >= self.count, patience)

    def check(self) -> None:
        """All is copied, once and in order."""
        self.await_copies()
        assert assert_same(self.source, self.topic, self.target, self.remote) == self.count


def heartbeats(flow: Flow) -> dict[str, str]:
    return {
        "connector.class": f"{MIRROR}.MirrorHeartbeatConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": flow.source.bootstrap,
        "target.cluster.bootstrap.servers": flow.target.bootstrap,
        "heartbeats.topic.replication.factor": "1",
        "emit.heartbeats.interval.seconds": "1",
    }
