"""The replicator's own topics: a flow and its clusters in, replication factors asked for and faults of topics out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkmirror.config.worker import StorageTopicConfig, WorkerConfig
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.preflight.facts import TopicFacts
from sparkmirror.preflight.findings import Finding, error
from sparkmirror.preflight.flow import Flow
from sparkmirror.preflight.limit_rules import Factor
from sparkmirror.preflight.privileges import Side

Clusters = Mapping[Side, Cluster]


def asked_factors(flow: Flow, clusters: Clusters, remote: Sequence[str]) -> list[Factor]:
    """What the settings of a flow ask for, of topics that are not there yet; `remote` are the copies to be created."""
    asked = [*_copying(flow, remote), *_others(flow), *_worker(flow)]
    return [factor for one in asked for factor in _on(clusters, *one)]


_Asked = tuple[str, int, bool, Side, Sequence[str]]


def _copying(flow: Flow, remote: Sequence[str]) -> Iterable[_Asked]:
    config, parts, names = flow.copying, flow.parts(), flow.names()
    if config is None or not parts.source:
        return
    explicit = config.replication_factor_explicit
    yield "replication.factor", config.replication_factor, explicit, "target", remote
    if parts.offset_syncs:
        value = config.offset_syncs_replication_factor
        explicit = config.offset_syncs_replication_factor_explicit
        key = "offset-syncs.topic.replication.factor"
        yield key, value, explicit, parts.syncs_at, [names.offset_syncs]
        yield key, value, explicit, "target", [names.offset_map]
    if parts.dead_letters:
        value, explicit = config.dead_letters.factor, config.dead_letters.is_factor_explicit
        key = "errors.deadletterqueue.topic.replication.factor"
        yield key, value, explicit, "target", [names.dead_letters]


def _others(flow: Flow) -> Iterable[_Asked]:
    parts, names = flow.parts(), flow.names()
    if flow.checkpointing is not None and parts.checkpoint:
        value = flow.checkpointing.checkpoints_replication_factor
        explicit = flow.checkpointing.checkpoints_replication_factor_explicit
        key = "checkpoints.topic.replication.factor"
        yield key, value, explicit, "target", [names.checkpoints]
    if flow.beating is not None and parts.heartbeat:
        value = flow.beating.heartbeats_replication_factor
        explicit = flow.beating.heartbeats_replication_factor_explicit
        key = "heartbeats.topic.replication.factor"
        yield key, value, explicit, "target", [names.heartbeats]


def _worker(flow: Flow) -> Iterable[_Asked]:
    if flow.worker_config is None:
        return
    for role, storage in storages(flow.worker_config):
        key, explicit = f"{role}.storage.replication.factor", storage.replication_factor_explicit
        yield key, storage.replication_factor, explicit, "worker", [storage.name]


def _on(
    clusters: Clusters, key: str, value: int, explicit: bool, side: Side, topics: Sequence[str]
) -> Iterable[Factor]:
    cluster = clusters.get(side)
    missing = [] if cluster is None else [name for name in topics if name not in cluster.topics]
    if cluster is not None and missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        alias, brokers = cluster.settings.alias, len(cluster.brokers)
        yield Factor(key, value, explicit, alias, brokers, f"topic {missing[0]}{more}")


def storages(worker: WorkerConfig) -> list[tuple[str, StorageTopicConfig]]:
    """The worker's three topics by their role; a standalone worker has none of them."""
    if worker.standalone:
        return []
    return [
        ("config", worker.config_storage),
        ("offset", worker.offset_storage),
        ("status", worker.status_storage),
    ]


def storage_findings(worker: WorkerConfig, there: Mapping[str, TopicFacts]) -> Iterable[Finding]:
    """Those of the worker's topics that are there must be compacted, and that of configs have one partition."""
    for role, storage in storages(worker):
        topic = there.get(storage.name)
        if topic is None:
            continue
        policy = topic.configs.get("cleanup.policy")
        key = f"{role}.storage.topic"
        if policy not in (None, "compact"):
            yield error(
                "storage",
                f"Topic {topic.name} ({key}) has cleanup.policy={policy}; what it holds would be lost in time.",
                f"Set the topic's cleanup.policy to compact, or {key} to another topic.",
            )
        if role == "config" and topic.partitions != 1:
            yield error(
                "storage",
                f"Topic {topic.name} ({key}) has {topic.partitions} partitions; only one keeps the order of configs.",
                "Name a topic with one partition, or one that does not exist yet.",
            )
