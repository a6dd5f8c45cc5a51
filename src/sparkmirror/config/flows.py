"""Dedicated mode: an `mm2.properties` file comes in, worker and connector configs go out.

A *pair* is a source and a target cluster. Each pair that replicates or sends heartbeats has a
worker of its own, whose three connectors get what `connector_config` says. What a key reaches is
decided as in MirrorMaker 2, with three additions: `use.defaults.from` and the former names
(`topics.blacklist`) count at top level too, and `spark.*` and `mirror.*` are settings of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkmirror.config.clients import KINDS, is_client_level, with_prefix
from sparkmirror.config.definitions import (
    CHECKPOINT_KEYS,
    HEARTBEAT_KEYS,
    SOURCE_KEYS,
    connector_key_names,
)
from sparkmirror.config.flow_keys import flow_problems, nearest, unused_keys
from sparkmirror.config.keys import Problem, check, parse_boolean, require, split_list
from sparkmirror.config.providers import resolve
from sparkmirror.config.validation import checkpoint_problems
from sparkmirror.errors import ConfigError

ConnectorKind = Literal["source", "checkpoint", "heartbeat"]

_CLASSES: dict[ConnectorKind, str] = {
    "source": "MirrorSourceConnector",
    "checkpoint": "MirrorCheckpointConnector",
    "heartbeat": "MirrorHeartbeatConnector",
}
_KEYS = {"source": SOURCE_KEYS, "checkpoint": CHECKPOINT_KEYS, "heartbeat": HEARTBEAT_KEYS}
_CONNECTOR_NAMES = connector_key_names()
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
WORKER_PREFIXES = (
    "offset.storage",
    "config.storage",
    "status.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    "worker",
    "replication.policy",
)
_HEARTBEATS = "emit.heartbeats.enabled"
_REST_PREFIXES = (
    "listeners",
    "rest.",
    "admin.listeners",
    "access.control.",
    "response.http.headers.config",
    "ssl.",
)


@dataclass(frozen=True, slots=True, order=True)
class SourceAndTarget:
    """Two cluster aliases, in the direction in which records go."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class MirrorMakerConfig:
    """What an `mm2.properties` file says.

    Made only if the file names its clusters properly and at least one flow is to run. What belongs
    to single flows (addresses, types of values) is checked when their pairs are asked for, so that
    a worker that serves some targets only does not need the secrets of the others.
    """

    def __init__(
        self, properties: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._raw = dict(properties)
        self._environment = environment
        self.clusters = _clusters(self._value("clusters"))
        problems = [*flow_problems(self._raw, self.clusters), *self._flag_problems()]
        require(problems, "The flows of this file are wrong")
        self._require_a_flow()

    def pairs(self, targets: Sequence[str] | None = None) -> list[SourceAndTarget]:
        """The pairs that have a worker: replicating ones, and those that only send heartbeats.

        `targets` are the clusters that this process is to write to (`--clusters`; default: all).
        """
        self._require_known(targets or ())
        found = [
            pair
            for pair in self._all_pairs()
            if (targets is None or pair.target in targets)
            and (self._flag(f"{pair}.enabled", default=False) or self._sends_heartbeats(pair))
        ]
        if not found:
            raise ConfigError(
                f"No flow goes into {', '.join(targets or self.clusters)}.",
                "Enable one, as in A->B.enabled=true, or name other clusters.",
            )
        require([problem for pair in found for problem in self._pair_problems(pair)])
        return found

    def replicating_pairs(self, targets: Sequence[str] | None = None) -> list[SourceAndTarget]:
        """The pairs that copy topics."""
        return [pair for pair in self.pairs(targets) if self._replicates(pair)]

    def enabled_pairs(self) -> list[SourceAndTarget]:
        """The same, whatever else is wrong with them."""
        return [pair for pair in self._all_pairs() if self._replicates(pair)]

    def cluster_properties(self, alias: str) -> dict[str, str]:
        """What the file says about one cluster, for its worker and for each kind of client.

        `A.producer.ssl.x` beats `A.ssl.x`, which beats `ssl.x`.
        """
        found = with_prefix(self._raw, f"{alias}.")
        _share(found, {name: value for name, value in found.items() if is_client_level(name)})
        top = {name: value for name, value in self._raw.items() if is_client_level(name)}
        _share(found, top)
        return top | found

    def worker_config(self, pair: SourceAndTarget) -> dict[str, str]:
        """The config of the pair's worker, which lives on the target cluster."""
        found = self.cluster_properties(pair.target)
        found |= _starting(self._raw, WORKER_PREFIXES)
        found = self._resolve(found) | _starting(self._raw, ("config.providers",))
        defaults = {
            "client.id": str(pair),
            "group.id": f"{pair.source}-mm2",
            "offset.storage.topic": f"mm2-offsets.{pair.source}.internal",
            "status.storage.topic": f"mm2-status.{pair.source}.internal",
            "config.storage.topic": f"mm2-configs.{pair.source}.internal",
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
        }
        return defaults | found

    def connector_config(self, pair: SourceAndTarget, connector: ConnectorKind) -> dict[str, str]:
        """The config of one of the pair's three connectors, references resolved."""
        return self._resolve(self.written_config(pair, connector))

    def connector_kinds(self, pair: SourceAndTarget) -> tuple[ConnectorKind, ...]:
        """The connectors that a pair has: a pair that does not copy only sends heartbeats."""
        if not self._replicates(pair):
            return ("heartbeat",)
        has_checkpoints = not checkpoint_problems(self.connector_config(pair, "checkpoint"))
        return ("source", "checkpoint", "heartbeat") if has_checkpoints else ("source", "heartbeat")

    @property
    def names_providers(self) -> bool:
        """Whether the file says which config providers there are; else all three are, for its own references alone."""
        return "config.providers" in self._raw

    def written_config(self, pair: SourceAndTarget, connector: ConnectorKind) -> dict[str, str]:
        """The same with references as they are: so it is kept in the config topic, without secrets."""
        found = {name: self._raw[name] for name in self._raw if name in _CONNECTOR_NAMES}
        found |= _starting(self._raw, ("config.providers", "replication.policy"))
        for side, alias in (("source", pair.source), ("target", pair.target)):
            for name, value in self.cluster_properties(alias).items():
                prefix = side if name.startswith(KINDS) else f"{side}.cluster"
                found[f"{prefix}.{name}"] = value
        java_class = _CLASSES[connector]
        defaults = {
            "name": java_class,
            "connector.class": f"org.apache.kafka.connect.mirror.{java_class}",
            "source.cluster.alias": pair.source,
            "target.cluster.alias": pair.target,
            "enabled": "false",
        }
        return defaults | found | with_prefix(self._raw, f"{pair}.")

    @property
    def spark(self) -> dict[str, str]:
        """The `spark.*` keys: settings of the Spark session."""
        return self._resolve(_starting(self._raw, ("spark.",)))

    @property
    def mirror(self) -> dict[str, str]:
        """The `mirror.*` keys of the process, which MirrorMaker 2 does not have; others belong to connectors."""
        found = _starting(self._raw, ("mirror.",))
        return self._resolve({k: v for k, v in found.items() if k not in _CONNECTOR_NAMES})

    @property
    def rest(self) -> dict[str, str]:
        """The keys of the REST server through which nodes talk to each other."""
        return self._resolve(_starting(self._raw, _REST_PREFIXES))

    @property
    def internal_rest(self) -> bool:
        """Whether the workers of a flow talk to each other over HTTP."""
        return self._flag("dedicated.mode.enable.internal.rest", default=False)

    def unused(self) -> list[str]:
        """One line for each key that reaches nothing, with the reason."""
        return unused_keys(self._raw, self.clusters, WORKER_PREFIXES)

    def _resolve(self, values: Mapping[str, str]) -> dict[str, str]:
        return resolve(values, self._environment, self._raw)

    def _value(self, name: str) -> str | None:
        if name not in self._raw:
            return None
        return self._resolve({name: self._raw[name]})[name]

    def _flag(self, name: str, default: bool) -> bool:
        text = self._value(name)
        return default if text is None else parse_boolean(text) is True

    def _all_pairs(self) -> Iterable[SourceAndTarget]:
        for source in self.clusters:
            for target in self.clusters:
                if source != target:
                    yield SourceAndTarget(source, target)

    def _sends_heartbeats(self, pair: SourceAndTarget) -> bool:
        return self._flag(f"{pair}.{_HEARTBEATS}", self._flag(_HEARTBEATS, default=True))

    def _replicates(self, pair: SourceAndTarget) -> bool:
        # A top-level `enabled` reaches the connectors of every pair that has a worker.
        return self._flag(f"{pair}.enabled", self._flag("enabled", default=False))

    def _flag_problems(self) -> list[Problem]:
        names = ["enabled", _HEARTBEATS, "dedicated.mode.enable.internal.rest"]
        names += [f"{pair}.{flag}" for pair in self._all_pairs() for flag in names[:2]]
        texts = {name: self._value(name) for name in names}
        return [
            Problem(name, f"{name} is {text!r}, which is neither true nor false.")
            for name, text in texts.items()
            if text is not None and parse_boolean(text) is None
        ]

    def _require_a_flow(self) -> None:
        wanted_heartbeats = [name for name in self._raw if name.endswith(_HEARTBEATS)]
        if any(self._flag(name, default=False) for name in wanted_heartbeats):
            return
        pairs = list(self._all_pairs())
        if not any(self._replicates(pair) for pair in pairs):
            example = pairs[0] if pairs else "A->B"
            raise ConfigError(
                "No flow is enabled: nothing would be copied.",
                f"Set {example}.enabled=true, or {_HEARTBEATS}=true if only heartbeats are wanted.",
            )

    def _require_known(self, targets: Iterable[str]) -> None:
        for alias in targets:
            if alias not in self.clusters:
                raise ConfigError(
                    f"--clusters names {alias}, which is not among clusters "
                    f"({', '.join(self.clusters)}).{nearest(alias, self.clusters)}",
                    "Use the aliases of the file.",
                )

    def _pair_problems(self, pair: SourceAndTarget) -> list[Problem]:
        kinds: tuple[ConnectorKind, ...] = (
            ("source", "checkpoint", "heartbeat") if self._replicates(pair) else ("heartbeat",)
        )
        configs = {kind: self.connector_config(pair, kind) for kind in kinds}
        found = {
            problem.key: Problem(problem.key, f"{pair}: {problem.message}")
            for kind in kinds
            for problem in check(_KEYS[kind], configs[kind])
        }
        sides = {"target": pair.target} | ({"source": pair.source} if len(kinds) > 1 else {})
        for side, alias in sides.items():
            if not configs["heartbeat"].get(f"{side}.cluster.bootstrap.servers"):
                key = f"{alias}.bootstrap.servers"
                found[key] = Problem(key, f"{pair}: {key} is missing. Say how to reach {alias}.")
        return list(found.values())


def _clusters(setting: str | None) -> tuple[str, ...]:
    aliases = split_list(setting or "")
    if not aliases:
        state = "missing" if setting is None else "empty"
        raise ConfigError(
            f"The key clusters is {state}.",
            "Name the clusters, as in clusters=A,B, and for each its A.bootstrap.servers.",
        )
    for alias in aliases:
        if not alias or not all(c.isascii() and (c.isalnum() or c in "._-") for c in alias):
            raise ConfigError(
                f"clusters has the alias {alias!r}, which cannot be part of a topic name.",
                "Use letters, digits, '.', '_' and '-'.",
            )
        if aliases.count(alias) > 1:
            raise ConfigError(f"clusters names {alias} twice.", "Give each cluster its own alias.")
    return aliases


def _share(found: dict[str, str], level: Mapping[str, str]) -> None:
    for name, value in level.items():
        for kind in KINDS:
            found.setdefault(f"{kind}.{name}", value)


def _starting(properties: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(prefixes)}
