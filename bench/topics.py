"""Topics of one cluster, created, altered and deleted by name."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

# The client library speaks to standard error of its own accord, amid the progress lines.
QUIET = {"log_level": 3}


def create_topics(
    bootstrap: str, topics: Mapping[str, int], config: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [
        NewTopic(name, num_partitions=count, replication_factor=1, config=dict(config or {}))
        for name, count in topics.items()
    ]
    for future in admin.create_topics(wanted, operation_timeout=60).values():
        future.result(timeout=90)


def delete_topics(bootstrap: str) -> None:
    """Deletes every topic but the broker's own."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    doomed = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    if not doomed:
        return
    for future in admin.delete_topics(doomed, operation_timeout=60).values():
        future.result(timeout=90)


def delete_records(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Deletes all that these topics hold; their offsets go on."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    ends = [
        TopicPartition(name, partition, OFFSET_END)
        for name, count in topics.items()
        for partition in range(count)
    ]
    for future in admin.delete_records(ends, operation_timeout=60).values():
        future.result(timeout=90)


def alter_topic(bootstrap: str, topic: str, changes: Mapping[str, str | None]) -> None:
    """Sets configs of a topic, or with None takes the cluster's default again."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    entries = [
        ConfigEntry(
            key,
            value,
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for key, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=60)
