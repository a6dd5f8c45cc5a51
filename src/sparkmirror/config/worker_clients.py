"""How a Connect worker builds its clients: worker and connector configs come in, client properties
go out.

Three layers, later wins: the worker's address, what the worker file says for this kind of client
(`producer.*`), what the connector overrides (`producer.override.*`). Settings at the top level of
the file are those of the worker's own clients, and of admin clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sparkmirror.config.clients import KINDS, Kind, is_client_level, with_prefix
from sparkmirror.config.keys_clients import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, STANDALONE_KEYS
from sparkmirror.config.worker import WorkerConfig

_BOOTSTRAP = "bootstrap.servers"
_TARGET = f"target.cluster.{_BOOTSTRAP}"
_PREFIXES = tuple(f"{kind}." for kind in KINDS)
_CLIENT_NAMES = frozenset(key.name for key in (*PRODUCER_KEYS, *CONSUMER_KEYS, *ADMIN_KEYS))
_WORKER_ONLY = frozenset(
    key.name for key in (*DISTRIBUTED_KEYS, *STANDALONE_KEYS) if key.name not in _CLIENT_NAMES
)
_WORKER_FAMILIES = (
    "listeners.https.",
    "admin.listeners.https.",
    "config.providers.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "spark.",
    "mirror.",
)


def worker_client(config: WorkerConfig, kind: Literal["worker"] | Kind) -> dict[str, str]:
    """Properties of the worker's own clients ("worker": group, storage topics), or what connectors'
    clients of a kind begin with."""
    base = {_BOOTSTRAP: config.bootstrap}
    if kind in ("worker", "admin"):
        base |= _top_level(config)
    return base if kind == "worker" else base | with_prefix(config.properties, f"{kind}.")


def connector_client(config: WorkerConfig, kind: Kind, props: Mapping[str, str]) -> dict[str, str]:
    """Properties of the client that the framework makes for a connector."""
    return worker_client(config, kind) | with_prefix(props, f"{kind}.override.")


def data_producer(config: WorkerConfig, props: Mapping[str, str]) -> dict[str, str]:
    """Properties of the client that writes the copies.

    A Java worker writes them to its own cluster unless `producer.override.bootstrap.servers` says
    otherwise, which is a trap if that cluster is the source. Here `target.cluster.*` comes first:
    it says how to reach the target, and what the worker's file says of its own cluster is left out.
    """
    found = connector_client(config, "producer", props)
    if _TARGET not in props or f"producer.override.{_BOOTSTRAP}" in props:
        return found
    target = with_prefix(props, "target.cluster.")
    reached = {name: value for name, value in target.items() if is_client_level(name)}
    kept = {name: value for name, value in found.items() if not is_client_level(name)}
    return kept | reached | with_prefix(props, "producer.override.")


def _top_level(config: WorkerConfig) -> dict[str, str]:
    return {
        name: value
        for name, value in config.properties.items()
        if name not in _WORKER_ONLY and not name.startswith((*_PREFIXES, *_WORKER_FAMILIES))
    }
