"""A source connector in the test's own process, without tasks: what it does to topics, their properties and ACLs."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from connect_worker import BYTES
from kafka_tools import create_topic, topics
from thread_tasks import ConnectorWatch

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source import SourceConnector

NAME = "MirrorSourceConnector"


def connector_config(source: str, target: str, wanted: str, **keys: str) -> dict[str, str]:
    """A flow A->B of the wanted topics that looks every second; `keys` have underscores for dots."""
    return {
        "name": NAME,
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "topics": wanted,
        "heartbeats.replication.enabled": "false",
        "emit.offset-syncs.enabled": "false",
        **{
            f"{timer}.interval.seconds": "1"
            for timer in ("refresh.topics", "sync.topic.configs", "sync.topic.acls")
        },
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        **{name.replace("_", "."): value for name, value in keys.items()},
    }


def worker_config(target: str, offsets_topic: str) -> WorkerConfig:
    """The worker of such a connector, whose cluster is the target."""
    return WorkerConfig.parse(
        {
            "bootstrap.servers": target,
            "group.id": "watching",
            "key.converter": BYTES,
            "value.converter": BYTES,
            "config.storage.topic": "unused-configs",
            "status.storage.topic": "unused-status",
            "offset.storage.topic": offsets_topic,
        }
    )


class Watching:
    """A connector at work: `with Watching(config, offsets_topic): ...`; it must not have failed."""

    def __init__(self, config: Mapping[str, str], offsets_topic: str) -> None:
        target = config["target.cluster.bootstrap.servers"]
        if offsets_topic not in topics(target):
            create_topic(target, offsets_topic, 3, configs={"cleanup.policy": "compact"})
        self.watch = ConnectorWatch()
        self.connector = SourceConnector(config, self.watch, worker_config(target, offsets_topic))

    def __enter__(self) -> Self:
        self.connector.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connector.stop()
        if error is None:
            assert self.watch.errors == []
