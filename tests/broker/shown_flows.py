"""Mirrors between a cluster that shows only what it is told to and one that shows all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_proxy import Shown
from cluster_pair import ClusterPair
from running import Mirror
from shown_cluster import ShownCluster
from versioned import PREFIX, VersionedTopic, mirror_keys

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Direct:
    """A cluster as tests reach it: its brokers themselves, whatever they show to others."""

    cluster: KafkaCluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.internal_bootstrap


@dataclass(slots=True)
class ShownFlows:
    """A cluster that shows what it is told to, another one that shows all, and the mirrors between them."""

    shown: ShownCluster
    whole: KafkaCluster
    directory: Path
    unique: Unique
    stack: ExitStack

    def show(self, what: Shown) -> None:
        for proxy in self.shown.proxies.values():
            proxy.shown = what
            proxy.requests.clear()
            proxy.drop()

    def mirror(self, role: str, **keys: str) -> tuple[Mirror, VersionedTopic]:
        """A mirror from or to the cluster that is shown, and a topic for it; of worlds of their own."""
        alias = self.unique("s")
        source, target = (self.shown, self.whole) if role == "source" else (self.whole, self.shown)
        directory = self.directory / self.unique("mirror")
        directory.mkdir()
        mine = {name.replace("_", "."): value for name, value in keys.items()}
        topics = {"topics": f"{PREFIX}-{alias}-.*", "groups": f"{PREFIX}-{alias}-.*"}
        found = mirror_keys({alias: source, "B": target}, f"{alias}->B") | topics | mine
        topic = VersionedTopic(self._direct(source, target), f"{PREFIX}-{alias}-t", 3, alias=alias)
        return self.stack.enter_context(Mirror(directory, found)), topic

    def _direct(self, source: KafkaCluster, target: KafkaCluster) -> Any:
        return ClusterPair(Direct(source), Direct(target))  # type: ignore[arg-type]
