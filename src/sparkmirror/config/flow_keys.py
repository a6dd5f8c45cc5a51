"""What the keys of an `mm2.properties` file are about: keys and aliases come in, complaints go out.

Errors are for keys that can only be mistakes; keys that merely reach nothing get a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from sparkmirror.config.clients import KINDS, is_client_level
from sparkmirror.config.definitions import SOURCE_CONNECTOR_KEYS, connector_key_names
from sparkmirror.config.keys import Problem

_OWN_PREFIXES = ("spark.", "mirror.")
_FILE_KEYS = frozenset(
    {
        "clusters",
        "dedicated.mode.enable.internal.rest",
        "config.providers",
        "listeners",
        "rest.advertised.host.name",
        "rest.advertised.port",
        "rest.advertised.listener",
        "access.control.allow.origin",
        "access.control.allow.methods",
        "response.http.headers.config",
        "admin.listeners",
        "rest.extension.classes",
    }
)
_FILE_PREFIXES = ("config.providers.", "listeners.https.", "admin.listeners.https.")
_CLIENT_PREFIXES = tuple(f"{kind}." for kind in KINDS)
_FLOW_PREFIXES = (
    *_CLIENT_PREFIXES,
    *(f"{side}.{part}." for side in ("source", "target") for part in (*KINDS, "cluster")),
    "transforms.",
    "predicates.",
    "topic.creation.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "replication.policy.",
    "config.providers.",
)
_REMOVED = frozenset(
    {"use.incremental.alter.configs", "add.source.alias.to.metrics", "auto.include.jmx.reporter"}
)
_WORKER_KEYS = frozenset(
    {
        "group.id",
        "client.id",
        "offset.flush.interval.ms",
        "offset.flush.timeout.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "rebalance.timeout.ms",
        "scheduled.rebalance.max.delay.ms",
        "connect.protocol",
        "exactly.once.source.support",
        "topic.tracking.enable",
        "topic.tracking.allow.reset",
        "topic.creation.enable",
        "plugin.path",
        "plugin.discovery",
        "connector.client.config.override.policy",
        "metrics.sample.window.ms",
        "metrics.num.samples",
        "metrics.recording.level",
        "task.shutdown.graceful.timeout.ms",
        "worker.sync.timeout.ms",
        "worker.unsync.backoff.ms",
    }
)
_WORKER_KEY_PREFIXES = ("inter.worker.", "offset.storage.", "config.storage.", "status.storage.")
_CONNECTOR_NAMES = connector_key_names()
_SOURCE_CONNECTOR_NAMES = frozenset(key.name for key in SOURCE_CONNECTOR_KEYS)


def nearest(name: str, known: Iterable[str]) -> str:
    """A question to append: which known name is close to `name`; empty if none is."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""


def flow_problems(properties: Mapping[str, str], clusters: Sequence[str]) -> list[Problem]:
    """Keys that name a flow which cannot be: unknown clusters, one cluster twice, stray blanks."""
    problems = []
    for key, value in properties.items():
        message = _blank_in_flow(key, value) or _wrong_flow(key, clusters)
        if message:
            problems.append(Problem(key, message))
    return problems


def split_flow(key: str, clusters: Sequence[str]) -> tuple[str, str, str]:
    """Source, target and the rest of a flow key; aliases may have dots, so known ones go first."""
    source, _, rest = key.partition("->")
    fitting = [alias for alias in clusters if rest == alias or rest.startswith(f"{alias}.")]
    target = max(fitting, key=len) if fitting else rest.split(".")[0]
    return source, target, rest[len(target) :].removeprefix(".")


def _blank_in_flow(key: str, value: str) -> str | None:
    """In a properties file a blank ends the key, so `A -> B.enabled = true` sets the key `A`."""
    if value.startswith("->") or key.endswith("->"):
        # What follows the equals sign may be a secret.
        line = f"{key} {value.partition('=')[0].rstrip()}"
        return f"The line '{line}…' has a blank in its flow. Write A->B without blanks."
    return None


def _wrong_flow(key: str, clusters: Sequence[str]) -> str | None:
    if "->" not in key:
        return None
    source, target, rest = split_flow(key, clusters)
    for alias in (source, target):
        if alias not in clusters:
            return (
                f"{key} names the cluster {alias}, which is not among clusters "
                f"({', '.join(clusters)}).{nearest(alias, clusters)}"
            )
    if source == target:
        return f"{key} is a flow of {source} to itself. Name two different clusters."
    if not rest:
        return f"{key} sets nothing. Add what is meant, as in {key}.enabled."
    return None


def unused_keys(
    properties: Mapping[str, str], clusters: Sequence[str], worker_prefixes: tuple[str, ...]
) -> list[str]:
    """One line for each key that reaches nothing."""
    lines = []
    for key in properties:
        if "->" in key:
            _, target, rest = split_flow(key, clusters)
            reason = _unused_in_flow(rest, target)
        elif key.startswith(tuple(f"{alias}." for alias in clusters)):
            reason = None
        else:
            reason = _unused_at_top(key, clusters, worker_prefixes)
        if reason:
            lines.append(f"{key} is ignored: {reason}")
    return lines


def _unused_at_top(
    key: str, clusters: Sequence[str], worker_prefixes: tuple[str, ...]
) -> str | None:
    if (
        key in _FILE_KEYS
        or key in _CONNECTOR_NAMES
        or is_client_level(key)
        or key.startswith((*_OWN_PREFIXES, *_FILE_PREFIXES, *worker_prefixes))
    ):
        return None
    flow = f"{clusters[0]}->{clusters[-1]}"
    if key.startswith(_CLIENT_PREFIXES):
        return (
            f"client settings count for a cluster ({clusters[0]}.{key}) or a flow ({flow}.{key})."
        )
    if _is_worker_key(key):
        return f"settings of a worker count for its target cluster. Write {clusters[-1]}.{key}."
    if key in _SOURCE_CONNECTOR_NAMES:
        return f"it counts for a flow only. Write {flow}.{key}."
    if key in _REMOVED:
        return "Kafka 4.0 has removed it."
    prefix, _, rest = key.partition(".")
    if is_client_level(rest) or rest.startswith(_CLIENT_PREFIXES):
        return f"{prefix} is not among clusters.{nearest(prefix, clusters)}"
    return f"no such key.{nearest(key, _known_names())}"


def _unused_in_flow(rest: str, target: str) -> str | None:
    if rest in _CONNECTOR_NAMES | _SOURCE_CONNECTOR_NAMES or rest.startswith(_FLOW_PREFIXES):
        return None
    if rest.startswith(_OWN_PREFIXES):
        return "it counts for the whole process. Write it without the flow."
    if _is_worker_key(rest):
        return f"flow settings reach connectors, not the worker. Write {target}.{rest}."
    if rest in _REMOVED:
        return "Kafka 4.0 has removed it."
    return f"no connector knows it.{nearest(rest, _known_names())}"


def _is_worker_key(key: str) -> bool:
    return key in _WORKER_KEYS or key.startswith(_WORKER_KEY_PREFIXES)


def _known_names() -> frozenset[str]:
    return _CONNECTOR_NAMES | _SOURCE_CONNECTOR_NAMES | _FILE_KEYS
