"""What would come of creating topics: new topics in, the error or the topic's properties out; nothing is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.property_support import LeftOut, Properties, PropertySupport


@dataclass(frozen=True, slots=True)
class Creation:
    """The broker's verdict; `configs` are all properties that the topic would have, None where brokers do not tell them."""

    error: BrokerError | None
    replicas: int
    configs: Mapping[str, str] | None


def try_creating(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, Creation]:
    """Ask the controller to validate the topics only."""
    found = {}
    try:
        for topic, answer in admin.ask_for_topics(cluster, topics, validate_only=True):
            entries = getattr(answer, "configs", None)
            configs = {e.name: e.value for e in entries if e.value is not None} if entries else None
            replicas = int(getattr(answer, "replication_factor", -1) or -1)
            error = admin.creation_error(cluster, topic, answer)
            found[topic.name] = Creation(error, replicas, configs)
    except BrokerError as refused:
        if refused.code != messages.UNSUPPORTED_VERSION:
            raise
        return {
            topic.name: Creation(admin.cannot_create(cluster, topic, refused), -1, None)
            for topic in topics
        }
    return found


def try_fitting(
    cluster: Cluster, topics: Sequence[NewTopic]
) -> tuple[dict[str, Creation], list[LeftOut]]:
    """The same without the properties that the cluster does not know, and what those are."""
    wanted = {topic.name: topic for topic in topics}
    found: dict[str, Creation] = {}

    def send(properties: Mapping[str, Properties]) -> dict[str, BrokerError]:
        tried = try_creating(cluster, [_with(wanted[n], its) for n, its in properties.items()])
        found.update(tried)
        return {name: one.error for name, one in tried.items() if one.error is not None}

    support = PropertySupport()
    support.send({topic.name: topic.configs for topic in topics}, send)
    return found, support.news()


def _with(topic: NewTopic, properties: Properties) -> NewTopic:
    return replace(topic, configs={n: v for n, v in properties.items() if v is not None})
