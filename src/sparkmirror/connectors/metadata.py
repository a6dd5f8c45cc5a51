"""Remote topics: what the source has in, what to create or widen on the target out; and the doing of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.admin import ConfigEntry, NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.policy.filters import ConfigPropertyFilter

from .topic_configs import is_copied

log = logging.getLogger(__name__)
_MOST_TOLD = 10


def creation_configs(
    entries: Iterable[ConfigEntry], wanted: ConfigPropertyFilter, *, with_defaults: bool
) -> dict[str, str]:
    """The configs that a new remote topic gets: what is set at the source, without what is the broker's own or excluded."""
    return {
        entry.name: entry.value
        for entry in entries
        if entry.value is not None
        and (with_defaults or not entry.is_default)
        and is_copied(entry, wanted)
    }


def is_compacted(entries: Iterable[ConfigEntry]) -> bool:
    """Whether the log cleaner takes records out of the middle of the topic."""
    return any(e.name == "cleanup.policy" and "compact" in (e.value or "") for e in entries)


def missing_topics(
    counts: Mapping[str, int], existing: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Which remote topics to create and which to widen, each with its number of partitions. Nothing ever shrinks."""
    create = {name: count for name, count in counts.items() if name not in existing}
    widen = {name: count for name, count in counts.items() if existing.get(name, count) < count}
    return create, widen


def create(
    cluster: Cluster, topics: Iterable[NewTopic], *, may_lower_factor: bool
) -> dict[str, BrokerError]:
    """Create topics; where the default replication factor is more than the cluster has brokers, with as many as there are.

    Gives the topics that could not be created, with their errors. A few topics are told one by one, many are not.
    """
    wanted = {topic.name: topic for topic in topics}
    failed: dict[str, BrokerError] = {}
    again: list[NewTopic] = []
    level = logging.INFO if len(wanted) <= _MOST_TOLD else logging.DEBUG
    for name, error in admin.create_topics(cluster, list(wanted.values())).items():
        if error is None:
            log.log(level, "Created topic %s on %s.", name, cluster.settings)
        elif error.code == messages.INVALID_REPLICATION_FACTOR and may_lower_factor:
            again.append(wanted[name])
        else:
            failed[name] = error
    if again:
        failed |= create(cluster, _lowered(again, len(cluster.brokers)), may_lower_factor=False)
    return failed


def _lowered(topics: Sequence[NewTopic], brokers: int) -> list[NewTopic]:
    first, others = topics[0], len(topics) - 1
    log.warning(
        "Topic %s%s gets replication factor %d instead of %d: the cluster has %d broker(s). Set the factor to choose it.",
        first.name,
        f" (and {others} more)" if others else "",
        brokers,
        first.replication_factor,
        brokers,
    )
    return [replace(topic, replication_factor=brokers) for topic in topics]
