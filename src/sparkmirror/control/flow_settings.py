"""The settings of one flow: connector and worker configs in, typed settings for connector and copy tasks out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkmirror.config.clients import client_id, client_properties, with_prefix
from sparkmirror.config.source import SourceConfig
from sparkmirror.connectors.source import StorageTopic
from sparkmirror.dataplane.plan import CopySettings
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.errors import ConfigError
from sparkmirror.formats.progress import progress_topic
from sparkmirror.kafka.fetch import READ_COMMITTED, READ_UNCOMMITTED, FetchLimits
from sparkmirror.kafka.settings import ClientSettings, client_settings

# Positions are flushed every second, so segments must be small for compaction to have something to do.
_STORAGE_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
_RECREATED = ("fail", "restart", "continue")


@dataclass(frozen=True, slots=True)
class FlowSettings:
    config: SourceConfig
    source: ClientSettings
    target: ClientSettings
    store: StoreAddress
    storage: StorageTopic
    copy: CopySettings
    refresh_interval: float
    """Seconds between two looks at the topics; 0 if they are not to be looked at."""


def flow_settings(
    config: SourceConfig,
    connector: Mapping[str, str],
    worker: Mapping[str, str],
    mirror: Mapping[str, str],
) -> FlowSettings:
    """All that a flow needs; ConfigError for values of the wrong kind."""
    consumer = client_properties(connector, "source", "consumer")
    producer = _producer_properties(connector, worker)
    topic = worker["offset.storage.topic"]
    return FlowSettings(
        config=config,
        source=client_settings(
            config.source_alias, consumer, client_id(connector, "source", "consumer")
        ),
        target=client_settings(
            config.target_alias, producer, client_id(connector, "target", "producer")
        ),
        store=StoreAddress(topic, config.name, config.source_alias),
        storage=_storage(topic, worker),
        copy=_copy_settings(config, consumer, producer, worker, mirror),
        refresh_interval=(
            float(config.refresh_topics_interval_seconds) if config.refresh_topics_enabled else 0.0
        ),
    )


def _producer_properties(connector: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """The data producer's: the worker's `producer.*` with the connector's overrides, as Connect builds it."""
    found = {"bootstrap.servers": worker.get("bootstrap.servers", "")}
    found |= with_prefix(worker, "producer.")
    found |= with_prefix(connector, "producer.override.")
    return found


def _storage(topic: str, worker: Mapping[str, str]) -> StorageTopic:
    own = with_prefix(worker, "offset.storage.")
    factor = "replication.factor" in own
    configs = {
        name: value
        for name, value in own.items()
        if name not in ("topic", "partitions", "replication.factor", "cleanup.policy")
    }
    return StorageTopic(
        name=topic,
        partitions=_whole(own, "partitions", 25, "offset.storage."),
        replication_factor=_whole(own, "replication.factor", 3, "offset.storage."),
        factor_explicit=factor,
        configs=_STORAGE_CONFIGS | configs,
    )


def _copy_settings(
    config: SourceConfig,
    consumer: Mapping[str, str],
    producer: Mapping[str, str],
    worker: Mapping[str, str],
    mirror: Mapping[str, str],
) -> CopySettings:
    reset = consumer["auto.offset.reset"].strip().lower()
    if reset not in ("earliest", "latest"):
        raise ConfigError(
            f"consumer.auto.offset.reset={reset} is not known.", "Use earliest or latest."
        )
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
        flush_interval=_whole(worker, "offset.flush.interval.ms", 1000) / 1000,
        epoch=_whole(mirror, "mirror.epoch.ms", 600_000) / 1000,
        max_in_flight=min(5, _whole(producer, "max.in.flight.requests.per.connection", 5)),
        offset_lag_max=config.offset_lag_max,
        offset_syncs_topic=config.offset_syncs_topic if config.emit_offset_syncs else "",
        offset_syncs_at_source=config.offset_syncs_location == "source",
        progress_topic=progress_topic(config.source_alias),
    )


def _whole(values: Mapping[str, str], name: str, default: int, prefix: str = "") -> int:
    value = values.get(name)
    if value is None:
        return default
    try:
        return int(value.strip())
    except ValueError:
        raise ConfigError(
            f"{prefix}{name}={value} is not a whole number.", f"Correct {prefix}{name}."
        ) from None
