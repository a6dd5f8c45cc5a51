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
from sparkmirror.config.keys import Problem, split_list
from sparkmirror.config.keys_clients import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, STANDALONE_KEYS
from sparkmirror.config.permits import LOGINS_ALLOWED
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import ConfigError

_BOOTSTRAP = "bootstrap.servers"
_TARGET = f"target.cluster.{_BOOTSTRAP}"
_PROTOCOL = "security.protocol"
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


def data_producer(config: WorkerConfig, props: Mapping[str, str]) -> dict[str, str]:
    """Properties of the client that writes the copies.

    A Java worker writes them to its own cluster unless `producer.override.bootstrap.servers` says
    otherwise, which is a trap if that cluster is the source. Here `target.cluster.*` comes first:
    it says how to reach the target, and what the worker's file says of its own cluster is left out.
    Where the override names servers of another cluster, the worker's login (`sasl.*`) is: whoever
    may send a config must not have it sent to servers of his own.
    """
    own, override = worker_client(config, "producer"), with_prefix(props, "producer.override.")
    if _BOOTSTRAP not in override and _TARGET in props:
        kept = {name: value for name, value in own.items() if not is_client_level(name)}
        target = with_prefix(props, "target.cluster.")
        reached = {name: value for name, value in target.items() if is_client_level(name)}
        return kept | reached | override
    problem = login_problem(config, props)
    if problem is not None:
        raise ConfigError(problem.message)
    if _foreign_servers(config, own, override):
        own = {name: value for name, value in own.items() if not name.startswith("sasl.")}
    return own | override


def login_problem(config: WorkerConfig, props: Mapping[str, str]) -> Problem | None:
    """What is wrong where a connector names another cluster's servers, and counts on the worker's login for them."""
    own, override = worker_client(config, "producer"), with_prefix(props, "producer.override.")
    foreign = _foreign_servers(config, own, override)
    logs_in = own.get(_PROTOCOL, "").upper().startswith("SASL_")
    if not foreign or not logs_in or _PROTOCOL in override:
        return None
    return Problem(
        f"producer.override.{_BOOTSTRAP}",
        f"producer.override.{_BOOTSTRAP} names {foreign[0]}, which is no server of the worker's own cluster: the login that "
        "stands under producer. in the worker's file is not sent there. Set producer.override.security.protocol, and what that "
        f"cluster asks for; or who owns the worker lists the server in {LOGINS_ALLOWED} of the worker's file.",
    )


def _foreign_servers(
    config: WorkerConfig, own: Mapping[str, str], override: Mapping[str, str]
) -> list[str]:
    """The servers of an override that are not the worker's own, nor such that its login may be sent to."""
    known = {*split_list(own[_BOOTSTRAP]), *split_list(config.bootstrap)}
    named = split_list(override.get(_BOOTSTRAP, ""))
    return [
        server
        for server in named
        if server not in known and not config.permits.may_get_login(server)
    ]


def _top_level(config: WorkerConfig) -> dict[str, str]:
    return {
        name: value
        for name, value in config.properties.items()
        if name not in _WORKER_ONLY and not name.startswith((*_PREFIXES, *_WORKER_FAMILIES))
    }
