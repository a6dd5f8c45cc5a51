"""Properties that reach nothing: the keys of a file in, one finding for each that no part reads out, with what may be meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from sparkmirror.config.clients import KINDS, is_client_level
from sparkmirror.config.definitions import (
    CHECKPOINT_KEYS,
    HEARTBEAT_KEYS,
    SOURCE_CONNECTOR_KEYS,
    SOURCE_KEYS,
    Key,
)
from sparkmirror.config.flow_keys import unused_keys
from sparkmirror.config.flows import WORKER_PREFIXES
from sparkmirror.config.keys_clients import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, RESTART_KEYS
from sparkmirror.preflight.findings import Finding, note, warning

_CHECK = "keys"
_CLIENT_KEYS: dict[str, frozenset[str]] = {
    "producer": frozenset(key.name for key in PRODUCER_KEYS),
    "consumer": frozenset(key.name for key in CONSUMER_KEYS),
    "admin": frozenset(key.name for key in ADMIN_KEYS),
}
_ALL_CLIENT_KEYS = frozenset().union(*_CLIENT_KEYS.values())
_READ_BY_ALL = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "request.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "metadata.max.age.ms",
        "send.buffer.bytes",
        "receive.buffer.bytes",
        "security.protocol",
    }
)
_READ: dict[str, frozenset[str]] = {
    "producer": _READ_BY_ALL | {"max.in.flight.requests.per.connection"},
    "consumer": _READ_BY_ALL
    | {
        "auto.offset.reset",
        "client.rack",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
    },
    "admin": _READ_BY_ALL,
}
_CONNECTOR_KEYS: dict[str, tuple[Key, ...]] = {
    "MirrorSourceConnector": SOURCE_KEYS,
    "MirrorCheckpointConnector": CHECKPOINT_KEYS,
    "MirrorHeartbeatConnector": HEARTBEAT_KEYS,
}
_FREE_PREFIXES = (
    "transforms.",
    "predicates.",
    "topic.creation.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.providers.",
    "replication.policy.",
)
_ANOTHER_ARROW = re.compile(r"([A-Za-z0-9._-]+?)\s*(?:-+>+|=+>|>|→|-)\s*([A-Za-z0-9_-]+)\.(.+)")
_WORKER_NAMES = frozenset(key.name for key in DISTRIBUTED_KEYS)


# -- mm2.properties -------------------------------------------------------------------------------


def mm2_findings(properties: Mapping[str, str], clusters: Sequence[str]) -> list[Finding]:
    """Of the file of dedicated mode."""
    found: list[Finding] = []
    told: set[str] = set()
    for key in properties:
        finding = (
            _wrong_arrow(key, clusters) or _of_cluster(key, clusters) or _of_flow(key, clusters)
        )
        if finding is not None:
            found.append(finding)
            told.add(key)
    for line in unused_keys(properties, clusters, WORKER_PREFIXES):
        key = line.partition(" ")[0]
        if key not in told:
            found.append(warning(_CHECK, line))
    return found


def _wrong_arrow(key: str, clusters: Sequence[str]) -> Finding | None:
    """`A>B.enabled`, `A-->B.topics`: keys that were to name a flow."""
    match = _ANOTHER_ARROW.fullmatch(key)
    if match is None or f"{match[1]}->{match[2]}." in key:
        return None
    source, target, rest = match.groups()
    if source not in clusters or target not in clusters:
        return None
    return warning(
        _CHECK, f"{key} is ignored: it names no flow.", f"Write {source}->{target}.{rest}."
    )


def _of_cluster(key: str, clusters: Sequence[str]) -> Finding | None:
    """`A.max.poll.records`: keys under a cluster's alias, of which only those of clients and workers get anywhere."""
    fitting = [alias for alias in clusters if key.startswith(f"{alias}.")]
    if not fitting or "->" in key:
        return None
    alias = max(fitting, key=len)
    rest = key.removeprefix(f"{alias}.")
    kind, _, name = rest.partition(".")
    if kind in KINDS:
        return _client_finding(key, kind, name, f"{alias}.{kind}.")
    if is_client_level(rest) or rest in _READ_BY_ALL or _is_worker_key(rest):
        return None
    owners = [kind for kind in KINDS if rest in _CLIENT_KEYS[kind]]
    if owners:
        return warning(
            _CHECK,
            f"{key} reaches no client: directly under an alias only bootstrap.servers, security.protocol, ssl.* and sasl.* "
            f"do.",
            f"Write {' or '.join(f'{alias}.{owner}.{rest}' for owner in owners)}.",
        )
    if rest in _names(SOURCE_KEYS) | _names(CHECKPOINT_KEYS) | _names(HEARTBEAT_KEYS):
        other = next((one for one in clusters if one != alias), "B")
        return warning(
            _CHECK,
            f"{key} reaches no connector: it is a setting of a flow, not of a cluster.",
            f"Write {alias}->{other}.{rest}, or {rest} for all flows.",
        )
    known = [*_READ_BY_ALL, *_WORKER_NAMES, *(f"{k}.{n}" for k in KINDS for n in _CLIENT_KEYS[k])]
    meant = _meant(rest, known, f"{alias}.")
    return warning(_CHECK, f"{key} is ignored: clusters have no such key.{meant}")


def _of_flow(key: str, clusters: Sequence[str]) -> Finding | None:
    """Clients' keys under a flow: `A->B.consumer.max.poll.records`."""
    flow = next(
        (f"{s}->{t}" for s in clusters for t in clusters if key.startswith(f"{s}->{t}.")), None
    )
    if flow is None:
        return None
    return _connector_client(key, key.removeprefix(f"{flow}."), f"{flow}.")


def _is_worker_key(name: str) -> bool:
    return name in _WORKER_NAMES or name.startswith(
        (*WORKER_PREFIXES, "inter.worker.", "listeners.", "admin.listeners.", "metrics.", "errors.")
    )


# -- connectors -----------------------------------------------------------------------------------


def connector_findings(props: Mapping[str, str], class_name: str) -> list[Finding]:
    """Of a connector's config."""
    keys = (*_CONNECTOR_KEYS[class_name], *SOURCE_CONNECTOR_KEYS, *RESTART_KEYS)
    known = _names(keys)
    found = []
    for key in props:
        if key in known or is_client_level(key) or key.startswith(_FREE_PREFIXES):
            continue
        finding = _connector_client(key, key, "")
        if finding is None and not _is_client_key(key):
            finding = _unknown(key, class_name, known)
        if finding is not None:
            found.append(finding)
    return found


def _unknown(key: str, class_name: str, known: Iterable[str]) -> Finding:
    others = [name for name, keys in _CONNECTOR_KEYS.items() if key in _names(keys)]
    if others:
        return note(
            _CHECK, f"{key} is ignored: it is a setting of {others[0]}, not of {class_name}."
        )
    if key == "clusters":
        return note(_CHECK, "clusters has no effect in a connector, only in an mm2.properties.")
    if key in _WORKER_NAMES:
        return warning(
            _CHECK,
            f"{key} is ignored: it is a setting of the worker.",
            "Write it in the worker's file.",
        )
    return warning(_CHECK, f"{key} is ignored: {class_name} has no such key.{_meant(key, known)}")


def _is_client_key(key: str) -> bool:
    prefixes = [f"{kind}." for kind in KINDS]
    prefixes += [f"{side}.{part}." for side in ("source", "target") for part in (*KINDS, "cluster")]
    return key.startswith(tuple(prefixes))


def _connector_client(key: str, rest: str, prefix: str) -> Finding | None:
    """What a key of a connector's clients is good for; `rest` is the key without the flow's `prefix`."""
    for side in ("source", "target"):
        name = rest.removeprefix(f"{side}.cluster.")
        if name != rest:
            return None if name == "alias" else _cluster_key(key, name, side, prefix)
    for kind in KINDS:
        for start in (f"{kind}.override.", f"source.{kind}.", f"target.{kind}.", f"{kind}."):
            name = rest.removeprefix(start)
            if name == rest:
                continue
            if (
                start in ("producer.", "target.producer.")
                and not prefix
                and name in _READ["producer"]
            ):
                return note(
                    _CHECK,
                    f"{key} does not reach the client that writes the records (in MirrorMaker 2: only that of offset syncs).",
                    f"Write producer.override.{name}.",
                )
            return _client_finding(key, kind, name, f"{prefix}{start}")
    return None


def _cluster_key(key: str, name: str, side: str, prefix: str) -> Finding | None:
    if is_client_level(name):
        return None
    owners = [kind for kind in KINDS if name in _CLIENT_KEYS[kind]]
    message = f"{key} reaches no client: of {side}.cluster.* only bootstrap.servers, security.protocol, ssl.* and sasl.* do."
    if owners:
        return warning(
            _CHECK, message, f"Write {' or '.join(f'{prefix}{side}.{o}.{name}' for o in owners)}."
        )
    known = [n for n in _ALL_CLIENT_KEYS if is_client_level(n)] + ["alias"]
    return warning(_CHECK, message + _meant(name, known, f"{prefix}{side}.cluster."))


def _client_finding(key: str, kind: str, name: str, prefix: str) -> Finding | None:
    """A key of a client: read here, known but without effect here, or not known at all."""
    if name in _READ[kind] or is_client_level(name):
        return None
    if name in _CLIENT_KEYS[kind]:
        return note(
            _CHECK,
            f"{key} has no effect here: batches are copied as they are, by clients of our own.",
        )
    others = [other for other in KINDS if other != kind and name in _CLIENT_KEYS[other]]
    if others:
        return warning(
            _CHECK, f"{key} is ignored: {name} is a setting of {others[0]}s, not of {kind}s."
        )
    return warning(
        _CHECK,
        f"{key} is ignored: {kind}s have no such setting.{_meant(name, _CLIENT_KEYS[kind], prefix)}",
    )


def _names(keys: Iterable[Key]) -> frozenset[str]:
    return frozenset(name for key in keys for name in (key.name, *key.aliases))


def _meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" Did you mean {prefix}{close[0]}?" if close else ""
