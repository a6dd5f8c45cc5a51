"""The compacted topics in which a Connect worker keeps its state: settings in, a topic that is there and fit for it out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sparkmirror.errors import BrokerError, ConfigError, ConnectionFailed, KafkaError
from sparkmirror.kafka import admin, messages, topic_configs
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster, back_off

log = logging.getLogger(__name__)

Role = Literal["config", "offset", "status"]
_MAY_PASS = (messages.INVALID_REPLICATION_FACTOR, messages.NOT_CONTROLLER)
_KEPT: Mapping[Role, str] = {
    "config": "the connectors' configs",
    "offset": "the connectors' offsets",
    "status": "the state of connectors and tasks",
}


@dataclass(frozen=True, slots=True)
class StorageTopicSettings:
    """One of the three topics, as the worker's file names it under `<role>.storage.*`."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    role: Role = "offset"
    may_lower_factor: bool = False
    """Whether it is created with fewer replicas where the cluster has fewer brokers: nobody chose the factor."""

    def key(self, name: str) -> str:
        return f"{self.role}.storage.{name}"


def prepare(
    cluster: Cluster,
    topic: StorageTopicSettings,
    patience: float,
    stopping: threading.Event,
    *,
    awaits_cluster: bool = False,
) -> None:
    """Create the topic if it is missing, wait until it has leaders, and check it.

    With `awaits_cluster` a cluster that cannot be reached is waited for, however long; only what it answers tries our patience.
    """
    deadline = time.monotonic() + patience
    told = ""
    for wait in back_off(0.1, 2.0):
        trouble = _attempt(cluster, topic)
        if trouble is None:
            break
        if awaits_cluster and isinstance(trouble, ConnectionFailed):
            deadline = time.monotonic() + patience
        if stopping.is_set() or time.monotonic() + wait > deadline:
            raise _given_up(cluster, topic, trouble)
        if str(trouble) != told:
            told = str(trouble)
            log.warning("Topic %s is not ready yet: %s Trying again.", topic.name, told)
        stopping.wait(wait)
    _check_partitions(cluster, topic)
    _check_policy(cluster, topic)


def _attempt(cluster: Cluster, topic: StorageTopicSettings) -> KafkaError | None:
    """One try; gives an error that may pass, raises one that will not."""
    try:
        cluster.refresh([topic.name])
        if topic.name not in cluster.topics:
            _create(cluster, topic)
            cluster.refresh([topic.name])
        for partition in cluster.topic(topic.name).partitions:
            cluster.leader(topic.name, partition)
    except KafkaError as error:
        may_pass = isinstance(error, BrokerError) and error.code in _MAY_PASS
        if not (error.retriable or may_pass):
            raise
        return error
    return None


def _create(cluster: Cluster, topic: StorageTopicSettings) -> None:
    configs = {**topic.configs, "cleanup.policy": "compact"}
    wanted = NewTopic(topic.name, topic.partitions, topic.replication_factor, configs)
    error = admin.create_topics(cluster, [wanted])[topic.name]
    if error is None:
        log.info("Created topic %s on %s.", topic.name, cluster.settings)
        return
    if error.code == messages.INVALID_REPLICATION_FACTOR and topic.may_lower_factor:
        return _create(cluster, _lowered(topic, len(cluster.brokers)))
    if error.code == messages.INVALID_REPLICATION_FACTOR:
        error.remedy = _factor_remedy(cluster, topic)
    raise error


def _lowered(topic: StorageTopicSettings, brokers: int) -> StorageTopicSettings:
    log.warning(
        "Topic %s gets replication factor %d instead of %d: the cluster has %d broker(s). Set %s to choose it.",
        topic.name,
        brokers,
        topic.replication_factor,
        brokers,
        topic.key("replication.factor"),
    )
    return replace(topic, replication_factor=brokers, may_lower_factor=False)


def _factor_remedy(cluster: Cluster, topic: StorageTopicSettings) -> str:
    return (
        f"{topic.key('replication.factor')} is {topic.replication_factor} and the cluster has {len(cluster.brokers)} broker(s): "
        f"start more, or set {topic.key('replication.factor')} to at most that."
    )


def _given_up(
    cluster: Cluster, topic: StorageTopicSettings, trouble: KafkaError
) -> KafkaError | ConfigError:
    if isinstance(trouble, BrokerError) and trouble.code == messages.INVALID_REPLICATION_FACTOR:
        return ConfigError(
            f"Topic {topic.name} cannot be created on {cluster.settings} with replication factor {topic.replication_factor}.",
            _factor_remedy(cluster, topic),
        )
    return trouble


def _check_partitions(cluster: Cluster, topic: StorageTopicSettings) -> None:
    found = len(cluster.topic(topic.name).partitions)
    if topic.role == "config" and found != 1:
        raise ConfigError(
            f"Topic {topic.name} ({topic.key('topic')}) has {found} partitions; the order of all configs is only kept in one.",
            f"Set {topic.key('topic')} to a topic with one partition, or to one that does not exist yet.",
        )


def _check_policy(cluster: Cluster, topic: StorageTopicSettings) -> None:
    found = topic_configs.describe(cluster, [topic.name])
    for error in found.errors.values():
        if not messages.is_unavailable(error):
            raise error
        log.warning("Whether topic %s is compacted cannot be checked: %s", topic.name, error)
    for entry in found.configs.get(topic.name, []):
        if entry.name == "cleanup.policy" and entry.value != "compact":
            raise ConfigError(
                f"Topic {topic.name} ({topic.key('topic')}) has cleanup.policy={entry.value}; with anything but "
                f"'compact', {_KEPT[topic.role]} would be lost in time.",
                f"Set the topic's cleanup.policy to compact, or {topic.key('topic')} to another topic.",
            )
