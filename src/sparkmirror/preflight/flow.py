"""A flow as it is checked: the configs of its connectors and worker in; clusters, names and privileges out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkmirror.config.checkpoint import CheckpointConfig
from sparkmirror.config.clients import client_properties, is_client_level, with_prefix
from sparkmirror.config.heartbeat import HeartbeatConfig
from sparkmirror.config.plugins import PluginType, find_plugin
from sparkmirror.config.source import SourceConfig
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.config.worker_clients import data_producer, worker_client
from sparkmirror.errors import ConfigError
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.policy.naming import ReplicationPolicy
from sparkmirror.preflight.privileges import Names, Parts, Privilege, Side, merged, needed
from sparkmirror.transforms.chain import TransformChain

CLIENT_ID = "sparkmirror-check"
_SOURCE, _CHECKPOINT, _HEARTBEAT = (
    "MirrorSourceConnector",
    "MirrorCheckpointConnector",
    "MirrorHeartbeatConnector",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What runs between two clusters: up to three connectors, and the worker that runs them as far as it is known."""

    source_alias: str
    target_alias: str
    policy: ReplicationPolicy
    source: ClientSettings | None = None
    target: ClientSettings | None = None
    worker: ClientSettings | None = None
    copying: SourceConfig | None = None
    checkpointing: CheckpointConfig | None = None
    transforms: TransformChain | None = None
    """Of the copies."""
    beating: HeartbeatConfig | None = None
    worker_config: WorkerConfig | None = field(default=None, repr=False)  # it may hold secrets

    @property
    def name(self) -> str:
        return f"{self.source_alias}->{self.target_alias}"

    @property
    def title(self) -> str:
        return f"flow {self.name}" if self.target is not None else "worker"

    def parts(self) -> Parts:
        """Which parts run."""
        copying, checkpointing = self.copying, self.checkpointing
        syncs = copying.offset_syncs_location if copying else None
        if syncs is None:
            syncs = checkpointing.offset_syncs_location if checkpointing else "source"
        return Parts(
            source=copying is not None and copying.enabled,
            checkpoint=checkpointing is not None and checkpointing.enabled,
            heartbeat=self.beating is not None and self.beating.emit_heartbeats_enabled,
            worker=self.worker_config is not None,
            offset_syncs=copying is None or copying.emit_offset_syncs,
            syncs_at=syncs,
            topic_configs=copying is not None and copying.sync_topic_configs_enabled,
            topic_acls=copying is not None and copying.sync_topic_acls_enabled,
            topic_deletes=copying is not None and copying.sync_topic_deletes,
            group_offsets=checkpointing is not None and checkpointing.sync_group_offsets_enabled,
            placed=checkpointing is not None and bool(checkpointing.target_partitions.rules),
            query=copying is not None and copying.query is not None,
            dead_letters=bool(_dead_letters(copying)),
            standalone=self.worker_config is not None and self.worker_config.standalone,
        )

    def names(self) -> Names:
        """What its resources are called; the families keep the names of their settings."""
        policy, worker = self.policy, self.worker_config
        syncs_at = self.parts().syncs_at
        other = self.target_alias if syncs_at == "source" else self.source_alias
        return Names(
            source_alias=self.source_alias,
            target_alias=self.target_alias,
            topics="topics",
            remote="remote topics",
            groups="groups",
            offset_syncs=policy.offset_syncs_topic(other),
            checkpoints=policy.checkpoints_topic(self.source_alias),
            opposite_checkpoints=policy.checkpoints_topic(self.target_alias),
            heartbeats=policy.heartbeats_topic(),
            dead_letters=_dead_letters(self.copying),
            worker_group="" if worker is None else worker.group_id,
            worker_topics=() if worker is None else worker_topics(worker),
        )

    def privileges(self) -> list[Privilege]:
        return merged(needed(self.names(), self.parts()))

    def own_topics(self, side: Side) -> set[str]:
        """The topics of the replicator itself on one side."""
        wanted = needed(self.names(), self.parts())
        return {
            one.name
            for one in wanted
            if one.side == side and one.resource == "topic" and not one.family
        }


def _dead_letters(config: SourceConfig | None) -> str:
    """The topic for records on which the query fails; empty if there is none."""
    if config is None or config.query is None or not config.errors_tolerated:
        return ""
    return config.dead_letters.topic


def worker_topics(worker: WorkerConfig) -> tuple[str, ...]:
    """The topics in which a worker keeps its state; a standalone one has a topic for positions only, named by itself."""
    if worker.standalone:
        return ()
    storages = (worker.config_storage, worker.offset_storage, worker.status_storage)
    return tuple(storage.name for storage in storages)


def connector_flow(props: Mapping[str, str], worker: WorkerConfig | None) -> Flow:
    """The flow of one connector, references resolved; ConfigError for a config that cannot run."""
    kind = connector_class(props)
    target = client_settings(_alias(props, "target"), _target(props, worker), CLIENT_ID)
    own = None if worker is None else worker_settings(worker)
    copying = SourceConfig.parse(props) if kind == _SOURCE else None
    checkpointing = CheckpointConfig.parse(props) if kind == _CHECKPOINT else None
    beating = HeartbeatConfig.parse(props) if kind == _HEARTBEAT else None
    config = copying or checkpointing or beating
    assert config is not None  # noqa: S101 - one of the three
    source = None
    if beating is None:  # heartbeats do not look at the source
        consumer = client_properties(props, "source", "consumer")
        source = client_settings(_alias(props, "source"), consumer, CLIENT_ID)
    return Flow(
        source_alias=config.source_alias,
        target_alias=config.target_alias,
        policy=config.policy,
        source=source,
        target=target,
        worker=own,
        copying=copying,
        transforms=None if copying is None else TransformChain.parse(props),
        checkpointing=checkpointing,
        beating=beating,
        worker_config=worker,
    )


def joined(flows: list[Flow]) -> list[Flow]:
    """Flows between the same clusters as one, with the connectors of all."""
    found: list[Flow] = []
    for flow in flows:
        same = next((i for i, known in enumerate(found) if _is_same(known, flow)), None)
        if same is None:
            found.append(flow)
        else:
            found[same] = _both(found[same], flow)
    return found


def _is_same(first: Flow, second: Flow) -> bool:
    is_source = (
        first.source is None
        or second.source is None
        or first.source.bootstrap == second.source.bootstrap
    )
    targets = [flow.target.bootstrap for flow in (first, second) if flow.target is not None]
    is_twice = any(
        one is not None and other is not None
        for one, other in (
            (first.copying, second.copying),
            (first.checkpointing, second.checkpointing),
            (first.beating, second.beating),
        )
    )
    return first.name == second.name and is_source and len(set(targets)) <= 1 and not is_twice


def _both(first: Flow, second: Flow) -> Flow:
    return Flow(
        source_alias=first.source_alias,
        target_alias=first.target_alias,
        policy=first.policy,
        source=first.source or second.source,
        target=first.target or second.target,
        worker=first.worker or second.worker,
        copying=first.copying or second.copying,
        transforms=first.transforms if first.copying else second.transforms,
        checkpointing=first.checkpointing or second.checkpointing,
        beating=first.beating or second.beating,
        worker_config=first.worker_config or second.worker_config,
    )


def connector_class(props: Mapping[str, str]) -> str:
    """The simple name of the connector's class; ConfigError if it is none that runs here."""
    given = props.get("connector.class", "").strip()
    plugin = find_plugin(given, PluginType.SOURCE)
    if plugin is None:
        raise ConfigError(
            f"connector.class={given or '(not set)'} is not a connector that runs here.",
            f"Use one of {_SOURCE}, {_CHECKPOINT}, {_HEARTBEAT}, with or without the package "
            "org.apache.kafka.connect.mirror.",
        )
    return plugin.simple_name


def worker_settings(worker: WorkerConfig) -> ClientSettings:
    return client_settings("worker", worker_client(worker, "worker"), CLIENT_ID)


def _target(props: Mapping[str, str], worker: WorkerConfig | None) -> dict[str, str]:
    """How to reach the cluster that the copies are written to."""
    if worker is not None:
        return data_producer(worker, props)
    cluster = with_prefix(props, "target.cluster.")
    found = {name: value for name, value in cluster.items() if is_client_level(name)}
    found |= with_prefix(props, "producer.override.")
    if not found.get("bootstrap.servers"):
        raise ConfigError(
            f"Connector {props.get('name', '?')} does not say where its target cluster is.",
            "Set target.cluster.bootstrap.servers, or name the worker's file with --worker.",
        )
    return found


def _alias(props: Mapping[str, str], side: str) -> str:
    return props.get(f"{side}.cluster.alias", side)
