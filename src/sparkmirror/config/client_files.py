"""Files that say how to reach clusters: client properties or an mm2.properties in, the client properties of a cluster out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from sparkmirror.config.clients import with_prefix
from sparkmirror.config.flow_keys import nearest
from sparkmirror.config.flows import MirrorMakerConfig
from sparkmirror.config.properties import read_properties
from sparkmirror.config.providers import resolve
from sparkmirror.errors import ConfigError

_POLICY = "replication.policy"


class ClientFile:
    """Such a file. One with the key `clusters` is an mm2.properties, any other has the properties of a single client.

    References to secrets are resolved for the cluster that is asked for only, so the others' need not be there.
    """

    def __init__(self, properties: Mapping[str, str], name: str) -> None:
        self._raw = dict(properties)
        self._name = name
        self._flows = MirrorMakerConfig(properties) if "clusters" in properties else None
        if self._flows is None and not self._raw.get("bootstrap.servers", "").strip():
            raise ConfigError(
                f"{name} has neither bootstrap.servers nor clusters.",
                "Name a file with the properties of a client (bootstrap.servers=host:port) or an mm2.properties.",
            )

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls(read_properties(path), str(path))

    @property
    def aliases(self) -> tuple[str, ...]:
        """The clusters of an mm2.properties; none in a file of client properties, which does not name its cluster."""
        return () if self._flows is None else self._flows.clusters

    def may_copy(self, source: str, target: str | None) -> bool:
        """Whether a flow may copy, as far as the file can tell: it cannot about clusters that it does not name."""
        if self._flows is None or not {source, target} <= set(self.aliases):
            return True
        return any((p.source, p.target) == (source, target) for p in self._flows.enabled_pairs())

    def target(self, alias: str | None) -> str | None:
        """The cluster that `--cluster` means; if that is not given, the one that all flows go to. None for a single client."""
        if self._flows is None:
            if alias is not None:
                raise ConfigError(
                    f"{self._name} has no clusters, so {alias} cannot be picked from it.",
                    "Leave --cluster out, or name an mm2.properties.",
                )
            return None
        if alias is not None:
            self._require_known(alias)
            return alias
        targets = sorted({pair.target for pair in self._flows.enabled_pairs()})
        if len(targets) != 1:
            raise ConfigError(
                f"The flows of {self._name} go to {', '.join(targets) or 'no cluster'}.",
                "Say with --cluster which one is meant.",
            )
        return targets[0]

    def client(self, alias: str | None, source: str | None = None) -> dict[str, str]:
        """The properties of a client of cluster `alias`, with the policy of the flow from `source` to it, if that has its own."""
        if self._flows is None or alias is None:
            return resolve(self._raw)
        self._require_known(alias)
        found = {k: v for k, v in self._raw.items() if k.startswith(_POLICY)}
        found |= self._flow_policy(alias, source) | self._flows.cluster_properties(alias)
        return resolve(found, settings=self._raw)

    def address(self, alias: str | None) -> str:
        """Where a cluster is, as the file says it."""
        key = "bootstrap.servers" if alias is None else f"{alias}.bootstrap.servers"
        return self._raw.get(key, "") or "no address"

    def _flow_policy(self, target: str, source: str | None) -> dict[str, str]:
        sources = self.aliases if source is None else (source,)
        own = [with_prefix(self._raw, f"{alias}->{target}.") for alias in sources]
        found = [{k: v for k, v in of.items() if k.startswith(_POLICY)} for of in own]
        return next(filter(None, found), {})

    def _require_known(self, alias: str) -> None:
        if alias not in self.aliases:
            raise ConfigError(
                f"{alias} is not among the clusters of {self._name} ({', '.join(self.aliases)})."
                f"{nearest(alias, self.aliases)}",
                "Use an alias of the file.",
            )
