"""The three connectors that a worker can run: a class name in, how to make the connector and its tasks out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.checkpoint import CheckpointConnector
from sparkmirror.connectors.checkpoint_task import CheckpointTask
from sparkmirror.connectors.connector import Connector, ConnectorContext, TaskContext, ThreadTask
from sparkmirror.connectors.heartbeat import HeartbeatConnector, HeartbeatTask
from sparkmirror.connectors.source import SourceConnector
from sparkmirror.errors import ConfigError

from .offset_rules import ConnectorKind

_PACKAGE = "org.apache.kafka.connect.mirror."
Props = Mapping[str, str]


class Kind(StrEnum):
    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"

    @property
    def offsets(self) -> ConnectorKind:
        """Which rules its offsets obey."""
        return _OFFSETS[self]


_OFFSETS: dict[Kind, ConnectorKind] = {
    Kind.SOURCE: "source",
    Kind.CHECKPOINT: "checkpoint",
    Kind.HEARTBEAT: "heartbeat",
}


@dataclass(frozen=True, slots=True)
class Makers:
    """How to make a connector, and its tasks if those are threads (source tasks run in Spark)."""

    connector: Callable[[Props, ConnectorContext, WorkerConfig], Connector]
    task: Callable[[Props, TaskContext], ThreadTask] | None


MAKERS = {
    Kind.SOURCE: Makers(SourceConnector, None),
    Kind.CHECKPOINT: Makers(
        lambda props, context, _: CheckpointConnector(props, context), CheckpointTask
    ),
    Kind.HEARTBEAT: Makers(
        lambda props, context, _: HeartbeatConnector(props, context), HeartbeatTask
    ),
}


def kind_of(props: Props) -> Kind:
    """Which connector a config is for: its full Java name, its last part, or that without `Connector`."""
    given = props.get("connector.class", "").strip()
    name = given.removeprefix(_PACKAGE)
    for kind in Kind:
        if name in (kind.value, kind.value.removesuffix("Connector")):
            return kind
    raise ConfigError(
        f"connector.class={given} is not a connector that runs here.",
        f"Use one of {', '.join(kind.value for kind in Kind)}.",
    )
