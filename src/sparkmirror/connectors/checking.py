"""The check at a connector's start: its config and clusters in, what would go wrong as lines in the log out.

Called in the connector's own thread after it is ready, so that nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.config.checkpoint import CheckpointConfig
from sparkmirror.config.heartbeat import HeartbeatConfig
from sparkmirror.config.source import SourceConfig
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.preflight.flow import Flow
from sparkmirror.preflight.starting import is_wanted, tell_findings
from sparkmirror.transforms.chain import TransformChain

Props = Mapping[str, str]


def check_copying(props: Props, config: SourceConfig, source: Cluster, target: Cluster) -> None:
    """Topics that are wanted in vain, names, limits, factors, ACLs."""
    if not is_wanted(props):
        return
    flow = Flow(
        source_alias=config.source_alias,
        target_alias=config.target_alias,
        policy=config.policy,
        source=source.settings,
        target=target.settings,
        copying=config,
        transforms=TransformChain.parse(props),
    )
    tell_findings(flow, {"source": source, "target": target}, f"Connector {config.name}")


def check_checkpoints(
    props: Props, config: CheckpointConfig, source: Cluster, target: Cluster
) -> None:
    """Groups and topics that may not be read."""
    if not is_wanted(props):
        return
    flow = Flow(
        source_alias=config.source_alias,
        target_alias=config.target_alias,
        policy=config.policy,
        source=source.settings,
        target=target.settings,
        checkpointing=config,
    )
    tell_findings(flow, {"source": source, "target": target}, f"Connector {config.name}")


def check_heartbeats(props: Props, config: HeartbeatConfig, target: Cluster) -> None:
    """The topic that may not be written."""
    if not is_wanted(props) or not config.emit_heartbeats_enabled:
        return
    flow = Flow(
        source_alias=config.source_alias,
        target_alias=config.target_alias,
        policy=config.policy,
        target=target.settings,
        beating=config,
    )
    tell_findings(flow, {"target": target}, f"Connector {config.name}")
