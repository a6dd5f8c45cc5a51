"""The parts of a worker put together: a worker config in, a herder with its stores, its group and its answers out."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from functools import partial

from sparkmirror.config.connector_rules import QueryCheck
from sparkmirror.config.worker import StorageTopicConfig, WorkerConfig
from sparkmirror.config.worker_clients import worker_client
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.spark.session import SparkSession

from .config_news import ConfigNews
from .config_store import ConfigStore
from .file_connectors import FileConnectors
from .herder import ConnectHerder, Identity
from .membership import GroupSettings, WorkerGroup
from .memory_log import MemoryLog
from .offset_store import OffsetStore
from .operations import Operations
from .query_check import SparkCheck
from .solo import SoloGroup
from .status_store import StatusStore
from .storage_topic import Role, StorageTopicSettings
from .stores import Stores
from .topic_log import LogFactory, TopicLog

_STANDALONE_TOPIC = "mm2-offsets.standalone-{}.internal"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")
# Positions are flushed every second, so segments must be small for compaction to have something to do.
_SMALL_SEGMENTS = {"segment.bytes": str(16 << 20)}


@dataclass(frozen=True, slots=True)
class Assembled:
    """A worker that can be started, and what REST serves of it."""

    herder: ConnectHerder
    operations: Operations
    queries: QueryCheck
    """Has Spark look at queries."""


def with_standalone_topic(config: WorkerConfig) -> WorkerConfig:
    """A standalone worker with a topic of its own for positions, named after the file that it would keep them in.

    A file on one machine cannot tell two copies of a partition apart, the log of the cluster can (see `dataplane.positions`).
    """
    name = _NOT_IN_NAMES.sub("-", config.offset_file).strip("-") or "worker"
    return replace(
        config,
        offset_storage=replace(config.offset_storage, name=_STANDALONE_TOPIC.format(name)),
    )


def distributed(
    config: WorkerConfig,
    identity: Identity,
    spark: SparkSession,
    file: FileConnectors | None = None,
    *,
    may_be_unsigned: bool = True,
) -> Assembled:
    """A worker that shares its work with all that have the same `group.id`; for `may_be_unsigned` see `Operations`."""
    settings = _client(config)
    herder = _herder(
        config,
        identity,
        spark,
        configs=_topic_log(settings, config.config_storage, "config"),
        statuses=_topic_log(settings, config.status_storage, "status"),
        file=file,
    )
    group = WorkerGroup(
        settings,
        config.group_id,
        GroupSettings(
            url=identity.url,
            session_timeout=config.session_timeout_ms / 1000,
            rebalance_timeout=config.rebalance_timeout_ms / 1000,
            heartbeat_interval=config.heartbeat_interval_ms / 1000,
            scheduled_rebalance_max_delay=config.scheduled_rebalance_max_delay_ms / 1000,
            protocol=config.connect_protocol,
            retry_backoff=settings.retry_backoff,
        ),
        herder.shared,
        herder,
    )
    herder.join(group)
    return _assembled(herder, spark, may_be_unsigned=may_be_unsigned)


def standalone(config: WorkerConfig, identity: Identity, spark: SparkSession) -> Assembled:
    """A worker on its own: configs and statuses live as long as the process, positions on the cluster."""
    herder = _herder(config, identity, spark, configs=MemoryLog, statuses=MemoryLog)
    herder.join(SoloGroup(herder.shared, herder))
    return _assembled(herder, spark, may_be_unsigned=False)


def _assembled(herder: ConnectHerder, spark: SparkSession, *, may_be_unsigned: bool) -> Assembled:
    queries = SparkCheck(spark)
    operations = Operations(herder, queries=queries, may_be_unsigned=may_be_unsigned)
    return Assembled(herder, operations, queries)


def _herder(
    config: WorkerConfig,
    identity: Identity,
    spark: SparkSession,
    *,
    configs: LogFactory,
    statuses: LogFactory,
    file: FileConnectors | None = None,
) -> ConnectHerder:
    news = ConfigNews()
    client = _client(config)
    offsets = _topic_log(client, config.offset_storage, "offset")
    stores = Stores(ConfigStore(configs, news), StatusStore(statuses), OffsetStore(offsets))
    herder = ConnectHerder(config, identity, news, stores, spark, partial(_ask_id, client), file)
    news.wake = herder.wake
    stores.statuses.on_status = herder.status_read
    return herder


def _client(config: WorkerConfig) -> ClientSettings:
    return client_settings("worker", worker_client(config, "worker"))


def _topic_log(settings: ClientSettings, topic: StorageTopicConfig, role: Role) -> LogFactory:
    configs = {**_SMALL_SEGMENTS, **topic.configs} if role == "offset" else topic.configs
    storage = StorageTopicSettings(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
        role=role,
        may_lower_factor=not topic.replication_factor_explicit,
    )
    # A cluster that is not there yet is waited for: the worker says so in its log and in /health.
    return partial(TopicLog, settings, storage, awaits_cluster=True)


def _ask_id(settings: ClientSettings) -> str:
    cluster = Cluster(settings)
    try:
        return cluster.retrying(cluster.cluster_id, time.monotonic() + settings.request_timeout)
    finally:
        cluster.close()
