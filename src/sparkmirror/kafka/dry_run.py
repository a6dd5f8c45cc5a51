"""What would come of creating topics: new topics in, the error or the topic's properties out; nothing is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import admin
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Creation:
    """The broker's verdict; `configs` are all properties that the topic would have, None where brokers do not tell them."""

    error: BrokerError | None
    replicas: int
    configs: Mapping[str, str] | None


def try_creating(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, Creation]:
    """Ask the controller to validate the topics only."""
    found = {}
    for topic, answer in admin.ask_for_topics(cluster, topics, validate_only=True):
        entries = getattr(answer, "configs", None)
        configs = {e.name: e.value for e in entries if e.value is not None} if entries else None
        replicas = int(getattr(answer, "replication_factor", -1) or -1)
        error = admin.creation_error(cluster, topic, answer)
        found[topic.name] = Creation(error, replicas, configs)
    return found
