"""The settings of a source connector's clients and tasks: connector and worker configs in, typed settings out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from sparkmirror.config.clients import client_id, client_properties
from sparkmirror.config.source import SourceConfig
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.config.worker_clients import data_producer, worker_client
from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.dataplane.query.terms import BadRecords, QueryLimits, QuerySettings, QueryTerms
from sparkmirror.errors import ConfigError
from sparkmirror.formats.offset_map import offset_map_topic
from sparkmirror.formats.progress import progress_topic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.compression import LIMIT_KEY, RATIO_KEY, OpeningLimit
from sparkmirror.kafka.fetch import READ_COMMITTED, READ_UNCOMMITTED, FetchLimits
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.transforms.chain import TransformChain

_RECREATED = ("fail", "restart", "continue")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """All that a source connector and its tasks need to reach the clusters and to copy."""

    config: SourceConfig
    source: ClientSettings
    target: ClientSettings
    store: StoreAddress
    store_cluster: ClientSettings
    """The worker's own cluster, where the positions are."""
    copy: CopySettings
    progress_replication_factor: int
    may_lower_progress_factor: bool
    refresh_interval: float
    """Seconds between two looks at the topics; 0 if they are not to be looked at."""

    def remote(self, topic: str) -> str:
        """The name that the replication policy gives to a copy."""
        return self.config.policy.format_remote_topic(self.config.source_alias, topic)

    def written_topic(self, topic: str) -> str | None:
        """The topic that all copies of a source topic go to; None if transforms decide that record by record."""
        remote, transforms = self.remote(topic), self.copy.transforms
        return remote if transforms is None else transforms.target(remote)

    def asks(self, topic: str) -> bool:
        """Whether the records of a source topic pass through the query. Heartbeats are for those who watch the flow."""
        query = self.config.query
        if query is None or self.config.policy.is_heartbeats_topic(topic):
            return False
        return query.asks(topic)

    def places(self, topic: str, source: Cluster, target: Cluster) -> int:
        """The number of partitions on which records of a topic are placed by their keys; 0 where each stays in its own.

        Both clusters' metadata must be there. The copy's own number counts, which may be more than what was asked for; where
        transforms name topics record by record, the number that was asked for does.
        """
        wanted = self.config.wanted_partitions(topic)
        info = source.topics.get(topic)
        if wanted is None or info is None:
            return 0
        name = self.written_topic(topic)
        remote = None if name is None else target.topics.get(name)
        count = wanted if remote is None else len(remote.partitions)
        return 0 if count == len(info.partitions) else count


def source_settings(connector: Mapping[str, str], worker: WorkerConfig) -> SourceSettings:
    """Settings from a connector config, references resolved; ConfigError for values of the wrong kind."""
    config = SourceConfig.parse(connector)
    own = client_settings("worker", worker_client(worker, "producer"))
    consumer = client_properties(connector, "source", "consumer")
    producer = data_producer(worker, connector)
    target = client_settings(
        config.target_alias, producer, client_id(connector, "target", "producer")
    )
    reserved = _reserved(worker, own, target)
    bad = _bad_records(config)
    if bad.dead_letters in reserved:
        raise ConfigError(
            f"errors.deadletterqueue.topic.name is {bad.dead_letters}, in which this worker keeps its state.",
            "Name another topic.",
        )
    return SourceSettings(
        config=config,
        source=client_settings(
            config.source_alias, consumer, client_id(connector, "source", "consumer")
        ),
        target=target,
        store=StoreAddress(worker.offset_storage.name, config.name, config.source_alias),
        store_cluster=own,
        copy=replace(
            _copy_settings(config, consumer, producer, worker),
            transforms=TransformChain.parse(connector),
            query=_query(config),
            bad=bad,
            reserved=reserved,
            remote_name=partial(config.policy.format_remote_topic, config.source_alias),
            replication_factor=config.replication_factor,
            may_lower_factor=not config.replication_factor_explicit,
        ),
        progress_replication_factor=worker.offset_storage.replication_factor,
        may_lower_progress_factor=not worker.offset_storage.replication_factor_explicit,
        refresh_interval=(
            float(config.refresh_topics_interval_seconds) if config.refresh_topics_enabled else 0.0
        ),
    )


def _reserved(worker: WorkerConfig, own: ClientSettings, target: ClientSettings) -> frozenset[str]:
    """The topics in which the worker keeps its state, if they are on the target.

    Who may create topics at the source, or name them in transforms, must not become one who writes configs.
    """
    if not set(own.bootstrap) & set(target.bootstrap):
        return frozenset()
    storages = [worker.offset_storage]
    if not worker.standalone:
        storages += [worker.config_storage, worker.status_storage]
    return frozenset(storage.name for storage in storages if storage.name)


def _query(config: SourceConfig) -> QuerySettings | None:
    query = config.query
    if query is None:
        return None
    return QuerySettings(
        QueryTerms(query.sql, query.functions, query.may_vary),
        QueryLimits(query.interval_ms / 1000, query.timeout_ms / 1000, query.memory_mb << 20),
    )


def _bad_records(config: SourceConfig) -> BadRecords:
    dead = config.dead_letters
    return BadRecords(
        config.errors_tolerated,
        dead.topic if config.errors_tolerated else "",
        dead.with_context,
        config.errors_logged,
        config.errors_logged_in_full,
        dead.factor,
        not dead.is_factor_explicit,
    )


def _copy_settings(
    config: SourceConfig,
    consumer: Mapping[str, str],
    producer: Mapping[str, str],
    worker: WorkerConfig,
) -> CopySettings:
    reset = consumer["auto.offset.reset"].strip().lower()
    if reset not in ("earliest", "latest"):
        raise ConfigError(
            f"consumer.auto.offset.reset={reset} is not known.", "Use earliest or latest."
        )
    mirror = worker.mirror
    recreated = mirror.get("mirror.recreated.target", "fail").strip().lower()
    if recreated not in _RECREATED:
        raise ConfigError(
            f"mirror.recreated.target={recreated} is not known.", f"Use {', '.join(_RECREATED)}."
        )
    default = CopySettings()
    fetch = FetchLimits(
        max_wait_ms=_whole(consumer, "fetch.max.wait.ms", default.fetch.max_wait_ms),
        min_bytes=_whole(consumer, "fetch.min.bytes", default.fetch.min_bytes),
        max_bytes=_whole(consumer, "fetch.max.bytes", default.fetch.max_bytes),
        partition_max_bytes=_whole(
            consumer, "max.partition.fetch.bytes", default.fetch.partition_max_bytes
        ),
        isolation=(
            READ_UNCOMMITTED if config.isolation_level == "read_uncommitted" else READ_COMMITTED
        ),
        rack=consumer.get("client.rack", ""),
    )
    return CopySettings(
        fetch=fetch,
        reset=reset,
        recreated_target=recreated,
        exactly_once=config.exactly_once,
        flush_interval=worker.offset_flush_interval_ms / 1000,
        epoch=_whole(mirror, "mirror.epoch.ms", 600_000) / 1000,
        max_in_flight=min(5, _whole(producer, "max.in.flight.requests.per.connection", 5)),
        offset_lag_max=config.offset_lag_max,
        offset_syncs_topic=config.offset_syncs_topic if config.emit_offset_syncs else "",
        offset_syncs_at_source=config.offset_syncs_location == "source",
        offset_map_topic=offset_map_topic(config.source_alias) if config.emit_offset_syncs else "",
        progress_topic=progress_topic(config.source_alias),
        opening=OpeningLimit(
            _positive(mirror, LIMIT_KEY, default.opening.bytes),
            _positive(mirror, RATIO_KEY, default.opening.ratio),
        ),
    )


def _positive(values: Mapping[str, str], name: str, default: int) -> int:
    value = _whole(values, name, default)
    if value < 1:
        raise ConfigError(f"{name}={value} is less than 1.", f"Correct {name}.")
    return value


def _whole(values: Mapping[str, str], name: str, default: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    try:
        return int(value.strip())
    except ValueError:
        raise ConfigError(f"{name}={value} is not a whole number.", f"Correct {name}.") from None
